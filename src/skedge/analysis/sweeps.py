"""Sweeps over the rows of a record.

What NumPy does as fast is left to it: a kernel that sorts or allocates takes seconds to compile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.time import NEVER
from skedge.platform.jit import compiled, lean, unlocked

Small = NDArray[np.int32]

_CHUNK_ROWS = 2**18
"""Rows that are counted together."""


class Groups:
    """The rows of a table by group, within each group by a key, stably; rows of group -1 are omitted.

    Attributes
    ----------
    first
        Start of each group among the rows, shape ``(groups + 1,)``.
    """

    def __init__(self, group: Small | Ints, key: Ints, groups: int) -> None:
        sizes = np.bincount(group + 1, minlength=groups + 1)
        self.first = np.zeros(groups + 1, np.int64)
        np.cumsum(sizes[1:], out=self.first[1:])
        self._order = in_order(key)
        self._group = plain(group[self._order], np.int32)
        # rows that are in order already, behind the omitted ones
        self._n_omitted = int(sizes[0]) if (self._group[1:] >= self._group[:-1]).all() else None

    def take(self, column: Small | Ints) -> Ints:
        """The column in order of the groups.

        It is read in order, and each group is written in order, so that the cache is missed far less often than where
        it is indexed with the rows.
        """
        ordered = column[self._order]
        if self._n_omitted is not None:
            return plain(ordered[self._n_omitted :], np.int64)
        result = np.empty(self.first[-1], np.int64)
        _scatter(plain(ordered, np.int64), self._group, self.first[:-1].copy(), result)
        return plain(result, np.int64)

    @property
    def rows(self) -> Ints:
        """The numbers of the rows."""
        return self.take(np.arange(len(self._group)))


def counts(group: Small | Ints, groups: int) -> Ints:
    """Number of rows of each group; part by part, as NumPy copies numbers of 32 bits."""
    sizes = np.zeros(groups, np.int64)
    for first in range(0, len(group), _CHUNK_ROWS):
        sizes += np.bincount(group[first : first + _CHUNK_ROWS], minlength=groups)
    return sizes


def in_groups(group: Small | Ints, key: Ints, groups: int) -> tuple[Ints, Ints]:
    """Rows and first row of each group, as :class:`Groups` has them."""
    index = Groups(group, key, groups)
    return index.rows, index.first


def plain(array: NDArray[Any], kind: DTypeLike) -> NDArray[Any]:
    """A read-only array of this type, so that all callers share one kernel."""
    return read_only(np.ascontiguousarray(array, kind))


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, which cannot be written to."""
    array = array.view()
    array.flags.writeable = False
    return array


def _group_numbers(group: Small | Ints, groups: int) -> Small:
    """Numbers of groups as kernels take them, which do not check that there is such a group.

    Raises
    ------
    IndexError
        If one is of none: what is not verified may have any number.
    """
    if len(group) and not (group.min() >= 0 and group.max() < groups):
        raise IndexError(f"a row is of group {group.min()} or {group.max()}; there are {groups}")
    return plain(group, np.int32)


@unlocked
def _scatter(values: Ints, group: Small, next_place: Ints, result: Ints) -> None:
    """Write each value to the next place of its group, the first of which is ``at[group]``."""
    for i in range(len(group)):
        if group[i] >= 0:
            result[next_place[group[i]]] = values[i]
            next_place[group[i]] += 1


def in_order(time: Ints) -> Ints | slice:
    """What selects the rows in order of `time`; a slice if they are in order, as it copies nothing."""
    return np.argsort(time, kind="stable") if (time[1:] < time[:-1]).any() else slice(None)


def overlapping(group: Small | Ints, start: Ints, end: Ints, groups: int, slack: int) -> Ints:
    """Rows that begin more than `slack` µs before an earlier one of their group has ended, by start."""
    order = in_order(start)
    group, start, end = group[order], start[order], end[order]
    wrong, last = np.zeros(len(group), bool), np.full(groups, -NEVER, np.int64)
    _overlap(plain(group, np.int32), plain(start, np.int64), plain(end, np.int64), last, slack, wrong)
    rows = np.flatnonzero(wrong)
    return rows if isinstance(order, slice) else order[rows]


