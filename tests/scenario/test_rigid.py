"""Rigid jobs larger than the cluster: all policies see the same jobs, unless the workload says that it is elastic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skedge.cli.console import source_text
from skedge.comparison.compare import compare
from skedge.core.errors import ScenarioError
from skedge.core.model.scenario import Scenario
from skedge.core.model.wording import ELASTIC
from skedge.scenario.file import scenario_from_dict
from skedge.scenario.rigid import LARGER
from skedge.simulate import run

POLICIES = ["aonline", "srtf", "fifo", "tiresias", "drf", "preemptive", "batch", "batchsche"]

ROWS = "job,submit,duration,gpus\nsmall,0,600,2\nlarge,60,600,8\nfits,120,600,4\n"
"""The second asks for more GPUs than there are."""


def converted(folder: Path, *, cloud: bool = False, gpus: int = 4, **more: Any) -> Scenario:
    """The rows on one server of `gpus` GPUs."""
    (folder / "jobs.csv").write_text(ROWS)
    servers: list[dict[str, Any]] = [{"id": "n", "workers": {"gpu": gpus}, "ps": {"cpu": 8}}]
    servers += [{"id": "cloud", "kind": "cloud"}] if cloud else []
    names = {"id": "job", "arrival": "submit", "duration": "duration", "gpus": "gpus"}
    workload = {"trace": {"path": "jobs.csv", "map": names}, "make": "rigid", **more}
    return scenario_from_dict({"cluster": {"servers": servers}, "workload": workload}, "rigid", folder)


def finished(scenario: Scenario, policy: str) -> set[str]:
    """Ids of the jobs that finish."""
    jobs = run(scenario, policy).jobs
    return set(jobs.filter(jobs["state"] == "finished")["id"])


@pytest.mark.parametrize("policy", POLICIES)
def test_all_policies_finish_the_same_jobs(policy: str, tmp_path: Path) -> None:
    assert finished(converted(tmp_path), policy) == {"small", "fits"}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cloud_takes_what_the_edge_cannot_hold(policy: str, tmp_path: Path) -> None:
    assert finished(converted(tmp_path, cloud=True), policy) == {"small", "large", "fits"}


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    """0.333 + 0.667 GPU-hours of 2.333 are left."""
    source = converted(tmp_path).source
    assert (source["jobs"], source["skipped"][LARGER]) == (2, 1)
    assert source["gpu_hours"] == {"trace": 2.333, "jobs": 1.0}
    assert f"1 {LARGER}" in source_text(source)
    assert LARGER not in converted(tmp_path, gpus=8).source["skipped"]


def test_an_elastic_workload_keeps_them_and_says_so(tmp_path: Path) -> None:
    """A_online trains its chunks one after another; FIFO rejects it."""
    elastic = converted(tmp_path, elastic=True)
    assert finished(elastic, "aonline") == {"small", "large", "fits"}
    assert finished(elastic, "fifo") == {"small", "fits"}
    assert ELASTIC in source_text(elastic.source)
    assert ELASTIC in compare(elastic, ["aonline", "fifo"], seeds=[0], processes=1).texts
    assert ELASTIC not in compare(converted(tmp_path), ["aonline", "fifo"], seeds=[0], processes=1).texts


def test_where_no_job_is_left_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cluster: every job asks for 2 workers or more"):
        converted(tmp_path, gpus=1)


def test_elastic_goes_with_rigid_jobs(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="elastic goes with make: rigid"):
        converted(tmp_path, make="divisible", elastic=True)
