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

_PART = 2**18
"""Rows that are counted together."""


class Groups:
    """The rows of a table by group, within each group by a key, stably; rows of group -1 are omitted.

    Attributes
    ----------
    first
        Start of each group among the rows, shape ``(groups + 1,)``.
    """

    def __init__(self, group: Small | Ints, key: Ints, groups: int) -> None:
        of = np.bincount(group + 1, minlength=groups + 1)
        self.first = np.zeros(groups + 1, np.int64)
        np.cumsum(of[1:], out=self.first[1:])
        self._order = in_order(key)
        self._group = plain(group[self._order], np.int32)
        # rows that are in order already, behind the omitted ones
        self._there = int(of[0]) if (self._group[1:] >= self._group[:-1]).all() else None

    def take(self, column: Small | Ints) -> Ints:
        """The column in order of the groups.

        It is read in order, and each group is written in order, so that the cache is missed far less often than where
        it is indexed with the rows.
        """
        ordered = column[self._order]
        if self._there is not None:
            return plain(ordered[self._there :], np.int64)
        out = np.empty(self.first[-1], np.int64)
        _scatter(plain(ordered, np.int64), self._group, self.first[:-1].copy(), out)
        return plain(out, np.int64)

    @property
    def rows(self) -> Ints:
        """The numbers of the rows."""
        return self.take(np.arange(len(self._group)))


def counts(group: Small | Ints, groups: int) -> Ints:
    """Number of rows of each group; part by part, as NumPy copies numbers of 32 bits."""
    of = np.zeros(groups, np.int64)
    for first in range(0, len(group), _PART):
        of += np.bincount(group[first : first + _PART], minlength=groups)
    return of


def in_groups(group: Small | Ints, key: Ints, groups: int) -> tuple[Ints, Ints]:
    """Rows and first row of each group, as :class:`Groups` has them."""
    of = Groups(group, key, groups)
    return of.rows, of.first


def plain(array: NDArray[Any], kind: DTypeLike) -> NDArray[Any]:
    """A read-only array of this type, so that all callers share one kernel."""
    return read_only(np.ascontiguousarray(array, kind))


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, which cannot be written to."""
    array = array.view()
    array.flags.writeable = False
    return array


def _numbers(group: Small | Ints, groups: int) -> Small:
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
def _scatter(values: Ints, group: Small, at: Ints, out: Ints) -> None:
    """Write each value to the next place of its group, the first of which is ``at[group]``."""
    for i in range(len(group)):
        if group[i] >= 0:
            out[at[group[i]]] = values[i]
            at[group[i]] += 1


def in_order(time: Ints) -> Ints | slice:
    """What selects the rows in order of `time`; a slice if they are in order, as it copies nothing."""
    return np.argsort(time, kind="stable") if (time[1:] < time[:-1]).any() else slice(None)


def overlapping(group: Small | Ints, start: Ints, end: Ints, groups: int, slack: int) -> Ints:
    """Rows that begin more than `slack` µs before an earlier one of their group has ended, by start."""
    order = in_order(start)
    group, start, end = group[order], start[order], end[order]
    wrong, last = np.zeros(len(group), bool), np.full(groups, -NEVER, np.int64)
    _overlap(plain(group, np.int32), plain(start, np.int64), plain(end, np.int64), last, slack, wrong)
    found = np.flatnonzero(wrong)
    return found if isinstance(order, slice) else order[found]


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
    _bounds(_numbers(group, groups), plain(start, np.int64), plain(end, np.int64), first, last, count)
    return first, last, count


@unlocked
def _bounds(group: Small, start: Ints, end: Ints, first: Ints, last: Ints, count: Ints) -> None:
    """:func:`bounds`, into the last three."""
    for i in range(len(group)):
        of = group[i]
        first[of] = min(first[of], start[i])
        last[of] = max(last[of], end[i])
        count[of] += 1


def totals(group: Small | Ints, start: Ints, end: Ints, flag: NDArray[np.bool_], groups: int) -> tuple[Ints, Ints]:
    """Total length and number of flagged rows of each group."""
    length, flagged = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    rows = _numbers(group, groups), plain(start, np.int64), plain(end, np.int64), plain(flag, np.bool_)
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
    out = np.zeros(groups)
    _sums(_numbers(group, groups), plain(value, np.float64), out)
    return out


@unlocked
def _sums(group: Small, value: Floats, out: Floats) -> None:
    """:func:`sums`, into the last one."""
    for i in range(len(group)):
        out[group[i]] += value[i]


def merged(group: Small | Ints, start: Ints, end: Ints, groups: int) -> tuple[Ints, Ints, Ints]:
    """Union of each group's intervals as (group, start, end), by group and start; adjacent intervals are merged."""
    order = in_order(start)
    group, start, end = group[order], start[order], end[order]
    out, last = np.empty((3, len(group)), np.int64), np.full(groups, -1, np.int64)
    found = out[:, : _merge(plain(group, np.int32), plain(start, np.int64), plain(end, np.int64), last, out)]
    rows, _ = in_groups(found[0].astype(np.int32), found[1], groups)
    return found[0][rows], found[1][rows], found[2][rows]


