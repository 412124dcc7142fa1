"""The true lanes of the simulated world: which chunk runs when, in time order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER
from skedge.platform.jit import inlined, lean

from .agenda import CLOUD_STARTS
from .lag import Lag, bounded, end_epoch, make_lag, must_wait, to_epoch_end
from .lanes import (
    CHUNKS,
    EACH,
    HEAD,
    JOB,
    LEFT,
    SEQ,
    Lanes,
    Links,
    absorb,
    empty_lanes,
    finish_head,
    forget,
    has,
    next_arrival,
    pick,
)

QUIET, FINISHED, SETTLED, FULL = range(4)
"""Why :func:`run` returned: nothing until the limit, jobs finished, jobs started or paused, buffers full."""

BLOCK = 32
"""Lanes per block of :attr:`Truth.earliest`."""

RUN_JOB, RUN_CHUNK, RUN_LANE, RUN_START, RUN_END, RUN_PREEMPTED = range(6)
FACT_TIME, FACT_LANE, FACT_JOB = range(3)
RUNS, FACTS, SWITCHES, DONE, TOUCHED = range(5)
"""Entries of :attr:`Truth.size`."""


class Truth(NamedTuple):
    """State of the true lanes.

    Attributes
    ----------
    lanes
        The queues, with true durations.
    next_event
        Next event on each lane [µs].
    open_chunk, open_job, open_start
        Chunk in service on each lane (-1: none), its job, and the start of its service.
    links, first
        Next chunk of each chunk's group, and index of each job's first link.
    in_service, was_running, left
        By job: chunks in service; whether there were any at the last report; uncompleted chunks.
    runs, facts, switches, done
        Output buffers: runs, chunk completions, jobs that started or paused (job, 1 or 0), jobs finished.
    size
        Number of entries in the four buffers (RUNS, FACTS, SWITCHES, DONE), and number of lanes touched (TOUCHED).
    earliest
        Earliest next event of each block of BLOCK lanes [µs], so that the next one is found quickly.
    touched, marked
        Lanes with events at the present instant (``size[TOUCHED]`` of them), and a mark on each.
    lag
        Epochs of the jobs that bound their chunks' lag; on lanes, each of their chunks is a group of its own.
    """

    lanes: Lanes
    next_event: Ints
    open_chunk: Ints
    open_job: Ints
    open_start: Ints
    links: Links
    first: Ints
    in_service: Ints
    was_running: Ints
    left: Ints
    runs: Ints
    facts: Ints
    switches: Ints
    done: Ints
    size: Ints
    earliest: Ints
    touched: Ints
    marked: Ints
    lag: Lag


def make_truth(
    lanes: int, chunks: Ints, *, preemptive: bool, overhead: int, lag: Lag | None = None, buffer: int = 1 << 16
) -> Truth:
    """Idle lanes for jobs with these numbers of chunks; lanes for `lag` follow the cluster's `lanes`.

    Parameters
    ----------
    lanes, chunks
        Lanes of the cluster; D_j by job.
    preemptive, overhead
        Service discipline: whether better ranks displace, and the checkpoint overhead [µs].
    lag
        State of the jobs that bound their lag; None: no job does.
    buffer
        Rows of the output buffers, besides four for each lane.
    """
    jobs = len(chunks)
    zeros = np.zeros(jobs, np.int64)
    lag = make_lag(lanes, zeros, zeros, chunks) if lag is None else lag
    lanes += int(chunks[lag.max_lag > 0].sum()) if len(lag.max_lag) else 0
    capacity = buffer + 4 * lanes
    return Truth(
        lanes=empty_lanes(lanes, preemptive=preemptive, overhead=overhead),
        next_event=np.full(lanes, NEVER, np.int64),
        open_chunk=np.full(lanes, -1, np.int64),
        open_job=np.full(lanes, -1, np.int64),
        open_start=np.zeros(lanes, np.int64),
        links=np.full(int(chunks.sum()), -1, np.int32),
        first=np.concatenate([[0], np.cumsum(chunks)]).astype(np.int64),
        in_service=np.zeros(jobs, np.int64),
        was_running=np.zeros(jobs, np.int64),
        left=chunks.astype(np.int64).copy(),
        runs=np.zeros((capacity, 6), np.int64),
        facts=np.zeros((capacity, 3), np.int64),
        switches=np.zeros((4 * lanes + 2 * jobs + 4, 2), np.int64),
        done=np.zeros(lanes + 1, np.int64),
        size=np.zeros(5, np.int64),
        earliest=np.full(-(-lanes // BLOCK), NEVER, np.int64),
        touched=np.zeros(lanes, np.int64),
        marked=np.zeros(lanes, np.int64),
        lag=lag,
    )


@lean
def run(w: Truth, unsettled: int, until: int) -> tuple[int, int]:
    """Run the lanes until `until`, or until there is something to report; returns (why, when).

    At FINISHED the instant is not settled yet, as orders may still change it; the next call must be given this instant
    as `unsettled` (-1: none). The same holds for events at `until` itself: then why is FINISHED even if no job has
    finished.
    """
    if unsettled >= 0:
        settle(w, unsettled)
        if w.size[SWITCHES] > 0:
            return SETTLED, unsettled
    while True:
        now = _earliest(w)
        # one instant adds at most two runs and one fact per lane: ask for room before it, not within it; also before
        # one of other events, which may displace chunks
        if w.size[RUNS] + 2 * len(w.next_event) > len(w.runs) or w.size[FACTS] + len(w.next_event) > len(w.facts):
            return FULL, min(now, until)
        if now > until or now == NEVER:
            return QUIET, until
        _touch_all(w, now)
        if w.lag.size[0] > 0:
            _touch_held(w, now)
        # a finished job may free what others wait for: the policy decides before lanes choose what to serve
        if w.size[DONE] > 0 or now == until:
            return FINISHED, now
        settle(w, now)
        if w.size[SWITCHES] > 0:
            return SETTLED, now


@inlined
def _earliest(w: Truth) -> int:
    """Time of the next event on any lane [µs]; NEVER if there is none."""
    earliest = NEVER
    for block in range(len(w.earliest)):
        earliest = min(earliest, w.earliest[block])
    return earliest


@inlined
def _touch_all(w: Truth, now: int) -> None:
    """Advance the lanes with an event at `now` to that instant."""
    for block in range(len(w.earliest)):
        if w.earliest[block] == now:
            for lane in range(block * BLOCK, min(len(w.next_event), (block + 1) * BLOCK)):
                if w.next_event[lane] == now:
                    touch(w, lane, now)


@inlined
def touch(w: Truth, lane: int, now: int) -> None:
    """Advance `lane` to `now`: progress of the chunk in service, its completion, arrivals at the server."""
    if w.marked[lane] == 0:
        w.marked[lane] = 1
        # listed once per instant, however many things happen on the lane
        w.touched[w.size[TOUCHED]] = lane
        w.size[TOUCHED] += 1
    lanes = w.lanes
    if w.open_chunk[lane] >= 0:
        i = _row_in_service(w, lane)
        lanes.rows[lane, i, LEFT] -= now - lanes.clock[lane]
        # only a chunk that was really served can be displaced, and then pay the overhead
        if now > lanes.clock[lane]:
            lanes.serving[lane] = lanes.rows[lane, i, SEQ]
        if bounded(w.lag, w.open_job[lane]):
            _end_epochs(w, lane, i, now)
        elif lanes.rows[lane, i, LEFT] == 0:
            _fact(w, lane, w.open_job[lane], now)
            _complete(w, lane, i, now)
    lanes.clock[lane] = now
    absorb(lanes, lane, now)


@inlined
def _touch_held(w: Truth, now: int) -> None:
    """Advance to `now` the lanes with chunks that may continue because their job's slowest one has trained an epoch."""
    for k in range(w.lag.size[0]):
        job = w.lag.risen[k]
        for chunk in range(w.first[job], w.first[job + 1]):
            if w.lag.lane[chunk] >= 0:
                touch(w, w.lag.lane[chunk], now)
    w.lag.size[0] = 0


