"""Settings of the C library's heap, where it is glibc; elsewhere nothing happens."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_M_ARENA_MAX = -8
"""glibc's number of this option."""


def share_heap() -> None:
    """Let all threads allocate from one heap, as memory that is freed in one heap is not used again by others."""
    # other C libraries have no such function, and Windows has none to load without a name
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def trim_malloc() -> None:
    """Give freed memory back to the operating system."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
