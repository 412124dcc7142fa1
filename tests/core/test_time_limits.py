"""Limits of a job's time (M43): cases worked out by hand, and every policy on random instances.

`tests/policies/test_crossing.py` crosses them with failures, clouds, storage, estimates and batches.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest

from builders.gang_policies import random_scenarios
from builders.resource_scenarios import resource_scenario
from builders.sites import POLICIES as SITE_POLICIES
from skedge.core.errors import ScenarioError
from skedge.core.events import EndAt
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.sharing import Sharing, Tenant
from skedge.core.model.time import SECOND
from skedge.core.model.time_limits import MAX_RUN_TIME, MAX_WAIT
from skedge.loops.which import loop_for
from skedge.prepare import prepare_policy
from skedge.recorded_run import Run
from skedge.scenario.file import load_scenario
from skedge.scenario.save import save_scenario
from skedge.sim.failures import world_of
from skedge.sim.what_if import Present
from skedge.simulate import in_run_folder, run
from skedge.testing import site_scenario


def job(name: str, arrival_s: float = 0.0, **fields: object) -> Job:
    """A job of one chunk that trains for 10 s, without communication."""
    plain = {"epochs": 1, "chunks": 1, "minibatches": 10, "minibatch_s": 1.0, "worker_type": "gpu", "ps_type": "cpu"}
    return Job(name, arrival_s, **{**plain, **fields})  # type: ignore[arg-type]


def scenario(
    *jobs: Job, workers: int = 1, sharing: Sharing | None = None, cloud: bool = False, **physics: object
) -> Scenario:
    """Jobs on a server with so many workers."""
    servers = [
        Server("e0", capacity={"worker:gpu": workers, "ps:cpu": workers + 2}),
        *[Server("cloud", "cloud")] * cloud,
    ]
    cluster = Cluster(servers, sharing=sharing)
    table, _ = job_table(list(jobs))
    return Scenario(cluster, Jobs(table, cluster), Physics(**physics), 0, "limits")  # type: ignore[arg-type]


def outcome(done: Run) -> dict[str, tuple[str, float | None]]:
    """State of each job, and when it completed or failed [s]."""
    failed = {row["job"]: row["time"] for row in done.schedule.decisions.filter(pl.col("verb") == "fail").to_dicts()}
    ended = {
        row["id"]: row["completion"] if row["completion"] is not None else failed.get(row["job"])
        for row in done.jobs.to_dicts()
    }
    states = dict(done.jobs.select("id", "state").iter_rows())
    assert done.verify() == []
    return {name: (states[name], None if end is None else end / SECOND) for name, end in ended.items()}


POLICIES = ["fifo", "srtf", "tiresias", "drf", "preemptive", "aonline"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_waits_for_too_long_fails(policy: str) -> None:
    """One worker, three jobs of 10 s at 0, 1 and 2 s: the third would begin at 20 s, and may wait until 17 s."""
    done = run(scenario(job("a"), job("b", 1), job("c", 2, max_wait_s=15.0)), policy)
    assert outcome(done) == {"a": ("finished", 10), "b": ("finished", 20), "c": ("failed", 17)}
    assert done.jobs["reason"][2] == "its time limit: it has waited for 15 s to begin, as long as max_wait_s allows"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_runs_for_too_long_fails_and_its_worker_is_free(policy: str) -> None:
    """The first job may run for 4 s of its 10: the second begins at 4 s."""
    done = run(scenario(job("a", max_run_time_s=4.0), job("b", 1)), policy)
    assert outcome(done) == {"a": ("failed", 4), "b": ("finished", 14)}
    runs = done.schedule.runs.filter(pl.col("job") == 0)
    assert runs["work"].sum() == pytest.approx(4)
    assert done.metrics["failed"] == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_a_limit_reached_at_the_end_is_kept(policy: str) -> None:
    """A job that completes at the very time completes; one that would begin at the very time fails."""
    done = run(scenario(job("a", max_run_time_s=10.0), job("b", 1, max_wait_s=9.0)), policy)
    assert outcome(done) == {"a": ("finished", 10), "b": ("failed", 10)}


def test_time_without_workers_does_not_count_as_run() -> None:
    """A job of 10 s that may run for 8 s is displaced at 2 s by one of 3 s: it has run for 8 s at 11 s."""
    done = run(scenario(job("a", max_run_time_s=8.0), job("b", 2, minibatches=3)), "preemptive")
    assert outcome(done) == {"a": ("failed", 11), "b": ("finished", 5)}


def test_a_waiting_job_that_has_run_no_longer_reaches_its_longest_wait() -> None:
    """It begins at once and is displaced for longer than `max_wait_s`."""
    done = run(scenario(job("a", max_wait_s=1.0), job("b", 2, minibatches=3)), "preemptive")
    assert outcome(done) == {"a": ("finished", 13), "b": ("finished", 5)}


def test_the_limit_of_a_tenant_is_that_of_its_jobs_unless_theirs_is_lower() -> None:
    """Red jobs may run for 4 s; one of them for 2 s, another for 100 s, which its tenant does not allow."""
    sharing = Sharing({"red": Tenant(max_run_time_s=4.0, max_wait_s=1000.0), "blue": Tenant()})
    jobs = [
        job("a", tenant="red"), job("b", tenant="red", max_run_time_s=2.0),
        job("c", tenant="red", max_run_time_s=100.0),
        job("d", tenant="blue"),
    ]  # fmt: skip
    states = outcome(run(scenario(*jobs, workers=4, sharing=sharing), "fifo"))
    assert states == {"a": ("failed", 4), "b": ("failed", 2), "c": ("failed", 4), "d": ("finished", 10)}


def test_in_slotted_time_limits_end_at_boundaries_between_slots() -> None:
    """Slots of 5 s: a limit of 7 s is reached at 10 s, and the wait of a job of 1 s begins at 5 s, when it is seen."""
    jobs = [job("a", max_run_time_s=7.0, minibatches=40), job("b", 1, max_wait_s=2.0)]
    states = outcome(run(scenario(*jobs, slotted=True, slot=5 * SECOND), "fifo"))
    assert states == {"a": ("failed", 10), "b": ("failed", 10)}


def test_chunks_in_the_cloud_end_with_their_job() -> None:
    """A job whose chunk is in the cloud may run for 4 s there."""
    sent = job("a", max_run_time_s=4.0, upload_cloud_s=(3.0, 3.0), upload_edge_s=(900.0, 900.0))
    done = run(scenario(sent, cloud=True), "aonline")
    assert outcome(done) == {"a": ("failed", 7)}
    assert done.schedule.runs.select("start", "end").rows() == [(3 * SECOND, 7 * SECOND)]


def test_a_chunk_in_service_stays_in_service_when_one_that_waits_behind_it_leaves() -> None:
    """A job that waits leaves the lane: the one in service goes on, and pays its checkpoint once when displaced."""
    jobs = [job("a", minibatches=20), job("b", 1, minibatches=40, max_wait_s=4.0), job("c", 5, minibatches=3)]
    done = run(scenario(*jobs, checkpoint_overhead=2 * SECOND), "preemptive")
    assert outcome(done) == {"a": ("finished", 25), "b": ("failed", 5), "c": ("finished", 8)}


def test_chunks_of_bounded_lag_leave_their_lanes() -> None:
    """Two chunks that wait for each other, one lane each; afterwards the lanes serve another job."""
    jobs = [job("a", chunks=2, epochs=3, max_lag=1, max_run_time_s=25.0), job("b", 1, chunks=2)]
    states = outcome(run(scenario(*jobs, workers=2), "preemptive"))
    assert states["a"][0] == "failed"
    assert states["b"][0] == "finished"


def test_a_forecast_ends_jobs_at_their_limits() -> None:
    """At 2 s: the first job ends at 4 s, so the second completes at 14 s, and the first never does."""
    made = prepare_policy("preemptive", limited := scenario(job("a", max_run_time_s=4.0), job("b", 1)))
    kernel = Kernel(limited, made)
    world = world_of(kernel)
    while kernel.arrived < 2 and (event := world.next_event()) is not None:
        for order in kernel.handle(event):
            world.perform(order)
    assert Present(kernel, 2 * SECOND).foresee().completions == {1: 14 * SECOND}


def test_the_world_is_told_only_when_the_time_changes() -> None:
    """One order when the job arrives, one when it begins; none for jobs without a limit."""
    limited = scenario(job("a", max_wait_s=5.0, max_run_time_s=20.0), job("b"))
    kernel, told = Kernel(limited, prepare_policy("fifo", limited)), []
    world = world_of(kernel)
    while (event := world.next_event()) is not None:
        for order in kernel.handle(event):
            told += [order] if isinstance(order, EndAt) else []
            world.perform(order)
    assert [(order.job, order.time / SECOND) for order in told] == [(0, 20)]


@pytest.mark.parametrize(
    ("ran", "said", "message"),
    [
        ({}, {"max_run_time_s": 4.0}, "reaches its time limit at 4 s, and does not fail then"),
        ({"max_run_time_s": 4.0}, {}, "fails at 4 s by its time limit, which is reached never"),
        ({"max_run_time_s": 4.0}, {"max_run_time_s": 3.0}, "fails at 4 s by its time limit, which is reached at 3 s"),
    ],
)
@pytest.mark.parametrize("policy", ["fifo", "aonline"])
def test_a_record_of_a_job_with_other_limits_violates_m43(
    policy: str, ran: dict[str, float], said: dict[str, float], message: str
) -> None:
    """The record of a run of the same job with other limits, or with none."""
    done = run(scenario(job("a", **ran)), policy)
    found = replace(done, scenario=scenario(job("a", **said))).verify()
    assert [(violation.rule, violation.job, violation.message) for violation in found] == [("M43", "a", message)]


@pytest.mark.parametrize("field", [MAX_WAIT, MAX_RUN_TIME])
@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_is_above_0_and_finite(field: str, wrong: float) -> None:
    """Of a job and of a tenant."""
    with pytest.raises(ScenarioError, match=f"{field}"):
        job("a", **{field: wrong})
    with pytest.raises(ScenarioError, match=f"{field}"):
        Tenant(**{field: wrong})


def test_limits_are_kept_in_files(tmp_path: Path) -> None:
    """Of jobs and tenants; the run is the same."""
    sharing = Sharing({"red": Tenant(max_run_time_s=4.0), "blue": Tenant(max_wait_s=3.0)})
    jobs = [job("a", tenant="red"), job("b", tenant="blue"), job("c", max_wait_s=1.5, max_run_time_s=2.0)]
    limited = scenario(*jobs, sharing=sharing)
    save_scenario(limited, tmp_path)
    again = load_scenario(tmp_path / "scenario.yaml")
    assert again.cluster.sharing == sharing
    assert run(again, "fifo").jobs.equals(run(limited, "fifo").jobs)


def with_limits(of: Scenario, seed: int) -> Scenario:
    """The scenario, with limits on two jobs in three that some of them reach."""
    rng, jobs = np.random.default_rng([seed, 43]), of.jobs
    longest = float(of.jobs.frame["arrival_s"].max() or 0.0) + 1.0 + of.physics.slot / SECOND
    columns = {
        name: [float(rng.uniform(0.01, 1) * longest) if rng.integers(3) else None for _ in jobs.ids]
        for name in (MAX_WAIT, MAX_RUN_TIME)
    }
    frame = jobs.frame.with_columns(pl.Series(name, values, dtype=pl.Float64) for name, values in columns.items())
    return replace(of, jobs=Jobs(frame, of.cluster, jobs.fixed_delays))


def check(of: Scenario, policy: str) -> int:
    """Every rule is kept and every job answered; returns how many reached a limit."""
    done = run(of, policy)
    assert done.verify() == []
    assert set(done.jobs["state"]) <= {"finished", "rejected", "failed"}
    return int((done.jobs["state"] == "failed").sum())


@pytest.mark.parametrize("policy", ["pdors", "oasis", "dorm", "optimus", "fifo", "drf"])
def test_limits_on_servers_with_resources(policy: str) -> None:
    """Random instances, of which some jobs reach a limit."""
    assert sum(check(with_limits(resource_scenario(seed, jobs=8), seed), policy) for seed in range(12)) > 0


@pytest.mark.parametrize("policy", SITE_POLICIES)
def test_limits_at_sites(policy: str) -> None:
    """Random instances with sites, of which some jobs reach a limit."""
    assert sum(check(with_limits(site_scenario(seed, jobs=12), seed), policy) for seed in range(8)) > 0


@pytest.mark.parametrize("policy", ["aonline", "srtf", "fifo", "batch", "tiresias"])
def test_a_run_with_limits_takes_the_path_event_by_event(policy: str, tmp_path: Path) -> None:
    """No compiled loop and no stream knows limits: a run that asks for them has the same record."""
    for number, plain in enumerate(random_scenarios(range(3))):
        limited = with_limits(plain, number)
        assert loop_for(limited, prepare_policy(policy, limited)) is None
        with patch("skedge.simulate.LARGE", 1):
            assert run(limited, policy).jobs.equals(run(limited, policy).jobs)
        folder = tmp_path / f"{policy}-{number}"
        (folder / "in").mkdir(parents=True)
        (folder / "out").mkdir()
        save_scenario(limited, folder / "in")
        with patch("skedge.scenario.file.CHUNKS_IN_PARTS", 1), patch("skedge.core.model.jobs_file.PART_CHUNKS", 1):
            given = load_scenario(folder / "in" / "scenario.yaml")
            assert given.unread is not None
            made = prepare_policy(policy, given)
            assert in_run_folder(given, made, folder / "out") is given
            assert run(given, made, folder=folder / "out").jobs.equals(run(limited, policy).jobs)
            assert not any((folder / "out").iterdir())
