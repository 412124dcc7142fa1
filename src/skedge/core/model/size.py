"""Sizes inside skedge: chunks and storage are whole numbers of bytes, so that checks of what fits are exact.

Files, the record and messages use MB. There is one rounding function, :func:`whole_bytes`, and it rounds down: chunks
that fill a server exactly in MB also fit in bytes, whatever their size.
"""

from __future__ import annotations

from typing import overload

import numpy as np
from numpy.typing import NDArray

MB = 1_000_000
"""Bytes per MB."""

UNLIMITED = 2**62
"""Storage of a server without a limit [bytes]; every limit is smaller."""

MOST_MB = 1e12
"""Largest storage limit accepted [MB]: an exabyte."""


def whole_bytes(mb: NDArray[np.float64]) -> NDArray[np.int64]:
    """MB as bytes, rounded down; values within four units in the last place of a whole number count as whole."""
    size = mb * MB
    return np.floor(size + 4 * np.spacing(size)).astype(np.int64)


@overload
def megabytes(size: int) -> float: ...
@overload
def megabytes(size: NDArray[np.int64]) -> NDArray[np.float64]: ...
def megabytes(size: int | NDArray[np.int64]) -> float | NDArray[np.float64]:
    """Bytes in MB."""
    return size / MB
