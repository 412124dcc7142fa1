"""Events of a simulation that need no Python: the policy's compiled loop runs them on the arrays of the engine.

The loop stops where Python is to see the events, and the kernel goes on event by event; both use the same arrays, so
that either can follow the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from skedge.core.engine.apply import CODED
from skedge.core.engine.ledger import ARRIVED, CHANGES, DECISIONS, DEPARTED, FINISHED, STATUS, TRAININGS
from skedge.core.engine.orders import REJECT, WRONG
from skedge.core.engine.outages import LOST_SERVER
from skedge.core.engine.step import BROKEN, OUTSIDE, PAUSED
from skedge.core.errors import StateError
from skedge.core.events import FAILED, Event, Order
from skedge.core.kernel.accept import accept
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER
from skedge.core.model.time_limits import has_time_limits
from skedge.core.policy import View
from skedge.core.record.rows import number_reasons

if TYPE_CHECKING:
    from skedge.core.engine.engine import AllocationEngine
    from skedge.core.model.scenario import Scenario

    from .world import SimulatedWorld

EVENTS = 20_000
"""Events between two reports of progress."""

IDLE_EVENTS = 20_000
"""Events in which no job gets any further, after which Python sees every event."""

FEW_EVENTS = 200
"""As so many events a call of the loop counts that ends before it has run all that it may."""


class CompiledPolicy(Protocol):
    """A policy with a compiled loop of events, as :class:`skedge.policies.gangs.edge.EdgePolicy` has it."""

    def advance(self, engine: AllocationEngine, events: int, until: int, scenario: Scenario) -> int:
        """Run events; returns OVER, OUTSIDE, BROKEN or PAUSED (:mod:`skedge.core.engine.step`).

        Parameters
        ----------
        engine, scenario
            Of the run.
        events
            Most events, at least 1.
        until
            When to stop, as something happens then that is not the engine's [µs].
        """

    def order_of(self, row: list[int], places: Ints, view: View) -> Order:
        """The order in a row."""

    def reason(self, code: int, job: int, view: View) -> str:
        """The words of a reason."""


def use_loop(
    world: SimulatedWorld,
    kernel: Kernel,
    progress: Callable[[Event], None] | None = None,
    until: int = NEVER,
    *,
    compiling: bool = True,
) -> bool:
    """Have the compiled loop of the kernel's policy run the events of `world`; False if Python must see every event.

    Parameters
    ----------
    world, kernel
        The simulation.
    progress
        Called now and then, with the jobs that have completed since the last call.
    until
        From when on Python sees all events [µs].
    compiling
        False: only if the loop is in the cache.
    """
    policy: Any = kernel.policy
    started = getattr(policy, "started", policy)
    if not getattr(started, "has_loop", False) or kernel.journal is not None or has_time_limits(kernel.scenario):
        return False
    if compiling or started.loop.cached:
        world.loop = EventLoop(kernel, world, started, progress, until)
    return world.loop is not None


class EventLoop:
    """The events of one simulation that its policy's compiled loop runs.

    Parameters
    ----------
    kernel, world
        Of the run.
    policy
        Its policy.
    progress, until
        As :func:`use_loop` has them.
    """

    def __init__(
        self,
        kernel: Kernel,
        world: SimulatedWorld,
        policy: CompiledPolicy,
        progress: Callable[[Event], None] | None,
        until: int,
    ) -> None:
        self.kernel, self.world, self.policy, self.progress, self.until = kernel, world, policy, progress, until
        self.completed, self.numbered = np.zeros(0, np.int64), 0
        self.idle, self.n_idle = False, 0

    def run(self) -> None:
        """Run all events before the end, or before the first that Python is to see."""
        outcome = PAUSED
        while outcome == PAUSED and not self.idle:
            outcome = self._advance()
        self.kernel.now = self.world.now = self.kernel.engine.now
        self._number_reasons()
        if outcome == BROKEN:
            self._explain()

    def _advance(self) -> int:
        """Run some events; returns PAUSED if there may be more."""
        engine, before, until = self.kernel.engine, self._reached(), min(self.world.known_until(), self.until)
        n_changes = int(engine.ledger.counters[CHANGES])
        outcome = self.policy.advance(engine, EVENTS, until, self.kernel.scenario)
        self._note_outages(n_changes)
        if self._reached() != before:
            self.n_idle = 0
            self.world.progress.further(engine.now)
        else:
            self.n_idle += EVENTS if outcome == PAUSED else FEW_EVENTS
        # where nothing gets any further Python goes on, which sees that a run is stuck
        self.idle = self.n_idle >= IDLE_EVENTS
        if self.progress is not None:
            self._report(self.progress)
        return PAUSED if outcome == OUTSIDE and until < self.until else outcome

    def note(self, event: Event) -> None:
        """Python has seen an event."""
        self.idle = self.idle and not (event.arrived or event.left)

    def _reached(self) -> int:
        """A number that grows whenever a job gets further: it arrives or leaves, or stops after it has trained."""
        counters = self.kernel.engine.ledger.counters
        return int(counters[ARRIVED] + counters[DEPARTED] + counters[TRAININGS])

    def _report(self, progress: Callable[[Event], None]) -> None:
        """Report the jobs that have completed since the last call."""
        engine = self.kernel.engine
        completed = np.flatnonzero(engine.column(STATUS) == FINISHED)
        progress(Event(engine.now, finished=tuple(np.setdiff1d(completed, self.completed).tolist())))
        self.completed = completed

    def _note_outages(self, first: int) -> None:
        """Have the record know which servers the loop has taken out of service and back, from this change on."""
        for time, server, fails in self.kernel.engine.changes_since(first):
            self.kernel.record.server(time, server, FAILED if fails else "")

    def _number_reasons(self) -> None:
        """Give the decisions of the loop the record's numbers of reasons, in order of first use."""
        engine = self.kernel.engine
        decisions = engine.ledger.rows.decisions[self.numbered : engine.ledger.counters[DECISIONS]]
        self.numbered += len(decisions)
        coded = np.flatnonzero(decisions[:, 5] <= LOST_SERVER)
        rows = decisions[coded]
        # each rejection has its own reason, as there are numbers in it
        keys = np.where(rows[:, 2] == REJECT, rows[:, 1], rows[:, 5])
        decisions[coded, 5] = number_reasons(rows, keys, self._number)

    def _number(self, row: list[int]) -> int:
        """The record's number of the reason of a decision, whose code it still has."""
        _, job, verb, _, _, code = row
        if code == LOST_SERVER:
            return self.kernel.record.reason(FAILED)
        reason = self.policy.reason(CODED - code, job, self.kernel.view)
        if verb == REJECT:
            self.kernel.record.rejected[job] = reason
        return self.kernel.record.reason(reason)

    def _explain(self) -> None:
        """Raise the error of the order that broke a rule."""
        orders = self.kernel.engine.orders
        row = orders.rows[orders.counters[WRONG]].tolist()
        accept(self.kernel, self.policy.order_of(row, orders.places, self.kernel.view))
        raise StateError(f"the compiled loop refused an order that breaks no rule: {row}")
