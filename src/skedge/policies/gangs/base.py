"""Base of gang policies: from an order of the jobs to those that run, and to orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from skedge.core.events import Order
from skedge.core.model.cluster import Cluster, Ints, Physics
from skedge.core.policy import Params, View
from skedge.platform.jit import compiled

from .edge import EdgePolicy
from .placement import Rule, make_scratch
from .selection import BEGINS, HOLDERS, MOVES, OWN, STOPS, VERDICT, GangState, carry_out, compare, select

if TYPE_CHECKING:
    from numpy.random import Generator


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


class Changes(NamedTuple):
    """Which jobs of a selection stop, run on elsewhere, and begin; and all that run now."""

    stops: Ints
    moves: Ints
    begins: Ints
    runs: Ints


class GangPolicy(EdgePolicy):
    """Base of SRTF, Tiresias-L and FIFO; a policy that ranks in Python turns its order into orders by three calls.

    :meth:`choose` says which jobs run, :meth:`note` what that changes, :meth:`carry_out` has the orders.
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

    def state(self) -> tuple[Any, ...]:
        """The arrays of the policy."""
        return GangState(self.edge, self.rule, self.scratch, int(self.params.allow_cloud))

    # -- for policies that rank in Python ------------------------------------------------------------------------

    def choose(self, order: Ints, view: View, *, running_stay: bool = False) -> Ints:
        """Give each job of `order` its demand if that is left; returns verdicts (:func:`~.placement.scan`).

        `running_stay`: `order` has only jobs that wait, and running jobs keep their workers.
        """
        self._engine, self._running_stay = view.engine, running_stay
        self._engine.ordered(_select, self.state(), order, running_stay)
        return self.edge.lists[VERDICT, : len(order)].copy()

    def note(self, order: Ints, verdict: Ints) -> Changes:
        """The changes that follow from the verdicts of :meth:`choose` on `order`."""
        self.edge.lists[VERDICT, : len(order)] = verdict
        self._engine.ordered(_compare, self.state(), order, self._running_stay)
        return Changes(*(self._list(row) for row in (STOPS, MOVES, BEGINS, HOLDERS)))

    def _list(self, row: int) -> Ints:
        return self.edge.lists[row, : self.edge.lengths[row]].copy()

    def carry_out(self, changes: Changes, view: View, reason: str) -> Iterator[Order]:
        """Orders that carry out `changes`: first all suspensions, then all placements."""
        for row, jobs in zip((STOPS, MOVES, BEGINS), changes, strict=False):
            self.edge.lists[row, : len(jobs)], self.edge.lengths[row] = jobs, len(jobs)
        return self.orders(view.engine.ordered(_carry_out, self.state()), view, reason)


@compiled
def _select(handle: Any, state: GangState, order: Ints, running_stay: bool) -> None:
    select(handle.case, handle.ledger, state, order, running_stay)


@compiled
def _compare(handle: Any, state: GangState, order: Ints, running_stay: bool) -> None:
    compare(handle.ledger, state, order, 0, running_stay)


@compiled
def _carry_out(handle: Any, state: GangState) -> None:
    carry_out(handle.case, handle.ledger, state, handle.orders)
