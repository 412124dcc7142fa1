"""What changes the ledger, by its verb: each order is checked first, whoever made it."""

from __future__ import annotations

from skedge.core.model.cluster import Ints
from skedge.platform.jit import inlined, lean

from .agenda import WAKE, put, tidy
from .allocations import allocate, is_colocated, reject, stop, suspend
from .checks import wrong_allocation, wrong_rejection, wrong_suspension
from .ledger import AT_SITES, ELASTIC, GANG, NO_VALUE, Case, Ledger
from .orders import (
    ALLOCATE,
    ALLOCATE_EACH,
    N_ORDERS,
    N_PLACES,
    ORDER_FIRST,
    ORDER_JOB,
    ORDER_PS,
    ORDER_REASON,
    ORDER_SIZE,
    ORDER_VERB,
    REJECT,
    STOP,
    SUSPEND,
    TRAIN_AT_SITES,
    WAKE_AT,
    WRONG,
    OrderRows,
)
from .outages import LOST_SERVER
from .step import BROKEN, QUIET

CODED = LOST_SERVER - 1
"""In the rows of decisions the policy's reason number c is ``CODED - c``, until the record gives it a number."""


@lean
def broken_rule(case: Case, ledger: Ledger, verb: int, job: int, placement: Ints, ps: int) -> int:
    """The rule that an order about workers in slots breaks, 0 if none.

    Parameters
    ----------
    case, ledger, verb, job, placement, ps
        As :func:`change` has them.
    """
    if verb == SUSPEND:
        return wrong_suspension(ledger, job)
    if verb == REJECT:
        return wrong_rejection(ledger, job)
    if case.on_slots and verb in (ALLOCATE, ALLOCATE_EACH):
        return wrong_allocation(case, ledger, job, placement, ps, ELASTIC if verb == ALLOCATE_EACH else GANG)
    return 0


@lean
def change(
    case: Case,
    ledger: Ledger,
    verb: int,
    job: int,
    placement: Ints,
    ps: int,
    free: int,
    reason: int,
    value: float,
) -> None:
    """Carry out an order that has been checked, or end an allocation as the world reports.

    Parameters
    ----------
    case, ledger
        The arrays of the run, with room for what it adds.
    verb
        Which change: ALLOCATE to STOP of :mod:`.orders`.
    job
        Its number.
    placement
        (server, workers) rows, ascending by server.
    ps
        PS slot; -1 in the cloud; NO_PS where PSs are no slots.
    free
        Where workers and PSs are no slots: 1 if communication is free.
    reason, value
        Number of the reason, and the value; NaN for none.
    """
    if verb == SUSPEND:
        suspend(case, ledger, job, reason)
    elif verb == REJECT:
        reject(ledger, job, reason, value)
    elif verb == STOP:
        stop(case, ledger, job)
    else:
        style = ELASTIC if verb == ALLOCATE_EACH else (AT_SITES if verb == TRAIN_AT_SITES else GANG)
        colocated = is_colocated(case, placement, ps) if case.on_slots else free
        allocate(case, ledger, job, placement, ps, colocated, style, reason, value)
    if case.simulated:
        tidy(ledger)


@lean
def apply_all(case: Case, ledger: Ledger, orders: OrderRows) -> int:
    """Check and carry out the orders in turn, and empty their list; returns QUIET, or BROKEN if one breaks a rule.

    Those before the wrong one are carried out; the list is left, and ``counters[WRONG]`` is its number.
    """
    for n in range(orders.counters[N_ORDERS]):
        if _apply(case, ledger, orders, orders.rows[n]) > 0:
            orders.counters[WRONG] = n
            return BROKEN
    orders.counters[N_ORDERS] = orders.counters[N_PLACES] = 0
    return QUIET


@inlined
def _apply(case: Case, ledger: Ledger, orders: OrderRows, row: Ints) -> int:
    """Check and carry out the order of this row; returns the rule that it breaks, 0 if none."""
    if row[ORDER_VERB] == WAKE_AT:
        put(ledger.agenda, ledger.counters, -(-row[ORDER_FIRST] // case.step) * case.step, WAKE, -1, 0)
        return 0
    verb, job, ps, reason = row[ORDER_VERB], row[ORDER_JOB], row[ORDER_PS], CODED - row[ORDER_REASON]
    placement = orders.places[row[ORDER_FIRST] : row[ORDER_FIRST] + row[ORDER_SIZE]]
    rule = broken_rule(case, ledger, verb, job, placement, ps)
    if rule == 0:
        change(case, ledger, verb, job, placement, ps, 0, reason, NO_VALUE)
    return rule
