"""SRTF: gangs by (remaining training time, arrival, id)."""

from __future__ import annotations

from typing import Any, ClassVar

from skedge.core.engine.allocations import remaining
from skedge.core.engine.apply import apply_all
from skedge.core.engine.ledger import ARRIVED, DEMAND, NOW, Case, Ledger
from skedge.core.engine.orders import FIRST_ARRIVED, EventFacts, OrderRows
from skedge.core.engine.step import EVENT, PAUSED, QUIET, step
from skedge.core.model.cluster import Ints
from skedge.platform.jit import compiled, lean

from .base import OWN, RANKED, GangPolicy, GangState, admit_gangs, fill
from .edge import ACTIVE, FURTHER, SPARE

REMAINING = OWN
"""Column of remaining times; see :func:`rank`."""


@lean
def decide(case: Case, ledger: Ledger, state: GangState, facts: EventFacts, orders: OrderRows) -> None:
    """Rank all jobs by remaining time and run as many as fit.

    Parameters
    ----------
    case, ledger, facts
        The run, and what has happened.
    state
        In and out.
    orders
        Out.
    """
    lists, lengths = state.edge.lists, state.edge.lengths
    admit_gangs(case, ledger, state, facts, orders)
    for job in range(facts.counters[FIRST_ARRIVED], ledger.counters[ARRIVED]):
        lists[REMAINING, job] = -1
    active, left, order = lists[ACTIVE, : lengths[ACTIVE]], lists[SPARE], lists[FURTHER]
    remaining(ledger, active, ledger.counters[NOW], left)
    rank(lists[RANKED, : lengths[RANKED]], active, left, ledger.jobs, lists[REMAINING], order)
    lengths[RANKED] = len(active)
    for i in range(len(active)):
        lists[RANKED, i] = order[i]
    fill(case, ledger, state, lists[RANKED, : lengths[RANKED]], False, orders)


@lean
def rank(last_order: Ints, jobs: Ints, left: Ints, table: Ints, remaining: Ints, order: Ints) -> None:
    """Fill `order` with the `jobs` by (remaining time, job).

    Their order hardly changes from event to event: the remaining times of running jobs fall together, the others stay.
    So the order `last_order` is sorted by insertion, new jobs at its end.

    Parameters
    ----------
    last_order, jobs
        Jobs as they were ranked last; jobs to rank.
    left
        Work left of each of `jobs` [worker-µs].
    table
        A row for each job (``Ledger.jobs``), with its demand.
    remaining
        By job, -1 - remaining time of the jobs in `last_order` [µs], negative for all others; updated.
    order
        Out.
    """
    for n in range(len(jobs)):
        # 0 or more marks a job that is still to be sorted; below 0 it is done, or has left
        k = table[jobs[n], DEMAND]
        remaining[jobs[n]] = left[n] if k == 1 else -(-left[n] // k)  # a division takes as long as all the rest
    n = 0
    for candidates in (last_order, jobs):
        for job in candidates:
            if remaining[job] < 0:
                continue
            # the mark: each job is sorted once, from `before` or, if it is new, from `jobs`
            remaining[job] = time = -1 - remaining[job]
            i = n
            while i > 0 and (remaining[order[i - 1]], -order[i - 1]) < (time, -job):
                order[i] = order[i - 1]
                i -= 1
            order[i] = job
            n += 1


@lean
def run(case: Case, ledger: Ledger, state: GangState, facts: EventFacts, orders: OrderRows, events: int) -> int:
    """At most so many events of a simulation; the same lines in each policy (:mod:`skedge.policies.gangs` says why).

    Parameters
    ----------
    case, ledger, state, facts, orders
        As :func:`decide` has them.
    events
        At least 1.

    Returns
    -------
    As of :func:`~skedge.core.engine.step.step`; BROKEN or PAUSED.
    """
    for _ in range(events):
        outcome = step(case, ledger, facts)
        if outcome == EVENT:
            decide(case, ledger, state, facts, orders)
            outcome = apply_all(case, ledger, orders)
        if outcome != QUIET:
            return outcome
    return PAUSED


@compiled
def _decide(handle: Any, state: GangState) -> None:
    decide(handle.case, handle.ledger, state, handle.facts, handle.orders)


@compiled
def _run(handle: Any, state: GangState, events: int) -> int:
    return run(handle.case, handle.ledger, state, handle.facts, handle.orders, events)


class Srtf(GangPolicy):
    """Shortest remaining time first."""

    name: ClassVar[str] = "srtf"
    rank: ClassVar[str] = "shortest_remaining_time"
    rows: ClassVar[int] = REMAINING + 1
    decision, loop = _decide, _run

    @property
    def shares(self) -> bool:
        """Tenants and classes are kept to."""
        return True
