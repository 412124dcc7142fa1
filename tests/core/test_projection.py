"""`insert_cost`, `cost_ahead` and `delayed` against two simulations of the lane, with and without the new chunk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.aonline_instances import Pick, one_of
from builders.thorough import thorough_after
from reference.aonline import calculate_q, completions, timeline
from reference.aonline_model import Chunk, Cost, Mode
from skedge.core.engine.ahead import cost_ahead, look_ahead
from skedge.core.engine.lanes import (
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
    UNKNOWN,
    Lanes,
    believe_finished,
    bring_to,
    empty_lanes,
    read_only,
    send,
    with_room,
)
from skedge.core.engine.projection import (
    EQ5,
    FRACTIONAL,
    MARGINAL,
    chunks_on,
    delayed,
    insert_cost,
    weight_table,
)
from skedge.core.engine.truth import (
    DONE,
    FACTS,
    FINISHED,
    QUIET,
    RUNS,
    SWITCHES,
    TOUCHED,
    Truth,
    arrive_now,
    make_truth,
    run,
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

    def lanes(self, weights: np.ndarray = WEIGHTS) -> Lanes:
        """The kernel's belief: every group was sent at its time, every completion up to now was told."""
        lanes, told = empty_lanes(1, preemptive=self.preempt, room=2), 0
        for seq, group in enumerate([*self.sent, self.new]):
            before = [chunk for k in range(seq) for chunk in self.sent[k].chunks(k)]
            ends = sorted((t, c.job) for c, t in completions(timeline(before, preempt=self.preempt)).items())
            facts = [end for end in ends if end[0] <= group.at][told:]
            told += len(facts)
            times, jobs = (np.array([fact[k] for fact in facts], np.int64) for k in (0, 1))
            assert believe_finished(lanes, times, np.zeros(len(facts), np.int64), jobs) == -1
            bring_to(lanes, np.array([0]), group.at)
            look_ahead(lanes, np.array([0]), group.at, weights)
            if seq < len(self.sent):
                lanes = with_room(lanes)
                send(lanes, 0, group.row(seq))
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


def foreseen(situation: Situation, q: str, lanes: Lanes) -> tuple[int, float, int]:
    """The cost from what the lane will do."""
    new = situation.new
    return cost_ahead(lanes, 0, new.arrive, new.rank, new.p, new.count, int(WEIGHTS[new.D]), MODES[q])


def assert_foreseen(situation: Situation) -> None:
    """On a lane that preempts, the cost and the number of postponed chunks follow from what the lane will do."""
    lanes, later = situation.lanes(), situation.expected("marginal").postponed
    for q, postponed in (("marginal", later), ("eq5", cost_of(situation, "eq5")[2])):
        found = foreseen(situation, q, lanes)
        assert (found[0], found[2]) == (cost_of(situation, q)[0], postponed)
        assert found[1] == pytest.approx(found[0], rel=1e-12)


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


@pytest.mark.parametrize("seeds", thorough_after(1, [range(500), range(500, 1000)]), ids=str)
def test_costs_equal_two_simulations_in_volume(seeds: range) -> None:
    """1,000 seeded lanes: all readings and the number of postponed chunks."""
    for seed in seeds:
        free, haprf = seeded(seed, haprf=False), seeded(seed, haprf=True)
        assert_marginal(free)
        assert_fractional(free)
        assert_delayed(free)
        assert_eq5(haprf)


@bounded
@given(situations(haprf=True))
def test_cost_ahead_is_the_cost(situation: Situation) -> None:
    """From the stretches of the lane, exactly, for any chunk of a group."""
    assert_foreseen(replace(situation, preempt=True))


@pytest.mark.parametrize("seeds", thorough_after(1, [range(1000), range(1000, 2000)]), ids=str)
def test_cost_ahead_is_the_cost_in_volume(seeds: range) -> None:
    """2,000 seeded lanes, ranks of all kinds, a tenth of up to 25 groups."""
    for seed in seeds:
        situation = seeded(seed, haprf=seed % 3 > 0, most=25 if seed % 10 == 0 else 6)
        assert_foreseen(replace(situation, preempt=True))


@pytest.mark.parametrize("seeds", [range(500)], ids=str)
def test_cost_ahead_is_the_cost_where_integers_are_too_small(seeds: range) -> None:
    """500 seeded lanes, 10^7 times as slow, and the finest weights: only the floats say how large Q is."""
    weights, slow, large = weight_table(2**40, LARGEST_D), 10**7, 0
    for seed in seeds:
        drawn = replace(seeded(seed, haprf=True, most=12), preempt=True)
        slower = [
            Group(g.at * slow, g.arrive * slow, g.p * slow, g.D, g.count, g.rank * slow)
            for g in (*drawn.sent, drawn.new)
        ]
        situation = Situation(tuple(slower[:-1]), slower[-1])
        new, lanes = situation.new, situation.lanes(weights)
        expected = insert_cost(lanes, 0, situation.row, new.at, weights, MARGINAL, situation.room())[1]
        found = cost_ahead(lanes, 0, new.arrive, new.rank, new.p, new.count, int(weights[new.D]), MARGINAL)[1]
        assert found == pytest.approx(expected, rel=1e-9)
        large += expected > 2**63
    assert large > len(seeds) // 2


def true_lane(situation: Situation) -> Truth:
    """A true lane without chunks, for the groups of the situation."""
    groups = [*situation.sent, situation.new]
    truth = make_truth(1, np.array([group.count for group in groups]), preemptive=True, overhead=0)
    for job, group in enumerate(groups):
        truth.links[truth.first[job] : truth.first[job + 1]] = [*range(1, group.count), -1]
    return truth


def run_to(truth: Truth, unsettled: int, until: int) -> int:
    """Run a true lane; returns `until` if that instant is not settled, else -1."""
    while True:
        why, now = run(truth, unsettled, until)
        truth.size[[RUNS, FACTS, SWITCHES, DONE]] = 0
        if why == QUIET or (why == FINISHED and now == until):
            return now if why == FINISHED else -1
        unsettled = now if why == FINISHED else -1


@pytest.mark.parametrize("seeds", [range(300), range(300, 600)], ids=str)
def test_stretches_hold_while_time_passes(seeds: range) -> None:
    """600 true lanes: made when the lane has been sent something, they still give the cost when others complete."""
    kept = 0
    for seed in seeds:
        situation = replace(seeded(seed, haprf=True, most=8), preempt=True)
        truth, unsettled = true_lane(situation), -1
        for seq, group in enumerate([*situation.sent, situation.new]):
            unsettled = run_to(truth, unsettled, group.at)
            kept += int(truth.lanes.n_intervals[0] != UNKNOWN)
            look_ahead(truth.lanes, np.array([0]), group.at, WEIGHTS)
            new, room = Situation((), group), np.zeros((2, 20, FIELDS), np.int64)
            cost = foreseen(new, "marginal", truth.lanes)
            bring_to(truth.lanes, np.array([0]), group.at)
            assert cost[0] == insert_cost(truth.lanes, 0, group.row(seq), group.at, WEIGHTS, MARGINAL, room)[0]
            # every other one is only asked about, so that the stretches stay
            if seq % 2:
                send(truth.lanes, 0, group.row(seq))
                arrive_now(truth, np.array([0]), group.at)
                unsettled = group.at if truth.size[TOUCHED] else unsettled
    assert kept > len(seeds)


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