@unlocked
def _overlap(group: Small, start: Ints, end: Ints, last: Ints, slack: int, wrong: NDArray[np.bool_]) -> None:
    """Mark the rows, in order of start, that begin before ``last``, the latest end so far of their group."""
    for i in range(len(group)):
        latest = last[group[i]]
        wrong[i] = start[i] < latest - slack
        last[group[i]] = max(latest, end[i])


def bounds(group: Small | Ints, start: Ints, end: Ints, groups: int) -> tuple[Ints, Ints, Ints]:
    """First start, last end and number of rows of each group; NEVER and -1 if it has none."""
    first, last, count = np.full(groups, NEVER, np.int64), np.full(groups, -1, np.int64), np.zeros(groups, np.int64)
    _bounds(_group_numbers(group, groups), plain(start, np.int64), plain(end, np.int64), first, last, count)
    return first, last, count


@unlocked
def _bounds(group: Small, start: Ints, end: Ints, first: Ints, last: Ints, count: Ints) -> None:
    """:func:`bounds`, into the last three."""
    for i in range(len(group)):
        g = group[i]
        first[g] = min(first[g], start[i])
        last[g] = max(last[g], end[i])
        count[g] += 1


def totals(group: Small | Ints, start: Ints, end: Ints, flag: NDArray[np.bool_], groups: int) -> tuple[Ints, Ints]:
    """Total length and number of flagged rows of each group."""
    length, flagged = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    rows = _group_numbers(group, groups), plain(start, np.int64), plain(end, np.int64), plain(flag, np.bool_)
    _totals(*rows, length, flagged)
    return length, flagged


@unlocked
def _totals(group: Small, start: Ints, end: Ints, flag: NDArray[np.bool_], length: Ints, flagged: Ints) -> None:
    """:func:`totals`, into the last two."""
    for i in range(len(group)):
        length[group[i]] += end[i] - start[i]
        flagged[group[i]] += flag[i]


def sums(group: Small | Ints, value: Floats, groups: int) -> Floats:
    """Sum of the values of each group, added in order."""
    result = np.zeros(groups)
    _sums(_group_numbers(group, groups), plain(value, np.float64), result)
    return result


@unlocked
def _sums(group: Small, value: Floats, result: Floats) -> None:
    """:func:`sums`, into the last one."""
    for i in range(len(group)):
        result[group[i]] += value[i]


def merged(group: Small | Ints, start: Ints, end: Ints, groups: int) -> tuple[Ints, Ints, Ints]:
    """Union of each group's intervals as (group, start, end), by group and start; adjacent intervals are merged."""
    order = in_order(start)
    group, start, end = group[order], start[order], end[order]
    table, last = np.empty((3, len(group)), np.int64), np.full(groups, -1, np.int64)
    intervals = table[:, : _merge(plain(group, np.int32), plain(start, np.int64), plain(end, np.int64), last, table)]
    rows, _ = in_groups(intervals[0].astype(np.int32), intervals[1], groups)
    return intervals[0][rows], intervals[1][rows], intervals[2][rows]


@unlocked
def _merge(group: Small, start: Ints, end: Ints, last: Ints, table: Ints) -> int:
    """Fill `table` with the merged intervals of rows in order of start; returns their number.

    `last` is the last interval so far of each group, -1 for none.
    """
    n = 0
    for i in range(len(group)):
        latest = last[group[i]]
        if latest < 0 or start[i] > table[2, latest]:
            last[group[i]] = latest = n
            table[0, latest], table[1, latest], table[2, latest] = group[i], start[i], end[i]
            n += 1
        table[2, latest] = max(table[2, latest], end[i])
    return n


