"""The times at which a live run must act of itself: arrivals, wakes that a policy asked for, ends of limited jobs."""

from __future__ import annotations

from heapq import heappop, heappush

from skedge.core.events import EndAt, Reserve, WakeAt
from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER


class Agenda:
    """Arrivals and wakes to come.

    Attributes
    ----------
    arrived
        Number of jobs whose arrival was reported.
    wakes
        Times of wakes [µs], a heap.
    ends
        When and why jobs fail unless they leave before: the last order about each.
    late
        Most by which a wake or an end was dealt with late, as no controller could decide [µs].
    """

    def __init__(self) -> None:
        self.arrived = 0
        self.wakes: list[int] = []
        self.ends: dict[int, EndAt] = {}
        self.late = 0

    def wake_at(self, order: WakeAt) -> None:
        """Add a wake."""
        heappush(self.wakes, order.time)

    def reserve(self, order: Reserve) -> None:
        """Add wakes at the start and the end of a plan."""
        heappush(self.wakes, order.start)
        heappush(self.wakes, order.end)

    def next_due(self, arrivals: Ints) -> int:
        """Time of the next arrival, wake or end [µs]; NEVER if there is none."""
        arrival = int(arrivals[self.arrived]) if self.arrived < len(arrivals) else NEVER
        end = min((order.time for order in self.ends.values()), default=NEVER)
        return min(arrival, end, self.wakes[0] if self.wakes else NEVER)

    def end_at(self, order: EndAt) -> None:
        """Have a job fail at a time, and at none that was said before."""
        self.ends[order.job] = order

    def ended_by(self, time: int) -> list[EndAt]:
        """The ends by `time` [µs], in order."""
        due = [order for order in self.ends.values() if order.time <= time]
        self.late = max(self.late, *(time - order.time for order in due), 0)
        return sorted(due, key=lambda order: (order.time, order.job))

    def due_by(self, time: int, arrivals: Ints) -> tuple[tuple[int, ...], bool]:
        """The jobs that have arrived by `time` [µs], and whether a wake is due; each is reported once."""
        first, woke = self.arrived, False
        while self.arrived < len(arrivals) and arrivals[self.arrived] <= time:
            self.arrived += 1
        while self.wakes and self.wakes[0] <= time:
            self.late = max(self.late, time - heappop(self.wakes))
            woke = True
        return tuple(range(first, self.arrived)), woke
