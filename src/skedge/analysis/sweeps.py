"""Sweeps over the rows of a record.

What NumPy does as fast is left to it: a kernel that sorts or allocates takes seconds to compile.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from skedge.core.jit import compiled, lean, unlocked
from skedge.core.model import Floats, Ints
from skedge.core.time import NEVER

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
    """Runs by lane, and there by start: `first` as :func:`in_groups` gives it; `place` is that of the run's chunk."""

    first: Ints
    start: Ints
    end: Ints
    place: Ints


def lane_service(
    runs: LaneRuns, coming: tuple[Ints, Ints], group: Ints, ready: Ints, gone: Ints, *, preemptive: bool, slack: int,
    room: int,
) -> tuple[Ints, Ints, Ints]:  # fmt: skip
    """Follow each lane with the queue of chunks that have arrived there and are not finished.

    Parameters
    ----------
    runs
        Runs by lane and start.
    coming
        Places of the chunks sent to each lane, by arrival, as :func:`in_groups` gives them. A place is a chunk's
        position in the order of lane and rank, so of the chunks of a lane the one with the smaller place runs first.
    group
        First place of the chunks that take turns with that of each place, which may run in any order.
    ready, gone
        Arrival of the chunk of each place, and end of its last run (NEVER if it never runs) [µs].
    slack
        Tolerance [µs].
    room
        Maximum number of rows of each table returned.

    Returns
    -------
    Three tables of (time, run, place), `run` numbered as in `runs`: runs that begin before the previous one has ended
    (place -1); runs while a chunk of smaller place waits; and, for each run before which the lane was idle, a chunk
    that waited.
    """
    tables, count = np.empty((3, room, 3), np.int64), np.zeros(3, np.int64)
    queue = np.empty(np.diff(coming[1]).max(initial=0), np.int64)
    _follow(*runs, group, *coming, ready, gone, preemptive, slack, queue, tables, count)
    return tables[0, : count[0]], tables[1, : count[1]], tables[2, : count[2]]


_TWICE, _WORSE, _IDLE = range(3)


@unlocked
def _follow(  # noqa: C901 - one sweep: a call per event would cost more than the event
    first: Ints,
    start: Ints,
    end: Ints,
    place: Ints,
    group: Ints,
    coming: Ints,
    coming_first: Ints,
    ready: Ints,
    gone: Ints,
    preemptive: bool,
    slack: int,
    queue: Ints,
    tables: Ints,
    count: Ints,
) -> None:
    """Fill the tables of :func:`lane_service`; `queue` is a heap with room for all chunks of a lane."""
    for lane in range(len(first) - 1):
        size, a, last, at = 0, coming_first[lane], coming_first[lane + 1], 0
        for i in range(first[lane], first[lane + 1]):
            begin, mine = start[i], place[i]
            if i > first[lane] and begin < at - slack:
                _add(tables, count, _TWICE, begin, i, -1)
            while size > 0 and gone[queue[0]] <= at:
                size = _pop(queue, size)
            waits, since = -1, NEVER
            if size > 0:
                waits, since = queue[0], at
            while a < last and ready[coming[a]] <= begin:
                if waits < 0:
                    waits, since = coming[a], max(at, ready[coming[a]])
                size = _push(queue, size, coming[a])
                a += 1
            if waits >= 0 and since < begin - slack:
                _add(tables, count, _IDLE, since, i, waits)
            while size > 0 and gone[queue[0]] <= begin:
                size = _pop(queue, size)
            better, when = -1, begin
            if size > 0 and group[queue[0]] < group[mine] and ready[queue[0]] + slack <= begin:
                better = queue[0]
            while a < last and ready[coming[a]] < end[i]:
                c = coming[a]
                if preemptive and better < 0 and group[c] < group[mine] and ready[c] < end[i] - slack:
                    better, when = c, ready[c]
                size = _push(queue, size, c)
                a += 1
            if better >= 0:
                _add(tables, count, _WORSE, when, i, better)
            at = max(at, end[i])


@lean
def _add(tables: Ints, count: Ints, which: int, time: int, run: int, place: int) -> None:
    """Add a row to a table that is not full."""
    n = count[which]
    if n < tables.shape[1]:
        tables[which, n, 0], tables[which, n, 1], tables[which, n, 2] = time, run, place
        count[which] = n + 1


@lean
def _push(heap: Ints, size: int, item: int) -> int:
    """Add `item` to a heap of `size` items, the smallest first; returns the new size."""
    i = size
    while i > 0 and heap[(i - 1) // 2] > item:
        heap[i] = heap[(i - 1) // 2]
        i = (i - 1) // 2
    heap[i] = item
    return size + 1


@lean
def _pop(heap: Ints, size: int) -> int:
    """Remove the smallest item of a heap of `size` items; returns the new size."""
    size -= 1
    item, i, child = heap[size], 0, 1
    while child < size:
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= item:
            break
        heap[i] = heap[child]
        i, child = child, 2 * child + 1
    heap[i] = item
    return size
