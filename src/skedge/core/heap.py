"""How the C library keeps memory that was freed, where it is glibc: one heap for all threads, given back on request."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_M_ARENA_MAX = -8
"""glibc's number of this option."""


def share_heap() -> None:
    """Let all threads allocate from one heap: a heap keeps what its threads have freed."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return memory that was freed to the system, as at the end of a large simulation."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
