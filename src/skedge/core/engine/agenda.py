"""The agenda of a simulation: a heap of (time, sequence, kind, job, number), compiled.

The sequence numbers the entries in the order in which they were made: first made, first taken of those of one instant.
"""

from __future__ import annotations

from skedge.core.model.cluster import Ints
from skedge.platform.jit import inlined, lean

from .ledger import AGENDA, SEQUENCE, STALE, VERSION, Ledger

CLOUD_STARTS, CLOUD_ENDS, GANG_ENDS, WAKE, SLOT_ENDS, JOB_FAILS = range(6)
"""Kinds of entries. The number is that of an allocation (its VERSION), or a number of chunks in the cloud."""

ENTRY_TIME, ENTRY_SEQUENCE, ENTRY_KIND, ENTRY_JOB, ENTRY_NUMBER = range(5)
"""Columns of an entry."""


@lean
def put(agenda: Ints, counters: Ints, time: int, kind: int, job: int, number: int) -> None:
    """Put an entry on the agenda, which has room.

    Parameters
    ----------
    agenda, counters
        Of the ledger; ``counters[AGENDA]`` and ``counters[SEQUENCE]`` count the entries.
    time
        When it is due [µs].
    kind, job, number
        Of the entry; a job of -1 for none.
    """
    i = counters[AGENDA]
    counters[AGENDA] += 1
    agenda[i, ENTRY_TIME], agenda[i, ENTRY_SEQUENCE], agenda[i, ENTRY_KIND] = time, counters[SEQUENCE], kind
    agenda[i, ENTRY_JOB], agenda[i, ENTRY_NUMBER] = job, number
    counters[SEQUENCE] += 1
    while i > 0 and _is_before(agenda, i, (i - 1) // 2):
        _swap(agenda, i, (i - 1) // 2)
        i = (i - 1) // 2


@lean
def drop(agenda: Ints, counters: Ints) -> None:
    """Remove the first entry of the agenda."""
    counters[AGENDA] -= 1
    _swap(agenda, 0, counters[AGENDA])
    _sift(agenda, counters[AGENDA], 0)


@lean
def tidy(ledger: Ledger) -> None:
    """Remove obsolete ends of allocations once they are the majority: they can far outnumber the other entries."""
    counters, agenda = ledger.counters, ledger.agenda
    if 2 * counters[STALE] <= counters[AGENDA]:
        return
    n_kept = 0
    for i in range(counters[AGENDA]):
        if not is_stale(agenda, ledger.jobs, i):
            _copy(agenda, i, n_kept)
            n_kept += 1
    counters[AGENDA], counters[STALE] = n_kept, 0
    for i in range(n_kept // 2 - 1, -1, -1):
        _sift(agenda, n_kept, i)


@inlined
def is_stale(agenda: Ints, jobs: Ints, i: int) -> bool:
    """Whether entry `i` is the end of an allocation that has been replaced or has ended since."""
    return agenda[i, ENTRY_KIND] == GANG_ENDS and agenda[i, ENTRY_NUMBER] != jobs[agenda[i, ENTRY_JOB], VERSION]


@lean
def _sift(agenda: Ints, size: int, first: int) -> None:
    """Move entry `first` down until none below it comes before it."""
    i = first
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and _is_before(agenda, child + 1, child):
            child += 1
        if not _is_before(agenda, child, i):
            return
        _swap(agenda, child, i)
        i = child


@inlined
def _is_before(agenda: Ints, i: int, k: int) -> bool:
    """Whether entry `i` comes before entry `k`."""
    if agenda[i, ENTRY_TIME] != agenda[k, ENTRY_TIME]:
        return agenda[i, ENTRY_TIME] < agenda[k, ENTRY_TIME]
    return agenda[i, ENTRY_SEQUENCE] < agenda[k, ENTRY_SEQUENCE]


@inlined
def _swap(agenda: Ints, i: int, k: int) -> None:
    for column in range(5):
        agenda[i, column], agenda[k, column] = agenda[k, column], agenda[i, column]


@inlined
def _copy(agenda: Ints, source: int, target: int) -> None:
    for column in range(5):
        agenda[target, column] = agenda[source, column]
