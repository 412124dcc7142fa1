"""The contract that every policy keeps, and that a policy that breaks a clause of it is caught at that clause."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from builders.thorough import thorough_except
from skedge.core.events import CLOUD, Allocate, AssignPS, Dispatch, Event, Order, ps_in
from skedge.core.model.scenario import Scenario
from skedge.core.policy import BasePolicy, LaneRule, Policy, View
from skedge.core.registry import make_policy, registered
from skedge.policies.gangs.base import GangPolicy
from skedge.testing import (
    ContractError,
    MemoryJournal,
    check_policy,
    replay,
    scenarios_for,
    small_scenario,
    small_scenarios,
)

SPECS = [
    "aonline",
    "aonline:cloud=false",
    "aonline:q_mode=eq5",
    "aonline:q_mode=fractional",
    "aonline:preempt_running=false",
    "aonline:ps_choice=random",
    "batch",
    "batch:price_norm=none,T=20",
    "batch:literal_cost_d=true,order=shortest,T=5",
    "batch:cloud_capacity=2,strict_upload=false",
    "batch:tie=printed,cloud_capacity=3",
    "batchsche",
    "batchsche:tie=earliest,cloud_capacity=0",
    "batchsche:tie=printed,upload=where_placed",
    "srtf",
    "srtf:allow_cloud=true",
    "srtf:sticky=true",
    "srtf:placement=literal",
    "tiresias",
    "tiresias:knob=2",
    "tiresias:limit_s=100,knob=1",
    "fifo",
    "fifo:backfill=true",
    "fifo:rule=earliest_server",
    "drf",
    "drf:counts=fixed",
    "preemptive",
    "pdors",
    "pdors:completion=index,levels=7",
    "pdors:cover_soft=true,tries=2",
    "pdors:repair=false,tries=2",
    "pdors:gain=eq30,relaxation=highs,levels=2",
    "pdors:theta=exact,levels=2",
    "oasis",
    "oasis:completion=index,levels=200",
    "dorm:gap=0.1,nodes=20",
    "dorm:cells=1",
    "optimus",
    "optimus:speed=fitted,servers=free",
    "okita",
    "okita:alpha1=0.2,conflict=cheaper,late_last=true,release=latest,search=every",
    "okita:fit=true",
    "okita:colocate=true,normalise=true",
]

QUICK = [spec for spec in SPECS if ":" not in spec] + ["dorm:cells=1"]
"""Each policy without parameters, and Dorm, of which SPECS has variants only, in its quicker one."""


@pytest.mark.parametrize("spec", thorough_except(QUICK, SPECS))
def test_every_policy_keeps_the_contract_however_it_is_parameterised(spec: str) -> None:
    """check_policy finds nothing to say: of a policy on all scenarios, of its variants on the first and last."""
    offered = scenarios_for(make_policy(spec))
    check_policy(lambda: make_policy(spec), offered[:: len(offered) - 1] if ":" in spec else offered)


def test_every_registered_policy_is_held_to_the_contract_here() -> None:
    """A policy of ours that is not in SPECS fails this test."""
    ours = {name for name, point in registered().items() if point.value.startswith("skedge.")}
    assert ours == {spec.partition(":")[0] for spec in SPECS}


# --- policies that break it


class Spread(BasePolicy):
    """A sound policy: chunk d of a job goes to its d-th qualified lane, its PS is the first free one."""

    name: ClassVar[str] = "spread"

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        for job in event.arrived:
            yield self.place(job, view)
        for job in event.started:
            free = np.flatnonzero((self.cluster.ps_type == view.jobs.ps_type[job]) & (view.ps_job < 0))
            yield AssignPS(job, int(free[0]) if len(free) else CLOUD)

    def place(self, job: int, view: View) -> Dispatch:
        lanes = self.cluster.lanes_of(int(view.jobs.worker_type[job]))
        count = int(view.jobs.chunks[job])
        return self.dispatch(job, view, lanes[(np.arange(count) + self.shift(job, view)) % len(lanes)])

    def shift(self, job: int, view: View) -> int:
        return 0

    def dispatch(self, job: int, view: View, lane: np.ndarray) -> Dispatch:
        count = len(lane)
        return Dispatch(job, lane, count * int(view.chunk_time[job, 0]), np.zeros(count), np.zeros(count, np.int64))


class KnowsHowManyCome(Spread):
    """Reaches through the view for the number of all jobs, the later ones too."""

    def shift(self, job: int, view: View) -> int:
        return len(view._state.scenario.jobs)


class KnowsWhatComesNext(Spread):
    """Keeps the first lane free if the next job, which has not arrived, is of many chunks."""

    def shift(self, job: int, view: View) -> int:
        chunks = view._state.scenario.jobs.chunks
        return int(job + 1 < len(chunks) and chunks[job + 1] > 3)


class Remembers(Spread):
    """Takes the whole scenario along when it is calibrated, which is not a constant."""

    all_chunks: np.ndarray = np.zeros(0)

    def calibrated(self, scenario: Scenario) -> Remembers:
        made = Remembers()
        made.all_chunks = scenario.jobs.chunks
        return made

    def shift(self, job: int, view: View) -> int:
        return int(self.all_chunks[job + 1 :].sum())


class KnowsTheTruth(Spread):
    """Reaches through the view for how long the chunks of the job will really take."""

    def shift(self, job: int, view: View) -> int:
        return int(view._state.scenario.true_chunk_time[job, 0] % 5)


class KnowsWhoIsLate(Spread):
    """Ranks a job last if it will take longer than it says."""

    @property
    def lanes(self) -> LaneRule:
        return LaneRule(rank="custom")

    def dispatch(self, job: int, view: View, lane: np.ndarray) -> Dispatch:
        sound = super().dispatch(job, view, lane)
        late = view._state.scenario.true_factor[job] > 1
        return Dispatch(job, lane, sound.rank * (100 if late else 1), sound.alpha, sound.postponed)


class TrulyShortestFirst(GangPolicy):
    """Ranks jobs by their true work."""

    name: ClassVar[str] = "truly_shortest"

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        yield from self.admit(event, view)
        order = self.active[view._state.scenario.true_work[self.active, 0].argsort(kind="stable")]
        yield from self.fill(order, view, "truly_shortest")


class Dice(Spread):
    """Draws from the operating system, not from the generator that it is given."""

    def shift(self, job: int, view: View) -> int:
        return os.urandom(1)[0]


class GlobalDice(Spread):
    """Draws from NumPy's global generator."""

    def shift(self, job: int, view: View) -> int:
        return int(np.random.randint(100))  # noqa: NPY002 - the offence that is tested


