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

from .lanes import LaneRows, SortedLaneRows
from .rules import Findings

MODES = {"marginal": 0, "eq5": 1, "fractional": 2}
"""Readings of Q (docs/errata.md, J21 to J24)."""


def check_lane_alpha(b: SortedLaneRows, findings: Findings, mode: str, *, preemptive: bool) -> None:
    """Check M34 for the chunks that are dispatched to lanes."""
    rows = len(b.k.c.dispatches)
    if mode in MODES and rows:
        _compare(
            b.k.c, findings, np.arange(rows) < b.first_dispatch[-1], *_lane_alpha(b, MODES[mode], preemptive=preemptive)
        )


def check_cloud_alpha(c: Columns, zeta: Zeta, findings: Findings, mode: str) -> None:
    """Check M34 for the chunks that are dispatched to the cloud, where none is postponed."""
    away = c.dispatches["lane"] < 0
    if mode in MODES and away.any():
        _compare(c, findings, away, _cloud_alpha(c, zeta, MODES[mode]), np.zeros(len(away), np.int64))


def _compare(c: Columns, findings: Findings, mask: NDArray[np.bool_], alpha: Floats, postponed: Ints) -> None:
    """Compare alpha [s] and the number of postponed chunks with the record in `mask` of the dispatch rows."""
    d = c.dispatches
    recorded_alpha = d["value"]
    # negated, so that an alpha that is missing (NaN) is wrong too
    wrong = mask & ~(np.abs(recorded_alpha - alpha) <= RESTATED * np.abs(alpha) + 1e-9)
    template = "alpha of chunk {} is {:.9g} s; Q gives {:.9g} s"
    findings.add_rows(
        "M34", wrong, d["job"], d["time"], lambda i: template.format(d["chunk"][i], recorded_alpha[i], alpha[i])
    )
    miscounted = mask & (d["postponed"] != postponed)
    say_later = "chunk {} postpones {} chunks on record; Q gives {}"
    findings.add_rows(
        "M34", miscounted, d["job"], d["time"],
        lambda i: say_later.format(d["chunk"][i], d["postponed"][i], postponed[i]),
    )  # fmt: skip


def check_lemma_4(scenario: Scenario, findings: Findings, mode: str, alpha: float | None, beta: float | None) -> None:
    """Check that sum alpha = sum beta [s], if Q is the marginal increase and the announced durations are true."""
    if mode != "marginal" or scenario.physics.estimate_error != 0 or alpha is None or beta is None:
        return
    if not abs(alpha - beta) <= RESTATED * abs(beta):
        findings.add("M34", None, None, f"alpha sums to {alpha:.9g} s, beta to {beta:.9g} s; by Lemma 4 they agree")


def _cloud_alpha(c: Columns, zeta: Zeta, mode: int) -> Floats:
    """(t - r + Delta + p) / D of each dispatch row [s], as if sent to the cloud; Alg. 3 line 8."""
    d, scenario = c.dispatches, c.scenario
    job = d["job"]
    p = scenario.chunk_time[job, zeta.at(job, d["time"])]
    response = d["time"] - scenario.jobs.arrival[job] + upload_delays(scenario.delays, job, d["server"]) + p
    alpha: Floats = (response - (p / 2 if mode == MODES["fractional"] else 0)) / scenario.jobs.chunks[job] / SECOND
    return alpha


def _lane_alpha(b: SortedLaneRows, mode: int, *, preemptive: bool) -> tuple[Floats, Ints]:
    """Alpha [s] and number of postponed chunks by dispatch row; 0 for those elsewhere."""
    rows, physics = len(b.k.c.dispatches), b.k.c.scenario.physics
    estimates_exact, overhead = physics.estimate_error == 0, physics.checkpoint_overhead
    alpha, postponed = np.zeros(rows), np.zeros(rows, np.int64)
    scratch = _scratch(int(np.diff(b.first_dispatch).max(initial=0)))
    _compute_alpha(
        b.first_dispatch, _lane_record(b.k), estimates_exact, overhead, preemptive, mode, scratch, alpha, postponed
    )
    return alpha / SECOND, postponed


