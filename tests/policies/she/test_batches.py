"""The compiled loop of the batch schedulers makes the tables of the kernel, the policy and the simulated world."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from builders.gang_policies import job, random_scenarios, scenario
from builders.thorough import thorough_except
from skedge.core.errors import PolicyError
from skedge.core.events import Event
from skedge.core.model.scenario import Scenario
from skedge.loops.batches import covers, simulate
from skedge.prepare import prepare_policy
from skedge.scenario.file import scenario_of
from skedge.simulate import run

POLICIES = (
    "batch",
    "batch:T=5,F1=3,F2=2,strict_upload=false",
    "batch:price_norm=none,literal_cost_d=true",
    "batch:cloud_capacity=2,order=shortest",
    "batchsche",
    "batchsche:tie=earliest,cloud_capacity=0",
    "batch:tie=printed,cloud_capacity=2",
    "batchsche:tie=printed,upload=where_placed",
)
QUICK = ("batch", "batch:cloud_capacity=2,order=shortest", "batchsche", "batchsche:tie=earliest,cloud_capacity=0")
"""Each policy as it is, and with a bounded cloud."""


def different(scenario: Scenario, policy: str) -> list[str]:
    """The tables in which the two paths differ."""
    quick = simulate(scenario, prepare_policy(policy, scenario)).tables()
    driven = run(scenario, policy).schedule.tables()
    return [
        name for name in driven if not quick[name].equals(driven[name]) or quick[name].schema != driven[name].schema
    ]


@pytest.mark.parametrize("policy", thorough_except(QUICK, POLICIES))
def test_random_runs_are_equal(policy: str) -> None:
    covered = [s for s in random_scenarios(range(60)) if covers(s, prepare_policy(policy, s))]
    assert len(covered) > 20
    assert [s.seed for s in covered if different(s, policy)] == []


@pytest.mark.parametrize("policy", ["batch", "batch:cloud_capacity=40", "batchsche"])
def test_runs_on_many_types_and_servers_are_equal(policy: str) -> None:
    # with 40 workers in the cloud gangs spread over servers, jobs are postponed, and prices change
    assert different(scenario_of("s1"), policy) == []
    assert different(scenario_of("demo"), policy) == []


def test_all_that_can_be_decided_occurs() -> None:
    seen = Counter[str]()
    for name, policy in (("s1", "batch"), ("s1", "batch:cloud_capacity=40"), ("demo", "batch:cloud_capacity=40")):
        made = scenario_of(name)
        seen.update(simulate(made, prepare_policy(policy, made)).decisions["reason"].to_list())
    missing = {"copies", "one_server", "spread", "no_room", "not_uploaded"} - set(seen)
    assert missing == set()


def test_only_runs_whose_durations_are_announced_take_the_loop() -> None:
    demo = scenario_of("demo")
    wrong = replace(demo, physics=replace(demo.physics, estimate_error=0.3))
    last_place = replace(demo, physics=replace(demo.physics, data="last_place"))
    taken = [covers(s, prepare_policy("batch", s)) for s in (demo, wrong, last_place)]
    assert taken == [True, False, False]
    assert not covers(demo, prepare_policy("srtf", demo))


def test_jobs_that_no_server_has_workers_for_are_rejected_alike() -> None:
    made = scenario([job("a", 0, 1, 2), job("b", 1, 1, 2)], (), cloud=True)
    assert different(made, "batch") == []
    assert different(made, "batch:cloud_capacity=0") == []
    jobs = simulate(made, prepare_policy("batch:cloud_capacity=0", made)).jobs
    assert set(jobs["reason"]) == {"never_fits: no server has a worker of its type"}


def test_a_batch_later_than_the_clock_is_refused_in_the_same_words() -> None:
    # two jobs for one worker: each batch takes one, and the intervals double
    many = scenario([job(str(j), 0, 1, 1) for j in range(60)])
    with pytest.raises(PolicyError) as driven:
        run(many, "batch")
    with pytest.raises(PolicyError) as quick:
        simulate(many, prepare_policy("batch", many))
    assert str(quick.value) == str(driven.value)
    assert "later than the clock can count" in str(quick.value)


def test_a_large_run_takes_the_loop_and_reports_each_job_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skedge.simulate.LARGE", 0)
    demo, seen = scenario_of("demo"), list[Event]()
    made = run(demo, "batch", progress=seen.append)
    assert made.decisions_s is None
    assert made.verify() == []
    finished = [job for event in seen for job in event.finished]
    assert len(seen) > 5
    assert sorted(finished) == list(range(len(demo.jobs)))
