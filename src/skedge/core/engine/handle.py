"""What Python calls of the engine: compiled functions that take one handle of all arrays.

Each array that Python passes to a compiled function costs 0.2 µs, and a ledger has 26. A handle (numba's structref) has
them all as its fields and costs 1 µs. This module imports numba, so it is imported when the first handle is made.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.experimental import structref

from skedge.core.model.cluster import Ints
from skedge.platform.jit import compiled, lean

from . import agenda, allocations, step
from .ledger import SIZE, Ledger, has_room

DONE = 0
"""What a call that changes something returns; if an array is full it returns minus the room needed, and did nothing."""


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
    """A handle of these arrays."""
    return Handle(case, ledger, placement, facts, orders)


@compiled
def put_back(handle: Any, case: Any, ledger: Any, placement: Any, facts: Any, orders: Any) -> None:
    """Have the handle refer to these arrays, after some have grown.

    Parameters
    ----------
    handle
        A :class:`Handle`.
    case, ledger
        The arrays.
    placement
        Room for a placement: (server, workers) rows, one for each server.
    facts, orders
        Of a decision.
    """
    handle.case = case
    handle.ledger = ledger
    handle.placement = placement
    handle.facts = facts
    handle.orders = orders


@compiled
def allocate(
    handle: Any, job: int, n: int, ps: int, colocated: int, style: int, reason: int, value: float
) -> int:  # fmt: skip
    """:func:`.allocations.allocate` the first `n` rows of ``handle.placement``.

    Parameters
    ----------
    handle
        A :class:`Handle`.
    job, n
        The job, and the number of servers of the placement.
    ps, colocated, style, reason, value
        As :func:`.allocations.allocate` has them.
    """
    ledger, placement = handle.ledger, handle.placement[:n]
    room = _room_for(ledger, job, placement)
    if not has_room(ledger, room):
        return -room
    allocations.allocate(handle.case, ledger, job, placement, ps, colocated, style, reason, value)
    return DONE


@compiled
def end(handle: Any, job: int, reason: int, finished: int) -> int:
    """Take its workers from a job that holds some: it has `finished`, or is suspended; `reason` -1: no decision.

    Parameters
    ----------
    handle
        A :class:`Handle`.
    job
        It holds workers.
    reason
        Number of the reason; -1: without a decision.
    finished
        1: all of its work is done.
    """
    ledger = handle.ledger
    room = _room_for(ledger, job, handle.placement[:0])
    if not has_room(ledger, room):
        return -room
    if finished:
        allocations.finish(handle.case, ledger, job)
    elif reason >= 0:
        allocations.suspend(handle.case, ledger, job, reason)
    else:
        allocations.stop(handle.case, ledger, job)
    return DONE


@compiled
def upload(handle: Any, job: int, n: int, copies: int, reason: int) -> int:
    """:func:`.allocations.upload` for the first `n` rows of ``handle.placement``.

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
    return DONE


@compiled
def remaining(handle: Any, jobs: Ints, now: int, left: Ints) -> None:
    """:func:`.allocations.remaining`.

    Parameters
    ----------
    handle
        A :class:`Handle`.
    jobs, now, left
        As :func:`.allocations.remaining` has them.
    """
    allocations.remaining(handle.ledger, jobs, now, left)


@compiled
def finish_time(handle: Any, job: int) -> int:
    """:func:`.allocations.finish_time`."""
    return allocations.finish_time(handle.ledger, job)


@compiled
def put(handle: Any, time: int, kind: int, job: int, number: int) -> int:
    """:func:`.agenda.put`, at the end of a slot if time is slotted.

    Parameters
    ----------
    handle
        A :class:`Handle`.
    time
        When it is due [µs].
    kind, job, number
        Of the entry.
    """
    ledger, step = handle.ledger, handle.case.step
    if not has_room(ledger, 1):
        return -1
    agenda.put(ledger.agenda, ledger.counters, -(-time // step) * step, kind, job, number)
    return DONE


@compiled
def take_due(handle: Any, due: Ints) -> int:
    """:func:`.step.take_all_due`."""
    return step.take_all_due(handle.ledger, due)


@compiled
def tidy(handle: Any) -> None:
    """:func:`.agenda.tidy`."""
    agenda.tidy(handle.ledger)


@lean
def _room_for(ledger: Ledger, job: int, placement: Ints) -> int:
    """Upper bound on the rows and entries that an order about `job` with this placement adds to any array."""
    job_row, n_workers = ledger.jobs[job], 0
    for w in range(len(placement)):
        n_workers += placement[w, 1]
    # elastic workers have at most a row each
    return 2 * (job_row[SIZE] + len(placement) + n_workers) + 8