@inlined
def _row_in_service(w: Truth, lane: int) -> int:
    job, chunk, i = w.open_job[lane], w.open_chunk[lane], w.lanes.waiting[lane] - 1
    while w.lanes.rows[lane, i, JOB] != job or w.lanes.rows[lane, i, HEAD] != chunk:
        i -= 1
    return i


@inlined
def _end_epochs(w: Truth, lane: int, i: int, now: int) -> None:
    """Count the epochs completed by the chunk in row `i`, and the chunk if that was its last epoch."""
    rows = w.lanes.rows
    job, chunk, chunk_time, left = rows[lane, i, JOB], rows[lane, i, HEAD], rows[lane, i, EACH], rows[lane, i, LEFT]
    while (
        w.lag.epochs_done[w.first[job] + chunk] < w.lag.epochs[job]
        and to_epoch_end(w.lag, job, chunk, chunk_time, left) <= 0
    ):
        if end_epoch(w.lag, job, chunk, rows[lane, i, CHUNKS]) and lane < w.lag.size[1]:
            _fact(w, lane, job, now)
    if left == 0:
        _complete(w, lane, i, now)


@inlined
def _fact(w: Truth, lane: int, job: int, now: int) -> None:
    """Report that `lane` has trained one more chunk of `job`, or the equivalent of one."""
    n = w.size[FACTS]
    w.facts[n, FACT_TIME], w.facts[n, FACT_LANE], w.facts[n, FACT_JOB] = now, lane, job
    w.size[FACTS] = n + 1