class Generous(BasePolicy):
    """Gives every job all its workers on the first server, free or not."""

    name: ClassVar[str] = "generous"

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        for job in event.arrived:
            yield Allocate(job, ((0, int(view.jobs.workers[job])),), ps_in(CLOUD))


class Forgetful(Spread):
    """Does not answer the arrival of job 7."""

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        return (order for order in super().decide(event, view) if order.job != 7)  # type: ignore[union-attr]


class NoServers(Spread):
    """Gives no job a parameter server."""

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        return (order for order in super().decide(event, view) if not isinstance(order, AssignPS))


class WrongRank(Spread):
    """Says that lanes go by D p and ranks by something else: only the record shows it (M20)."""

    def dispatch(self, job: int, view: View, lane: np.ndarray) -> Dispatch:
        sound = super().dispatch(job, view, lane)
        return Dispatch(job, lane, sound.rank + 1, sound.alpha, sound.postponed)


class Counts(Spread):
    """Keeps a count outside of its runs: from the `limit`-th run on it decides otherwise."""

    runs: ClassVar[int] = 0
    limit: ClassVar[int] = 0

    def start(self, *given: Any) -> None:
        super().start(*given)
        Counts.runs += 1

    def shift(self, job: int, view: View) -> int:
        return int(Counts.runs >= Counts.limit)


def broken_clause(make: Callable[[], Policy], scenarios: list[Scenario] | None = None) -> str:
    with pytest.raises(ContractError) as caught:
        check_policy(make, scenarios)
    assert str(caught.value).startswith(caught.value.clause)
    return caught.value.clause


