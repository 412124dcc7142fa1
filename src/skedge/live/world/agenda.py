"""The times at which a live run must act of itself: arrivals of jobs, and the wakes that a policy asked for."""

from __future__ import annotations

from heapq import heappop, heappush

from skedge.core.model import Ints
from skedge.core.time import NEVER


class Agenda:
    """Arrivals and wakes to come.

    Attributes
    ----------
    arrived
        Number of jobs whose arrival was reported.
    wakes
        Times of wakes [µs], a heap.
    """

    def __init__(self) -> None:
        self.arrived = 0
        self.wakes: list[int] = []

    def wake(self, time: int) -> None:
        """Add a wake [µs]."""
        heappush(self.wakes, time)

    def next(self, arrivals: Ints) -> int:
        """Time of the next arrival or wake [µs]."""
        arrival = int(arrivals[self.arrived]) if self.arrived < len(arrivals) else NEVER
        return min(arrival, self.wakes[0] if self.wakes else NEVER)

    def due_by(self, time: int, arrivals: Ints) -> tuple[tuple[int, ...], bool]:
        """The jobs that have arrived by `time` [µs], and whether a wake is due; each is reported once."""
        first, woke = self.arrived, False
        while self.arrived < len(arrivals) and arrivals[self.arrived] <= time:
            self.arrived += 1
        while self.wakes and self.wakes[0] <= time:
            heappop(self.wakes)
            woke = True
        return tuple(range(first, self.arrived)), woke
