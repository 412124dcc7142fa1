"""Base of edge-first policies, and what their compiled decisions share: jobs in the system, cloud fallback, PS choice.

What can never fit on the edge goes to the cloud, or is rejected where there is none. A compiled decision reads the
ledger and the facts of the event, and writes its orders (:mod:`skedge.core.engine.orders`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from skedge.core.engine.ledger import (
    ARRIVED,
    CHUNKS,
    DEMAND,
    HELD,
    NO_PS,
    PS,
    PS_TYPE,
    STATUS,
    TYPE,
    WAITING,
    Case,
    Ledger,
)
from skedge.core.engine.orders import (
    ALLOCATE,
    ALLOCATE_EACH,
    FIRST_ARRIVED,
    N_INTERRUPTED,
    N_LEFT,
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
    EventFacts,
    OrderRows,
    add_order,
)
from skedge.core.events import Allocate, Event, Order, OrderBatch, Reject, Suspend, WakeAt, ps_in
from skedge.core.model.cluster import Cluster, Ints, Physics
from skedge.core.model.size import UNLIMITED
from skedge.core.model.time import SECOND
from skedge.core.policy import BasePolicy, Guarantees, View
from skedge.platform.jit import compiled, inlined, lean

if TYPE_CHECKING:
    from numpy.random import Generator

    from skedge.core.engine.engine import AllocationEngine
    from skedge.core.model.scenario import Scenario

RANK, PREEMPTED, MOVED, NEVER_FITS_EDGE, NO_ROOM_ON_EDGE, NEVER_FITS, NO_PS_THERE, OVER_QUOTA = range(8)
"""Reasons of orders: the policy's rank, and those that all have; see :meth:`EdgePolicy.reason`."""

NO_PS_ON_EDGE = "never_fits: no server has a PS of its type, and there is no cloud"
"""Reason of a rejection."""

ACTIVE, STRANDED, ABOVE_QUOTA, SPARE, FURTHER = range(5)
"""Rows of ``EdgeState.lists``, and of ``lengths``: jobs in the system that the edge can hold, ascending unless the
policy keeps another order; those that can go to the cloud only, which is out of service; by job, 1 if it asks for more
workers than its tenant may ever have; and two rows to work on. A policy's own rows follow."""


def too_few(k: int, slots: int) -> str:
    """Reason of a rejection: the edge has fewer workers of its type than the job asks for."""
    return f"never_fits: it asks for {k} workers; the edge has {slots} of its type, and no cloud"


class EdgeState(NamedTuple):
    """What every compiled edge-first policy keeps.

    Attributes
    ----------
    lists
        Lists of jobs and columns by job, a row each, shape ``(rows, jobs)``.
    lengths
        Length of each list.
    ps_job
        The job of each PS slot, as the orders written so far leave them.
    elastic
        1 if single workers are given, from one up to one for each chunk; 0 if a job has its whole demand or nothing.
    """

    lists: Ints
    lengths: Ints
    ps_job: Ints
    elastic: int


def make_state(cluster: Cluster, rows: int, *, elastic: bool) -> EdgeState:
    """The state before the first event, of no jobs."""
    slots = np.zeros(len(cluster.ps_server), np.int64)
    return EdgeState(np.zeros((rows, 0), np.int64), np.zeros(rows, np.int64), slots, int(elastic))


# -- arrivals and departures -----------------------------------------------------------------------------------------


@lean
def admit(case: Case, ledger: Ledger, edge: EdgeState, facts: EventFacts, orders: OrderRows) -> None:
    """Let those go that have left, take in arrivals; what can never fit on the edge goes to the cloud or is rejected.

    Jobs that can go only to the cloud wait while it is out of service.

    Parameters
    ----------
    case, ledger, facts
        The run, and what has happened.
    edge
        In and out: the jobs in the system.
    orders
        Out: orders on those that the edge cannot hold.
    """
    for i in range(facts.counters[N_LEFT]):
        _remove(edge, facts.left[i])
    homeless, n = edge.lists[SPARE], 0
    for i in range(edge.lengths[STRANDED]):
        homeless[n] = edge.lists[STRANDED, i]
        n += 1
    for i in range(facts.counters[N_INTERRUPTED]):
        homeless[n] = facts.interrupted[i]
        n += 1
    edge.lengths[STRANDED] = 0
    for i in range(n):
        if ledger.jobs[homeless[i], STATUS] == WAITING and not _is_active(edge, homeless[i]):
            _take_in(case, ledger, edge, homeless[i], orders)
    for job in range(facts.counters[FIRST_ARRIVED], ledger.counters[ARRIVED]):
        _take_in(case, ledger, edge, job, orders)


