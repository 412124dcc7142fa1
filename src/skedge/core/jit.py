"""Compiled kernels: numba, with its cache where a cache folder can be written."""

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


def inlined(function: F) -> F:
    """As :func:`compiled`, and inlined where it is called: for small steps of a hot loop.

    A call that passes the lanes passes some fifty words and counts references to each of their arrays.
    """
    return _njit(function, forceinline=True)


def _njit(function: F, **options: Any) -> F:
    try:
        return numba.njit(cache=True, **options)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        return numba.njit(**options)(function)  # type: ignore[no-any-return]
