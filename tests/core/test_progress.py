"""A run in which no job gets any further ends and names the jobs; a run that gets further, however slowly, goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from builders.paths import CASES
from builders.thorough import thorough_except
from skedge.core.engine.ledger import ARRIVED
from skedge.core.errors import StuckError
from skedge.core.events import Event, Order, Postpone, WakeAt
from skedge.core.kernel import kernel as kernel_of
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.core.policy import BasePolicy, View
from skedge.core.registry import make_policy
from skedge.explanation.what_if import state_at, what_if
from skedge.prepare import prepare_policy
from skedge.scenario.file import scenario_from_dict, scenario_of
from skedge.sim import progress
from skedge.sim.world import SimulatedWorld
from skedge.simulate import run

AGEING = CASES / "livelock-ageing.yaml"


JOB = {"arrival_s": 0, "epochs": 1, "chunks": 2, "minibatches": 100, "minibatch_s": 1, "workers": 2}
"""A gang of 2 workers that takes 100 s."""


def given(**changed: Any) -> Scenario:
    """Two jobs of 2 workers and 100 s that share 2 workers; `changed` are fields of the scenario, or of each job."""
    jobs = [{"id": name, **JOB, **changed.get("job", {})} for name in ("A", "B")]
    servers = [{"id": "n0", "workers": {"gpu": 2}, "ps": {"cpu": 4}}]
    fields = {
        "name": "shared",
        "slot": "1s",
        "physics": changed.get("physics", {}),
        "cluster": {"servers": servers, **changed.get("cluster", {})},
        "workload": {"jobs": [*jobs, *changed.get("more", ())]},
    }
    return scenario_from_dict(fields, "shared", Path())


@pytest.fixture(params=[0, 10**9], ids=["loop", "events"])
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the policy's compiled loop, if it has one, and event by event."""
    monkeypatch.setattr("skedge.simulate.LARGE", request.param)
    monkeypatch.setattr("skedge.simulate.SMALL", request.param)


# -- runs that would not end -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("policy", ["srtf", "tiresias:limit_s=60"])
def test_jobs_that_age_faster_than_they_restore_are_named(policy: str) -> None:
    """Each preempts the other after 10 s; a restore takes 30 s."""
    with pytest.raises(StuckError, match=r"in the system: 'A', 'B'\. .* their checkpoint is restored \(30 s\)$"):
        run(scenario_of(AGEING), policy)


class Postpones(BasePolicy):
    """Looks at its jobs again every second, and puts them off."""

    name: ClassVar[str] = "postpones"

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        for job in range(view.arrived):
            yield Postpone(job, "later")
        yield WakeAt(view.now + SECOND)


def test_a_policy_that_only_postpones_ends_with_the_names_of_its_jobs() -> None:
    with pytest.raises(StuckError, match="'A', 'B'"):
        run(given(), Postpones())


class Sleeps(BasePolicy):
    """Only asks to be woken."""

    name: ClassVar[str] = "sleeps"

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        yield WakeAt(view.now + SECOND)


def test_a_policy_that_only_sleeps_ends_with_the_names_of_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVENTS", 500)
    with pytest.raises(StuckError, match="'A', 'B'"):
        run(given(), Sleeps())


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("policy", thorough_except(["preemptive"], ["srtf", "preemptive", "aonline"]))
def test_servers_that_fail_before_a_checkpoint_is_restored_are_told(policy: str) -> None:
    """A server lasts 1 s in the mean; to restore takes 300 s."""
    with pytest.raises(StuckError, match="'A', 'B'"):
        run(given(physics={"mtbf": "1s", "mttr": "1s", "checkpoint_overhead": "300s"}), policy)