@inlined
def _is_active(edge: EdgeState, job: int) -> bool:
    active = False
    for i in range(edge.lengths[ACTIVE]):
        active = active or edge.lists[ACTIVE, i] == job
    return active


@inlined
def _remove(edge: EdgeState, job: int) -> None:
    """Take a job out of those in the system."""
    n = 0
    for i in range(edge.lengths[ACTIVE]):
        if edge.lists[ACTIVE, i] != job:
            edge.lists[ACTIVE, n] = edge.lists[ACTIVE, i]
            n += 1
    edge.lengths[ACTIVE] = n


@lean
def _take_in(case: Case, ledger: Ledger, edge: EdgeState, job: int, orders: OrderRows) -> None:
    """Have a job be in the system, or send it to the cloud, or reject it."""
    job_row = ledger.jobs[job]
    kind, ps_kind = job_row[TYPE], job_row[PS_TYPE]
    least, n_max = (1, job_row[CHUNKS]) if edge.elastic else (job_row[DEMAND], job_row[DEMAND])
    fits, above_quota = least <= (case.slots[kind] if kind >= 0 else 0), edge.lists[ABOVE_QUOTA, job] == 1
    if case.cloud >= 0 and (above_quota or not fits):
        to_cloud(case, ledger, edge, job, n_max, NEVER_FITS_EDGE, orders)
        return
    if case.cloud < 0:
        has_ps = ps_kind >= 0 and n_ps(case, ps_kind) > 0
        if above_quota or not (fits and has_ps):
            reason = NEVER_FITS if not fits else OVER_QUOTA if has_ps else NO_PS_THERE
            add_order(orders, REJECT, job, -1, reason, 0)
            return
    # a job that comes back from a lost server takes its old place
    i = edge.lengths[ACTIVE]
    while i > 0 and edge.lists[ACTIVE, i - 1] > job:
        edge.lists[ACTIVE, i] = edge.lists[ACTIVE, i - 1]
        i -= 1
    edge.lists[ACTIVE, i] = job
    edge.lengths[ACTIVE] += 1


@lean
def to_cloud(case: Case, ledger: Ledger, edge: EdgeState, job: int, n: int, reason: int, orders: OrderRows) -> None:
    """Have `job` hold `n` workers in the cloud, for good; it waits while that is out of service.

    Parameters
    ----------
    case, ledger, edge, orders
        As :func:`admit` has them.
    job, n, reason
        The job, its workers, and the number of the reason.
    """
    if ledger.in_service[case.cloud]:
        place = orders.places[orders.counters[N_PLACES]]
        place[0], place[1] = case.cloud, n
        add_order(orders, ALLOCATE, job, -1, reason, 1)
    else:
        edge.lists[STRANDED, edge.lengths[STRANDED]] = job
        edge.lengths[STRANDED] += 1


# -- parameter servers -----------------------------------------------------------------------------------------------


@inlined
def n_ps(case: Case, kind: int) -> int:
    """The number of PS slots of a type."""
    # the last lists are those of all servers together, one per PS type
    number = len(case.ps_first) - 1 - case.ps_types + kind
    return case.ps_first[number + 1] - case.ps_first[number]


@lean
def count_ps(case: Case, ledger: Ledger, running_stay: bool, left: Ints) -> None:
    """Fill `left`: PS slots to give out by type; all, or the free ones where running jobs are not up for selection.

    Parameters
    ----------
    case, ledger
        The run.
    running_stay
        Whether running jobs keep their PSs.
    left
        Out: by type; a large number where the cloud is the fallback.
    """
    first, has_cloud = len(case.ps_first) - 1 - case.ps_types, case.cloud >= 0 and ledger.in_service[case.cloud]
    for kind in range(case.ps_types):
        left[kind] = UNLIMITED if has_cloud else 0
        if not has_cloud:
            for i in range(case.ps_first[first + kind], case.ps_first[first + kind + 1]):
                slot = case.ps_list[i]
                left[kind] += ledger.in_service[case.ps_places[slot]] and not (
                    running_stay and ledger.ps_job[slot] >= 0
                )


@lean
def begin_orders(ledger: Ledger, edge: EdgeState) -> None:
    """Before the first order that takes or releases a PS: they are as the ledger has them."""
    for slot in range(len(ledger.ps_job)):
        edge.ps_job[slot] = ledger.ps_job[slot]


@lean
def order_suspend(ledger: Ledger, edge: EdgeState, job: int, reason: int, orders: OrderRows) -> None:
    """Suspend `job`, whose PS is free for the orders that follow.

    Parameters
    ----------
    ledger, edge
        The run, and PSs as the orders so far leave them.
    job, reason
        The job, and the number of the reason.
    orders
        Out.
    """
    ps = ledger.jobs[job, PS]
    if ps >= 0:
        edge.ps_job[ps] = -1
    add_order(orders, SUSPEND, job, -1, reason, 0)


