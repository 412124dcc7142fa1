"""The loop that drives the kernel with every world and with the forecast: facts in, orders out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from skedge.core.errors import SkedgeError
from skedge.core.events import Event, Order

from .kernel import Kernel

Watch = Callable[[Event, list[Order]], None]
"""Called with each event and its orders, after the world has received them."""


class World(Protocol):
    """Performs orders and reports facts: simulated in virtual time, or live."""

    def next_event(self) -> Event | None:
        """The next event in time order; None when nothing more can happen."""

    def perform(self, order: Order) -> None:
        """Carry out an order that the kernel has accepted."""


def drive(kernel: Kernel, world: World, watch: Watch | None = None) -> None:
    """Run until the world has no more events.

    Raises
    ------
    OrderError
        If the policy breaks a rule.
    """
    kernel.splits_batches = watch is not None or not getattr(world, "takes_batches", False)
    while (event := world.next_event()) is not None:
        orders = kernel.handle(event)
        # only once all orders of the event are accepted: a refused one ends the run before the world sees any of them
        for order in orders:
            world.perform(order)
        if watch is not None:
            watch(event, orders)


def drive_to_end(kernel: Kernel, world: World, watch: Watch | None = None) -> None:
    """:func:`drive` a run whose jobs are all known, and check at its end that each job was answered.

    Raises
    ------
    OrderError
        If the policy breaks a rule.
    SkedgeError
        If nothing more can happen and jobs are still waiting, because the policy has forgotten them.
    """
    drive(kernel, world, watch)
    forgotten = kernel.active()
    if len(forgotten):
        name = kernel.scenario.jobs.ids[int(forgotten[0])]
        raise SkedgeError(
            f"policy {kernel.policy.name!r} left {len(forgotten)} jobs unanswered, the first is {name!r}: "
            "every job must be run to its end or rejected"
        )
