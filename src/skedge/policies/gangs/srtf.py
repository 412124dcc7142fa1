"""SRTF: gangs by (remaining training time, arrival, id)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from skedge.core.events import Event, Order
from skedge.core.policy import View

from .base import GangPolicy


class Srtf(GangPolicy):
    """Shortest remaining time first."""

    name: ClassVar[str] = "srtf"

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Rank all jobs by remaining time and run as many as fit."""
        yield from self.admit(event, view)
        jobs = self.active
        workers = view.jobs.workers[jobs]
        remaining = -(-view.remaining(jobs) // workers)
        order = jobs[remaining.argsort(kind="stable")]
        changes = self.note(order, self.choose(order, view))
        yield from self.carry_out(changes, view, "shortest_remaining_time")
