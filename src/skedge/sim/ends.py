"""Jobs that fail in a simulation because they reach a limit of their time (M43): they leave lanes, gangs and cloud."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skedge.core.engine import truth as truth_of
from skedge.core.engine.agenda import JOB_FAILS
from skedge.core.events import EndAt
from skedge.core.model.time import NEVER

if TYPE_CHECKING:
    from .world import SimulatedWorld


class JobEnds:
    """When jobs of one simulation fail unless they leave before.

    Attributes
    ----------
    orders
        The last order about each job.
    due
        Jobs of which an order was for the present instant, or for an earlier one if time is slotted.
    """

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.orders: dict[int, EndAt] = {}
        self.due: list[int] = []

    def note(self, order: EndAt) -> None:
        """Have a job fail at a time, and at none that was said before."""
        self.orders[order.job] = order
        if order.time < NEVER:
            self.world.note_at(order.time, JOB_FAILS, order.job)

    def leave(self, job: int) -> None:
        """Process that a job has left."""
        self.orders.pop(job, None)

    def happen(self, finished: Sequence[int]) -> tuple[tuple[int, str], ...]:
        """End the jobs that fail now, but for those that have `finished`; returns (job, reason) of each."""
        for job in finished:
            self.leave(job)
        due, self.due = self.due, []
        return tuple((job, self._end(job)) for job in sorted(due) if self._is_due(job))

    def _is_due(self, job: int) -> bool:
        """Whether the last order about a job is due: it may have left, or have another time since."""
        return job in self.orders and self.orders[job].time <= self.world.now

    def _end(self, job: int) -> str:
        """Take a job out of the simulation; returns the reason."""
        world, truth = self.world, self.world.truth
        world.holding.stop(job)
        if truth.left[job] and world.dispatches:
            world.drain()
            truth_of.take_off(truth, job, world.now)
        truth.left[job] = truth.in_service[job] = truth.was_running[job] = 0
        world.leave_cloud(job)
        return self.orders.pop(job).reason