@inlined
def _complete(w: Truth, lane: int, i: int, now: int) -> None:
    job, head = w.lanes.rows[lane, i, JOB], w.lanes.rows[lane, i, HEAD]
    close(w, lane, now, 0)
    # the next chunk of the group, before the head is removed
    w.lanes.rows[lane, i, HEAD] = w.links[w.first[job] + head]
    finish_head(w.lanes, lane, i)
    w.left[job] -= 1
    if w.left[job] == 0:
        w.done[w.size[DONE]] = job
        w.size[DONE] += 1


@inlined
def close(w: Truth, lane: int, now: int, preempted: int) -> None:
    """End the run in service on `lane`; a run of length 0 is not recorded.

    Parameters
    ----------
    w
        The true lanes; changed in place.
    lane, now
        The lane, and the end of the run [µs].
    preempted
        1 if the chunk is displaced, 0 if it is complete or waits for slower ones.
    """
    job, start = w.open_job[lane], w.open_start[lane]
    if now > start:
        n = w.size[RUNS]
        w.runs[n, RUN_JOB], w.runs[n, RUN_CHUNK], w.runs[n, RUN_LANE] = job, w.open_chunk[lane], lane
        w.runs[n, RUN_START], w.runs[n, RUN_END], w.runs[n, RUN_PREEMPTED] = start, now, preempted
        w.size[RUNS] = n + 1
    w.open_chunk[lane] = -1
    _count(w, job, -1)


@inlined
def _count(w: Truth, job: int, change: int) -> None:
    """Change the number of chunks in service of `job`, and mark the job for a check when the instant has settled."""
    w.in_service[job] += change
    n = w.size[SWITCHES]
    w.switches[n, 0] = job
    w.size[SWITCHES] = n + 1


@inlined
def change_in_cloud(w: Truth, kind: int, job: int, chunks: int) -> bool:
    """Chunks of `job` start or end in the cloud, where none waits; returns whether the job is finished.

    Parameters
    ----------
    w
        The truth; changed in place.
    kind
        CLOUD_STARTS or CLOUD_ENDS.
    job, chunks
        The job, and how many of its chunks.
    """
    starts = kind == CLOUD_STARTS
    w.in_service[job] += chunks if starts else -chunks
    w.switches[w.size[SWITCHES], 0] = job
    w.size[SWITCHES] += 1
    w.left[job] -= 0 if starts else chunks
    return bool(not starts and w.left[job] == 0)


@lean
def take_off(w: Truth, job: int, now: int) -> None:
    """Remove the chunks of a job that has failed from all lanes; what those in service have trained is recorded."""
    for lane in range(len(w.lanes.waiting)):
        if w.open_chunk[lane] >= 0 and w.open_job[lane] == job:
            touch(w, lane, now)
            if w.open_chunk[lane] >= 0:
                close(w, lane, now, 0)
        if has(w.lanes, lane, job):
            touch(w, lane, now)
            forget(w.lanes, lane, job)
    if bounded(w.lag, job):
        for chunk in range(w.first[job], w.first[job + 1]):
            w.lag.lane[chunk] = -1


@inlined
def _smallest_first(lanes: Ints, k: int, n: int) -> None:
    """Swap the smallest of ``lanes[k:n]`` to index `k`; most instants touch one lane."""
    for i in range(k + 1, n):
        if lanes[i] < lanes[k]:
            lanes[k], lanes[i] = lanes[i], lanes[k]