@lean
def order_allocate(case: Case, ledger: Ledger, edge: EdgeState, job: int, n_places: int, orders: OrderRows) -> int:
    """Allocate the placement in the next `n_places` rows of the pool to `job`, with a PS; returns its slot.

    A job that runs keeps its PS. Another takes a free PS slot of its type: on a server of its placement, else of lowest
    number, else in the cloud.

    Parameters
    ----------
    case, ledger, edge
        The run, and PSs as the orders so far leave them.
    job
        The job; running jobs whose PS is to be free for it have been suspended.
    n_places
        Servers of the placement, which has been written, ascending.
    orders
        Out.
    """
    ps, first = ledger.jobs[job, PS] if ledger.jobs[job, HELD] > 0 else NO_PS, orders.counters[N_PLACES]
    if ps == NO_PS:
        ps = _free_ps(case, ledger, edge, job, orders.places[first : first + n_places])
    if ps >= 0:
        edge.ps_job[ps] = job
    add_order(orders, ALLOCATE_EACH if edge.elastic else ALLOCATE, job, ps, RANK, n_places)
    return ps


@lean
def _free_ps(case: Case, ledger: Ledger, edge: EdgeState, job: int, placement: Ints) -> int:
    """A free PS slot of the job's type; -1: in the cloud."""
    kind = ledger.jobs[job, PS_TYPE]
    if kind < 0:
        return -1
    # beside workers first: there a PS makes co-location possible
    for w in range(len(placement)):
        slot = _free_slot(case, edge.ps_job, placement[w, 0] * case.ps_types + kind)
        if slot >= 0:
            return slot
    return _free_slot(case, edge.ps_job, len(case.ps_first) - 1 - case.ps_types + kind)


@inlined
def _free_slot(case: Case, ps_job: Ints, number: int) -> int:
    """The first free PS slot of a list; -1 if there is none."""
    slot = -1
    for i in range(case.ps_first[number], case.ps_first[number + 1]):
        if slot < 0 and ps_job[case.ps_list[i]] < 0:
            slot = case.ps_list[i]
    return slot


@compiled
def admit_event(handle: Any, edge: EdgeState) -> None:
    """:func:`admit` for Python."""
    admit(handle.case, handle.ledger, edge, handle.facts, handle.orders)


# -- the base class --------------------------------------------------------------------------------------------------


