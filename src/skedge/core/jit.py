"""Compiled kernels: numba, with its cache where a cache folder can be written.

Numba counts references to arrays with atomic operations; where lanes (a tuple of arrays) are passed from step to step
that was most of the time (2.0 µs per run on a lane, 0.5 without). Functions that allocate nothing need no counting.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
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
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = _cache_folder(before)
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)
    finally:
        config.CACHE_DIR = before


@lru_cache
def _cache_folder(given: str) -> str:
    """Where compiled kernels are kept: a folder named by the sources that kernels are made of.

    Numba looks only at the file of the function itself; what a kernel inlines from other files would stay as it was.
    """
    package = Path(__file__).parents[1]
    sources = blake2b(digest_size=8)
    for path in sorted(package.rglob("*.py")):
        text = path.read_bytes()
        if package / "core" in path.parents or b"jit import" in text:
            sources.update(text)
    base = Path(given) if given else package / "__pycache__"
    if not given and not os.access(package, os.W_OK):
        base = Path.home() / ".cache" / "skedge"
    return str(base / f"kernels-{sources.hexdigest()}")
