"""Compiled kernels: numba, with its cache where a cache folder can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile `function` in numba's nopython mode; cached on disk where that is possible.

    Numba refuses ``cache=True`` where neither the source's folder nor ``NUMBA_CACHE_DIR`` is writable; then the
    function is compiled anew in each process, which costs seconds and changes nothing else.
    """
    try:
        return numba.njit(cache=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        return numba.njit(function)  # type: ignore[no-any-return]
