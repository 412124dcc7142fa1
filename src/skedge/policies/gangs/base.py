"""Base of gang policies: from an order of the jobs to those that run, and to orders, compiled; and the base class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from skedge.core.engine.ledger import DEMAND, FIRST, HELD, PS_TYPE, SIZE, STOPPED, Case, Ledger
from skedge.core.engine.orders import N_INTERRUPTED, N_PLACES, EventFacts, OrderRows
from skedge.core.events import Event, OrderBatch
from skedge.core.model.cluster import Cluster, Ints, Physics
from skedge.core.policy import Params, View
from skedge.platform.jit import compiled, inlined, lean

from .edge import (
    ABOVE_QUOTA,
    ACTIVE,
    FURTHER,
    MOVED,
    NO_ROOM_ON_EDGE,
    OVER_QUOTA,
    PREEMPTED,
    SPARE,
    EdgePolicy,
    EdgeState,
    admit,
    begin_orders,
    count_ps,
    order_allocate,
    order_suspend,
    to_cloud,
)
from .placement import Rule, Scratch, add_last_place, make_scratch, scan
from .sharing import LEFT_OUT, MARK, TenantState, arrange, make_tenants, note_shares, with_tenants

if TYPE_CHECKING:
    from numpy.random import Generator

    from skedge.core.model.scenario import Scenario

RANKED, ARRANGED, HOLDERS, STOPS, MOVES, BEGINS, VERDICT, PLACES, HAS_PLACE, MARKED, OWN = range(
    FURTHER + 1, FURTHER + 12
)
"""Rows of ``EdgeState.lists`` of gang policies.

- RANKED, ARRANGED: jobs as the policy ranks them, and as tenants and classes have them tried.
- VERDICT: of each job tried (:func:`~.placement.scan`).
- STOPS, MOVES, BEGINS: what the last selection changes.
- HOLDERS: jobs that run, in the order in which they would stop.
- PLACES, HAS_PLACE, MARKED: columns by job: where its new placement begins in the scratch, -1 if it is the last one; 1
  if its last placement is one to return to; 1 while it is to stop.
- OWN: the first row that a policy may use for itself.
"""


class GangState(NamedTuple):
    """What every gang policy keeps.

    Attributes
    ----------
    edge
        The jobs in the system, and their lists.
    rule
        Options of the selection.
    scratch
        Arrays to work on.
    tenants
        What is kept of tenants and classes; None where the cluster has none: then nothing about them is compiled.
    shares
        1 if the cluster has tenants.
    allow_cloud
        1: the cloud takes what does not fit now.
    """

    edge: EdgeState
    rule: Rule
    scratch: Scratch
    tenants: TenantState | None
    shares: int
    allow_cloud: int


@lean
def admit_gangs(case: Case, ledger: Ledger, state: GangState, facts: EventFacts, orders: OrderRows) -> None:
    """:func:`~.edge.admit`; jobs that lost their workers with a server count as not started.

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
    if facts.counters[N_INTERRUPTED] > 0:
        for i in range(facts.counters[N_INTERRUPTED]):
            lists[HAS_PLACE, facts.interrupted[i]] = 0
        lengths[HOLDERS] = _still_hold(ledger, state)
    admit(case, ledger, state.edge, facts, orders)


@lean
def select(case: Case, ledger: Ledger, state: GangState, order: Ints, running_stay: bool) -> int:
    """Select among the jobs of `order`; returns how many of those tried first run on where they are.

    Parameters
    ----------
    case, ledger
        The run.
    state
        Out: the verdicts, in the order of the list ARRANGED if the cluster has tenants, else of `order`; and new
        placements in the scratch.
    order
        Jobs, first to be tried first: all in the system, or those that wait.
    running_stay
        Whether `order` has only jobs that wait, while the others keep what they hold.
    """
    return _select_shared(case, ledger, state, state.tenants, order, running_stay)


@lean
def _select_shared(
    case: Case, ledger: Ledger, state: GangState, tenants: TenantState | None, order: Ints, running_stay: bool
) -> int:  # fmt: skip
    """:func:`select`; `tenants` is an argument of its own, so that numba leaves out what follows where it is None."""
    if tenants is None:
        return _select(case, ledger, state, order, len(order), len(order), running_stay)
    edge, arranged = state.edge, state.edge.lists[ARRANGED, : len(order)]
    for job in order:
        tenants.jobs[MARK, job] = 0
    n_present, first, n_stuck = len(order), 0, 1
    while n_stuck > 0:
        n_tried = arrange(case, ledger, edge, tenants, state.scratch, state.rule, order, arranged, running_stay)
        first, n_stuck = _select(case, ledger, state, arranged, n_tried, n_present, running_stay), 0
        for n in range(first, n_tried):
            # a job that waits for its last place displaces none: arrange the others again without it
            if edge.lists[VERDICT, n] == 0 and state.rule.stop_at_first == 0:
                tenants.jobs[MARK, arranged[n]] = LEFT_OUT
                n_stuck += 1
        n_present -= n_stuck
    return first


