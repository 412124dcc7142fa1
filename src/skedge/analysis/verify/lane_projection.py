"""Lanes followed from dispatch to dispatch and projected with announced durations, as rule M34 needs it.

The record gives the state of a lane: chunks sent, chunks completed, and the time in service of the current one. From
this state the lane is projected, with and without the new chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.time import NEVER
from skedge.platform.jit import inlined, lean, unlocked

MODES = {"marginal": 0, "eq5": 1, "fractional": 2}
"""Readings of Q (docs/errata.md, J21 to J24)."""


class LaneRecord(NamedTuple):
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


_RANK, _ARRIVE, _REMAINING, _DURATION, _COUNT = range(5)
"""Columns of a queue, one row per dispatch; remaining time of the first chunk and time of a whole one [µs]."""


_MARGINAL, _EQ5, _FRACTIONAL = 0, 1, 2


class QueueScratch(NamedTuple):
    """Arrays that :func:`compute_alpha` works on: a queue with the weights of its rows, a copy of it, rows at work."""

    queue: Ints
    share: Floats
    work: Ints
    live: Ints
    times: Ints


def queue_scratch(max_rows: int) -> QueueScratch:
    """Room for lanes of at most `max_rows` chunks."""
    queue, work = np.zeros((max_rows + 1, 5), np.int64), np.zeros((max_rows + 1, 5), np.int64)
    return QueueScratch(
        queue, np.zeros(max_rows + 1), work, np.zeros(max_rows, np.int64), np.zeros((2, max_rows), np.int64)
    )


@unlocked
def compute_alpha(
    first: Ints, r: LaneRecord, estimates_exact: bool, overhead: int, preemptive: bool, mode: int,
    scratch: QueueScratch,
    alpha: Floats, postponed: Ints,
) -> None:  # fmt: skip
    """Fill in alpha [µs] and the number of postponed chunks of the dispatches by lane.

    If `estimates_exact` (announced durations are true), the state of a lane follows from the decisions alone; otherwise
    the recorded runs give its progress.

    Parameters
    ----------
    first, r
        The first row of each lane's dispatches, and behind the last one; the dispatches and runs.
    estimates_exact
        Whether announced durations are true.
    overhead, preemptive
        Checkpoint overhead [µs]; whether lanes preempt.
    mode
        The reading of Q.
    scratch
        Room for the longest lane.
    alpha, postponed
        Out: by row of the dispatches.
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
            # (t + Delta - r) / D: what alpha has of the new chunk before it reaches the lane
            own = (r.arrival[row] - r.release[row]) * weight
            as_eq5 = mode == _MARGINAL and preemptive and overhead == 0 and _no_arrivals(queue, size, r.arrival[row])
            # nothing else arrives after t0 and preemption is free: Q is Eq. (5), without following the lane to its end
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
                    # two buffers of completions in turn: with the m-th chunk and without it
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
    # keeps the order of dispatch, in which the queue is filled
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
def _queue(
    queue: Ints, share: Floats, live_rows: Ints, n: int, r: LaneRecord, now: int, overhead: int
) -> tuple[int, int]:
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
    queue[i, _RANK], queue[i, _ARRIVE], queue[i, _COUNT] = rank, arrive, 0
    queue[i, _REMAINING] = queue[i, _DURATION] = duration
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
        # rows are by rank; without preemption a chunk that has begun goes before better ones
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
        # the chunks of a row are equal, so it is served as a whole
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
        # ranks are not needed any more: from here on the column is the number of the row's next completion
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
        # the new chunk is the last one of its row, and has no completion to compare with
        n_others = chunks - 1 if g == new_row else chunks
        for m in range(n_others):
            if times[a + m] > without[b + m]:
                n_later += 1
        a, b = a + chunks, b + n_others
    return n_later
