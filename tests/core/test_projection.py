"""`insert_cost`, `cost_bound` and `delayed` against two simulations of the lane, with and without the new chunk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oracles.instances import Pick, one_of
from oracles.plain_aonline import Chunk, Cost, Mode, calculate_q, completions, timeline
from skedge.core.lanes.bound import cost_bound, late_harm, sum_up
from skedge.core.lanes.lanes import (
    ARRIVE,
    CHUNKS,
    COUNT,
    EACH,
    FIELDS,
    HEAD,
    JOB,
    LEFT,
    RANK,
    SEQ,
    Lanes,
    believe_finished,
    bring_to,
    empty_lanes,
    read_only,
    send,
    with_room,
)
from skedge.core.lanes.projection import (
    EQ5,
    FRACTIONAL,
    MARGINAL,
    chunks_on,
    delayed,
    delayed_if_plain,
    insert_cost,
    weight_table,
)

bounded = settings(
    max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
LARGEST_D = 6
SCALE = lcm(*range(1, LARGEST_D + 1))
WEIGHTS = weight_table(SCALE, LARGEST_D)
MODES = {"marginal": MARGINAL, "eq5": EQ5, "fractional": FRACTIONAL}


@dataclass(frozen=True)
class Ranked(Chunk):
    """A chunk with a rank of its own, as a policy other than A_online may give."""

    given: int = 0

    @property
    def rank(self) -> tuple[int, int, int]:
        return self.given, self.dispatched, self.d


@dataclass(frozen=True)
class Group:
    """`count` chunks of a job with `D` chunks of p, sent at `at` and there at `arrive`."""

    at: int
    arrive: int
    p: int
    D: int
    count: int
    rank: int

    def chunks(self, seq: int) -> list[Chunk]:
        return [
            Ranked(seq, d, (0, 0), self.arrive, self.p, self.at, self.D, seq, given=self.rank)
            for d in range(self.count)
        ]

    def row(self, seq: int) -> np.ndarray:
        row = np.zeros(FIELDS, np.int64)
        row[JOB], row[SEQ], row[RANK], row[COUNT] = seq, seq, self.rank, self.count
        row[EACH], row[LEFT], row[CHUNKS], row[HEAD], row[ARRIVE] = self.p, self.p, self.D, 0, self.arrive
        return row


@dataclass(frozen=True)
class Situation:
    """Groups sent to a lane before, and a new one, of which the last chunk is asked about."""

    sent: tuple[Group, ...]
    new: Group
    preempt: bool = True

    @property
    def others(self) -> list[Chunk]:
        earlier = [chunk for seq, group in enumerate(self.sent) for chunk in group.chunks(seq)]
        return earlier + self.new.chunks(len(self.sent))[:-1]

    @property
    def chunk(self) -> Chunk:
        return self.new.chunks(len(self.sent))[-1]

    @property
    def row(self) -> np.ndarray:
        return self.new.row(len(self.sent))

    def lanes(self, *, read: bool = False) -> Lanes:
        """The kernel's belief: every group was sent at its time, every completion up to now was told.

        `read`: the lane was summed up at each of these times, so that some of its totals are of then.
        """
        lanes, told = empty_lanes(1, preemptive=self.preempt, room=2), 0
        for seq, group in enumerate([*self.sent, self.new]):
            before = [chunk for k in range(seq) for chunk in self.sent[k].chunks(k)]
            ends = sorted((t, c.job) for c, t in completions(timeline(before, preempt=self.preempt)).items())
            facts = [end for end in ends if end[0] <= group.at][told:]
            told += len(facts)
            times, jobs = (np.array([fact[k] for fact in facts], np.int64) for k in (0, 1))
            assert believe_finished(lanes, times, np.zeros(len(facts), np.int64), jobs) == -1
            if read:
                bring_to(lanes, np.array([0]), group.at)
                sum_up(lanes, np.array([0]), WEIGHTS)
            if seq < len(self.sent):
                lanes = with_room(lanes)
                send(lanes, 0, group.row(seq))
        bring_to(lanes, np.array([0]), self.new.at)
        sum_up(lanes, np.array([0]), WEIGHTS)
        return read_only(lanes)

    def room(self) -> np.ndarray:
        return np.zeros((2, len(self.sent) + 2, FIELDS), np.int64)

    def expected(self, q: str) -> Cost:
        return calculate_q(self.others, self.chunk, Mode(q, preempt_running=self.preempt))  # type: ignore[arg-type]


def draw_situation(pick: Pick, *, haprf: bool, most: int = 6) -> Situation:
    """Up to `most` groups; ranks D p, or few and independent of p so that ties are common."""
    at, groups = 0, []
    for _ in range(pick(1, most)):
        at += one_of(pick, (0, 0, 1, 2, 3, 5))
        p, D = pick(1, 6), pick(1, LARGEST_D)
        rank = D * p if haprf else pick(1, 3)
        groups.append(Group(at, at + pick(0, 7), p, D, pick(1, D), rank))
    return Situation(tuple(groups[:-1]), groups[-1], preempt=pick(0, 2) > 0)


@st.composite
def situations(draw: Callable[..., Any], *, haprf: bool = False) -> Situation:
    return draw_situation(lambda lo, hi: draw(st.integers(lo, hi)), haprf=haprf)


def seeded(seed: int, *, haprf: bool, most: int = 6) -> Situation:
    rng = np.random.default_rng(seed)
    return draw_situation(lambda lo, hi: int(rng.integers(lo, hi + 1)), haprf=haprf, most=most)


def cost_of(situation: Situation, q: str) -> tuple[int, float, int]:
    lanes = situation.lanes()
    return insert_cost(lanes, 0, situation.row, situation.new.at, WEIGHTS, MODES[q], situation.room())


def from_arrival(situation: Situation, cost: Cost) -> Fraction:
    """Q less its first term: what `insert_cost` gives, in units of 1 / SCALE."""
    return (cost.q - cost.terms[0]) * SCALE


def assert_marginal(situation: Situation) -> None:
    exact, value, _ = cost_of(situation, "marginal")
    expected = from_arrival(situation, situation.expected("marginal"))
    assert exact == expected
    assert value == pytest.approx(float(expected), rel=1e-12)


def assert_fractional(situation: Situation) -> None:
    value = cost_of(situation, "fractional")[1]
    assert value == pytest.approx(float(from_arrival(situation, situation.expected("fractional"))), rel=1e-9)


def assert_eq5(situation: Situation) -> None:
    exact, value, postponed = cost_of(situation, "eq5")
    cost = situation.expected("eq5")
    assert (exact, postponed) == (from_arrival(situation, cost), cost.postponed)
    assert value == pytest.approx(exact, rel=1e-12)


def assert_delayed(situation: Situation) -> None:
    lanes, row = situation.lanes(), situation.row
    times = np.zeros((2, chunks_on(lanes, 0) + situation.new.count), np.int64)
    later = delayed(lanes, 0, row, situation.new.at, WEIGHTS, situation.room(), times)
    assert later == situation.expected("marginal").postponed
    if situation.preempt:
        assert delayed_if_plain(lanes, 0, row, situation.new.at, WEIGHTS, situation.room()) == later


def assert_bound(situation: Situation) -> None:
    """For a first chunk on a lane that preempts, which is where the bound is used."""
    new, lanes = situation.new, situation.lanes()
    nothing_coming = lanes.coming[0] == 0
    bounds = [
        cost_bound(of, 0, new.arrive, new.rank, new.p, int(WEIGHTS[new.D]), new.at, WEIGHTS)
        for of in (situation.lanes(read=True), lanes)
    ]
    bound = bounds[0]
    assert bound == bounds[1]
    harm, value = late_harm(lanes, 0, new.arrive, new.rank, new.p, new.at, WEIGHTS)
    for q in ("marginal", "eq5"):
        exact = cost_of(situation, q)[0]
        assert bound[0] + harm <= exact
        assert bound[1] + value <= exact * (1 + 1e-12)
        if nothing_coming:
            assert (bound[0], harm) == (exact, 0)
    if nothing_coming:
        assert bound[2] == situation.expected("marginal").postponed


@bounded
@given(situations())
def test_marginal_cost_is_the_difference_of_two_simulations(situation: Situation) -> None:
    """Exactly, in integers of 1 / SCALE: chunks in transit, ties in rank, with and without preemption."""
    assert_marginal(situation)


@bounded
@given(situations())
def test_fractional_cost_is_the_difference_of_two_fractional_flows(situation: Situation) -> None:
    """To 1e-9, as floats."""
    assert_fractional(situation)


@bounded
@given(situations(haprf=True))
def test_eq5_cost_is_the_printed_formula(situation: Situation) -> None:
    """Waiting for A_1, p, and p for every weight in A_2, with |A_2|; pending chunks may not have arrived."""
    assert_eq5(situation)


@bounded
@given(situations())
def test_delayed_is_the_number_of_chunks_that_complete_later(situation: Situation) -> None:
    """Counted from the two simulations."""
    assert_delayed(situation)


@pytest.mark.parametrize("seeds", [range(500), range(500, 1000)], ids=str)
def test_costs_equal_two_simulations_in_volume(seeds: range) -> None:
    """1,000 seeded lanes: all readings, the bound and the number of postponed chunks."""
    for seed in seeds:
        free, haprf = seeded(seed, haprf=False), seeded(seed, haprf=True)
        assert_marginal(free)
        assert_fractional(free)
        assert_delayed(free)
        assert_eq5(haprf)


@pytest.mark.parametrize("seeds", [range(700), range(700, 1400)], ids=str)
def test_cost_bound_is_never_above_the_cost(seeds: range) -> None:
    """1,400 seeded lanes, first chunks, a tenth of up to 25 groups; it is the cost if nothing is on its way."""
    for seed in seeds:
        situation = seeded(seed, haprf=seed % 3 > 0, most=25 if seed % 10 == 0 else 6)
        first = Group(**{**vars(situation.new), "count": 1})
        assert_bound(Situation(situation.sent, first, preempt=True))


def test_chunk_that_should_have_ended_is_believed_to_need_one_more_microsecond() -> None:
    """A chunk of 4 sent at 0 has not been reported at 9: an equal newcomer waits 1 µs for it: 1 + 2, weight 1."""
    lanes = empty_lanes(1)
    send(lanes, 0, Group(0, 0, 4, 1, 1, rank=1).row(0))
    new = Group(9, 9, 2, 1, 1, rank=1)
    bring_to(lanes, np.array([0]), 9)
    assert (
        insert_cost(lanes, 0, new.row(1), 9, weight_table(1, 1), MARGINAL, np.zeros((2, 3, FIELDS), np.int64))[0] == 3
    )


def test_eq5_counts_the_overhead_of_what_is_displaced_at_the_decision() -> None:
    """X, half done, is displaced by Y at 5; a worse chunk that is there at once waits for 5 + 2 + 3."""
    lanes = empty_lanes(1, overhead=2)
    send(lanes, 0, Group(0, 0, 10, 1, 1, rank=10).row(0))
    send(lanes, 0, Group(0, 5, 3, 1, 1, rank=3).row(1))
    bring_to(lanes, np.array([0]), 5)
    new, room = Group(5, 5, 4, 1, 1, rank=12), np.zeros((2, 4, FIELDS), np.int64)
    assert insert_cost(lanes, 0, new.row(2), 5, weight_table(1, 1), EQ5, room)[0] == 10 + 4


def test_weights_divide_the_scale_exactly() -> None:
    """weights[D] = scale / D for every D up to the largest."""
    assert [int(WEIGHTS[D]) * D for D in range(1, LARGEST_D + 1)] == [SCALE] * LARGEST_D