@lean
def _select(
    case: Case, ledger: Ledger, state: GangState, order: Ints, n_tried: int, n_present: int, running_stay: bool
) -> int:  # fmt: skip
    """Select among the first `n_tried` jobs of `order`; returns how many at its beginning run on where they are.

    Those are the running jobs before the first one that waits: their workers are apart from each other, so each keeps
    its place. For the others is left what is free and what the running ones among them hold. Jobs from number
    `n_present` on are left out, so their workers count as those that no running job holds.

    Parameters
    ----------
    case, ledger, state, running_stay
        As :func:`select` has them.
    order
        Jobs to try, then others, last those that are left out.
    n_tried, n_present
        How many jobs are to be tried, and how many are not left out.
    """
    scratch, verdict, first = state.scratch, state.edge.lists[VERDICT, : len(order)], 0
    count_ps(case, ledger, running_stay, scratch.ps_left)
    while first < n_tried and not running_stay and ledger.jobs[order[first], HELD] > 0:
        verdict[first] = -1
        scratch.ps_left[max(ledger.jobs[order[first], PS_TYPE], 0)] -= 1
        first += 1
    for server in range(len(ledger.free)):
        for kind in range(len(scratch.total)):
            scratch.free[server, kind] = scratch.unheld[server, kind] = ledger.free[server, kind]
    for n in range(first, len(order)):
        verdict[n] = 0
    for n in range(first, 0 if running_stay else len(order)):
        if ledger.jobs[order[n], HELD] > 0:
            add_last_place(ledger, order[n], scratch.free, 1)
            if n >= n_present:
                add_last_place(ledger, order[n], scratch.unheld, 1)
    for kind in range(len(scratch.total)):
        scratch.total[kind] = 0
        for server in range(len(ledger.free)):
            scratch.total[kind] += scratch.free[server, kind]
            if state.rule.keep_running == 0:
                scratch.unheld[server, kind] = scratch.free[server, kind]
    scan(case, ledger, state.edge.lists[HAS_PLACE], order[:n_tried], first, state.rule, scratch, verdict)
    return first


@lean
def compare(ledger: Ledger, state: GangState, order: Ints, first: int, running_stay: bool) -> None:
    """Note what follows from the verdicts of :func:`select`: who stops, moves and begins.

    Parameters
    ----------
    ledger
        Who holds workers now.
    state
        In and out.
    order, running_stay
        Of :func:`select`.
    first
        How many jobs at the beginning run on, as it returns it.
    """
    lists, lengths, runs = state.edge.lists, state.edge.lengths, state.edge.lists[SPARE]
    if state.shares:
        order = lists[ARRANGED, : len(order)]
    n_stops = n_moves = n_begins = n_places = 0
    n_runs = first
    for n in range(first):
        runs[n] = order[n]
    for n in range(first, len(order)):
        n_servers, job = lists[VERDICT, n], order[n]
        if n_servers == 0:
            if not running_stay and ledger.jobs[job, HELD] > 0:
                # marked, as those that stop do so in the order of the list HOLDERS
                lists[MARKED, job] = 1
                n_stops += 1
            continue
        lists[PLACES, job], lists[HAS_PLACE, job] = n_places if n_servers > 0 else -1, 1
        n_places += max(n_servers, 0)
        if ledger.jobs[job, HELD] == 0:
            lists[BEGINS, n_begins] = job
            n_begins += 1
        elif n_servers > 0:
            lists[MOVES, n_moves] = job
            n_moves += 1
        runs[n_runs] = job
        n_runs += 1
    if n_stops > 0:
        _list_stops(lists, lengths[HOLDERS])
    n_stay = _still_hold(ledger, state) if running_stay else 0
    for n in range(n_runs):
        lists[HOLDERS, n_stay + n] = runs[n]
    lengths[STOPS], lengths[MOVES], lengths[BEGINS], lengths[HOLDERS] = n_stops, n_moves, n_begins, n_stay + n_runs


@inlined
def _still_hold(ledger: Ledger, state: GangState) -> int:
    """Take those off the list HOLDERS that hold nothing any more; returns how many are left."""
    lists, lengths, n = state.edge.lists, state.edge.lengths, 0
    for i in range(lengths[HOLDERS]):
        if ledger.jobs[lists[HOLDERS, i], HELD] > 0:
            lists[HOLDERS, n] = lists[HOLDERS, i]
            n += 1
    return n


