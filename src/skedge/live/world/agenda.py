"""The times at which a live run must act of itself: arrivals, wakes that a policy asked for, ends of limited jobs."""

from __future__ import annotations

from heapq import heappop, heappush

from skedge.core.events import EndAt, Reserve, WakeAt
from skedge.core.kernel.state import State
from skedge.core.model.time import NEVER


class Agenda:
    """Arrivals, wakes and ends to come; arrivals and ends are read from the kernel's state.

    Attributes
    ----------
    wakes
        Times of wakes [µs], a heap. The kernel passes the orders for them on and keeps none.
    late
        Most by which a wake or an end was dealt with late, as no controller could decide [µs].
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.wakes: list[int] = []
        self.late = 0

    def wake_at(self, order: WakeAt) -> None:
        """Add a wake."""
        heappush(self.wakes, order.time)

    def reserve(self, order: Reserve) -> None:
        """Add wakes at the start and the end of a plan."""
        heappush(self.wakes, order.start)
        heappush(self.wakes, order.end)

    def next_due(self) -> int:
        """Time of the next arrival, wake or end [µs]; NEVER if there is none."""
        arrivals, arrived = self.state.scenario.jobs.arrival, self.state.arrived
        arrival = int(arrivals[arrived]) if arrived < len(arrivals) else NEVER
        end = min((order.time for order in self.state.limits.last_order.values()), default=NEVER)
        return min(arrival, end, self.wakes[0] if self.wakes else NEVER)

    def ended_by(self, time: int) -> list[EndAt]:
        """The ends by `time` [µs], in order."""
        due = [order for order in self.state.limits.last_order.values() if order.time <= time]
        self.late = max(self.late, *(time - order.time for order in due), 0)
        return sorted(due, key=lambda order: (order.time, order.job))

    def due_by(self, time: int) -> tuple[tuple[int, ...], bool]:
        """The jobs that have arrived by `time` [µs] and are new to the kernel, and whether a wake is due."""
        arrivals, first, woke = self.state.scenario.jobs.arrival, self.state.arrived, False
        end = first
        while end < len(arrivals) and arrivals[end] <= time:
            end += 1
        while self.wakes and self.wakes[0] <= time:
            self.late = max(self.late, time - heappop(self.wakes))
            woke = True
        return tuple(range(first, end)), woke
