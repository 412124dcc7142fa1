"""Servers leave service and return: jobs lose workers, PSs and data there; compiled."""

from __future__ import annotations

from skedge.core.events import OUT_OF_SERVICE
from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER
from skedge.platform.jit import inlined, lean

from .agenda import tidy
from .allocations import release_ps, stop
from .data import lose
from .ledger import (
    ARRIVED,
    CHANGE_SERVER,
    CHANGE_TIME,
    CHANGES,
    DEPARTED,
    FINISHED,
    FIRST,
    HELD,
    LEAVES,
    NO_PS,
    NO_VALUE,
    NOW,
    NUMBER,
    OLDEST,
    PS,
    SIZE,
    STATUS,
    Case,
    Ledger,
    note_decision,
)
from .orders import N_INTERRUPTED, N_LOST, N_WITHOUT_PS, SUSPEND, EventFacts

LOST_SERVER = -2
"""Stands for the reason of a suspension with a server, until the record gives it a number: why that left service."""


@lean
def next_change(ledger: Ledger, changes: Ints | None) -> int:
    """The time of the next known change of service [µs]; NEVER if there is none, or all jobs have left.

    `changes` are those of the ledger, an argument of its own in all of these functions, so that numba leaves out what
    follows where it is None.
    """
    if changes is None:
        return NEVER
    n = ledger.counters[CHANGES]
    if n == len(changes) or ledger.counters[DEPARTED] == len(ledger.jobs):
        return NEVER
    return changes[n, CHANGE_TIME]


@lean
def take_changes(ledger: Ledger, changes: Ints | None) -> int:
    """Count the changes of service up to the present as happened; returns how many, the last of those that have."""
    if changes is None:
        return 0
    counters, first = ledger.counters, ledger.counters[CHANGES]
    while next_change(ledger, changes) <= counters[NOW]:
        counters[CHANGES] += 1
    return counters[CHANGES] - first


@lean
def make_changes(case: Case, ledger: Ledger, facts: EventFacts, changes: Ints | None, n: int) -> None:
    """:func:`change_servers` for the last `n` changes of service that have happened.

    Parameters
    ----------
    case, ledger, facts
        As :func:`change_servers` has them.
    changes
        Those of the ledger.
    n
        How many.
    """
    if changes is None:
        return
    if n > 0:
        last = ledger.counters[CHANGES]
        change_servers(case, ledger, facts, changes[last - n : last], changes[:0])


@lean
def change_servers(case: Case, ledger: Ledger, facts: EventFacts, changes: Ints, elsewhere: Ints) -> None:
    """Take servers out of service or back into it; jobs with workers or a PS on one that leaves lose both.

    A job that has workers on two that leave together is interrupted once, as all of them are out of service first.

    Parameters
    ----------
    case, ledger
        The arrays of the run.
    facts
        Out: the jobs affected, and the servers that leave.
    changes
        Rows as of ``Ledger.changes``, whose times do not count.
    elsewhere
        Where PSs are no slots: (job, server) rows of the PSs of jobs that hold workers.
    """
    counters = facts.counters
    for i in range(len(changes)):
        server = changes[i, CHANGE_SERVER]
        ledger.in_service[server] = changes[i, LEAVES] == 0
        if changes[i, LEAVES]:
            lose(ledger.data, server)
            facts.lost[counters[N_LOST]] = server
            counters[N_LOST] += 1
    for i in range(counters[N_LOST]):
        _interrupt(case, ledger, facts, facts.lost[i], elsewhere)
        _release_ps_on(case, ledger, facts, facts.lost[i])
    for i in range(len(changes)):
        _serve(case, ledger, changes[i, CHANGE_SERVER], changes[i, LEAVES] == 0)
    _sort(facts.interrupted[: counters[N_INTERRUPTED]])
    _sort(facts.without_ps[: counters[N_WITHOUT_PS]])
    if case.simulated:
        tidy(ledger)


@inlined
def _interrupt(case: Case, ledger: Ledger, facts: EventFacts, server: int, elsewhere: Ints) -> None:
    """Suspend the jobs with workers or their PS on `server`, in the order in which their allocations were made."""
    counters, jobs, first = ledger.counters, facts.interrupted, facts.counters[N_INTERRUPTED]
    while counters[OLDEST] < counters[ARRIVED] and ledger.jobs[counters[OLDEST], STATUS] >= FINISHED:
        counters[OLDEST] += 1
    n = first
    for job in range(counters[OLDEST], counters[ARRIVED]):
        if ledger.jobs[job, HELD] > 0 and _stands_on(case, ledger, job, server, elsewhere):
            k = n
            while k > first and ledger.jobs[jobs[k - 1], NUMBER] > ledger.jobs[job, NUMBER]:
                jobs[k] = jobs[k - 1]
                k -= 1
            jobs[k] = job
            n += 1
    for i in range(first, n):
        stop(case, ledger, jobs[i])
        note_decision(ledger, jobs[i], SUSPEND, server, -1, LOST_SERVER, NO_VALUE)
    facts.counters[N_INTERRUPTED] = n


@inlined
def _stands_on(case: Case, ledger: Ledger, job: int, server: int, elsewhere: Ints) -> bool:
    """Whether `job`, which holds workers, has one or its PS on `server`."""
    job_row = ledger.jobs[job]
    stands = job_row[PS] != NO_PS and case.ps_places[job_row[PS]] == server
    for i in range(job_row[FIRST], job_row[FIRST] + job_row[SIZE]):
        stands = stands or ledger.workers[i, 0] == server
    for i in range(len(elsewhere)):
        stands = stands or (elsewhere[i, 0] == job and elsewhere[i, 1] == server)
    return stands


@inlined
def _release_ps_on(case: Case, ledger: Ledger, facts: EventFacts, server: int) -> None:
    """Release the PSs on `server` that chunks on lanes still have."""
    for job in range(ledger.counters[OLDEST], ledger.counters[ARRIVED]):
        if ledger.jobs[job, PS] != NO_PS and case.ps_places[ledger.jobs[job, PS]] == server:
            release_ps(ledger, job)
            facts.without_ps[facts.counters[N_WITHOUT_PS]] = job
            facts.counters[N_WITHOUT_PS] += 1


@inlined
def _serve(case: Case, ledger: Ledger, server: int, back: bool) -> None:
    """Take `server`, which no job uses, out of service or back into it: its workers, and its PS slots."""
    for kind in range(len(case.slots)):
        ledger.capacity[server, kind] = ledger.free[server, kind] = case.capacity[server, kind] if back else 0
    for i in range(case.ps_first[server * case.ps_types], case.ps_first[(server + 1) * case.ps_types]):
        ledger.ps_job[case.ps_list[i]] = -1 if back else OUT_OF_SERVICE


@inlined
def _sort(jobs: Ints) -> None:
    """Sort `jobs` ascending."""
    for n in range(1, len(jobs)):
        job, k = jobs[n], n
        while k > 0 and jobs[k - 1] > job:
            jobs[k] = jobs[k - 1]
            k -= 1
        jobs[k] = job
