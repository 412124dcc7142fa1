"""DRF on typed slots: workers given and taken one by one, one PS per job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from skedge.core.engine.apply import apply_all
from skedge.core.engine.ledger import HELD, TYPE, Case, Ledger
from skedge.core.engine.orders import EventFacts, OrderRows
from skedge.core.engine.step import EVENT, PAUSED, QUIET, step
from skedge.core.model.cluster import Cluster, Ints, Physics
from skedge.core.policy import Params
from skedge.platform.jit import compiled, lean
from skedge.policies.gangs.edge import ACTIVE, FURTHER, PREEMPTED, SPARE, admit, begin_orders, order_suspend
from skedge.policies.gangs.elastic import (
    ElasticPolicy,
    ElasticState,
    Room,
    fill_room,
    look_at,
    look_up_own,
    order_plan,
)
from skedge.policies.gangs.placement import forgive, place

from .progressive_filling import level_filling

if TYPE_CHECKING:
    from numpy.random import Generator

COUNTS = FURTHER + 1
"""Row of ``EdgeState.lists``: workers of each job that is up for selection, in their order."""


class DrfState(NamedTuple):
    """What a compiled decision of DRF keeps.

    Attributes
    ----------
    elastic
        The jobs in the system, and scratch.
    fixed_counts
        1: a job that trains keeps the workers that it has; 0: the counts are filled anew at every event.
    """

    elastic: ElasticState
    fixed_counts: int


@lean
def decide(case: Case, ledger: Ledger, drf: DrfState, facts: EventFacts, orders: OrderRows) -> None:
    """Fill from zero; first take workers from shrinking jobs, then give them to growing jobs.

    Parameters
    ----------
    case, ledger, facts
        The run, and what has happened.
    drf
        In and out: the jobs in the system.
    orders
        Out.
    """
    state, edge, room = drf.elastic, drf.elastic.edge, drf.elastic.room
    admit(case, ledger, edge, facts, orders)
    jobs, counts = edge.lists[SPARE, : _selectable(ledger, drf)], edge.lists[COUNTS]
    fill_room(case, ledger, room, ledger.free, drf.fixed_counts == 1)
    level_filling(jobs, ledger.jobs, room.total, room.ps_left, counts)
    begin_orders(ledger, edge)
    # shrinking jobs come first, as their workers are what the growing ones take
    for sign in (-1, 1):
        for i in range(len(jobs)):
            if sign * (counts[i] - ledger.jobs[jobs[i], HELD]) > 0:
                _change(case, ledger, state, jobs[i], counts[i], orders)


@lean
def _selectable(ledger: Ledger, drf: DrfState) -> int:
    """Write the jobs that are up for selection to SPARE; returns their number."""
    lists, n = drf.elastic.edge.lists, 0
    for i in range(drf.elastic.edge.lengths[ACTIVE]):
        job = lists[ACTIVE, i]
        if not drf.fixed_counts or ledger.jobs[job, HELD] == 0:
            lists[SPARE, n] = job
            n += 1
    return n


@lean
def _change(case: Case, ledger: Ledger, state: ElasticState, job: int, n: int, orders: OrderRows) -> None:
    """Have a job hold `n` workers: the nearest of those it has, or where its data are if it has none; and others."""
    room, job_row = state.room, ledger.jobs[job]
    workers = room.workers[:, job_row[TYPE]]
    if job_row[HELD] > 0:
        look_up_own(ledger, job, room.own)
        for server in range(len(workers)):
            workers[server] += room.own[server]
    if n == 0:
        order_suspend(ledger, state.edge, job, PREEMPTED, orders)
        return
    _plan(case, ledger, room, job, n)
    for server in range(len(workers)):
        workers[server] -= room.plan[server]
    order_plan(case, ledger, state, job, orders)


@lean
def _plan(case: Case, ledger: Ledger, room: Room, job: int, n: int) -> None:
    """Fill ``plan`` with `n` workers, where those that the job has count as free."""
    look_at(case, ledger, room, job)
    for server in range(len(room.plan)):
        # a job that was suspended resumes where its data are, as far as there is room: that needs no upload
        suspended = ledger.jobs[job, HELD] == 0
        room.plan[server] = min(room.with_data[server], room.free[server]) if suspended else room.own[server]
    n_new = n - _keep_nearest(room.plan, room.delay, n)
    if n_new > 0:
        for server in range(len(room.plan)):
            # data beyond the job's workers there: a worker that uses them need not wait for an upload
            room.with_data[server] -= room.plan[server]
            room.free[server] -= room.plan[server]
        if case.kept:
            forgive(room.free, room.with_data, n_new, room.delay)
        for i in range(place(room.free, room.delay, n_new, room.servers, room.counts)):
            room.plan[room.servers[i]] += room.counts[i]


@lean
def _keep_nearest(workers: Ints, delay: Ints, n: int) -> int:
    """Drop all but the `n` workers of least (delay, server), both by server; returns how many there are."""
    total = 0
    for server in range(len(workers)):
        total += workers[server]
    while total > n:
        farthest = -1
        for server in range(len(workers)):
            if workers[server] > 0 and (farthest < 0 or delay[server] >= delay[farthest]):
                farthest = server
        n_dropped = min(workers[farthest], total - n)
        workers[farthest] -= n_dropped
        total -= n_dropped
    return total


@lean
def run(case: Case, ledger: Ledger, drf: DrfState, facts: EventFacts, orders: OrderRows, events: int) -> int:
    """At most so many events of a simulation.

    Parameters
    ----------
    case, ledger, facts, orders
        The arrays of the run.
    drf
        The state of the policy.
    events
        Most events, at least 1.

    Returns
    -------
    As of :func:`~skedge.core.engine.step.step`; BROKEN or PAUSED.
    """
    for _ in range(events):
        outcome = step(case, ledger, facts)
        if outcome == EVENT:
            decide(case, ledger, drf, facts, orders)
            outcome = apply_all(case, ledger, orders)
        if outcome != QUIET:
            return outcome
    return PAUSED


@compiled
def _decide(handle: Any, drf: DrfState) -> None:
    decide(handle.case, handle.ledger, drf, handle.facts, handle.orders)


@compiled
def _run(handle: Any, drf: DrfState, events: int) -> int:
    return run(handle.case, handle.ledger, drf, handle.facts, handle.orders, events)


class DrfOnSlots(ElasticPolicy):
    """Dominant resource fairness on typed slots, as She et al. run it."""

    compares: ClassVar[str] = "w_j over the workers of its type, filled from zero, least first"
    rank: ClassVar[str] = "fair_share"
    rows: ClassVar[int] = COUNTS + 1
    decision, loop = _decide, _run

    def __init__(self, params: Params, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run.

        Parameters
        ----------
        params
            Those of the policy.
        cluster, physics
            Of the scenario.
        rng
            Its generator for the policy, which draws nothing.
        """
        self.params = params
        self.start(cluster, physics, rng)

    def state(self) -> DrfState:
        """The arrays of the policy."""
        return DrfState(ElasticState(self.edge, self.room), int(self.params.counts == "fixed"))