class _Record(NamedTuple):
    """The data for following lanes: columns of the dispatches by lane, then columns of the chunk runs.

    `duration` is the announced p, `weight` is 1 / D. If announced durations are true, the rest is empty: `last_end` is
    the end of the last run of a dispatch's chunk, whose number is its first dispatch row; the rows of a chunk's runs
    begin at ``run_first[chunk]`` of `runs`.
    """

    job: Ints
    time: Ints
    rank: Ints
    arrival: Ints
    duration: Ints
    weight: Floats
    release: Ints
    last_end: Ints
    chunk: Ints
    runs: Ints
    run_first: Ints
    start: Ints
    end: Ints
    preempted: NDArray[np.bool_]


def _lane_record(k: LaneRows) -> _Record:
    """The data of rows by lane."""
    d, t = k.c.dispatches, k.c.chunks
    last_end = chunk = runs = run_first = np.empty(0, np.int64)
    if k.c.scenario.physics.estimate_error:
        last_end, chunk = k.last_end, k.first
        runs, run_first = in_groups(k.chunk_row, t["start"], len(d))
    duration, chunks, release = k.job_values
    job, time, rank, arrival, duration, release, last_end, chunk, runs, run_first = (
        plain(column, np.int64)
        for column in (d["job"], d["time"], d["rank"], k.arrival, duration, release, last_end, chunk, runs, run_first)
    )
    weight = plain(1 / chunks, np.float64)
    return _Record(
        job, time, rank, arrival, duration, weight, release, last_end, chunk, runs, run_first, t["start"], t["end"],
        t["preempted"],
    )  # fmt: skip


_RANK, _ARRIVE, _REMAINING, _DURATION, _COUNT = range(5)
"""Columns of a queue, one row per dispatch; remaining time of the first chunk and time of a whole one [µs]."""

_MARGINAL, _EQ5, _FRACTIONAL = 0, 1, 2


class _Scratch(NamedTuple):
    """Arrays that :func:`_compute_alpha` works on: a queue with the weights of its rows, a copy of it, rows at work."""

    queue: Ints
    share: Floats
    work: Ints
    live: Ints
    times: Ints


def _scratch(max_rows: int) -> _Scratch:
    """Room for lanes of at most `max_rows` chunks."""
    queue, work = np.zeros((max_rows + 1, 5), np.int64), np.zeros((max_rows + 1, 5), np.int64)
    return _Scratch(
        queue, np.zeros(max_rows + 1), work, np.zeros(max_rows, np.int64), np.zeros((2, max_rows), np.int64)
    )


@unlocked
def _compute_alpha(
    first: Ints, r: _Record, estimates_exact: bool, overhead: int, preemptive: bool, mode: int, scratch: _Scratch,
    alpha: Floats, postponed: Ints,
) -> None:  # fmt: skip
    """Fill in alpha [µs] and the number of postponed chunks of the dispatches by lane.

    If `estimates_exact` (announced durations are true), the state of a lane follows from the decisions alone; otherwise
    the recorded runs give its progress.
    """
    queue, share, work, live_rows, times = scratch
    for lane in range(len(first) - 1):
        n, size, serving, clock, row = 0, 0, -1, 0, first[lane]
        while row < first[lane + 1]:
            job, last = r.job[row], row
            while last < first[lane + 1] and r.job[last] == job and r.time[last] == r.time[row]:
                last += 1
            duration, weight = r.duration[row], r.weight[row]
            if estimates_exact:
                serving = _serve(queue, size, int(clock), r.time[row], serving, overhead, preemptive)
                size, serving = _drop_empty(queue, share, size, serving)
            else:
                n = _drop_finished(live_rows, n, r.last_end, r.time[row])
                size, serving = _queue(queue, share, live_rows, n, r, r.time[row], overhead)
            clock = r.time[row]
            # still without chunks: they are added one by one below, each seeing those before it (J5)
            new_row = _insert(queue, share, size, r.rank[row], r.arrival[row], duration, weight)
            # the row in service moves by one if the new one is put before it
            serving, size = serving + (1 if 0 <= new_row <= serving else 0), size + 1
            own = (r.arrival[row] - r.release[row]) * weight
            as_eq5 = mode == _MARGINAL and preemptive and overhead == 0 and _no_arrivals(queue, size, r.arrival[row])
            if mode == _EQ5 or as_eq5:
                wait, harm, n_later = _queue_at_arrival(
                    queue, share, size, new_row, clock, serving, overhead, preemptive, work
                )
                for m in range(row, last):
                    # the chunks of one dispatch tie in rank, so the k-th waits for the k - 1 before it
                    alpha[m] = own + (wait + (m - row + 1) * duration) * weight + harm
                    postponed[m] = n_later
            else:
                base = r.arrival[row]
                before = _total_flow(
                    queue, share, size, clock, base, serving, overhead, preemptive, mode, work, times[0]
                )
                for m in range(row, last):
                    queue[new_row, _COUNT] += 1
                    odd = (m - row + 1) % 2
                    after = _total_flow(
                        queue, share, size, clock, base, serving, overhead, preemptive, mode, work, times[odd]
                    )
                    alpha[m] = own + after - before
                    postponed[m] = _count_later(queue, size, new_row, times[odd], times[1 - odd])
                    before = after
            queue[new_row, _COUNT] = last - row
            if not estimates_exact:
                for m in range(row, last):
                    live_rows[n] = m
                    n += 1
            row = last