def test_the_sound_policy_that_the_others_spoil_keeps_the_contract() -> None:
    """What the policies below are caught for is what they add."""
    check_policy(Spread)


@pytest.mark.parametrize(
    ("make", "clause"),
    [
        (KnowsHowManyCome, "never anticipating"),
        (KnowsWhatComesNext, "never anticipating"),
        (KnowsTheTruth, "never reads true durations"),
        (KnowsWhoIsLate, "never reads true durations"),
        (TrulyShortestFirst, "never reads true durations"),
        (Remembers, "state is rebuilt by replay"),
        (Dice, "deterministic"),
        (GlobalDice, "deterministic"),
        (Generous, "valid orders"),
        (Forgetful, "every arrival is answered"),
        (NoServers, "valid orders"),
        (WrongRank, "the record keeps the rules"),
    ],
)
def test_a_policy_that_breaks_a_clause_is_caught_at_that_clause(make: Callable[[], Policy], clause: str) -> None:
    """The clause names what the policy's docstring says it does."""
    assert broken_clause(make) == clause


@pytest.mark.parametrize(
    ("make", "rule"), [(Generous, "M4"), (NoServers, "M12"), (WrongRank, "M20"), (Forgetful, "the first is '")]
)
def test_what_is_said_of_a_broken_clause_names_the_rule_or_the_job(make: Callable[[], Policy], rule: str) -> None:
    """An author needs the rule's number, or the job, to begin with."""
    with pytest.raises(ContractError, match=rule):
        check_policy(make)


def test_state_kept_outside_of_a_run_is_caught_in_whichever_run_it_first_tells() -> None:
    """One check begins 10 runs: with a journal and without, 4 of fewer jobs, 3 of other durations, the replay."""
    scenario = [small_scenario(0, jobs=12)]
    clauses = []
    for Counts.limit in range(2, 11):
        Counts.runs = 0
        clauses.append(broken_clause(Counts, scenario))
    middle = [*["never anticipating"] * 4, *["never reads true durations"] * 3]
    assert clauses == ["deterministic", *middle, "state is rebuilt by replay"]


def test_one_instance_used_for_two_runs_starts_anew_in_each() -> None:
    """All state of our policies is made in start, so even a shared instance keeps the contract."""
    for spec in ("aonline", "srtf", "tiresias", "fifo:rule=earliest_server"):
        one = make_policy(spec)
        check_policy(lambda one=one: one, [small_scenario(0)])


def test_the_replay_of_a_journal_gives_the_orders_written_event_by_event() -> None:
    """Every event of the run is in the journal once, and a fresh kernel answers each as the first did."""
    from skedge.simulate import run

    journal, scenario = MemoryJournal(), small_scenario(3, jobs=10)
    run(scenario, "aonline", journal=journal)
    arrived = [job for event, _ in journal.entries for job in event.arrived]
    assert arrived == list(range(10))
    again = [given for _, given in replay(journal, scenario, make_policy("aonline"))]
    dispatches = [order for orders in again for order in orders if isinstance(order, Dispatch)]
    assert [order.job for order in dispatches] == arrived


def test_the_scenarios_of_the_contract_differ_in_what_a_policy_may_get_wrong() -> None:
    """With and without a cloud, slotted, wrong estimates, free co-location on one server."""
    of = small_scenarios()
    assert {s.cluster.cloud is None for s in of} == {True, False}
    assert {s.physics.slotted for s in of} == {True, False}
    assert any(s.physics.estimate_error > 0 for s in of)
    assert {s.physics.colocation for s in of} == {"cloud", "one_server"}
    assert all(len(s.jobs) == 25 for s in of)


def test_a_contract_error_survives_the_way_back_from_another_process() -> None:
    """Its clause and its sentence are the same after pickling."""
    error = pickle.loads(pickle.dumps(ContractError("deterministic", "two runs differ")))  # noqa: S301 - our own bytes
    assert (error.clause, str(error)) == ("deterministic", "deterministic: two runs differ")