@unlocked
def _merge(group: Small, start: Ints, end: Ints, last: Ints, out: Ints) -> int:
    """Fill `out` with the merged intervals of rows in order of start; returns their number.

    `last` is the last interval so far of each group, -1 for none.
    """
    n = 0
    for i in range(len(group)):
        mine = last[group[i]]
        if mine < 0 or start[i] > out[2, mine]:
            last[group[i]] = mine = n
            out[0, mine], out[1, mine], out[2, mine] = group[i], start[i], end[i]
            n += 1
        out[2, mine] = max(out[2, mine], end[i])
    return n


@compiled
def uncovered(a: tuple[Ints, Ints, Ints], b: tuple[Ints, Ints, Ints], slack: int) -> Ints:
    """Start of the first gap of more than `slack` µs that `b` leaves in each interval of `a`; -1 if it is covered.

    Both as :func:`merged` gives them.
    """
    open_at, k = np.full(len(a[0]), -1, np.int64), 0
    for i in range(len(a[0])):
        job, at = a[0][i], a[1][i]
        while k < len(b[0]) and (b[0][k] < job or (b[0][k] == job and b[2][k] <= at)):
            k += 1
        m = k
        while m < len(b[0]) and b[0][m] == job and b[1][m] <= at + slack and at + slack < a[2][i]:
            at = max(at, b[2][m])
            m += 1
        if at + slack < a[2][i]:
            open_at[i] = at
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
    sent, ready, gone
        Decision to send each chunk, its arrival, and the end of its last run (NEVER if it never runs) [µs].
    rank, group
        The chunk of the smallest rank runs first; of those of equal rank, that of the smallest group. Chunks of a
        group, which take turns, may run in any order.
    """

    first: Ints
    sent: Ints
    ready: Ints
    gone: Ints
    rank: Ints
    group: Ints


class LaneService(NamedTuple):
    """What :func:`lane_service` finds: `twice`, `worse` and `idle` are tables of (time, run, chunk).

    Attributes
    ----------
    twice
        Runs that begin before the previous one has ended; chunk -1.
    worse
        Runs while a better chunk waits.
    idle
        For each run before which the lane was idle, a chunk that waited.
    gap
        By run: time from its end to the next run on its lane, if that is of a better chunk; else NEVER [µs].
    """

    twice: Ints
    worse: Ints
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
    coming, waiting = np.empty((2, np.diff(queue.first).max(initial=0)), np.int64)
    runs, queue = LaneRuns(*_plain(runs)), LaneQueue(*_plain(queue))
    _follow(runs, queue, preemptive, slack, coming, waiting, tables, count, gap)
    return LaneService(tables[0, : count[0]], tables[1, : count[1]], tables[2, : count[2]], gap)


def _plain(arrays: Iterable[Ints]) -> Iterator[Ints]:
    return (plain(array, np.int64) for array in arrays)


_TWICE, _WORSE, _IDLE = range(3)


@unlocked
def _follow(  # noqa: C901 - one sweep: a call per event would cost more than the event
    runs: LaneRuns,
    queue: LaneQueue,
    preemptive: bool,
    slack: int,
    coming: Ints,
    waiting: Ints,
    tables: Ints,
    count: Ints,
    gap: Ints,
) -> None:
    """Fill the tables and the gaps of :func:`lane_service`.

    `coming` and `waiting` are heaps with room for all chunks of a lane: those sent to it, the next to arrive first, and
    those there, the best first.
    """
    ready, gone, rank, group = queue.ready, queue.gone, queue.rank, queue.group
    for lane in range(len(runs.first) - 1):
        there, ways, sent, last, at = 0, 0, queue.first[lane], queue.first[lane + 1], 0
        for i in range(runs.first[lane], runs.first[lane + 1]):
            begin, end, mine = runs.start[i], runs.end[i], runs.chunk[i]
            if i > runs.first[lane]:
                if begin < at - slack:
                    _add(tables, count, _TWICE, begin, i, -1)
                if _before(mine, runs.chunk[i - 1], rank, group):
                    gap[i - 1] = begin - runs.end[i - 1]
            while there > 0 and gone[waiting[0]] <= at:
                there = _pop(waiting, there, rank, rank)
            waits, since = -1, NEVER
            if there > 0:
                waits, since = waiting[0], at
            ways, sent = _send(queue, sent, last, begin + 1, coming, ways)
            while ways > 0 and ready[coming[0]] <= begin:
                if waits < 0:
                    waits, since = coming[0], max(at, ready[coming[0]])
                there = _push(waiting, there, coming[0], rank, rank)
                ways = _pop(coming, ways, ready, rank)
            if waits >= 0 and since < begin - slack:
                _add(tables, count, _IDLE, since, i, waits)
            while there > 0 and gone[waiting[0]] <= begin:
                there = _pop(waiting, there, rank, rank)
            better, when = -1, begin
            if there > 0 and _before(waiting[0], mine, rank, group) and ready[waiting[0]] + slack <= begin:
                better = waiting[0]
            ways, sent = _send(queue, sent, last, end, coming, ways)
            while ways > 0 and ready[coming[0]] < end:
                c = coming[0]
                if preemptive and better < 0 and _before(c, mine, rank, group) and ready[c] < end - slack:
                    better, when = c, ready[c]
                there = _push(waiting, there, c, rank, rank)
                ways = _pop(coming, ways, ready, rank)
            if better >= 0:
                _add(tables, count, _WORSE, when, i, better)
            at = max(at, end)


@lean
def _send(queue: LaneQueue, sent: int, last: int, until: int, coming: Ints, ways: int) -> tuple[int, int]:
    """Push the chunks from `sent` to `last` that are sent before `until`; returns the heap's size and the next one."""
    while sent < last and queue.sent[sent] < until:
        ways = _push(coming, ways, sent, queue.ready, queue.rank)
        sent += 1
    return ways, sent


