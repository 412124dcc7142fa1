"""The true lanes of the simulated world: what really runs, chunk by chunk, in order of time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.jit import compiled
from ..core.lanes import COUNT, HEAD, JOB, LEFT, SEQ, Lanes, absorb, empty_lanes, finish_head, next_arrival, pick
from ..core.model import Ints
from ..core.time import NEVER

QUIET, FINISHED, SETTLED, FULL = range(4)
"""Why :func:`run` came back: nothing until the limit, jobs finished, jobs started or paused, buffers full."""

RUN_JOB, RUN_CHUNK, RUN_LANE, RUN_START, RUN_END, RUN_PREEMPTED = range(6)
FACT_TIME, FACT_LANE, FACT_JOB = range(3)


class Truth(NamedTuple):
    """State of the true lanes.

    Attributes
    ----------
    lanes
        The queues, with true durations.
    next_event
        When something next happens on each lane [µs].
    open_chunk, open_job, open_start
        Chunk in service on each lane (-1: none), its job, and since when.
    links, first
        Next chunk of a chunk's group, and where each job's links begin.
    in_service, was_running, left
        By job: chunks in service; whether that was more than 0 when last told; chunks not yet completed.
    runs, facts, told, done
        Out buffers: runs, chunk completions, jobs whose running changed (job, 1 or 0), jobs finished.
    size
        Fill of the four buffers.
    touched
        Marks lanes of the present instant.
    """

    lanes: Lanes
    next_event: Ints
    open_chunk: Ints
    open_job: Ints
    open_start: Ints
    links: Ints
    first: Ints
    in_service: Ints
    was_running: Ints
    left: Ints
    runs: Ints
    facts: Ints
    told: Ints
    done: Ints
    size: Ints
    touched: Ints


def make_truth(lanes: int, chunks: Ints, *, preemptive: bool, overhead: int, buffer: int = 1 << 16) -> Truth:
    """Idle lanes for jobs with these numbers of chunks."""
    jobs = len(chunks)
    room = buffer + 4 * lanes
    return Truth(
        lanes=empty_lanes(lanes, preemptive=preemptive, overhead=overhead),
        next_event=np.full(lanes, NEVER, np.int64),
        open_chunk=np.full(lanes, -1, np.int64),
        open_job=np.full(lanes, -1, np.int64),
        open_start=np.zeros(lanes, np.int64),
        links=np.full(int(chunks.sum()), -1, np.int64),
        first=np.concatenate([[0], np.cumsum(chunks)]).astype(np.int64),
        in_service=np.zeros(jobs, np.int64),
        was_running=np.zeros(jobs, np.int64),
        left=chunks.astype(np.int64).copy(),
        runs=np.zeros((room, 6), np.int64),
        facts=np.zeros((room, 3), np.int64),
        told=np.zeros((4 * lanes + 2 * jobs + 4, 2), np.int64),
        done=np.zeros(lanes + 1, np.int64),
        size=np.zeros(4, np.int64),
        touched=np.zeros(lanes, np.int64),
    )


@compiled
def run(w: Truth, until: int) -> tuple[int, int]:
    """Let the lanes run until `until`, or until there is something to tell; returns (why, when).

    At FINISHED the instant is not settled yet: orders may still change it; :func:`settle` must follow. With events at
    `until` itself the same holds, and why is FINISHED even if no job has finished.
    """
    while True:
        now = NEVER
        for lane in range(len(w.next_event)):
            now = min(now, w.next_event[lane])
        if now > until or now == NEVER:
            return QUIET, until
        if w.size[0] + 2 * len(w.next_event) > len(w.runs) or w.size[1] + len(w.next_event) > len(w.facts):
            return FULL, now
        for lane in range(len(w.next_event)):
            if w.next_event[lane] == now:
                _touch(w, lane, now)
        if w.size[3] > 0 or now == until:
            return FINISHED, now
        settle(w, now)
        if w.size[2] > 0:
            return SETTLED, now


@compiled
def _touch(w: Truth, lane: int, now: int) -> None:
    """Bring `lane` to `now`: progress of the chunk in service, its completion, arrivals at the server."""
    w.touched[lane] = 1
    lanes = w.lanes
    if w.open_chunk[lane] >= 0:
        i = _row_in_service(w, lane)
        row = lanes.rows[lane, i]
        row[LEFT] -= now - lanes.clock[lane]
        if now > lanes.clock[lane]:
            lanes.serving[lane] = row[SEQ]
        if row[LEFT] == 0:
            _complete(w, lane, i, now)
    lanes.clock[lane] = now
    absorb(lanes, lane, now)


@compiled
def _row_in_service(w: Truth, lane: int) -> int:
    rows, job = w.lanes.rows[lane], w.open_job[lane]
    i = w.lanes.waiting[lane] - 1
    while rows[i, JOB] != job:
        i -= 1
    return i


@compiled
def _complete(w: Truth, lane: int, i: int, now: int) -> None:
    row = w.lanes.rows[lane, i]
    job = row[JOB]
    _close(w, lane, now, 0)
    n = w.size[1]
    w.facts[n, FACT_TIME], w.facts[n, FACT_LANE], w.facts[n, FACT_JOB] = now, lane, job
    w.size[1] = n + 1
    row[HEAD] = w.links[w.first[job] + row[HEAD]]
    finish_head(w.lanes, lane, i)
    w.left[job] -= 1
    if w.left[job] == 0:
        w.done[w.size[3]] = job
        w.size[3] += 1


@compiled
def _close(w: Truth, lane: int, now: int, preempted: int) -> None:
    """End the run in service on `lane`; a run of no length leaves no trace."""
    job, start = w.open_job[lane], w.open_start[lane]
    if now > start:
        n = w.size[0]
        run = w.runs[n]
        run[RUN_JOB], run[RUN_CHUNK], run[RUN_LANE] = job, w.open_chunk[lane], lane
        run[RUN_START], run[RUN_END], run[RUN_PREEMPTED] = start, now, preempted
        w.size[0] = n + 1
    w.open_chunk[lane] = -1
    _count(w, job, -1)


@compiled
def _count(w: Truth, job: int, change: int) -> None:
    """Count chunks in service; remember which jobs to look at when the instant has settled."""
    w.in_service[job] += change
    n = w.size[2]
    w.told[n, 0] = job
    w.size[2] = n + 1


@compiled
def settle(w: Truth, now: int) -> None:
    """Choose what every touched lane serves from `now` on, and note the jobs that have started or paused."""
    for lane in range(len(w.touched)):
        if w.touched[lane]:
            w.touched[lane] = 0
            _serve(w, lane, now)
    kept = 0
    for k in range(w.size[2]):
        job = w.told[k, 0]
        running = 1 if w.in_service[job] > 0 else 0
        if running != w.was_running[job]:
            w.was_running[job] = running
            w.told[kept, 0], w.told[kept, 1] = job, running
            kept += 1
    w.size[2] = kept


@compiled
def _serve(w: Truth, lane: int, now: int) -> None:
    lanes = w.lanes
    w.next_event[lane] = next_arrival(lanes, lane)
    if lanes.waiting[lane] == 0:
        return
    i = pick(lanes, lane)
    row = lanes.rows[lane, i]
    if w.open_chunk[lane] != row[HEAD] or w.open_job[lane] != row[JOB]:
        if w.open_chunk[lane] >= 0:
            _close(w, lane, now, 1)
        w.open_chunk[lane], w.open_job[lane], w.open_start[lane] = row[HEAD], row[JOB], now
        _count(w, row[JOB], 1)
    w.next_event[lane] = min(w.next_event[lane], now + row[LEFT])


@compiled
def arrive_now(w: Truth, job: int, now: int) -> None:
    """After a dispatch of `job` at `now`: lanes that a group reaches at once belong to the instant; the others get a time."""
    for lane in range(len(w.touched)):
        n = w.lanes.coming[lane]
        if n == 0:
            continue
        arrive = next_arrival(w.lanes, lane)
        if arrive <= now:
            _touch(w, lane, now)
        else:
            w.next_event[lane] = min(w.next_event[lane], arrive)


__all__ = ["COUNT", "FINISHED", "FULL", "QUIET", "SETTLED", "Truth", "arrive_now", "make_truth", "run", "settle"]