@inlined
def _list_stops(lists: Ints, n_holders: int) -> None:
    """List the marked ones of those that have run until now."""
    n = 0
    for i in range(n_holders):
        job = lists[HOLDERS, i]
        if lists[MARKED, job] == 1:
            lists[MARKED, job], lists[STOPS, n] = 0, job
            n += 1


@lean
def fill(case: Case, ledger: Ledger, state: GangState, order: Ints, running_stay: bool, orders: OrderRows) -> None:
    """Run as many jobs of `order` as fit, and write the orders that follow.

    Parameters
    ----------
    case, ledger, state, order, running_stay
        As :func:`select` has them.
    orders
        Out.
    """
    compare(ledger, state, order, select(case, ledger, state, order, running_stay), running_stay)
    carry_out(case, ledger, state, orders)
    note_changes(ledger, state, orders)


@lean
def carry_out(case: Case, ledger: Ledger, state: GangState, orders: OrderRows) -> None:
    """First all suspensions, then all placements: a job that is moved keeps its PS, so these come first.

    Parameters
    ----------
    case, ledger
        The run.
    state
        With what :func:`compare` has noted.
    orders
        Out.
    """
    edge, lists, lengths = state.edge, state.edge.lists, state.edge.lengths
    begin_orders(ledger, edge)
    for i in range(lengths[STOPS]):
        order_suspend(ledger, edge, lists[STOPS, i], PREEMPTED, orders)
    for i in range(lengths[MOVES]):
        order_suspend(ledger, edge, lists[MOVES, i], MOVED, orders)
    for row in (MOVES, BEGINS):
        for i in range(lengths[row]):
            job = lists[row, i]
            order_allocate(case, ledger, edge, job, _write_place(ledger, state, job, orders), orders)
    if state.allow_cloud and case.cloud >= 0 and ledger.in_service[case.cloud]:
        _spill(case, ledger, state, orders)


@inlined
def _write_place(ledger: Ledger, state: GangState, job: int, orders: OrderRows) -> int:
    """Write the placement that has been chosen for `job`, by server; returns on how many servers."""
    first, scratch, job_row = state.edge.lists[PLACES, job], state.scratch, ledger.jobs[job]
    place = orders.places[orders.counters[N_PLACES] :]
    if first < 0:
        for i in range(job_row[SIZE]):
            place[i, 0], place[i, 1] = ledger.workers[job_row[FIRST] + i, 0], ledger.workers[job_row[FIRST] + i, 1]
        return job_row[SIZE]
    left, n = job_row[DEMAND], 0
    while left > 0:
        server, count, k = scratch.servers[first + n], scratch.counts[first + n], n
        while k > 0 and place[k - 1, 0] > server:
            place[k, 0], place[k, 1] = place[k - 1, 0], place[k - 1, 1]
            k -= 1
        place[k, 0], place[k, 1] = server, count
        left, n = left - count, n + 1
    return n


@lean
def _spill(case: Case, ledger: Ledger, state: GangState, orders: OrderRows) -> None:
    """What waits without a place to return to goes to the cloud, for good."""
    lists, lengths, n_active = state.edge.lists, state.edge.lengths, 0
    for i in range(lengths[ACTIVE]):
        job = lists[ACTIVE, i]
        if lists[HAS_PLACE, job] == 0:
            to_cloud(case, ledger, state.edge, job, ledger.jobs[job, DEMAND], NO_ROOM_ON_EDGE, orders)
        else:
            lists[ACTIVE, n_active] = job
            n_active += 1
    lengths[ACTIVE] = n_active


@lean
def note_changes(ledger: Ledger, state: GangState, orders: OrderRows) -> None:
    """:func:`~.sharing.note_shares` of what :func:`compare` has noted; the last of a decision's orders."""
    lists, lengths = state.edge.lists, state.edge.lengths
    active, stops = lists[ACTIVE, : lengths[ACTIVE]], lists[STOPS, : lengths[STOPS]]
    note_shares(ledger, state.tenants, active, stops, lists[BEGINS, : lengths[BEGINS]], orders)


# -- the base class --------------------------------------------------------------------------------------------------


