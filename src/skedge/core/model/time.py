"""Time inside skedge: an integer number of microseconds.

There is one rounding function, :func:`ticks`, and it rounds up.
"""

from __future__ import annotations

import math
from typing import NewType, overload

import numpy as np
from numpy.typing import NDArray

Time = NewType("Time", int)
"""A point in time or a duration [µs]."""

SECOND = 1_000_000
"""Microseconds in a second."""

HOUR = 3600 * SECOND
"""Microseconds in an hour: the papers' slot."""

LONGEST_S = 1e8
"""Latest arrival and longest duration accepted [s]: three years."""

NEVER = 2**62
"""Later than any time that can occur [µs]."""

_NANOSECOND = 1e-3
"""A thousandth of a microsecond: allowance for rounding in float arithmetic on seconds."""


@overload
def ticks(seconds: float) -> int: ...
@overload
def ticks(seconds: NDArray[np.float64]) -> NDArray[np.int64]: ...
def ticks(seconds: float | NDArray[np.float64]) -> int | NDArray[np.int64]:
    """Seconds as microseconds, rounded up; an excess of a thousandth of a microsecond counts as rounding."""
    if isinstance(seconds, np.ndarray):
        return np.ceil(seconds * SECOND - _NANOSECOND).astype(np.int64)
    return math.ceil(seconds * SECOND - _NANOSECOND)


def whole_slots(duration: NDArray[np.int64], slot: int) -> NDArray[np.int64]:
    """`duration` [µs] rounded up to whole slots of `slot` µs."""
    # floor division of the negative rounds up, exactly at any size
    return -(-duration // slot) * slot


def seconds(time: int) -> float:
    """`time` [µs] in seconds."""
    return time / SECOND
