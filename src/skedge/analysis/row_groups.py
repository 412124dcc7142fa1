"""Rows of a record by group: their order, their sums and bounds, and the union of their intervals.

What NumPy does as fast is left to it: a kernel that sorts or allocates takes seconds to compile.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER
from skedge.platform.jit import compiled, unlocked

Small = NDArray[np.int32]
N = TypeVar("N", np.int64, np.float64)

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
    """Rows that begin more than `slack` µs before an earlier one of their group has ended, by start.

    Parameters
    ----------
    group
        Group of each row, 0 to `groups` - 1, shape ``(rows,)``.
    start, end
        Times of each row [µs].
    groups
        Number of groups.
    slack
        Tolerance [µs], >= 0.
    """
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
    """First start, last end and number of rows of each group; NEVER and -1 if it has none.

    Parameters
    ----------
    group
        Group of each row, 0 to `groups` - 1, shape ``(rows,)``.
    start, end
        Times of each row [µs].
    groups
        Number of groups.
    """
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


def sums(group: Small | Ints, value: NDArray[N], groups: int) -> NDArray[N]:
    """Sum of the values of each group, added in order."""
    result = np.zeros(groups, value.dtype)
    _sums(_group_numbers(group, groups), plain(value, value.dtype), result)
    return result


@unlocked
def _sums(group: Small, value: NDArray[N], result: NDArray[N]) -> None:
    """:func:`sums`, into the last one."""
    for i in range(len(group)):
        result[group[i]] += value[i]


def merged(group: Small | Ints, start: Ints, end: Ints, groups: int) -> tuple[Ints, Ints, Ints]:
    """Union of each group's intervals as (group, start, end), by group and start; adjacent intervals are merged.

    Parameters
    ----------
    group
        Group of each row, 0 to `groups` - 1, shape ``(rows,)``.
    start, end
        Times of each row [µs].
    groups
        Number of groups.
    """
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
        # intervals of b behind this one may cover the next interval of a, too
        m = k
        while m < len(b[0]) and b[0][m] == job and b[1][m] <= position + slack and position + slack < a[2][i]:
            position = max(position, b[2][m])
            m += 1
        if position + slack < a[2][i]:
            open_at[i] = position
    return open_at
