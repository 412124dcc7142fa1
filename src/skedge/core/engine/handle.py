"""What Python calls of the engine: compiled functions that take one handle of all arrays.

Each array that Python passes to a compiled function costs 0.2 µs, and a ledger has 26. A handle (numba's structref) has
them all as its fields and costs 1 µs. This module imports numba, so it is imported when the first handle is made.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.experimental import structref

from skedge.core.model.cluster import Floats, Ints
from skedge.platform.jit import compiled, lean

from . import allocations, apply, outages, step
from .ledger import ARRIVED, FINISHED, HELD, NO_PS, NO_VALUE, PS, SIZE, STATUS, WAITING, Ledger, has_room
from .orders import ALLOCATE, ALLOCATE_EACH, SUSPEND


@structref.register
class HandleType(types.StructRef):
    """Numba's type of a handle."""

    def preprocess_fields(self, fields: Any) -> Any:
        """Treat constants like any other values."""
        unliteral: Any = types.unliteral
        return tuple((name, unliteral(field)) for name, field in fields)


FIELDS = ["case", "ledger", "placement", "facts", "orders"]
"""Fields of a handle."""


class Handle(structref.StructRefProxy):
    """All arrays of an engine: ``case``, ``ledger``, ``facts``, ``orders``, and ``placement`` for a single order."""

    __slots__ = ()

    def __new__(cls, *fields: Any) -> Any:
        """A handle of these fields."""
        return structref.StructRefProxy.__new__(cls, *fields)  # type: ignore[no-untyped-call]


structref.define_proxy(Handle, HandleType, FIELDS)  # type: ignore[no-untyped-call]


@compiled
def make_handle(case: Any, ledger: Any, placement: Any, facts: Any, orders: Any) -> Any:
    """A handle of these arrays.

    Parameters
    ----------
    case, ledger
        The arrays of the run.
    placement
        Room for a placement: (server, workers) rows, one for each server.
    facts, orders
        What a compiled decision reads, and what it writes.
    """
    return Handle(case, ledger, placement, facts, orders)


@compiled
def change(
    handle: Any, verb: int, job: int, n: int, ps: int, free: int, reason: int, value: float
) -> int:  # fmt: skip
    """:func:`.apply.change` with the first `n` rows of ``handle.placement``.

    Parameters
    ----------
    handle
        A :class:`Handle`.
    verb, job, n
        Which change, the job, and the number of servers of the placement.
    ps, free, reason, value
        As :func:`.apply.change` has them.

    Returns
    -------
    The rule that an order breaks, minus the room needed if there is too little, or 0.
    """
    ledger, placement = handle.ledger, handle.placement[:n]
    rule = apply.broken_rule(handle.case, ledger, verb, job, placement, ps)
    if rule > 0:
        return rule
    room = _room_for(ledger, job, placement)
    if not has_room(ledger, room):
        return -room
    apply.change(handle.case, ledger, verb, job, placement, ps, free, reason, value)
    return 0


@compiled
def upload(handle: Any, job: int, n: int, copies: int, reason: int) -> int:
    """:func:`.allocations.upload` for the first `n` rows of ``handle.placement``; returns as :func:`change`.

    Parameters
    ----------
    handle
        A :class:`Handle`.
    job, n
        The job, and the number of servers.
    copies, reason
        As :func:`.allocations.upload` has them.
    """
    ledger, placement = handle.ledger, handle.placement[:n]
    room = _room_for(ledger, job, placement)
    if not has_room(ledger, room):
        return -room
    allocations.upload(handle.case, ledger, job, placement, copies, reason)
    return 0


@compiled
def change_servers(handle: Any, changes: Ints, elsewhere: Ints) -> int:
    """:func:`.outages.change_servers`; returns as :func:`change`.

    Parameters
    ----------
    handle
        A :class:`Handle`.
    changes, elsewhere
        As :func:`.outages.change_servers` has them.
    """
    ledger, room = handle.ledger, 0
    for job in range(len(ledger.jobs)):
        if ledger.jobs[job, HELD] > 0 or ledger.jobs[job, PS] != NO_PS:
            room += ledger.jobs[job, SIZE] + 1
    if not has_room(ledger, room):
        return -room
    outages.change_servers(handle.case, ledger, handle.facts, changes, elsewhere)
    return 0


