"""Rule M34: alpha and the number of postponed chunks of a dispatch follow from the policy's reading of Q.

Each lane is followed from dispatch to dispatch. The record gives its state: chunks sent, chunks completed, and the
time in service of the current one. From this state the lane is projected with announced durations, with and without
the new chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skedge.analysis.columns import Columns
from skedge.analysis.sweeps import in_groups, plain
from skedge.analysis.zeta import Zeta
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.network import upload_delays
from skedge.core.model.scenario import Scenario
from skedge.core.model.ties import RESTATED
from skedge.core.model.time import NEVER, SECOND
from skedge.platform.jit import inlined, lean, unlocked

from .lanes import ByLane, OnLanes
from .rules import Findings

MODES = {"marginal": 0, "eq5": 1, "fractional": 2}
"""Readings of Q (docs/errata.md, J21 to J24)."""


def check_lane_alpha(b: ByLane, found: Findings, mode: str, *, preemptive: bool) -> None:
    """Check M34 for the chunks that are dispatched to lanes."""
    rows = len(b.k.c.dispatches)
    if mode in MODES and rows:
        _compare(b.k.c, found, np.arange(rows) < b.sent[-1], *_on_lanes(b, MODES[mode], preemptive=preemptive))


def check_cloud_alpha(c: Columns, zeta: Zeta, found: Findings, mode: str) -> None:
    """Check M34 for the chunks that are dispatched to the cloud, where none is postponed."""
    away = c.dispatches["lane"] < 0
    if mode in MODES and away.any():
        _compare(c, found, away, _in_cloud(c, zeta, MODES[mode]), np.zeros(len(away), np.int64))


def _compare(c: Columns, found: Findings, these: NDArray[np.bool_], alpha: Floats, postponed: Ints) -> None:
    """Compare alpha [s] and the number of postponed chunks with the record in `these` of the dispatch rows."""
    d = c.dispatches
    got = d["value"]
    # negated, so that an alpha that is missing (NaN) is wrong too
    wrong = these & ~(np.abs(got - alpha) <= RESTATED * np.abs(alpha) + 1e-9)
    say = "alpha of chunk {} is {:.9g} s; Q gives {:.9g} s"
    found.rows("M34", wrong, d["job"], d["time"], lambda i: say.format(d["chunk"][i], got[i], alpha[i]))
    other = these & (d["postponed"] != postponed)
    say_later = "chunk {} postpones {} chunks on record; Q gives {}"
    found.rows(
        "M34", other, d["job"], d["time"], lambda i: say_later.format(d["chunk"][i], d["postponed"][i], postponed[i])
    )  # fmt: skip


def check_lemma_4(scenario: Scenario, found: Findings, mode: str, alpha: float | None, beta: float | None) -> None:
    """Check that sum alpha = sum beta [s], if Q is the marginal increase and the announced durations are true."""
    if mode != "marginal" or scenario.physics.estimate_error != 0 or alpha is None or beta is None:
        return
    if not abs(alpha - beta) <= RESTATED * abs(beta):
        found.add("M34", None, None, f"alpha sums to {alpha:.9g} s, beta to {beta:.9g} s; by Lemma 4 they agree")


def _in_cloud(c: Columns, zeta: Zeta, mode: int) -> Floats:
    """(t - r + Delta + p) / D of each dispatch row [s], as if sent to the cloud; Alg. 3 line 8."""
    d, scenario = c.dispatches, c.scenario
    job = d["job"]
    p = scenario.chunk_time[job, zeta.at(job, d["time"])]
    response = d["time"] - scenario.jobs.arrival[job] + upload_delays(scenario.delays, job, d["server"]) + p
    each: Floats = (response - (p / 2 if mode == MODES["fractional"] else 0)) / scenario.jobs.chunks[job] / SECOND
    return each


def _on_lanes(b: ByLane, mode: int, *, preemptive: bool) -> tuple[Floats, Ints]:
    """Alpha [s] and number of postponed chunks by dispatch row; 0 for those elsewhere."""
    rows, physics = len(b.k.c.dispatches), b.k.c.scenario.physics
    known, overhead = physics.estimate_error == 0, physics.checkpoint_overhead
    alpha, postponed = np.zeros(rows), np.zeros(rows, np.int64)
    scratch = _scratch(int(np.diff(b.sent).max(initial=0)))
    _follow_lanes(b.sent, _record(b.k), known, overhead, preemptive, mode, scratch, alpha, postponed)
    return alpha / SECOND, postponed


class _Record(NamedTuple):
    """The data for following lanes: columns of the dispatches by lane, then columns of the chunk runs.

    `each` is the announced p, `weight` is 1 / D. If announced durations are true, the rest is empty: `gone` is the end
    of the last run of a dispatch's chunk, which has the number of its first dispatch row; the rows of a chunk's runs
    begin at ``run_first[chunk]`` of `runs`.
    """

    job: Ints
    time: Ints
    rank: Ints
    ready: Ints
    each: Ints
    weight: Floats
    release: Ints
    gone: Ints
    chunk: Ints
    runs: Ints
    run_first: Ints
    start: Ints
    end: Ints
    preempted: NDArray[np.bool_]


def _record(k: OnLanes) -> _Record:
    """The data of rows by lane."""
    d, t = k.c.dispatches, k.c.chunks
    gone = chunk = runs = run_first = np.empty(0, np.int64)
    if k.c.scenario.physics.estimate_error:
        gone, chunk = k.done, k.first
        runs, run_first = in_groups(k.of, t["start"], len(d))
    each, chunks, release = k.announced
    job, time, rank, ready, each, release, gone, chunk, runs, run_first = (
        plain(column, np.int64)
        for column in (d["job"], d["time"], d["rank"], k.ready, each, release, gone, chunk, runs, run_first)
    )
    weight = plain(1 / chunks, np.float64)
    return _Record(
        job, time, rank, ready, each, weight, release, gone, chunk, runs, run_first, t["start"], t["end"],
        t["preempted"],
    )  # fmt: skip


_RANK, _ARRIVE, _LEFT, _EACH, _COUNT = range(5)
"""Columns of a queue, one row per dispatch; remaining time of the first chunk and time of a whole one [µs]."""

_MARGINAL, _EQ5, _FRACTIONAL = 0, 1, 2


class _Scratch(NamedTuple):
    """Arrays that :func:`_follow_lanes` works on: a queue with the weights of its rows, a copy of it, rows at work."""

    queue: Ints
    share: Floats
    work: Ints
    live: Ints
    times: Ints


def _scratch(most: int) -> _Scratch:
    """Room for lanes of at most `most` chunks."""
    queue, work = np.zeros((most + 1, 5), np.int64), np.zeros((most + 1, 5), np.int64)
    return _Scratch(queue, np.zeros(most + 1), work, np.zeros(most, np.int64), np.zeros((2, most), np.int64))


@unlocked
def _follow_lanes(
    first: Ints, r: _Record, known: bool, overhead: int, preemptive: bool, mode: int, scratch: _Scratch, alpha: Floats,
    postponed: Ints,
) -> None:  # fmt: skip
    """Fill in alpha [µs] and postponed chunks of the dispatches by lane; `known`: announced durations are true.

    If `known`, the state of a lane follows from the decisions alone; otherwise the recorded runs give its progress.
    """
    queue, share, work, live, times = scratch
    for lane in range(len(first) - 1):
        n, size, serving, clock, row = 0, 0, -1, 0, first[lane]
        while row < first[lane + 1]:
            job, last = r.job[row], row
            while last < first[lane + 1] and r.job[last] == job and r.time[last] == r.time[row]:
                last += 1
            each, weight = r.each[row], r.weight[row]
            if known:
                serving = _serve(queue, size, int(clock), r.time[row], serving, overhead, preemptive)
                size, serving = _tidy(queue, share, size, serving)
            else:
                n = _still_there(live, n, r.gone, r.time[row])
                size, serving = _queue(queue, share, live, n, r, r.time[row], overhead)
            clock = r.time[row]
            # still without chunks: they are added one by one below, each seeing those before it (J5)
            mine = _insert(queue, share, size, r.rank[row], r.ready[row], each, weight)
            # the row in service moves by one if the new one is put before it
            serving, size = serving + (1 if 0 <= mine <= serving else 0), size + 1
            own = (r.ready[row] - r.release[row]) * weight
            plain = mode == _MARGINAL and preemptive and overhead == 0 and _none_comes(queue, size, r.ready[row])
            if mode == _EQ5 or plain:
                ahead, harm, later = _at_arrival(queue, share, size, mine, clock, serving, overhead, preemptive, work)
                for m in range(row, last):
                    # the chunks of one dispatch tie in rank, so the k-th waits for the k - 1 before it
                    alpha[m] = own + (ahead + (m - row + 1) * each) * weight + harm
                    postponed[m] = later
            else:
                base = r.ready[row]
                before = _flow(queue, share, size, clock, base, serving, overhead, preemptive, mode, work, times[0])
                for m in range(row, last):
                    queue[mine, _COUNT] += 1
                    odd = (m - row + 1) % 2
                    after = _flow(
                        queue, share, size, clock, base, serving, overhead, preemptive, mode, work, times[odd]
                    )
                    alpha[m] = own + after - before
                    postponed[m] = _later(queue, size, mine, times[odd], times[1 - odd])
                    before = after
            queue[mine, _COUNT] = last - row
            if not known:
                for m in range(row, last):
                    live[n] = m
                    n += 1
            row = last


@lean
def _still_there(live: Ints, n: int, gone: Ints, now: int) -> int:
    """Remove rows from `live` whose chunk is done by now; returns the number left."""
    kept = 0
    for m in range(n):
        if gone[live[m]] > now:
            live[kept] = live[m]
            kept += 1
    return kept


@lean
def _tidy(queue: Ints, share: Floats, size: int, serving: int) -> tuple[int, int]:
    """Remove rows whose chunks are done; returns the number left and the index of the one in service."""
    kept, place = 0, -1
    for g in range(size):
        if queue[g, _COUNT] == 0:
            continue
        # the row in service keeps its index among those that are left
        if g == serving:
            place = kept
        if kept < g:
            for f in range(5):
                queue[kept, f] = queue[g, f]
            share[kept] = share[g]
        kept += 1
    return kept, place


@lean
def _queue(queue: Ints, share: Floats, live: Ints, n: int, r: _Record, now: int, overhead: int) -> tuple[int, int]:
    """Fill the queue from past runs, by rank, then by dispatch; returns its size and the row in service."""
    size, serving, m = 0, -1, 0
    while m < n:
        row, count = live[m], 0
        while m < n and r.job[live[m]] == r.job[row] and r.time[live[m]] == r.time[row]:
            count += 1
            m += 1
        left, serves = r.each[row], False
        for k in range(r.run_first[r.chunk[row]], r.run_first[r.chunk[row] + 1]):
            run = r.runs[k]
            if r.start[run] >= now:
                break
            left = max(1, left - (min(r.end[run], now) - r.start[run]))
            # a run that goes on at this time is of the chunk in service; one that has ended was interrupted
            if r.end[run] < now:
                left += overhead if r.preempted[run] else 0
            else:
                serves = True
        each, weight = r.each[row], r.weight[row]
        place = _insert(queue, share, size, r.rank[row], r.ready[row], each, weight)
        queue[place, _LEFT], queue[place, _COUNT] = left, count
        size += 1
        if 0 <= place <= serving:
            serving += 1
        if serves:
            serving = place
    return size, serving


@inlined
def _insert(queue: Ints, share: Floats, size: int, rank: int, arrive: int, each: int, weight: float) -> int:
    """Insert a row without chunks after those of rank up to `rank`; returns its index."""
    i = size
    # strictly worse only: equal ranks keep the order of dispatch (J28)
    while i > 0 and queue[i - 1, _RANK] > rank:
        for f in range(5):
            queue[i, f] = queue[i - 1, f]
        share[i] = share[i - 1]
        i -= 1
    queue[i, _RANK], queue[i, _ARRIVE], queue[i, _LEFT], queue[i, _EACH], queue[i, _COUNT] = rank, arrive, each, each, 0
    share[i] = weight
    return i


@inlined
def _none_comes(queue: Ints, size: int, t0: int) -> bool:
    """Whether no other chunk reaches the lane after t0; the marginal increase is then Eq. (5)."""
    none = True
    for g in range(size):
        if queue[g, _ARRIVE] > t0:
            none = False
    return none


@inlined
def _next(work: Ints, size: int, at: int, until: int, preemptive: bool) -> tuple[int, int]:
    """The row served at `at` (-1: none), and until when: a better one comes or, without preemption, its chunk ends."""
    best, coming = -1, until
    for g in range(size):
        if work[g, _COUNT] == 0:
            continue
        if work[g, _ARRIVE] > at:
            coming = min(coming, work[g, _ARRIVE])
        elif preemptive or work[g, _LEFT] < work[g, _EACH]:
            best = g
            break
        elif best < 0:
            best = g
    if best >= 0 and not preemptive:
        coming = min(until, at + work[best, _LEFT])
    return best, coming


@lean
def _serve(work: Ints, size: int, at: int, until: int, serving: int, overhead: int, preemptive: bool) -> int:
    """Serve the queue from `at` to `until`, in place; returns the row in service at the end, -1 for none."""
    while at < until:
        best, stop = _next(work, size, at, until, preemptive)
        if best < 0:
            at = stop
            continue
        if preemptive and overhead > 0 and serving >= 0 and serving != best and work[serving, _COUNT] > 0:
            work[serving, _LEFT] += overhead
        left, each = work[best, _LEFT], work[best, _EACH]
        whole = left + (work[best, _COUNT] - 1) * each
        span = min(stop - at, whole)
        at, serving = at + span, best
        if span == whole:
            work[best, _COUNT], work[best, _LEFT], serving = 0, each, -1
        elif span < left:
            work[best, _LEFT] = left - span
        else:
            done = (span - left) // each
            into = span - left - done * each
            work[best, _COUNT] -= 1 + done
            work[best, _LEFT] = each - into
            # a chunk ended exactly here, so nothing is in service that could be displaced
            if into == 0:
                serving = -1
    return serving


@lean
def _at_arrival(
    queue: Ints,
    share: Floats,
    size: int,
    mine: int,
    now: int,
    serving: int,
    overhead: int,
    preemptive: bool,
    work: Ints,
) -> tuple[int, float, int]:
    """State at t0: remaining time of better or equal ranks [µs]; cost of p to the other chunks, and their number."""
    t0, p, rank = queue[mine, _ARRIVE], queue[mine, _EACH], queue[mine, _RANK]
    for g in range(size):
        for f in range(5):
            work[g, f] = queue[g, f]
    _serve(work, size, now, t0, serving, overhead, preemptive)
    ahead, harm, later = 0, 0.0, 0
    for g in range(size):
        if work[g, _COUNT] == 0:
            continue
        if work[g, _RANK] <= rank:
            ahead += work[g, _LEFT] + (work[g, _COUNT] - 1) * work[g, _EACH]
        else:
            later += work[g, _COUNT]
            harm += share[g] * work[g, _COUNT] * p
    return ahead, harm, later


@lean
def _flow(
    queue: Ints, share: Floats, size: int, at: int, base: int, serving: int, overhead: int, preemptive: bool, mode: int,
    work: Ints, times: Ints,
) -> float:  # fmt: skip
    """Serve the queue to its end; returns sum of (c - base) / D over the chunks, or their fractional flow.

    `work` is scratch space; `times` receives each chunk's completion, row by row.
    """
    flow, number = 0.0, 0
    for g in range(size):
        for f in range(5):
            work[g, f] = queue[g, f]
        work[g, _RANK] = number
        number += queue[g, _COUNT]
    while True:
        best, stop = _next(work, size, at, NEVER, preemptive)
        if best < 0 and stop == NEVER:
            return flow
        if best < 0:
            at = stop
            continue
        if preemptive and overhead > 0 and serving >= 0 and serving != best and work[serving, _COUNT] > 0:
            work[serving, _LEFT] += overhead
        span = min(stop - at, work[best, _LEFT] + (work[best, _COUNT] - 1) * work[best, _EACH])
        if mode == _FRACTIONAL:
            flow += share[best] * span * (at - base + span / 2.0) / work[best, _EACH]
        serving = best
        while span > 0 and span >= work[best, _LEFT]:
            at, span = at + work[best, _LEFT], span - work[best, _LEFT]
            times[work[best, _RANK]] = at
            if mode == _MARGINAL:
                flow += share[best] * (at - base)
            work[best, _RANK] += 1
            work[best, _COUNT] -= 1
            work[best, _LEFT] = work[best, _EACH]
            serving = -1
        if span > 0:
            at, serving = at + span, best
            work[best, _LEFT] -= span


@lean
def _later(queue: Ints, size: int, mine: int, times: Ints, without: Ints) -> int:
    """Number of chunks that complete later with the last chunk of row `mine` than without it."""
    later, a, b = 0, 0, 0
    for g in range(size):
        chunks = queue[g, _COUNT]
        others = chunks - 1 if g == mine else chunks
        for m in range(others):
            if times[a + m] > without[b + m]:
                later += 1
        a, b = a + chunks, b + others
    return later
