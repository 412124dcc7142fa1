"""Lanes followed from run to run with the chunks that wait for them: M4, M21 and M22 in one compiled sweep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from skedge.analysis.row_groups import plain
from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER
from skedge.platform.heap import pop, precedes, push
from skedge.platform.jit import lean, unlocked


class LaneRuns(NamedTuple):
    """Runs by lane, and there by start: `first` is that of each lane, `chunk` the number of a run's in the queue."""

    first: Ints
    start: Ints
    end: Ints
    chunk: Ints


class LaneQueue(NamedTuple):
    """Chunks that are sent to lanes, by lane, and there by decision.

    Attributes
    ----------
    first
        First chunk of each lane, shape ``(lanes + 1,)``.
    sent_at, arrival, leave_time
        Decision to send each chunk, its arrival, and the end of its last run (NEVER if it never runs) [µs].
    rank, group
        The chunk of the smallest rank runs first; of those of equal rank, that of the smallest group. Chunks of a
        group, which take turns, may run in any order.
    """

    first: Ints
    sent_at: Ints
    arrival: Ints
    leave_time: Ints
    rank: Ints
    group: Ints


class LaneService(NamedTuple):
    """What :func:`lane_service` finds: `overlaps`, `inversions` and `idle` are tables of (time, run, chunk).

    Attributes
    ----------
    overlaps
        Runs that begin before the previous one has ended; chunk -1.
    inversions
        Runs while a better chunk waits.
    idle
        For each run before which the lane was idle, a chunk that waited.
    gap
        By run: time from its end to the next run on its lane, if that is of a better chunk; else NEVER [µs].
    """

    overlaps: Ints
    inversions: Ints
    idle: Ints
    gap: Ints


def lane_service(runs: LaneRuns, queue: LaneQueue, *, preemptive: bool, slack: int, room: int) -> LaneService:
    """Follow each lane with the queue of chunks that have arrived there and are not finished.

    Parameters
    ----------
    runs, queue
        The runs on the lanes, and when each chunk is there to be served.
    preemptive
        Whether lanes preempt chunks.
    slack
        Tolerance [µs].
    room
        Maximum number of rows of each table returned.
    """
    tables, count, gap = np.empty((3, room, 3), np.int64), np.zeros(3, np.int64), np.full(len(runs.start), NEVER)
    in_transit, waiting = np.empty((2, np.diff(queue.first).max(initial=0)), np.int64)
    runs, queue = LaneRuns(*_plain(runs)), LaneQueue(*_plain(queue))
    _follow_lanes(runs, queue, preemptive, slack, in_transit, waiting, tables, count, gap)
    return LaneService(tables[0, : count[0]], tables[1, : count[1]], tables[2, : count[2]], gap)


def _plain(arrays: Iterable[Ints]) -> Iterator[Ints]:
    return (plain(array, np.int64) for array in arrays)


_OVERLAPS, _INVERSIONS, _IDLE = range(3)


@unlocked
def _follow_lanes(  # noqa: C901 - one sweep: a call per event would cost more than the event
    runs: LaneRuns,
    queue: LaneQueue,
    preemptive: bool,
    slack: int,
    in_transit: Ints,
    waiting: Ints,
    tables: Ints,
    count: Ints,
    gap: Ints,
) -> None:
    """Fill the tables and the gaps of :func:`lane_service`.

    `in_transit` and `waiting` are heaps with room for all chunks of a lane: the chunks on their way to it, the next to
    arrive first, and the chunks that have arrived, the best first.
    """
    arrival, leave_time, rank, group = queue.arrival, queue.leave_time, queue.rank, queue.group
    for lane in range(len(runs.first) - 1):
        n_waiting, n_in_transit, next_chunk, last, free_at = 0, 0, queue.first[lane], queue.first[lane + 1], 0
        for i in range(runs.first[lane], runs.first[lane + 1]):
            begin, end, chunk = runs.start[i], runs.end[i], runs.chunk[i]
            if i > runs.first[lane]:
                if begin < free_at - slack:
                    _add_row(tables, count, _OVERLAPS, begin, i, -1)
                if precedes(chunk, runs.chunk[i - 1], rank, group):
                    gap[i - 1] = begin - runs.end[i - 1]
            while n_waiting > 0 and leave_time[waiting[0]] <= free_at:
                n_waiting = pop(waiting, n_waiting, rank, rank)
            waiter, waits_from = -1, NEVER
            if n_waiting > 0:
                waiter, waits_from = waiting[0], free_at
            # a chunk sent at the very time when the run begins could have been chosen
            n_in_transit, next_chunk = _send_chunks(queue, next_chunk, last, begin + 1, in_transit, n_in_transit)
            while n_in_transit > 0 and arrival[in_transit[0]] <= begin:
                if waiter < 0:
                    waiter, waits_from = in_transit[0], max(free_at, arrival[in_transit[0]])
                n_waiting = push(waiting, n_waiting, in_transit[0], rank, rank)
                n_in_transit = pop(in_transit, n_in_transit, arrival, rank)
            if waiter >= 0 and waits_from < begin - slack:
                _add_row(tables, count, _IDLE, waits_from, i, waiter)
            while n_waiting > 0 and leave_time[waiting[0]] <= begin:
                n_waiting = pop(waiting, n_waiting, rank, rank)
            # without preemption only what waits when the run begins counts
            better, worse_from = -1, begin
            if n_waiting > 0 and precedes(waiting[0], chunk, rank, group) and arrival[waiting[0]] + slack <= begin:
                better = waiting[0]
            n_in_transit, next_chunk = _send_chunks(queue, next_chunk, last, end, in_transit, n_in_transit)
            while n_in_transit > 0 and arrival[in_transit[0]] < end:
                c = in_transit[0]
                if preemptive and better < 0 and precedes(c, chunk, rank, group) and arrival[c] < end - slack:
                    better, worse_from = c, arrival[c]
                n_waiting = push(waiting, n_waiting, c, rank, rank)
                n_in_transit = pop(in_transit, n_in_transit, arrival, rank)
            if better >= 0:
                _add_row(tables, count, _INVERSIONS, worse_from, i, better)
            # runs may overlap (M4)
            free_at = max(free_at, end)


@lean
def _send_chunks(
    queue: LaneQueue, next_chunk: int, last: int, until: int, in_transit: Ints, n_in_transit: int
) -> tuple[int, int]:
    """Push the chunks from `next_chunk` to `last` sent before `until`; returns heap size and next chunk."""
    while next_chunk < last and queue.sent_at[next_chunk] < until:
        n_in_transit = push(in_transit, n_in_transit, next_chunk, queue.arrival, queue.rank)
        next_chunk += 1
    return n_in_transit, next_chunk


@lean
def _add_row(tables: Ints, count: Ints, table: int, time: int, run: int, place: int) -> None:
    """Add a row to a table that is not full."""
    n = count[table]
    if n < tables.shape[1]:
        tables[table, n, 0], tables[table, n, 1], tables[table, n, 2] = time, run, place
        count[table] = n + 1
