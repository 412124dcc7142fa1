"""Work at sites: chunks that are trained slot by slot, where they lie (Okita).

One ledger serves the kernel's books and the simulated truth. In a slot the y workers of a job at a site train as many
whole chunks as lie there and as they can, floor(rho y / E) (O11); a part of a chunk does not count. Chunks move between
sites at once. Who holds workers is in :class:`~skedge.core.books.gangs.Gangs`.
"""

from __future__ import annotations

from skedge.core.model import Floats, Ints, Placement
from skedge.core.scenario import Scenario
from skedge.core.speed import whole_chunks


class SiteWork:
    """Chunks that are left.

    Attributes
    ----------
    rate
        Chunks that a worker trains in a slot, shape ``(jobs,)``.
    left
        Of every job, chunks not trained yet where they lie, shape ``(servers,)``; replaced, never changed in place.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.rate: Floats = scenario.slot_chunks
        self.left: list[Ints] = list(scenario.jobs.data)
        self._moved: dict[int, tuple[int, set[tuple[int, int]]]] = {}

    def extend(self, scenario: Scenario) -> None:
        """Take in jobs behind those that are there."""
        self.rate = scenario.slot_chunks
        self.left += list(scenario.jobs.data[len(self.left) :])

    def returns(self, job: int, source: int, target: int, now: int) -> bool:
        """Whether data that are moved so would be where they were before at `now`, by way of other sites (M31)."""
        time, moved = self._moved.get(job, (now, set()))
        reached, left = {target}, [target] if time == now else []
        while left:
            site = left.pop()
            further = {b for a, b in moved if a == site} - reached
            reached |= further
            left += further
        return source in reached

    def move(self, job: int, source: int, target: int, chunks: int, now: int) -> None:
        """Move chunks, of which so many are at `source`, at `now` [µs]."""
        time, moved = self._moved.get(job, (now, set()))
        self._moved[job] = now, {*(moved if time == now else ()), (source, target)}
        left = self.left[job].copy()
        left[source] -= chunks
        left[target] += chunks
        self.left[job] = left

    def trains(self, job: int, where: Placement) -> Placement:
        """(site, chunks) that these workers train in a slot; sites where that is none are left out."""
        rate, left = float(self.rate[job]), self.left[job]
        done = ((site, min(int(left[site]), whole_chunks(rate, n))) for site, n in where)
        return tuple((site, chunks) for site, chunks in done if chunks > 0)

    def trained(self, job: int, done: Placement) -> bool:
        """Note what was trained; whether nothing is left."""
        left = self.left[job].copy()
        for site, chunks in done:
            left[site] -= chunks
        self.left[job] = left
        return not left.any()
