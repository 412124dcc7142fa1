"""Orders of a compiled decision carried out, each checked first."""

from __future__ import annotations

from skedge.core.model.cluster import Ints
from skedge.platform.jit import inlined, lean

from .agenda import WAKE, put, tidy
from .allocations import allocate, is_colocated, reject, suspend
from .checks import wrong_allocation, wrong_rejection, wrong_suspension
from .ledger import ELASTIC, GANG, NO_VALUE, Case, Ledger
from .orders import (
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
    SUSPEND,
    WAKE_AT,
    WRONG,
    Orders,
)
from .step import BROKEN, QUIET

CODED = -2
"""In the rows of decisions the policy's reason number c is ``CODED - c``, until the record gives it a number."""


@lean
def apply_all(case: Case, ledger: Ledger, orders: Orders) -> int:
    """Check and carry out the orders in turn, and empty their list; returns QUIET, or BROKEN if one breaks a rule.

    Those before the wrong one are carried out; the list is left, and ``counters[WRONG]`` is its number.
    """
    for n in range(orders.counters[N_ORDERS]):
        if _apply(case, ledger, orders, orders.rows[n]) > 0:
            orders.counters[WRONG] = n
            return BROKEN
    orders.counters[N_ORDERS] = orders.counters[N_PLACES] = 0
    tidy(ledger)
    return QUIET


@inlined
def _apply(case: Case, ledger: Ledger, orders: Orders, row: Ints) -> int:
    """Check and carry out the order of this row; returns the rule that it breaks, 0 if none."""
    verb, job, reason = row[ORDER_VERB], row[ORDER_JOB], CODED - row[ORDER_REASON]
    if verb == SUSPEND:
        rule = wrong_suspension(ledger, job)
        if rule == 0:
            suspend(case, ledger, job, reason)
    elif verb == REJECT:
        rule = wrong_rejection(ledger, job)
        if rule == 0:
            reject(ledger, job, reason, NO_VALUE)
    elif verb == WAKE_AT:
        rule = 0
        put(ledger.agenda, ledger.counters, -(-row[ORDER_FIRST] // case.step) * case.step, WAKE, -1, 0)
    else:
        placement = orders.places[row[ORDER_FIRST] : row[ORDER_FIRST] + row[ORDER_SIZE]]
        style, ps = ELASTIC if verb == ALLOCATE_EACH else GANG, row[ORDER_PS]
        rule = wrong_allocation(case, ledger, job, placement, ps, style)
        if rule == 0:
            allocate(case, ledger, job, placement, ps, is_colocated(case, placement, ps), style, reason, NO_VALUE)
    return rule
