"""FIFO with ``rule=strict`` on typed slots: head of line by (arrival, id)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from skedge.core.engine.apply import apply_all
from skedge.core.engine.ledger import Case, Ledger
from skedge.core.engine.orders import EventFacts, OrderRows
from skedge.core.engine.step import EVENT, PAUSED, QUIET, step
from skedge.core.model.cluster import Cluster, Physics
from skedge.core.policy import Params
from skedge.platform.jit import compiled, lean
from skedge.policies.gangs.base import HAS_PLACE, RANKED, GangPolicy, GangState, admit_gangs, fill
from skedge.policies.gangs.edge import ACTIVE

if TYPE_CHECKING:
    from numpy.random import Generator


@lean
def decide(case: Case, ledger: Ledger, state: GangState, facts: EventFacts, orders: OrderRows) -> None:
    """Start the jobs at the head of the queue whose demand is free.

    Parameters
    ----------
    case, ledger, facts
        The run, and what has happened.
    state
        In and out.
    orders
        Out.
    """
    lists, lengths, n = state.edge.lists, state.edge.lengths, 0
    admit_gangs(case, ledger, state, facts, orders)
    for i in range(lengths[ACTIVE]):
        # a job that was placed holds its workers to its end, or loses them and its place with a server
        if lists[HAS_PLACE, lists[ACTIVE, i]] == 0:
            lists[RANKED, n] = lists[ACTIVE, i]
            n += 1
    if n > 0:
        fill(case, ledger, state, lists[RANKED, :n], True, orders)


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


class StrictFifo(GangPolicy):
    """Gangs start in order of arrival, each when its whole demand is free, and run to the end."""

    rank: ClassVar[str] = "first_in_first_out"
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

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        # where the cloud is allowed a gang without room goes there, so no job waits behind it
        self.stop_at_first = not (self.params.backfill or self.params.allow_cloud)
        super().start(cluster, physics, rng)
