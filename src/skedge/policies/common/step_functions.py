"""Tables of step functions of time: the amount booked, or free, from each moment on.

From ``starts[row, i]`` to ``starts[row, i + 1]`` the value of `row` is ``values[row, i]``, for ``i < size[row]``; the
last step does not end.
"""

from __future__ import annotations

import numpy as np

from skedge.core.model.cluster import Ints
from skedge.platform.jit import lean

_FIRST_ROOM = 8


def constant(values: Ints) -> tuple[Ints, Ints, Ints]:
    """Functions of these values, shape ``(rows,)``, at all times from 0 on: (starts, values, size)."""
    n_rows = len(values)
    value = np.zeros((n_rows, _FIRST_ROOM), np.int64)
    value[:, 0] = values
    return np.zeros((n_rows, _FIRST_ROOM), np.int64), value, np.ones(n_rows, np.int64)


def wider(table: Ints) -> Ints:
    """`table` with room for twice as many steps; :func:`add` makes at most two more in a row."""
    return np.concatenate([table, np.zeros_like(table)], axis=1)


@lean
def add(starts: Ints, values: Ints, row: int, size: int, amount: int, start: int, end: int, now: int) -> int:
    """Add `amount` from `start` to `end` in one row.

    Parameters
    ----------
    starts, values
        Start and value of each step, shape ``(rows, room)``; changed in place. There must be room for two more steps.
    row, size
        The row, and its number of steps.
    amount
        Added to the value; may be negative.
    start, end
        The interval, ``start < end``, in the unit of `starts`.
    now
        Steps that are over by then are dropped.

    Returns
    -------
    The new number of steps of the row.
    """
    size = _drop_past(starts, values, row, size, now)
    # after both splits the interval is a whole number of steps
    size = _split_at(starts, values, row, size, start)
    size = _split_at(starts, values, row, size, end)
    for i in range(size):
        if start <= starts[row, i] < end:
            values[row, i] += amount
    return size


@lean
def _drop_past(starts: Ints, values: Ints, row: int, size: int, now: int) -> int:
    """Drop the steps before the one that holds at `now`."""
    n_past = 0
    while n_past + 1 < size and starts[row, n_past + 1] <= now:
        n_past += 1
    for i in range(size - n_past):
        starts[row, i], values[row, i] = starts[row, i + n_past], values[row, i + n_past]
    return size - n_past


@lean
def _split_at(starts: Ints, values: Ints, row: int, size: int, time: int) -> int:
    """Make `time` the start of a step; returns the new number of steps."""
    i = size
    while i > 0 and starts[row, i - 1] >= time:
        i -= 1
    if i < size and starts[row, i] == time:
        return size
    for j in range(size, i, -1):
        starts[row, j], values[row, j] = starts[row, j - 1], values[row, j - 1]
    starts[row, i] = time
    # the step that was split holds on both sides of `time`; before the first step that step's value is taken
    values[row, i] = values[row, max(0, i - 1)]
    return size + 1
