"""The batch schedulers in the papers' settings and on a window of the real Philly trace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from builders.paths import TRACES
from skedge.core.model.scenario import Scenario
from skedge.core.registry import make_policy
from skedge.scenario.file import default_scenario, scenario_from_dict, shipped
from skedge.simulate import run
from skedge.testing import check_policy

TRACES = Path(os.environ.get("SKEDGE_TRACES", TRACES)) / "philly"
"""Where the real traces are, if they are there."""

POLICIES = ("batch", "batchsche")


def setting(kind: str, servers: int, jobs: int, span: str) -> Scenario:
    """A shipped setting, of another size."""
    content = yaml.safe_load(shipped(kind).read_text(encoding="utf-8"))
    content["cluster"]["draw"]["servers"] = servers
    content["workload"]["synthetic"] = {"jobs": jobs, "span": span}
    return scenario_from_dict(content, kind, Path())


def philly_window(jobs: int) -> Scenario:
    """Real arrivals, GPUs and durations, on machines of the real list for a load of 1.8, and the cloud."""
    trace = {"path": "bench_philly_2017-10-02_11-05.csv.gz", "format": "philly-csv", "first": jobs}
    draw = {"load": 1.8, "machines": "cluster_machine_list"}
    content = {"name": "philly", "cluster": {"draw": draw}, "workload": {"trace": trace}}
    return scenario_from_dict(content, "philly", TRACES)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ["s1", "s2"])
def test_the_contract_holds_in_the_papers_settings(kind: str, policy: str) -> None:
    """check_policy, which verifies every run."""
    check_policy(lambda: make_policy(policy), [default_scenario(kind)])


@pytest.mark.parametrize("policy", [*POLICIES, "batch:literal_cost_d=true", "batch:cloud_capacity=0"])
def test_s2_at_300_servers_and_500_jobs_keeps_every_rule(policy: str) -> None:
    """Every job is complete; how long it takes is in ``benchmarks/settings.py``."""
    result = run(setting("s2", 300, 500, "200h"), policy)
    assert result.verify() == []
    assert result.metrics["finished"] == 500


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")
def test_the_contract_holds_on_a_window_of_the_real_trace(policy: str) -> None:
    """600 jobs of Philly in continuous time, from the 1st of October 2017 on."""
    made = philly_window(600)
    assert len(made.jobs) == 600
    check_policy(lambda: make_policy(policy), [made])


def test_s2_is_the_setting_of_she_et_al() -> None:
    """Sec. VI: 200 edge servers and a cloud, 8 to 10 types, the ranges of E, D, M and the delays."""
    made = default_scenario("s2")
    f, cluster = made.jobs.frame, made.cluster
    assert (len(f), len(cluster.servers), cluster.cloud) == (200, 201, 200)
    assert 8 <= min(len(cluster.worker_types), len(cluster.ps_types)) <= 10
    assert (made.physics.slotted, made.physics.colocation) == (True, "one_server")
    assert 199 <= f["arrival_s"].max() / 3600 <= 200
    for column, low, high in (("epochs", 50, 100), ("chunks", 20, 50), ("minibatches", 10, 50)):
        assert low <= f[column].min() < low + 5
        assert high - 5 < f[column].max() <= high
    assert f.select("upload_edge_lo_s", "upload_edge_hi_s", "upload_cloud_lo_s", "upload_cloud_hi_s").row(0) == tuple(
        3600.0 * slots for slots in (1, 4, 10, 40)
    )