@lean
def _add(tables: Ints, count: Ints, which: int, time: int, run: int, place: int) -> None:
    """Add a row to a table that is not full."""
    n = count[which]
    if n < tables.shape[1]:
        tables[which, n, 0], tables[which, n, 1], tables[which, n, 2] = time, run, place
        count[which] = n + 1


@lean
def _before(one: int, other: int, key: Ints, then: Ints) -> bool:
    """Whether `one` has the smaller `key` than `other`, or the same and the smaller `then`."""
    return key[one] < key[other] or (key[one] == key[other] and then[one] < then[other])


@lean
def _first(one: int, other: int, key: Ints, then: Ints) -> bool:
    """Whether `one` comes before `other` in a heap: equal ones in order of their numbers."""
    return _before(one, other, key, then) or (key[one] == key[other] and then[one] == then[other] and one < other)


@lean
def _push(heap: Ints, size: int, item: int, key: Ints, then: Ints) -> int:
    """Add `item` to a heap of `size` items, the smallest first; returns the new size."""
    i = size
    while i > 0 and _first(item, heap[(i - 1) // 2], key, then):
        heap[i] = heap[(i - 1) // 2]
        i = (i - 1) // 2
    heap[i] = item
    return size + 1


@lean
def _pop(heap: Ints, size: int, key: Ints, then: Ints) -> int:
    """Remove the smallest item of a heap of `size` items; returns the new size."""
    size -= 1
    item, i, child = heap[size], 0, 1
    while child < size:
        if child + 1 < size and _first(heap[child + 1], heap[child], key, then):
            child += 1
        if not _first(heap[child], item, key, then):
            break
        heap[i] = heap[child]
        i, child = child, 2 * child + 1
    heap[i] = item
    return size
