"""The agenda of a simulation: a heap of (time, sequence, kind, job, number), the sequence in order of noting."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify

CLOUD_STARTS, CLOUD_ENDS, GANG_ENDS, WAKE, SLOT_ENDS, JOB_FAILS = range(6)
"""Kinds of entries."""

Entry = tuple[int, int, int, int, int]


def remove(agenda: list[Entry], unwanted: Callable[[Entry], bool]) -> None:
    """Remove the entries that are no longer wanted."""
    agenda[:] = [entry for entry in agenda if not unwanted(entry)]
    heapify(agenda)