@inlined
def settle(w: Truth, now: int) -> None:
    """Choose what each touched lane serves from `now` on, and report the jobs that have started or paused."""
    n_touched = w.size[TOUCHED]
    w.size[TOUCHED] = 0
    for k in range(n_touched):
        # lanes in order of number, so that the record does not depend on the order of events
        _smallest_first(w.touched, k, n_touched)
        lane = w.touched[k]
        w.marked[lane] = 0
        _schedule(w, lane, _serve(w, lane, now))
    # compacted in place: n_switches never passes k
    n_switches = 0
    for k in range(w.size[SWITCHES]):
        job = w.switches[k, 0]
        running = 1 if w.in_service[job] > 0 else 0
        # a job that stops on one lane and starts on another within the instant has neither started nor paused
        if running != w.was_running[job]:
            w.was_running[job] = running
            w.switches[n_switches, 0], w.switches[n_switches, 1] = job, running
            n_switches += 1
    w.size[SWITCHES] = n_switches


@inlined
def _serve(w: Truth, lane: int, now: int) -> int:
    """Put the best group in service; returns the time of the lane's next event."""
    lanes = w.lanes
    arrival = next_arrival(lanes, lane)
    if lanes.waiting[lane] == 0:
        return arrival
    i = pick(lanes, lane) if len(w.lag.max_lag) == 0 else _pick_allowed(w, lane)
    if i < 0:
        if w.open_chunk[lane] >= 0:
            close(w, lane, now, 0)
        return arrival
    job, chunk, left = lanes.rows[lane, i, JOB], lanes.rows[lane, i, HEAD], lanes.rows[lane, i, LEFT]
    # the chunk may be in service already: then its run goes on
    if w.open_chunk[lane] != chunk or w.open_job[lane] != job:
        if w.open_chunk[lane] >= 0:
            close(w, lane, now, _is_displaced(w, lane, job))
        w.open_chunk[lane], w.open_job[lane], w.open_start[lane] = chunk, job, now
        _count(w, job, 1)
    if bounded(w.lag, job):
        left = to_epoch_end(w.lag, job, chunk, lanes.rows[lane, i, EACH], left)
    return min(arrival, now + left)


@inlined
def _is_displaced(w: Truth, lane: int, job: int) -> int:
    """Whether `job` displaces the chunk in service: not if that waits, or the turn passes to another of its job."""
    served = w.open_job[lane]
    return 0 if bounded(w.lag, served) and (served == job or must_wait(w.lag, served, w.open_chunk[lane])) else 1


@inlined
def _pick_allowed(w: Truth, lane: int) -> int:
    """Like :func:`~skedge.core.engine.lanes.pick`, for chunks not too far ahead; -1 if all are. Adds no overhead."""
    lanes = w.lanes
    if lanes.preemptive == 0 and w.open_chunk[lane] >= 0:
        job, chunk = w.open_job[lane], w.open_chunk[lane]
        if not bounded(w.lag, job) or not must_wait(w.lag, job, chunk):
            return _row_in_service(w, lane)
    for i in range(lanes.waiting[lane] - 1, -1, -1):
        best = _least_trained(w, lane, lanes.rows[lane, i, JOB])
        if best >= 0:
            return best
    return -1


@inlined
def _least_trained(w: Truth, lane: int, job: int) -> int:
    """Row of the job's chunk on the lane whose turn it is: fewest epochs, then number; -1 if it is too far ahead.

    A job without a limit has one row on a lane, its group.
    """
    best, best_epochs, rows = -1, 0, w.lanes.rows
    for i in range(w.lanes.waiting[lane]):
        if rows[lane, i, JOB] != job:
            continue
        if not bounded(w.lag, job):
            return i
        epochs, chunk = w.lag.epochs_done[w.first[job] + rows[lane, i, HEAD]], rows[lane, i, HEAD]
        if best < 0 or epochs < best_epochs or (epochs == best_epochs and chunk < rows[lane, best, HEAD]):
            best, best_epochs = i, epochs
    if best >= 0 and must_wait(w.lag, job, rows[lane, best, HEAD]):
        return -1
    return best


@inlined
def _schedule(w: Truth, lane: int, time: int) -> None:
    """Set the next event of `lane`."""
    w.next_event[lane] = time
    block = lane // BLOCK
    earliest = NEVER
    for k in range(block * BLOCK, min(len(w.next_event), (block + 1) * BLOCK)):
        earliest = min(earliest, w.next_event[k])
    w.earliest[block] = earliest


@lean
def arrive_now(w: Truth, lane_of: Ints, now: int) -> None:
    """After a dispatch at `now`: touch lanes that a group reaches immediately; schedule an event on the others."""
    for lane in lane_of:
        if lane < 0 or w.lanes.coming[lane] == 0:
            continue
        arrive = next_arrival(w.lanes, lane)
        if arrive <= now:
            touch(w, lane, now)
        elif arrive < w.next_event[lane]:
            _schedule(w, lane, arrive)
