"""The next event of a simulation: arrivals, what is due on the agenda, and changes of service; compiled."""

from __future__ import annotations

from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER
from skedge.platform.jit import inlined, lean

from .agenda import ENTRY_JOB, ENTRY_KIND, ENTRY_NUMBER, ENTRY_TIME, GANG_ENDS, WAKE, drop, is_stale
from .allocations import finish
from .ledger import AGENDA, ARRIVAL, ARRIVED, NOW, STALE, STATUS, WAITING, Case, Ledger, has_room
from .orders import (
    FIRST_ARRIVED,
    MEASURED,
    N_ARRIVED,
    N_DUE,
    N_FINISHED,
    N_INTERRUPTED,
    N_LEFT,
    N_LOST,
    N_WITHOUT_PS,
    UNTIL,
    WOKE,
    EventFacts,
)
from .outages import make_changes, next_change, take_changes


@lean
def next_time(ledger: Ledger, n_jobs: int) -> int:
    """The time of the next arrival of the first `n_jobs`, or entry of the agenda [µs]; NEVER at the end."""
    counters, time = ledger.counters, NEVER
    if counters[ARRIVED] < n_jobs:
        time = ledger.jobs[counters[ARRIVED], ARRIVAL]
    return min(time, ledger.agenda[0, ENTRY_TIME]) if counters[AGENDA] > 0 else time


@lean
def n_arrivals(ledger: Ledger, n_jobs: int) -> int:
    """The number of jobs among the first `n_jobs` that arrive now."""
    counters, last = ledger.counters, ledger.counters[ARRIVED]
    while last < n_jobs and ledger.jobs[last, ARRIVAL] <= counters[NOW]:
        last += 1
    return last - counters[ARRIVED]


@lean
def take_due(ledger: Ledger, finished: Ints) -> tuple[int, bool]:
    """Take what is due from an agenda of wake-ups and ends of allocations.

    Fills `finished` with the jobs that complete now, ascending; returns how many, and whether there is a wake-up.
    """
    counters, agenda, woke, n = ledger.counters, ledger.agenda, False, 0
    while counters[AGENDA] > 0 and agenda[0, ENTRY_TIME] <= counters[NOW]:
        kind, job, stale = agenda[0, ENTRY_KIND], agenda[0, ENTRY_JOB], is_stale(agenda, ledger.jobs, 0)
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


OVER, FULL, QUIET, EVENT, OUTSIDE, BROKEN, PAUSED = range(7)
"""What :func:`step` found: the run is over; an array may lack room; nothing a policy must know of; an event; something
that is not the engine's happens first. A loop also ends as an order is BROKEN, or PAUSED as it has done its events."""


@inlined
def step(case: Case, ledger: Ledger, facts: EventFacts) -> int:
    """Go to the next instant; end the allocations that have done their work, or lose their server; fills `facts`.

    Parameters
    ----------
    case, ledger
        The arrays of the run; at FULL nothing has changed but the present, at OUTSIDE nothing has.
    facts
        Out: who has left, who has arrived, and what has become of the servers.

    Returns
    -------
    OVER, FULL, QUIET, EVENT or OUTSIDE.
    """
    counters, time = ledger.counters, min(next_time(ledger, len(ledger.jobs)), next_change(ledger, ledger.changes))
    if time >= facts.counters[UNTIL]:
        return OVER if time == NEVER else OUTSIDE
    counters[NOW] = time
    arrivals = n_arrivals(ledger, len(ledger.jobs))
    if not has_room(ledger, room_for_event(case, ledger, arrivals)):
        return FULL
    # before jobs leave: once all have, no server fails any more
    n_changes = take_changes(ledger, ledger.changes)
    n_left, woke = take_due(ledger, facts.left)
    for i in range(n_left):
        finish(case, ledger, facts.left[i])
    facts.counters[N_FINISHED] = facts.counters[N_LEFT] = n_left
    facts.counters[N_INTERRUPTED] = facts.counters[N_WITHOUT_PS] = facts.counters[N_LOST] = facts.counters[MEASURED] = 0
    make_changes(case, ledger, facts, ledger.changes, n_changes)
    facts.counters[FIRST_ARRIVED] = counters[ARRIVED]
    for _ in range(arrivals):
        ledger.jobs[counters[ARRIVED], STATUS] = WAITING
        counters[ARRIVED] += 1
    return EVENT if woke or n_left > 0 or arrivals > 0 or n_changes > 0 else QUIET


@lean
def take_instant(ledger: Ledger, facts: EventFacts, until: int, n_jobs: int) -> int:
    """Go to the next arrival or entry of the agenda, or `until` if that is earlier; take what is due from the agenda.

    Parameters
    ----------
    ledger
        Of the run.
    facts
        Out: the jobs whose allocations end, ascending, whether there is a wake-up, other entries as far as there is
        room, and the number of jobs that arrive.
    until
        [µs]; NEVER for no limit.
    n_jobs
        Jobs that are to arrive, those that have included.

    Returns
    -------
    The time; NEVER if nothing comes any more.
    """
    counters, agenda, n, n_due, woke = ledger.counters, ledger.agenda, 0, 0, 0
    time = min(next_time(ledger, n_jobs), until)
    if time == NEVER:
        return NEVER
    counters[NOW] = time
    while counters[AGENDA] > 0 and agenda[0, ENTRY_TIME] <= time and n_due < len(facts.due):
        kind, job, number = agenda[0, ENTRY_KIND], agenda[0, ENTRY_JOB], agenda[0, ENTRY_NUMBER]
        stale = is_stale(agenda, ledger.jobs, 0)
        drop(agenda, counters)
        counters[STALE] -= stale
        if stale:
            continue
        if kind == WAKE:
            woke = 1
        elif kind == GANG_ENDS:
            k = n
            while k > 0 and facts.left[k - 1] > job:
                facts.left[k] = facts.left[k - 1]
                k -= 1
            facts.left[k] = job
            n += 1
        else:
            facts.due[n_due, 0], facts.due[n_due, 1], facts.due[n_due, 2] = kind, job, number
            n_due += 1
    facts.counters[N_FINISHED], facts.counters[WOKE], facts.counters[N_DUE] = n, woke, n_due
    facts.counters[N_ARRIVED] = n_arrivals(ledger, n_jobs)
    return time


@lean
def take_all_due(agenda: Ints, counters: Ints, jobs: Ints, due: Ints) -> int:
    """Take the entries that are due from the agenda, without obsolete ones, as many as there are rows in `due`.

    Parameters
    ----------
    agenda, counters, jobs
        Of the ledger.
    due
        Out: (kind, job, number) rows.

    Returns
    -------
    How many rows are filled.
    """
    n = 0
    while n < len(due) and counters[AGENDA] > 0 and agenda[0, ENTRY_TIME] <= counters[NOW]:
        stale = is_stale(agenda, jobs, 0)
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