@pytest.mark.usefixtures("driver")
def test_a_gang_whose_servers_are_never_there_together_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 servers, each of which is in service for a tenth of the time: all of them once in 10^30 failures."""
    monkeypatch.setattr(progress, "EVENTS", 1000)
    servers = [{"id": f"n{i}", "workers": {"gpu": 1}, "ps": {"cpu": 1}} for i in range(30)]
    wide = {
        "id": "wide",
        "arrival_s": 100,
        "epochs": 1,
        "chunks": 30,
        "minibatches": 9,
        "minibatch_s": 9,
        "workers": 30,
    }
    stuck = given(cluster={"servers": servers}, physics={"mtbf": "60s", "mttr": "540s"}, more=[wide])
    with pytest.raises(StuckError, match=r"in the system: 'wide'\. .*or too few servers are in service at a time$"):
        run(stuck, "srtf")


def test_what_is_stuck_never_completes_in_a_forecast() -> None:
    """From 15 s on, when one has preempted the other; with a second server both complete."""
    present = state_at(scenario_of(AGEING), "srtf", 15.0)
    assert present.foresee().completions == {}
    answer = what_if(present, {"add": {"id": "n1", "workers": {"gpu": 2}, "ps": {"cpu": 4}}})
    assert answer.counts["freed"] == 2


# -- runs that end -----------------------------------------------------------------------------------------------------


def test_a_bounded_number_of_preemptions_ends_the_turns() -> None:
    """The first of two; then one of more turns than the watch is patient with."""
    assert run(CASES / "livelock-ageing-ends.yaml", "srtf").metrics["finished"] == 2
    turns = {"ageing": "10s", "most_preemptions": 2 * progress.ORDERS}
    ends = run(given(cluster={"sharing": turns}, physics={"checkpoint_overhead": "30s"}), "srtf")
    assert ends.metrics["finished"] == 2
    assert ends.metrics["preemptions"] > 2 * progress.ORDERS


def test_uploads_that_take_longer_than_all_turns_are_waited_for() -> None:
    """Two jobs preempt each other every second for 10,000 s, in which their data arrive; then both train."""
    slow = given(cluster={"sharing": {"ageing": "1s"}}, job={"upload": {"n0": "10000s"}})
    ends = run(slow, "srtf")
    assert ends.metrics["finished"] == 2
    assert ends.metrics["preemptions"] > 4 * progress.ORDERS


@pytest.mark.usefixtures("driver")
def test_a_little_training_each_turn_is_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn of 10 s restores for 9.9 s: 1,000 turns do what 100 s do, and the watch looks every 3 orders or so."""
    monkeypatch.setattr(progress, "ORDERS", 1)
    slow = given(cluster={"sharing": {"ageing": "10s"}}, physics={"checkpoint_overhead": "9.9s"})
    assert run(slow, "srtf").metrics["finished"] == 2


def test_a_job_that_arrives_after_many_failures_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the gap before it servers fail and are repaired hundreds of times, and go on doing so."""
    monkeypatch.setattr(progress, "EVENTS", 20)
    late = {"id": "late", "arrival_s": 9000, "epochs": 1, "chunks": 1, "minibatches": 300, "minibatch_s": 1}
    ends = run(given(physics={"mtbf": "10s", "mttr": "10s"}, more=[late]), "srtf")
    assert ends.metrics["finished"] == 3
    outages = ends.schedule.outages["start"]
    assert outages.filter(outages < 9000 * SECOND).len() > 100
    assert outages.filter(outages > 9000 * SECOND).len() > 5


class Dozes(Sleeps):
    """Gives the workers to its first job, and is woken every second."""

    name: ClassVar[str] = "dozes"

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        yield from self.inner.decide(event, view)  # type: ignore[attr-defined]
        yield from super().decide(event, view) if event.time < 90 * SECOND else ()


def test_waking_beside_a_job_that_runs_is_no_idleness(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is woken 90 times in a row while a job trains for 100 s; 10 would be too many if none did."""
    monkeypatch.setattr(kernel_of, "LONGEST_IDLE", 10)
    jobs = given()
    policy = Dozes()
    policy.inner = prepare_policy("fifo", jobs)  # type: ignore[attr-defined]
    start = policy.start

    def both(*of: Any) -> None:
        start(*of)
        policy.inner.start(*of)  # type: ignore[attr-defined]

    policy.start = both  # type: ignore[method-assign]
    kernel = Kernel(jobs, policy)
    drive_to_end(kernel, SimulatedWorld(kernel))


def test_a_run_of_many_jobs_is_stuck_after_as_many_orders_as_one_of_twenty() -> None:
    """60 jobs that age faster than they restore, and a bound on preemptions that no run reaches."""
    more = [{"id": f"C{i}", **JOB} for i in range(58)]
    stuck = given(
        physics={"checkpoint_overhead": "30s"},
        cluster={"sharing": {"ageing": "10s", "most_preemptions": 1_000_000_000}},
        more=more,
    )
    kernel = Kernel(stuck, make_policy("srtf"))
    watchdog = SimulatedWorld(kernel).progress
    kernel.engine.ledger.counters[ARRIVED] = 60
    assert watchdog._patience() == progress.MOST_ORDERS + progress.MOST_BOUNDED
    watchdog.bound = 2
    kernel.engine.ledger.counters[ARRIVED] = 2
    assert watchdog._patience() == 2 * progress.ORDERS + 4 * 2 * 2
