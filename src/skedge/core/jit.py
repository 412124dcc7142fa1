"""Compiled kernels: numba, with its cache where a cache folder can be written.

Numba counts references to arrays with atomic operations; where lanes (a tuple of arrays) are passed from step to step
that was most of the time (2.0 µs per run on a lane, 0.5 without). Functions that allocate nothing need no counting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile `function` in numba's nopython mode; cached on disk where that is possible.

    Numba refuses ``cache=True`` where neither the source's folder nor ``NUMBA_CACHE_DIR`` is writable; then the
    function is compiled anew in each process, which costs seconds and changes nothing else.
    """
    return _njit(function)


def lean(function: F) -> F:
    """As :func:`compiled`, for a function that allocates no array: references are not counted."""
    return _njit(function, _nrt=False)


def inlined(function: F) -> F:
    """As :func:`lean`, and inlined where it is called: for the small steps of a hot loop."""
    return _njit(function, _nrt=False, forceinline=True)


def _njit(function: F, **options: Any) -> F:
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)
