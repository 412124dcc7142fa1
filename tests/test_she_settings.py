"""The batch schedulers in the papers' settings and on a window of the real Philly trace."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import yaml

from skedge.core.policy import make_policy
from skedge.core.scenario import Scenario
from skedge.run import run
from skedge.scenario_file import default_scenario, scenario_from_dict, shipped
from skedge.testing import check_policy

TRACES = Path(os.environ.get("SKEDGE_TRACES", Path(__file__).parents[2] / "shared" / "traces")) / "philly"
"""Where the real traces are, if they are there."""

POLICIES = ("batch", "batchsche")
CPU_LIMIT_S = 60


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
def test_s2_at_300_servers_and_500_jobs_takes_less_than_a_minute(policy: str) -> None:
    """CPU time of this process, simulation and verification; every job is complete."""
    made = setting("s2", 300, 500, "200h")
    began = time.process_time()
    result = run(made, policy)
    assert result.verify() == []
    assert time.process_time() - began < CPU_LIMIT_S
    assert result.metrics["finished"] == 500


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")
def test_the_contract_holds_on_a_window_of_the_real_trace(policy: str) -> None:
    """1,500 jobs of Philly in continuous time: the first two days of October 2017."""
    made = philly_window(1500)
    assert len(made.jobs) == 1500
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
