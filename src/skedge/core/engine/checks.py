"""The rules of allocations, compiled: each order about workers in slots is checked by them once, whoever made it.

Each check returns the number of the rule that the order breaks, or 0. The sentence that says what is wrong is made in
Python (:mod:`skedge.core.kernel.accept`), where an order that breaks a rule ends the run.
"""

from __future__ import annotations

from skedge.core.model.cluster import Ints
from skedge.platform.jit import inlined, lean

from .ledger import (
    CHUNKS,
    DISPATCHED,
    ELASTIC,
    FIRST,
    HELD,
    PS,
    PS_TYPE,
    SIZE,
    STATUS,
    STYLE,
    TYPE,
    WAITING,
    Case,
    Ledger,
)


@lean
def wrong_allocation(case: Case, ledger: Ledger, job: int, placement: Ints, ps: int, style: int) -> int:
    """The rule that an allocation breaks; what the job holds now counts as free.

    Parameters
    ----------
    case, ledger
        The arrays of the run.
    job
        Its number.
    placement
        (server, workers) rows, ascending by server.
    ps
        PS slot; -1 in the cloud.
    style
        GANG or ELASTIC.
    """
    if not 0 <= job < len(ledger.jobs) or ledger.jobs[job, STATUS] not in (WAITING, DISPATCHED):
        return 2
    job_row = ledger.jobs[job]
    if job_row[STATUS] == DISPATCHED:
        return 6
    if job_row[STYLE] >= 0 and (job_row[STYLE] == ELASTIC) != (style == ELASTIC):
        return 24
    broken = _wrong_servers(ledger, placement)
    if broken == 0:
        broken = _wrong_workers(case, ledger, job, placement)
    return broken or wrong_ps(case, ledger, job, ps)


@inlined
def _wrong_servers(ledger: Ledger, placement: Ints) -> int:
    """The rule that the servers break."""
    if len(placement) == 0:
        return 5
    for w in range(len(placement)):
        if not 0 <= placement[w, 0] < len(ledger.in_service):
            return 1
        if w > 0 and placement[w, 0] <= placement[w - 1, 0]:
            return 4
    for w in range(len(placement)):
        if not ledger.in_service[placement[w, 0]]:
            return 25
    return 0


@inlined
def _wrong_workers(case: Case, ledger: Ledger, job: int, placement: Ints) -> int:
    """The rule that the numbers of workers break."""
    n_workers, kind = 0, ledger.jobs[job, TYPE]
    for w in range(len(placement)):
        n_workers += placement[w, 1]
        if placement[w, 1] < 1:
            return 5
    if n_workers > ledger.jobs[job, CHUNKS]:
        return 5
    for w in range(len(placement)):
        server = placement[w, 0]
        if server != case.cloud:
            free = ledger.free[server, kind] + _held(ledger, job, server) if kind >= 0 else 0
            if placement[w, 1] > free:
                return 4
    return 0


@inlined
def _held(ledger: Ledger, job: int, server: int) -> int:
    """Workers of `server` that `job` holds."""
    n = 0
    if ledger.jobs[job, HELD] > 0:
        for i in range(ledger.jobs[job, FIRST], ledger.jobs[job, FIRST] + ledger.jobs[job, SIZE]):
            if ledger.workers[i, 0] == server:
                n += ledger.workers[i, 1]
    return n


@inlined
def wrong_ps(case: Case, ledger: Ledger, job: int, ps: int) -> int:
    """The rule that this PS breaks; the one that the job has now counts as free.

    Parameters
    ----------
    case, ledger
        The arrays of the run.
    job, ps
        The job, and a PS slot; -1 in the cloud.
    """
    if ps == -1:
        if case.cloud < 0:
            return 13
        return 0 if ledger.in_service[case.cloud] else 25
    if not 0 <= ps < len(ledger.ps_job) or case.ps_type[ps] != ledger.jobs[job, PS_TYPE]:
        return 13
    if not ledger.in_service[case.ps_places[ps]]:
        return 25
    return 13 if ledger.ps_job[ps] >= 0 and ledger.jobs[job, PS] != ps else 0


@inlined
def wrong_suspension(ledger: Ledger, job: int) -> int:
    """The rule that a suspension of `job` breaks."""
    if not 0 <= job < len(ledger.jobs) or ledger.jobs[job, STATUS] not in (WAITING, DISPATCHED):
        return 2
    return 0 if ledger.jobs[job, HELD] > 0 else 24


@inlined
def wrong_rejection(ledger: Ledger, job: int) -> int:
    """The rule that a rejection of `job` breaks."""
    if not 0 <= job < len(ledger.jobs) or ledger.jobs[job, STATUS] not in (WAITING, DISPATCHED):
        return 2
    has_begun = ledger.jobs[job, STATUS] == DISPATCHED or ledger.jobs[job, STYLE] >= 0
    return 18 if has_begun or ledger.data.first[job] >= 0 else 0