class EdgePolicy(BasePolicy):
    """Base of the gang baselines and of those that give and take single workers.

    Attributes
    ----------
    compares
        What decides whether a job runs, for ``skedge explain``.
    rank
        Reason of its allocations.
    elastic
        Whether it gives and takes single workers.
    rows
        Rows of ``EdgeState.lists`` that it uses.
    decision, loop
        The compiled decision on an event, and the compiled loop of events; None: of a policy that decides in Python.
    """

    name: ClassVar[str] = ""
    compares: ClassVar[str] = "its whole demand against what is free"
    rank: ClassVar[str] = ""
    elastic: ClassVar[bool] = False
    rows: ClassVar[int] = FURTHER + 1
    decision: ClassVar[Any] = None
    loop: ClassVar[Any] = None

    @property
    def has_loop(self) -> bool:
        """Whether its own class has a compiled loop: one that inherits it may decide otherwise."""
        return vars(type(self)).get("loop") is not None

    @property
    def may_use_cloud(self) -> bool:
        """With the parameter `allow_cloud`."""
        return bool(getattr(self.params, "allow_cloud", False))

    @property
    def guarantees(self) -> Guarantees:
        """Data are brought with allocations only; a suspended job makes room for another."""
        return Guarantees(uploads="with_allocations", preempts="for_others")

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.slots = cluster.workers.sum(axis=0)
        self.edge = make_state(cluster, self.rows, elastic=self.elastic)

    # -- decisions -----------------------------------------------------------------------------------------------

    def state(self) -> Any:
        """What the compiled functions of the policy take beside the handle."""
        return self.edge

    def take_in(self, n_jobs: int, source: View | Scenario) -> None:
        """Have room for so many jobs; `source` has their columns."""
        if n_jobs > self.edge.lists.shape[1]:
            self.make_room(n_jobs, source)

    def make_room(self, n_jobs: int, source: View | Scenario) -> None:  # noqa: ARG002 - for policies that keep more
        """Have room for at least so many jobs; those from the present number on are new."""
        lists = np.zeros((self.rows, max(n_jobs, 2 * self.edge.lists.shape[1], 64)), np.int64)
        lists[:, : self.edge.lists.shape[1]] = self.edge.lists
        self.edge = self.edge._replace(lists=lists)

    def decide(self, event: Event, view: View) -> Iterable[Order]:
        """The orders of the compiled decision."""
        self.take_in(view.arrived, view)
        return self.orders(view.engine.decided(self.decision, self.state(), event), view)

    def admit(self, event: Event, view: View) -> OrderBatch:
        """Take in arrivals, let finished jobs go; what can never fit on the edge goes to the cloud or is rejected.

        Jobs that can go only to the cloud wait while it is out of service.
        """
        self.take_in(view.arrived, view)
        return self.orders(view.engine.decided(admit_event, self.edge, event), view)

    @property
    def active(self) -> Ints:
        """Jobs in the system that the edge can hold."""
        return self.edge.lists[ACTIVE, : self.edge.lengths[ACTIVE]].copy()

    def orders(self, rows: Ints, view: View, rank: str = "") -> OrderBatch:
        """The orders that a compiled function has written; `rank`: the reason of allocations, if not the policy's."""
        written = view.engine.orders
        places, wording = written.places[: written.counters[N_PLACES]].copy(), (self.name, self.rank, rank)
        return OrderBatch(rows.copy(), places, lambda row: self.order_of(row, places, view, rank), wording)

    def order_of(self, row: list[int], places: Ints, view: View, rank: str = "") -> Order:
        """The order in a row that a compiled function has written.

        Parameters
        ----------
        row, places
            As of :mod:`skedge.core.engine.orders`.
        view
            Of the run.
        rank
            The reason of allocations, if not the policy's.
        """
        verb, job = row[ORDER_VERB], row[ORDER_JOB]
        if verb == WAKE_AT:
            return WakeAt(row[ORDER_FIRST])
        reason = rank if rank and row[ORDER_REASON] == RANK else self.reason(row[ORDER_REASON], job, view)
        if verb == SUSPEND:
            return Suspend(job, reason)
        if verb == REJECT:
            return Reject(job, reason)
        where = places[row[ORDER_FIRST] : row[ORDER_FIRST] + row[ORDER_SIZE]].tolist()
        return Allocate(job, tuple(map(tuple, where)), ps_in(row[ORDER_PS]), reason, gang=verb == ALLOCATE)

    def reason(self, code: int, job: int, view: View) -> str:
        """The words of a reason."""
        texts = (self.rank, "preempted", "moved", "never_fits_edge", "no_room_on_edge")
        if code < len(texts):
            return texts[code]
        kind, k = int(view.jobs.worker_type[job]), int(view.jobs.workers[job])
        if code == NEVER_FITS:
            return too_few(1 if self.elastic else k, int(self.slots[kind]) if kind >= 0 else 0)
        return NO_PS_ON_EDGE

    def advance(self, engine: AllocationEngine, events: int, until: int, scenario: Scenario) -> int:
        """Run events of the compiled loop.

        Parameters
        ----------
        engine
            That of the run.
        events, until
            As :meth:`~skedge.core.engine.arrays.EngineArrays.advance` has them.
        scenario
            All jobs, those to come too.

        Returns
        -------
        OVER, OUTSIDE, BROKEN or PAUSED (:mod:`skedge.core.engine.step`).
        """
        self.take_in(len(engine.ledger.jobs), scenario)
        return engine.advance(self.loop, self.state(), events, until)

    # -- explanations --------------------------------------------------------------------------------------------

    def demand(self, job: int, view: View) -> int:
        """The most workers with which `job` runs."""
        return int((view.jobs.chunks if self.elastic else view.jobs.workers)[job])

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """The policy's view of `job`: its demand, the free workers, and the holdings of the jobs in the system."""
        kind, demand = int(view.jobs.worker_type[job]), self.demand(job, view)
        rivals = view.active[view.active != job]
        return {
            "compares": f"{self.compares}; the jobs in the system by id",
            "needs_workers": demand,
            "workers_of_its_type": int(self.slots[kind]) if kind >= 0 else 0,
            "free_workers_of_its_type": int(view.free_workers[:, kind].sum()) if kind >= 0 else 0,
            "remaining_s": float(view.remaining(np.array([job]))[0] / demand) / SECOND,
            **self.rank_terms(job, view),
            "in_system": [self._row(rival, view) for rival in rivals.tolist()],
        }

    def _row(self, job: int, view: View) -> dict[str, Any]:
        demand = self.demand(job, view)
        return {
            "job": view.job_id(job),
            "workers": int(view.workers[job]),
            "needs": demand,
            "remaining_s": float(view.remaining(np.array([job]))[0] / demand) / SECOND,
        }

    def rank_terms(self, job: int, view: View) -> dict[str, Any]:  # noqa: ARG002 - for policies that rank by more
        """What else ranks `job` under this policy."""
        return {}
