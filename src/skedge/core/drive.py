"""The loop that serves every world: facts in, orders out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .errors import SkedgeError
from .events import Event, Order
from .kernel import Kernel


class World(Protocol):
    """What performs orders and reports facts: simulated in virtual time, or live."""

    def next_event(self) -> Event | None:
        """The next thing that happens, in time order; None when nothing more can happen."""

    def perform(self, order: Order) -> None:
        """Carry out an order that the kernel has accepted."""


def drive(kernel: Kernel, world: World, progress: Callable[[Event], None] | None = None) -> None:
    """Run until the world has no more events.

    `progress`, if given, is told every event after it has been answered.

    Raises
    ------
    OrderError
        If the policy breaks a rule.
    SkedgeError
        If nothing more can happen and jobs are still waiting: the policy has forgotten them.
    """
    while (event := world.next_event()) is not None:
        for order in list(kernel.handle(event)):  # decided, checked and journaled as a whole before anything is done
            world.perform(order)
        if progress is not None:
            progress(event)
    forgotten = kernel.unanswered()
    if len(forgotten):
        name = kernel.scenario.jobs.ids[int(forgotten[0])]
        raise SkedgeError(
            f"policy {kernel.policy.name!r} left {len(forgotten)} jobs unanswered, the first is {name!r}: "
            "every job must be run to its end or rejected"
        )
