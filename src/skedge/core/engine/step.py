"""The next event of a simulation: arrivals and what is due on the agenda; compiled."""

from __future__ import annotations

from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER
from skedge.platform.jit import lean

from .agenda import ENTRY_JOB, ENTRY_KIND, ENTRY_NUMBER, ENTRY_TIME, GANG_ENDS, WAKE, drop, is_stale
from .ledger import AGENDA, ARRIVAL, ARRIVED, NOW, STALE, Case, Ledger


@lean
def next_time(ledger: Ledger) -> int:
    """The time of the next arrival or entry of the agenda [µs]; NEVER at the end."""
    at, time = ledger.at, NEVER
    if at[ARRIVED] < len(ledger.jobs):
        time = ledger.jobs[at[ARRIVED], ARRIVAL]
    return min(time, ledger.agenda[0, ENTRY_TIME]) if at[AGENDA] > 0 else time


@lean
def n_arrivals(ledger: Ledger) -> int:
    """The number of jobs that arrive now."""
    at, last = ledger.at, ledger.at[ARRIVED]
    while last < len(ledger.jobs) and ledger.jobs[last, ARRIVAL] <= at[NOW]:
        last += 1
    return last - at[ARRIVED]


@lean
def take_due(ledger: Ledger, finished: Ints) -> tuple[int, bool]:
    """Take what is due from an agenda of wake-ups and ends of allocations.

    Fills `finished` with the jobs that complete now, ascending; returns how many, and whether there is a wake-up.
    """
    at, agenda, woke, n = ledger.at, ledger.agenda, False, 0
    while at[AGENDA] > 0 and agenda[0, ENTRY_TIME] <= at[NOW]:
        kind, job, stale = agenda[0, ENTRY_KIND], agenda[0, ENTRY_JOB], is_stale(ledger, 0)
        drop(agenda, at)
        if kind == WAKE:
            woke = True
        elif stale:
            at[STALE] -= 1
        elif kind == GANG_ENDS:
            k = n
            while k > 0 and finished[k - 1] > job:
                finished[k] = finished[k - 1]
                k -= 1
            finished[k] = job
            n += 1
    return n, woke


@lean
def take_all_due(ledger: Ledger, due: Ints) -> int:
    """Take the entries that are due from the agenda, without obsolete ones, as many as there are rows in `due`.

    Fills `due` with (kind, job, number) rows; returns how many.
    """
    at, agenda, n = ledger.at, ledger.agenda, 0
    while n < len(due) and at[AGENDA] > 0 and agenda[0, ENTRY_TIME] <= at[NOW]:
        stale = is_stale(ledger, 0)
        due[n, 0], due[n, 1], due[n, 2] = agenda[0, ENTRY_KIND], agenda[0, ENTRY_JOB], agenda[0, ENTRY_NUMBER]
        drop(agenda, at)
        at[STALE] -= stale
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
    return 3 * n_workers + ledger.at[AGENDA] + arrivals + 1
