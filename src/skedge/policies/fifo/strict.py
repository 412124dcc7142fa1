"""FIFO with ``rule=strict`` on typed slots: head of line by (arrival, id)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from skedge.core.events import Event, Order
from skedge.core.model.cluster import Cluster, Physics
from skedge.core.policy import Params, View
from skedge.policies.gangs.base import GangPolicy

if TYPE_CHECKING:
    from numpy.random import Generator


class StrictFifo(GangPolicy):
    """Gangs start in order of arrival, each when its whole demand is free, and run to the end."""

    def __init__(self, params: Params, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        self.params = params
        self.start(cluster, physics, rng)

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        # where the cloud is allowed a gang without room goes there, so no job waits behind it
        self.stop_at_first = not (self.params.backfill or self.params.allow_cloud)
        super().start(cluster, physics, rng)

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Start the jobs at the head of the queue whose demand is free."""
        yield from self.admit(event, view)
        queue = self.active[self.gang.running[self.active] == 0]
        if len(queue):
            queue, verdict = self.share_out(queue, view, free=view.free_workers)
            changes = self.apply_verdict(queue, verdict, queue[:0])
            yield from self.carry_out(changes, view, "first_in_first_out")
            yield from self.note_shares(changes, view)
