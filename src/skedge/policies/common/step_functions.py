"""Tables of step functions of time: the amount booked, or free, from each moment on.

From ``at[row, i]`` to ``at[row, i + 1]`` the value of `row` is ``value[row, i]``, for ``i < size[row]``; the last step
does not end.
"""

from __future__ import annotations

import numpy as np

from skedge.core.model.cluster import Ints
from skedge.platform.jit import lean

_FIRST_ROOM = 8


def constant(values: Ints) -> tuple[Ints, Ints, Ints]:
    """Functions of these values, shape ``(rows,)``, at all times from 0 on: (at, value, size)."""
    rows = len(values)
    table = np.zeros((rows, _FIRST_ROOM), np.int64)
    table[:, 0] = values
    return np.zeros((rows, _FIRST_ROOM), np.int64), table, np.ones(rows, np.int64)


def wider(table: Ints) -> Ints:
    """`table` with room for twice as many steps; :func:`add` makes at most two more in a row."""
    return np.concatenate([table, np.zeros_like(table)], axis=1)


@lean
def add(at: Ints, value: Ints, row: int, size: int, amount: int, start: int, end: int, now: int) -> int:
    """Add `amount` from `start` to `end`; steps that are over by `now` are dropped. Returns the new size of the row."""
    size = _forget(at, value, row, size, now)
    # after both splits the interval is a whole number of steps
    size = _split_at(at, value, row, size, start)
    size = _split_at(at, value, row, size, end)
    for i in range(size):
        if start <= at[row, i] < end:
            value[row, i] += amount
    return size


@lean
def _forget(at: Ints, value: Ints, row: int, size: int, now: int) -> int:
    """Drop the steps before the one that holds at `now`."""
    over = 0
    while over + 1 < size and at[row, over + 1] <= now:
        over += 1
    for i in range(size - over):
        at[row, i], value[row, i] = at[row, i + over], value[row, i + over]
    return size - over


@lean
def _split_at(at: Ints, value: Ints, row: int, size: int, time: int) -> int:
    """Make `time` the beginning of a step."""
    i = size
    while i > 0 and at[row, i - 1] >= time:
        i -= 1
    if i < size and at[row, i] == time:
        return size
    for j in range(size, i, -1):
        at[row, j], value[row, j] = at[row, j - 1], value[row, j - 1]
    at[row, i] = time
    # the step that was split holds on both sides of `time`
    value[row, i] = value[row, max(0, i - 1)]
    return size + 1
