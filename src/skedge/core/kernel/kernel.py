"""The kernel absorbs facts, asks the policy, and checks and applies its orders.

Only it writes cluster state, and the compiled loops that stand in for it (:mod:`skedge.sim.compiled`).

The cycle of one event:

1. absorb the facts into the books (an impossible fact is an error of the world);
2. ask the policy;
3. check each order against the rules of ``docs/model.md``; a violation raises :class:`OrderError` with the rule's name.
   Rules of workers and PSs in slots are checked by compiled functions of the engine
   (:mod:`skedge.core.engine.checks`), the same ones for orders and for the rows of a compiled loop;
4. apply the order to the books;
5. append the event and its orders to the journal.

Between 4 and 5 it adds its own orders to end the jobs whose time is limited (``time_limits.py``).

:func:`~skedge.core.kernel.drive.drive` then passes the orders to the world.

Step 1 is in ``absorb.py``, steps 3 and 4 are in ``accept.py``; both change the
:class:`~skedge.core.kernel.state.State`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from skedge.core.errors import OrderError
from skedge.core.events import Event, Order, OrderBatch, WakeAt
from skedge.core.model.scenario import Scenario
from skedge.core.policy import Policy, View

from .absorb import absorb
from .accept import accept
from .pending import check_tables, order_of
from .state import State

LONGEST_IDLE = 1_000_000
"""Maximum number of consecutive wake-ups without an order while nothing else happens and no job runs."""


class Journal(Protocol):
    """Where events and their orders are written, in order."""

    def append(self, event: Event, orders: list[Order]) -> None:
        """Write one event and the orders that answered it."""


class Kernel(State):
    """The state of the cluster as known to the scheduler, with the cycle that changes it."""

    def __init__(self, scenario: Scenario, policy: Policy, journal: Journal | None = None) -> None:
        super().__init__(scenario, preemptive=policy.lanes.preemptive)
        self.policy, self.journal, self.idle = policy, journal, 0
        self.splits_batches = True
        """Whether somebody is to see each order of a batch."""
        self.view = View(self)
        policy.start(scenario.cluster, scenario.physics, scenario.rng("policy"))

    def handle(self, event: Event) -> list[Order]:
        """The policy's orders for `event`, checked, applied to the books and journalled.

        Raises
        ------
        StateError
            If a fact is impossible, which is an error of the world.
        OrderError
            If an order breaks a rule. The run cannot continue: the orders before it are already applied to the books.
        """
        event = absorb(self, event)  # 1
        orders: list[Order] = []
        decided = self.policy.decide(event, self.view) or ()  # 2
        for order in (decided,) if isinstance(decided, OrderBatch) else decided:
            if isinstance(order, OrderBatch):
                self._take_batch(order, orders)
            else:  # the policy sees the effect of each order
                self._take(order, orders)
        self.pending.apply()
        orders += self._completed(event, orders)
        if self.journal is not None:
            self.journal.append(event, orders)  # 5
        return orders

    def _take(self, order: Order, orders: list[Order]) -> None:
        """Check and apply an order, now or before the policy looks again, and add it to `orders`."""
        if not self.pending.add(order):
            self.pending.apply()
            accept(self, order)  # 3 and 4
        orders.append(order)

    def _take_batch(self, batch: OrderBatch, orders: list[Any]) -> None:
        """The same for a batch, one order at a time where somebody is to see each."""
        check_tables(batch)
        seen_singly = self.splits_batches or self.journal is not None or self.limits.limits
        if seen_singly or not self.pending.in_rows:
            for number in range(len(batch)):
                self._take(order_of(batch, number), orders)
        else:
            orders += batch, *self.pending.take(batch)

    def __getstate__(self) -> dict[str, Any]:
        """For copies, which forecasts are made on: without the journal and with an empty record, as both grow."""
        return {**vars(self), "journal": None, "record": self.record.continuation(self.plans)}

    def _completed(self, event: Event, orders: list[Order]) -> Iterable[Order]:
        """Check the conditions on all orders of one event together; returns the kernel's own orders that follow."""
        # not in `accept`: the PS of a job that has started may come with any order of the event
        if event.started:
            self._check_ps(event)
        if event.woke:
            self._check_idle(event, orders)
        else:
            self.idle = 0
        return self.limits.orders(self, event, orders) if self.limits.limits else ()

    def _check_idle(self, event: Event, orders: list[Order]) -> None:
        """Reject a policy that keeps waking without ordering anything: the run would not end."""
        # while a job runs its end is still to come, so a policy may wake up as often as it likes
        idle = event.only_woke and all(isinstance(order, WakeAt) for order in orders) and not self.running
        self.idle = self.idle + 1 if idle else 0
        if self.idle > LONGEST_IDLE:
            text = f"policy {self.policy.name!r} was woken {self.idle} times in a row, and ordered nothing"
            raise OrderError("M1", f"{text}: it must order something, or wait for something to happen")

    def _check_ps(self, event: Event) -> None:
        if not event.started or not self.in_service.all():
            return  # out of service may be all PSs
        for job in event.started:
            if self.is_running(job) and not self.books.has_ps(job):
                raise OrderError("M12", f"job {self.name(job)!r} runs at {self.now} µs and has no PS")
