"""The compiled loop of gang policies makes the tables of the kernel, the policy and the simulated world."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from builders.gang_policies import random_scenarios
from builders.paths import CASES
from skedge.core.engine.allocations import times
from skedge.core.events import Event
from skedge.core.model.scenario import Scenario
from skedge.prepare import prepare_policy
from skedge.quick.simulate import covers, simulate
from skedge.scenario.file import scenario_of
from skedge.simulate import run

POLICIES = (
    "fifo",
    "fifo:backfill=true",
    "srtf",
    "srtf:placement=literal",
    "srtf:sticky=true",
    "tiresias",
    "tiresias:knob=0.5",
    "tiresias:limit_s=4",
    "tiresias:limit_s=4,knob=1",
    "tiresias:limit_s=2,knob=0.3,placement=literal",
)


def equal(scenario: Scenario, policy: str) -> bool:
    """Whether all tables of the two paths are the same."""
    made = prepare_policy(policy, scenario)
    assert covers(scenario, made)
    quick, driven = simulate(scenario, made).tables(), run(scenario, policy).schedule.tables()
    return all(quick[name].equals(driven[name]) and quick[name].schema == driven[name].schema for name in driven)


@pytest.mark.parametrize("policy", POLICIES)
def test_random_runs_are_equal(policy: str) -> None:
    different = [s.seed for s in random_scenarios(range(60)) if not equal(s, policy)]
    assert different == []


@pytest.mark.parametrize("policy", ["fifo", "srtf", "tiresias", "tiresias:knob=2"])
def test_runs_on_many_types_of_workers_are_equal(policy: str) -> None:
    assert equal(scenario_of("s1"), policy)
    assert equal(scenario_of("demo"), policy)


def test_runs_with_restores_that_are_cut_are_equal() -> None:
    """Its attained service below 0 once crashed the process."""
    assert equal(scenario_of(str(CASES / "tiresias-restores.yaml")), "tiresias")


def test_only_gangs_on_slots_whose_data_are_kept_take_the_loop() -> None:
    demo = scenario_of("demo")
    taken = {
        name: covers(demo, prepare_policy(name, demo))
        for name in ("srtf", "fifo:rule=earliest_server", "aonline", "batch")
    }
    assert taken == {"srtf": True, "fifo:rule=earliest_server": False, "aonline": False, "batch": False}
    last_place = replace(demo, physics=replace(demo.physics, data="last_place"))
    assert not covers(last_place, prepare_policy("srtf", last_place))


def test_a_large_run_takes_the_loop_and_reports_each_job_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skedge.simulate.LARGE", 0)
    monkeypatch.setattr("skedge.quick.simulate.EVENTS", 50)
    demo, seen = scenario_of("demo"), list[Event]()
    made = run(demo, "srtf", progress=seen.append)
    assert made.decisions_s is None
    assert made.verify() == []
    finished = [job for event in seen for job in event.finished]
    assert len(seen) > 5
    assert len(set(finished)) == len(finished) > 0.8 * len(demo.jobs)


def test_work_is_converted_without_overflow() -> None:
    for left, new, old in product((1, 7, 2**61 - 1), (1, 3, 2**61 - 3), (2**61 - 1, 2**61)):
        assert times(left, new, old) == left * new // old