@compiled
def take_instant(handle: Any, until: int, n_jobs: int) -> int:
    """:func:`.step.take_instant`."""
    return step.take_instant(handle.ledger, handle.facts, until, n_jobs)


@compiled
def absorb(handle: Any, n_finished: int, n_arrived: int) -> int:
    """:meth:`.timeline.Timeline.absorb` of the first jobs of ``facts.left``.

    Parameters
    ----------
    handle
        A :class:`Handle`.
    n_finished, n_arrived
        How many.

    Returns
    -------
    1 + the number of a job that was not in the system, minus the room needed if there is too little, or 0.
    """
    ledger, room = handle.ledger, 0
    for i in range(n_finished):
        job = handle.facts.left[i]
        if job < 0 or job >= ledger.counters[ARRIVED] or ledger.jobs[job, STATUS] >= FINISHED:
            return 1 + job
        room += ledger.jobs[job, SIZE] + 2
    if not has_room(ledger, room):
        return -room
    for i in range(n_finished):
        allocations.finish(handle.case, ledger, handle.facts.left[i])
    for _ in range(n_arrived):
        ledger.jobs[ledger.counters[ARRIVED], STATUS] = WAITING
        ledger.counters[ARRIVED] += 1
    return 0


@compiled
def apply_rows(handle: Any, rows: Ints, places: Ints, values: Floats, reasons: Ints, first: int, n: int) -> int:
    """Check and carry out allocations and suspensions, until one is something else, breaks a rule, or has a new reason.

    Parameters
    ----------
    handle
        A :class:`Handle`.
    rows, places
        As of an :class:`~skedge.core.events.OrderBatch`.
    values
        By row; fewer: the others have none.
    reasons
        The record's number of each reason, -1 if it has none yet.
    first, n
        The first row, and the end.

    Returns
    -------
    The number of the first that was not carried out, `n` if all were; -1 - its number if there is too little room.
    """
    ledger = handle.ledger
    for i in range(first, n):
        verb, job, ps, number, begin, end = rows[i, 0], rows[i, 1], rows[i, 2], rows[i, 3], rows[i, 4], rows[i, 5]
        end += begin
        if not (0 <= number < len(reasons) and 0 <= begin <= end <= len(places)) or reasons[number] < 0:
            return i
        if verb not in (ALLOCATE, ALLOCATE_EACH, SUSPEND):
            return i
        if job < 0 or job >= ledger.counters[ARRIVED] or ledger.jobs[job, STATUS] != WAITING:
            return i
        placement = places[begin:end]
        if apply.broken_rule(handle.case, ledger, verb, job, placement, ps) > 0:
            return i
        if not has_room(ledger, _room_for(ledger, job, placement)):
            return -1 - i
        value = values[i] if i < len(values) else NO_VALUE
        apply.change(handle.case, ledger, verb, job, placement, ps, 0, reasons[number], value)
    return n


@compiled
def remaining(handle: Any, jobs: Ints, now: int, left: Ints, n_jobs: int) -> int:
    """:func:`.allocations.remaining`; 1 and nothing else if one of the jobs is not among the first `n_jobs`.

    Parameters
    ----------
    handle
        A :class:`Handle`.
    jobs, now, left
        As :func:`.allocations.remaining` has them.
    n_jobs
        Number of jobs that may be asked for.
    """
    for job in jobs:
        if not 0 <= job < n_jobs:
            return 1
    allocations.remaining(handle.ledger, jobs, now, left)
    return 0


@compiled
def finish_time(handle: Any, job: int) -> int:
    """:func:`.allocations.finish_time`."""
    return allocations.finish_time(handle.ledger, job)


@lean
def _room_for(ledger: Ledger, job: int, placement: Ints) -> int:
    """Upper bound on the rows and entries that an order about `job` with this placement adds to any array."""
    job_row, n_workers = ledger.jobs[job], 0
    for w in range(len(placement)):
        n_workers += placement[w, 1]
    # elastic workers have at most a row each
    return 2 * (job_row[SIZE] + len(placement) + n_workers) + 8
