"""Events of a simulation that need no Python: the policy's compiled loop runs them on the arrays of the engine.

The loop stops where something happens that is not the engine's, such as a failure of a server, and the kernel goes on
event by event; both use the same arrays, so that either can follow the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from skedge.core.engine.apply import CODED
from skedge.core.engine.ledger import ARRIVED, DECISIONS, FINISHED, RUNS, STATUS
from skedge.core.engine.orders import REJECT, WRONG
from skedge.core.engine.step import BROKEN, PAUSED
from skedge.core.errors import StateError
from skedge.core.events import Event, Order
from skedge.core.kernel.accept import accept
from skedge.core.kernel.kernel import Kernel
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

IDLE_CALLS = 100
"""Calls of the loop in which no job gets any further, after which Python sees every event."""


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

    def orders(self, rows: list[list[int]], view: View) -> list[Order]:
        """The orders in these rows."""

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
        self.completed, self.numbered, self.n_runs = np.zeros(0, np.int64), 0, 0
        self.idle, self.n_idle = False, 0

    def run(self, next_change: int) -> None:
        """Run all events before something happens that is not the engine's, at `next_change` [µs]."""
        engine, until = self.kernel.engine, min(next_change, self.until)
        while not self.idle:
            before = self._jobs_left()
            outcome = self.policy.advance(engine, EVENTS, until, self.kernel.scenario)
            further = self._trained() or self._jobs_left() != before
            self._absorb(further=further)
            if outcome == BROKEN:
                self._explain()
            # where nothing gets any further Python goes on, which sees that a run is stuck
            self.n_idle = 0 if further else self.n_idle + 1
            self.idle = not further and (outcome == PAUSED or self.n_idle > IDLE_CALLS)
            if outcome != PAUSED:
                return

    def note(self, event: Event) -> None:
        """Python has seen an event."""
        self.idle = self.idle and not (event.arrived or event.left)

    def _jobs_left(self) -> tuple[int, int]:
        """How many jobs have arrived, and how many have left."""
        ledger = self.kernel.engine.ledger
        return int(ledger.counters[ARRIVED]), int((ledger.jobs[:, STATUS] >= FINISHED).sum())

    def _trained(self) -> bool:
        """Whether an allocation that has ended since the last call has trained something."""
        ledger, first = self.kernel.engine.ledger, self.n_runs
        self.n_runs = int(ledger.counters[RUNS])
        return bool((ledger.rows.runs[first : self.n_runs, 6] > 0).any())

    def _absorb(self, *, further: bool) -> None:
        """Have the kernel and the world know what the loop has done; `further`: whether jobs got any further."""
        kernel, world, engine = self.kernel, self.world, self.kernel.engine
        kernel.now = world.now = engine.now
        kernel.running = set(engine.holders())
        world.resume(kernel.arrived, kernel.active().tolist(), further=further)
        self._number_reasons()
        if self.progress is not None:
            completed = np.flatnonzero(engine.column(STATUS) == FINISHED)
            self.progress(Event(engine.now, finished=tuple(np.setdiff1d(completed, self.completed).tolist())))
            self.completed = completed

    def _number_reasons(self) -> None:
        """Give the decisions of the loop the record's numbers of reasons, in order of first use."""
        engine = self.kernel.engine
        decisions = engine.ledger.rows.decisions[self.numbered : engine.ledger.counters[DECISIONS]]
        self.numbered += len(decisions)
        coded = np.flatnonzero(decisions[:, 5] <= CODED)
        rows = decisions[coded]
        # each rejection has its own reason, as there are numbers in it
        keys = np.where(rows[:, 2] == REJECT, rows[:, 1], rows[:, 5])
        decisions[coded, 5] = number_reasons(rows, keys, self._number)

    def _number(self, row: list[int]) -> int:
        """The record's number of the reason of a decision, whose code it still has."""
        _, job, verb, _, _, code = row
        reason = self.policy.reason(CODED - code, job, self.kernel.view)
        if verb == REJECT:
            self.kernel.record.rejected[job] = reason
        return self.kernel.record.reason(reason)

    def _explain(self) -> None:
        """Raise the error of the order that broke a rule."""
        orders = self.kernel.engine.orders
        row = orders.rows[orders.counters[WRONG]].tolist()
        for order in self.policy.orders([row], self.kernel.view):
            accept(self.kernel, order)
        raise StateError(f"the compiled loop refused an order that breaks no rule: {row}")