@lean
def _drop_finished(live_rows: Ints, n: int, last_end: Ints, now: int) -> int:
    """Remove rows from `live_rows` whose chunk is done by now; returns the number left."""
    size = 0
    for m in range(n):
        if last_end[live_rows[m]] > now:
            live_rows[size] = live_rows[m]
            size += 1
    return size


@lean
def _drop_empty(queue: Ints, share: Floats, size: int, serving: int) -> tuple[int, int]:
    """Remove rows whose chunks are done; returns the number left and the index of the one in service."""
    n_left, place = 0, -1
    for g in range(size):
        if queue[g, _COUNT] == 0:
            continue
        # the row in service keeps its index among those that are left
        if g == serving:
            place = n_left
        if n_left < g:
            for f in range(5):
                queue[n_left, f] = queue[g, f]
            share[n_left] = share[g]
        n_left += 1
    return n_left, place


@lean
def _queue(queue: Ints, share: Floats, live_rows: Ints, n: int, r: _Record, now: int, overhead: int) -> tuple[int, int]:
    """Fill the queue from past runs, by rank, then by dispatch; returns its size and the row in service."""
    size, serving, m = 0, -1, 0
    while m < n:
        row, count = live_rows[m], 0
        while m < n and r.job[live_rows[m]] == r.job[row] and r.time[live_rows[m]] == r.time[row]:
            count += 1
            m += 1
        left, serves = r.duration[row], False
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
        duration, weight = r.duration[row], r.weight[row]
        place = _insert(queue, share, size, r.rank[row], r.arrival[row], duration, weight)
        queue[place, _REMAINING], queue[place, _COUNT] = left, count
        size += 1
        if 0 <= place <= serving:
            serving += 1
        if serves:
            serving = place
    return size, serving


@inlined
def _insert(queue: Ints, share: Floats, size: int, rank: int, arrive: int, duration: int, weight: float) -> int:
    """Insert a row without chunks after those of rank up to `rank`; returns its index."""
    i = size
    # strictly worse only: equal ranks keep the order of dispatch (J28)
    while i > 0 and queue[i - 1, _RANK] > rank:
        for f in range(5):
            queue[i, f] = queue[i - 1, f]
        share[i] = share[i - 1]
        i -= 1
    queue[i, _RANK], queue[i, _ARRIVE], queue[i, _REMAINING], queue[i, _DURATION], queue[i, _COUNT] = (
        rank,
        arrive,
        duration,
        duration,
        0,
    )
    share[i] = weight
    return i


@inlined
def _no_arrivals(queue: Ints, size: int, t0: int) -> bool:
    """Whether no other chunk reaches the lane after t0; the marginal increase is then Eq. (5)."""
    no_arrival = True
    for g in range(size):
        if queue[g, _ARRIVE] > t0:
            no_arrival = False
    return no_arrival


@inlined
def _next_served(work: Ints, size: int, now: int, until: int, preemptive: bool) -> tuple[int, int]:
    """The row served at `now` (-1: none), and until when: a better one comes or, without preemption, its chunk ends."""
    best, coming = -1, until
    for g in range(size):
        if work[g, _COUNT] == 0:
            continue
        if work[g, _ARRIVE] > now:
            coming = min(coming, work[g, _ARRIVE])
        elif preemptive or work[g, _REMAINING] < work[g, _DURATION]:
            best = g
            break
        elif best < 0:
            best = g
    if best >= 0 and not preemptive:
        coming = min(until, now + work[best, _REMAINING])
    return best, coming


