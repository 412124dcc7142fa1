"""The next event of a simulation: arrivals and what is due on the agenda; compiled."""

from __future__ import annotations

from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER
from skedge.platform.jit import inlined, lean

from .agenda import ENTRY_JOB, ENTRY_KIND, ENTRY_NUMBER, ENTRY_TIME, GANG_ENDS, WAKE, drop, is_stale
from .allocations import finish
from .ledger import AGENDA, ARRIVAL, ARRIVED, DONE, NOW, STALE, Case, Ledger, has_room


@lean
def next_time(ledger: Ledger) -> int:
    """The time of the next arrival or entry of the agenda [µs]; NEVER at the end."""
    counters, time = ledger.counters, NEVER
    if counters[ARRIVED] < len(ledger.jobs):
        time = ledger.jobs[counters[ARRIVED], ARRIVAL]
    return min(time, ledger.agenda[0, ENTRY_TIME]) if counters[AGENDA] > 0 else time


@lean
def n_arrivals(ledger: Ledger) -> int:
    """The number of jobs that arrive now."""
    counters, last = ledger.counters, ledger.counters[ARRIVED]
    while last < len(ledger.jobs) and ledger.jobs[last, ARRIVAL] <= counters[NOW]:
        last += 1
    return last - counters[ARRIVED]


@lean
def take_due(ledger: Ledger, finished: Ints) -> tuple[int, bool]:
    """Take what is due from an agenda of wake-ups and ends of allocations.

    Fills `finished` with the jobs that complete now, ascending; returns how many, and whether there is a wake-up.
    """
    counters, agenda, woke, n = ledger.counters, ledger.agenda, False, 0
    while counters[AGENDA] > 0 and agenda[0, ENTRY_TIME] <= counters[NOW]:
        kind, job, stale = agenda[0, ENTRY_KIND], agenda[0, ENTRY_JOB], is_stale(ledger, 0)
        drop(agenda, counters)
        if kind == WAKE:
            woke = True
        elif stale:
            counters[STALE] -= 1
        elif kind == GANG_ENDS:
            k = n
            while k > 0 and finished[k - 1] > job:
                finished[k] = finished[k - 1]
                k -= 1
            finished[k] = job
            n += 1
    return n, woke


OVER, FULL, QUIET, EVENT = range(4)
"""What :func:`step` found: the run is over; an array may lack room; nothing a policy must know of; an event."""


@inlined
def step(case: Case, ledger: Ledger, finished: Ints, completed: Ints) -> tuple[int, int, int]:
    """Go to the next instant, and end the allocations that have done their work.

    Parameters
    ----------
    case, ledger
        The arrays of the run; at FULL nothing has changed but the present.
    finished
        Out: the jobs that complete now, ascending.
    completed
        Out: all jobs that have completed so far, in order.

    Returns
    -------
    What it found, the number of jobs in `finished`, and the first job that has arrived now.
    """
    counters, first = ledger.counters, ledger.counters[ARRIVED]
    counters[NOW] = next_time(ledger)
    if counters[NOW] == NEVER:
        return OVER, 0, first
    arrivals = n_arrivals(ledger)
    if not has_room(ledger, room_for_event(case, ledger, arrivals)):
        return FULL, 0, first
    n_finished, woke = take_due(ledger, finished)
    counters[ARRIVED] += arrivals
    for i in range(n_finished):
        finish(case, ledger, finished[i])
        completed[counters[DONE]] = finished[i]
        counters[DONE] += 1
    return EVENT if woke or n_finished > 0 or arrivals > 0 else QUIET, n_finished, first


@lean
def take_all_due(ledger: Ledger, due: Ints) -> int:
    """Take the entries that are due from the agenda, without obsolete ones, as many as there are rows in `due`.

    Fills `due` with (kind, job, number) rows; returns how many.
    """
    counters, agenda, n = ledger.counters, ledger.agenda, 0
    while n < len(due) and counters[AGENDA] > 0 and agenda[0, ENTRY_TIME] <= counters[NOW]:
        stale = is_stale(ledger, 0)
        due[n, 0], due[n, 1], due[n, 2] = agenda[0, ENTRY_KIND], agenda[0, ENTRY_JOB], agenda[0, ENTRY_NUMBER]
        drop(agenda, counters)
        counters[STALE] -= stale
        n += not stale
    return n


@lean
def room_for_event(case: Case, ledger: Ledger, arrivals: int) -> int:
    """Upper bound on the rows and entries that an event adds to any array, if a built-in policy decides.

    At most as many jobs as there are workers, and all in the cloud, end a run, stop or begin; each has a row for each
    of its servers. Each job that arrives has one.
    """
    n_workers = 0
    for kind in range(len(case.slots)):
        n_workers += case.slots[kind]
    return 3 * n_workers + ledger.counters[AGENDA] + arrivals + 1