class GangParams(Params):
    """Parameters of every gang baseline.

    Attributes
    ----------
    allow_cloud
        False: the cloud takes only what can never fit on the edge (k_j above all workers of its type). True: it also
        takes, at once and for good, a job that does not fit now.
    sticky
        True: a preempted job resumes only in its last place, where its data are.
    placement
        ``keep_running``: a job that is placed takes workers that no running job holds, where those are enough, also
        if it has run before on workers that another job holds now. ``literal``: all jobs are placed anew in the order
        of the scan, so that a job ranked first takes another's workers even where free ones would do; the other is
        moved and pays for its upload and its restoring, without any queue too.
    """

    allow_cloud: bool = False
    sticky: bool = False
    placement: Literal["keep_running", "literal"] = "keep_running"


class GangPolicy(EdgePolicy):
    """Base of SRTF, Tiresias-L and FIFO.

    A policy that ranks in Python yields what :meth:`admit` and :meth:`fill` return.
    """

    name: ClassVar[str] = ""
    Parameters: ClassVar[type[Params]] = GangParams
    rows: ClassVar[int] = OWN
    stop_at_first = False

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        params = self.params
        self.rule = Rule(int(self.stop_at_first), int(params.sticky), int(params.placement == "keep_running"))
        types = len(cluster.worker_types), max(1, len(cluster.ps_types))
        self.scratch = make_scratch(len(cluster.servers), *types, cluster.lanes)
        sharing, self.known = cluster.sharing, 0
        self.tenants = None if sharing is None else make_tenants(sharing, self.slots)

    def state(self) -> Any:
        """The arrays of the policy."""
        shares = int(self.tenants is not None)
        return GangState(self.edge, self.rule, self.scratch, self.tenants, shares, int(self.params.allow_cloud))

    def take_in(self, n_jobs: int, source: View | Scenario) -> None:
        """As in the base, with the tenants and classes of the jobs."""
        super().take_in(n_jobs, source)
        if self.tenants is not None and n_jobs > self.known:
            jobs, new = source.jobs, slice(self.known, n_jobs)
            self.tenants = with_tenants(self.tenants, jobs, self.known, n_jobs)
            limits = self.tenants.limits[jobs.tenant[new], np.maximum(jobs.worker_type[new], 0)]
            self.edge.lists[ABOVE_QUOTA, new] = jobs.workers[new] > limits
            self.known = n_jobs

    def admit(self, event: Event, view: View) -> OrderBatch:
        """As in the base; jobs that lost their workers with a server have no place to return to."""
        self.take_in(view.arrived, view)
        return self.orders(view.engine.decided(_admit, self.state(), event), view)

    def fill(self, order: Ints, view: View, reason: str, *, running_stay: bool = False) -> OrderBatch:
        """Orders that run as many jobs of `order` as fit, for policies that rank in Python.

        Parameters
        ----------
        order
            Jobs, first to be tried first: all in the system, or those that wait.
        view
            The run.
        reason
            Of the allocations.
        running_stay
            Whether `order` has only jobs that wait, while the others keep what they hold.
        """
        ranked = np.ascontiguousarray(order, np.int64)
        return self.orders(view.engine.ordered(_fill, self.state(), ranked, running_stay), view, reason)

    def reason(self, code: int, job: int, view: View) -> str:
        """As in the base, and that of a quota."""
        if code != OVER_QUOTA:
            return super().reason(code, job, view)
        assert self.tenants is not None  # noqa: S101 - who has a quota has tenants
        k, kind = int(view.jobs.workers[job]), int(view.jobs.worker_type[job])
        quota = self.tenants.limits[view.jobs.tenant[job], kind]
        return f"never_fits: it asks for {k} workers; the quota of its tenant is {quota}"

    # -- explanations --------------------------------------------------------------------------------------------

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """As in the base, with the job's tenant and class."""
        base_terms = super().terms(job, view)
        return {**base_terms, **self._shared(job, view), "in_system": base_terms["in_system"]}

    def _row(self, job: int, view: View) -> dict[str, Any]:
        return {**super()._row(job, view), **self._shared(job, view)}

    def _shared(self, job: int, view: View) -> dict[str, Any]:
        """Tenant and class of `job`, if the cluster has them."""
        sharing, jobs = self.cluster.sharing, view.jobs
        if sharing is None:
            return {}
        stopped, runs = int(view.engine.ledger.jobs[job, STOPPED]), view.workers[job] > 0
        waited = 0 if runs else view.now - max(int(jobs.arrival[job]), stopped)
        return {
            "tenant": sharing.names[jobs.tenant[job]],
            "class": sharing.class_after(int(jobs.priority[job]), waited),
        }


@compiled
def _admit(handle: Any, state: GangState) -> None:
    admit_gangs(handle.case, handle.ledger, state, handle.facts, handle.orders)


@compiled
def _fill(handle: Any, state: GangState, order: Ints, running_stay: bool) -> None:
    fill(handle.case, handle.ledger, state, order, running_stay, handle.orders)