@compiled
def uncovered(a: tuple[Ints, Ints, Ints], b: tuple[Ints, Ints, Ints], slack: int) -> Ints:
    """Start of the first gap of more than `slack` µs that `b` leaves in each interval of `a`; -1 if it is covered.

    Both as :func:`merged` gives them.
    """
    open_at, k = np.full(len(a[0]), -1, np.int64), 0
    for i in range(len(a[0])):
        job, position = a[0][i], a[1][i]
        while k < len(b[0]) and (b[0][k] < job or (b[0][k] == job and b[2][k] <= position)):
            k += 1
        m = k
        while m < len(b[0]) and b[0][m] == job and b[1][m] <= position + slack and position + slack < a[2][i]:
            position = max(position, b[2][m])
            m += 1
        if position + slack < a[2][i]:
            open_at[i] = position
    return open_at


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
                if _precedes(chunk, runs.chunk[i - 1], rank, group):
                    gap[i - 1] = begin - runs.end[i - 1]
            while n_waiting > 0 and leave_time[waiting[0]] <= free_at:
                n_waiting = _pop(waiting, n_waiting, rank, rank)
            waiter, waits_from = -1, NEVER
            if n_waiting > 0:
                waiter, waits_from = waiting[0], free_at
            n_in_transit, next_chunk = _send_chunks(queue, next_chunk, last, begin + 1, in_transit, n_in_transit)
            while n_in_transit > 0 and arrival[in_transit[0]] <= begin:
                if waiter < 0:
                    waiter, waits_from = in_transit[0], max(free_at, arrival[in_transit[0]])
                n_waiting = _push(waiting, n_waiting, in_transit[0], rank, rank)
                n_in_transit = _pop(in_transit, n_in_transit, arrival, rank)
            if waiter >= 0 and waits_from < begin - slack:
                _add_row(tables, count, _IDLE, waits_from, i, waiter)
            while n_waiting > 0 and leave_time[waiting[0]] <= begin:
                n_waiting = _pop(waiting, n_waiting, rank, rank)
            better, worse_from = -1, begin
            if n_waiting > 0 and _precedes(waiting[0], chunk, rank, group) and arrival[waiting[0]] + slack <= begin:
                better = waiting[0]
            n_in_transit, next_chunk = _send_chunks(queue, next_chunk, last, end, in_transit, n_in_transit)
            while n_in_transit > 0 and arrival[in_transit[0]] < end:
                c = in_transit[0]
                if preemptive and better < 0 and _precedes(c, chunk, rank, group) and arrival[c] < end - slack:
                    better, worse_from = c, arrival[c]
                n_waiting = _push(waiting, n_waiting, c, rank, rank)
                n_in_transit = _pop(in_transit, n_in_transit, arrival, rank)
            if better >= 0:
                _add_row(tables, count, _INVERSIONS, worse_from, i, better)
            free_at = max(free_at, end)


@lean
def _send_chunks(
    queue: LaneQueue, next_chunk: int, last: int, until: int, in_transit: Ints, n_in_transit: int
) -> tuple[int, int]:
    """Push the chunks from `next_chunk` to `last` sent before `until`; returns heap size and next chunk."""
    while next_chunk < last and queue.sent_at[next_chunk] < until:
        n_in_transit = _push(in_transit, n_in_transit, next_chunk, queue.arrival, queue.rank)
        next_chunk += 1
    return n_in_transit, next_chunk


@lean
def _add_row(tables: Ints, count: Ints, table: int, time: int, run: int, place: int) -> None:
    """Add a row to a table that is not full."""
    n = count[table]
    if n < tables.shape[1]:
        tables[table, n, 0], tables[table, n, 1], tables[table, n, 2] = time, run, place
        count[table] = n + 1


@lean
def _precedes(a: int, b: int, key: Ints, tie_key: Ints) -> bool:
    """Whether `a` has the smaller `key` than `b`, or the same and the smaller `tie_key`."""
    return key[a] < key[b] or (key[a] == key[b] and tie_key[a] < tie_key[b])


@lean
def _precedes_in_heap(a: int, b: int, key: Ints, tie_key: Ints) -> bool:
    """Whether `a` comes before `b` in a heap: equal ones in order of their numbers."""
    return _precedes(a, b, key, tie_key) or (key[a] == key[b] and tie_key[a] == tie_key[b] and a < b)


@lean
def _push(heap: Ints, size: int, item: int, key: Ints, tie_key: Ints) -> int:
    """Add `item` to a heap of `size` items, the smallest first; returns the new size."""
    i = size
    while i > 0 and _precedes_in_heap(item, heap[(i - 1) // 2], key, tie_key):
        heap[i] = heap[(i - 1) // 2]
        i = (i - 1) // 2
    heap[i] = item
    return size + 1


@lean
def _pop(heap: Ints, size: int, key: Ints, tie_key: Ints) -> int:
    """Remove the smallest item of a heap of `size` items; returns the new size."""
    size -= 1
    item, i, child = heap[size], 0, 1
    while child < size:
        if child + 1 < size and _precedes_in_heap(heap[child + 1], heap[child], key, tie_key):
            child += 1
        if not _precedes_in_heap(heap[child], item, key, tie_key):
            break
        heap[i] = heap[child]
        i, child = child, 2 * child + 1
    heap[i] = item
    return size
