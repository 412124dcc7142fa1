"""The compiled loop of A_online makes the tables of the kernel, the policy and the simulated world."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from builders.chunks import instance
from builders.thorough import thorough_after
from skedge.core.engine import lanes
from skedge.core.engine import truth as truth_of
from skedge.core.errors import PolicyError
from skedge.core.events import Event
from skedge.core.model.cluster import Cluster, Job, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.record.schedule import Schedule
from skedge.loops.aonline import covers, simulate
from skedge.policies.aonline.policy import AOnline
from skedge.policies.aonline.state import make_books, make_case, with_room
from skedge.prepare import prepare_policy
from skedge.scenario.file import scenario_of
from skedge.simulate import run

POLICIES = (
    "aonline",
    "aonline:cloud=false",
    "aonline:preempt_running=false",
    "aonline:q_mode=eq5",
    "aonline:q_mode=fractional",
)


def outcome(made: Callable[[], Schedule]) -> dict[str, object] | str:
    """The tables as rows and types, or the policy's error."""
    try:
        tables = made().tables()
    except PolicyError as error:
        return str(error)
    return {name: (table.schema, table.rows()) for name, table in tables.items()}


def kinds(schedule: Schedule) -> set[str]:
    """What occurs in a record."""
    runs = schedule.runs
    found = {"lane": runs["lane"].is_not_null(), "cloud": runs["lane"].is_null(), "preempted": runs["preempted"]}
    found["rejected"] = schedule.jobs["state"] == "rejected"
    return {name for name, rows in found.items() if rows.any()}


def equal(scenario: Scenario, policy: str) -> bool:
    """Whether the two paths have the same outcome."""
    assert covers(scenario, prepare_policy(policy, scenario))
    quick = outcome(lambda: simulate(scenario, prepare_policy(policy, scenario)))
    return quick == outcome(lambda: run(scenario, policy).schedule)


@pytest.mark.parametrize("policy", thorough_after(2, POLICIES))
def test_random_runs_are_equal(policy: str) -> None:
    different = [seed for seed in range(60) if not equal(instance(seed), policy)]
    assert different == []


def test_random_runs_have_every_kind_of_outcome() -> None:
    """Chunks on lanes and in the cloud, preemptions, rejections, and jobs for which no PS is free."""
    seen = set[str]()
    for seed in range(60):
        scenario = instance(seed)
        try:
            seen |= kinds(simulate(scenario, prepare_policy("aonline", scenario)))
        except PolicyError:
            seen.add("no PS")
    assert seen == {"lane", "cloud", "preempted", "rejected", "no PS"}


@pytest.mark.parametrize("policy", ["aonline", "aonline:cloud=false"])
@pytest.mark.parametrize("name", ["demo", "demo-divisible", "s1"])
def test_shipped_scenarios_are_equal(name: str, policy: str) -> None:
    assert equal(scenario_of(name), policy)


@pytest.mark.parametrize("error", [0.0, 0.4])
def test_growing_arrays_change_nothing(error: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small buffers and short queues, which grow during the run; where durations differ, the belief's too."""
    demo = scenario_of("demo-divisible")
    scenario = Scenario(demo.cluster, demo.jobs, replace(demo.physics, estimate_error=error), demo.seed, demo.name)
    expected = outcome(lambda: run(scenario, "aonline").schedule)
    small = sys.modules["skedge.policies.aonline.state"]
    monkeypatch.setattr(small, "make_truth", lambda *args, **options: truth_of.make_truth(*args, **options, buffer=64))
    for module in (small, truth_of):
        monkeypatch.setattr(module, "empty_lanes", partial(lanes.empty_lanes, room=1))
    assert outcome(lambda: simulate(scenario, prepare_policy("aonline", scenario))) == expected


@pytest.mark.parametrize("error", [0.0, 0.4])
def test_the_belief_is_the_truth_only_where_chunks_take_as_long_as_announced(error: float) -> None:
    demo = scenario_of("demo-divisible")
    scenario = Scenario(demo.cluster, demo.jobs, replace(demo.physics, estimate_error=error), demo.seed, demo.name)
    policy = prepare_policy("aonline", scenario)
    assert isinstance(policy, AOnline)
    books = with_room(make_books(scenario, make_case(scenario, policy), preemptive=True))
    assert (books.belief is books.truth.lanes) == (error == 0)


@pytest.mark.parametrize("path", [simulate, lambda scenario, policy: run(scenario, policy).schedule])
def test_a_ps_returned_by_a_pause_serves_the_job_that_caused_it(path: Callable[..., Schedule]) -> None:
    """One worker and one PS: the second job displaces the first, and takes its PS at this very instant."""
    cluster = Cluster([Server("e", capacity={"worker:gpu": 1, "ps:cpu": 1})])
    jobs = [Job(str(i), i * 3.0, epochs=1, chunks=1, minibatches=n, minibatch_s=1.0) for i, n in enumerate((10, 4))]
    scenario = Scenario(cluster, Jobs(job_table(jobs)[0], cluster))
    ps = path(scenario, prepare_policy("aonline", scenario)).ps
    times = [(job, start // SECOND, end // SECOND) for job, start, end in ps.select("job", "start", "end").iter_rows()]
    assert times == [(0, 0, 3), (1, 3, 7), (0, 7, 14)]


def test_only_runs_without_waiting_and_without_chance_take_the_loop() -> None:
    demo = scenario_of("demo-divisible")
    names = ("aonline", "aonline:q_mode=eq5", "aonline:ps_choice=random", "srtf")
    taken = {name: covers(demo, prepare_policy(name, demo)) for name in names}
    assert taken == {"aonline": True, "aonline:q_mode=eq5": True, "aonline:ps_choice=random": False, "srtf": False}


@pytest.mark.parametrize("change", ["storage", "lag"])
def test_limited_storage_and_bounded_lag_do_not_take_the_loop(change: str) -> None:
    base = instance(0)
    frame, cluster = base.jobs.frame.with_columns(chunk_mb=1.0), base.cluster
    if change == "storage":
        cluster = Cluster([replace(server, storage_mb=1e6) for server in cluster.servers])
    else:
        frame = frame.with_columns(max_lag=1)
    changed = Scenario(cluster, Jobs(frame, cluster), seed=0)
    assert covers(base, prepare_policy("aonline", base))
    assert not covers(changed, prepare_policy("aonline", changed))


def test_a_large_run_takes_the_loop_and_reports_each_job_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skedge.simulate.LARGE", 0)
    monkeypatch.setattr("skedge.loops.aonline.EVENTS", 50)
    demo, seen = scenario_of("demo-divisible"), list[Event]()
    made = run(demo, "aonline", progress=seen.append)
    assert made.decisions_s is None
    assert made.verify() == []
    finished = [job for event in seen for job in event.finished]
    assert len(seen) > 5
    assert len(set(finished)) == len(finished) > 0.8 * len(demo.jobs)