@lean
def _serve(work: Ints, size: int, now: int, until: int, serving: int, overhead: int, preemptive: bool) -> int:
    """Serve the queue from `now` to `until`, in place; returns the row in service at the end, -1 for none."""
    while now < until:
        best, stop = _next_served(work, size, now, until, preemptive)
        if best < 0:
            now = stop
            continue
        if preemptive and overhead > 0 and serving >= 0 and serving != best and work[serving, _COUNT] > 0:
            work[serving, _REMAINING] += overhead
        left, duration = work[best, _REMAINING], work[best, _DURATION]
        total = left + (work[best, _COUNT] - 1) * duration
        span = min(stop - now, total)
        now, serving = now + span, best
        if span == total:
            work[best, _COUNT], work[best, _REMAINING], serving = 0, duration, -1
        elif span < left:
            work[best, _REMAINING] = left - span
        else:
            n_done = (span - left) // duration
            into = span - left - n_done * duration
            work[best, _COUNT] -= 1 + n_done
            work[best, _REMAINING] = duration - into
            # a chunk ended exactly here, so nothing is in service that could be displaced
            if into == 0:
                serving = -1
    return serving


@lean
def _queue_at_arrival(
    queue: Ints,
    share: Floats,
    size: int,
    new_row: int,
    now: int,
    serving: int,
    overhead: int,
    preemptive: bool,
    work: Ints,
) -> tuple[int, float, int]:
    """State at t0: remaining time of better or equal ranks [µs]; cost of p to the other chunks, and their number."""
    t0, p, rank = queue[new_row, _ARRIVE], queue[new_row, _DURATION], queue[new_row, _RANK]
    for g in range(size):
        for f in range(5):
            work[g, f] = queue[g, f]
    _serve(work, size, now, t0, serving, overhead, preemptive)
    wait, harm, n_later = 0, 0.0, 0
    for g in range(size):
        if work[g, _COUNT] == 0:
            continue
        if work[g, _RANK] <= rank:
            wait += work[g, _REMAINING] + (work[g, _COUNT] - 1) * work[g, _DURATION]
        else:
            n_later += work[g, _COUNT]
            harm += share[g] * work[g, _COUNT] * p
    return wait, harm, n_later


@lean
def _total_flow(
    queue: Ints, share: Floats, size: int, now: int, base: int, serving: int, overhead: int, preemptive: bool,
    mode: int, work: Ints, times: Ints,
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
        best, stop = _next_served(work, size, now, NEVER, preemptive)
        if best < 0 and stop == NEVER:
            return flow
        if best < 0:
            now = stop
            continue
        if preemptive and overhead > 0 and serving >= 0 and serving != best and work[serving, _COUNT] > 0:
            work[serving, _REMAINING] += overhead
        span = min(stop - now, work[best, _REMAINING] + (work[best, _COUNT] - 1) * work[best, _DURATION])
        if mode == _FRACTIONAL:
            flow += share[best] * span * (now - base + span / 2.0) / work[best, _DURATION]
        serving = best
        while span > 0 and span >= work[best, _REMAINING]:
            now, span = now + work[best, _REMAINING], span - work[best, _REMAINING]
            times[work[best, _RANK]] = now
            if mode == _MARGINAL:
                flow += share[best] * (now - base)
            work[best, _RANK] += 1
            work[best, _COUNT] -= 1
            work[best, _REMAINING] = work[best, _DURATION]
            serving = -1
        if span > 0:
            now, serving = now + span, best
            work[best, _REMAINING] -= span


@lean
def _count_later(queue: Ints, size: int, new_row: int, times: Ints, without: Ints) -> int:
    """Number of chunks that complete later with the last chunk of row `new_row` than without it."""
    n_later, a, b = 0, 0, 0
    for g in range(size):
        chunks = queue[g, _COUNT]
        n_others = chunks - 1 if g == new_row else chunks
        for m in range(n_others):
            if times[a + m] > without[b + m]:
                n_later += 1
        a, b = a + chunks, b + n_others
    return n_later
