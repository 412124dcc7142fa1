"""Work at sites: chunks are trained slot by slot at the site that stores them (Okita).

The kernel and the simulated world count the same way. In a slot, y workers of a job at a site train
floor(rho y / E) whole chunks (O11), or all that are there if those are fewer; a part of a chunk does not count. Chunks
move between sites instantly. The ledger (:mod:`skedge.core.engine.ledger`) has the workers held.
"""

from __future__ import annotations

from skedge.core.model.cluster import Floats, Ints, Placement
from skedge.core.model.scenario import Scenario
from skedge.core.model.speed import whole_chunks


class UntrainedChunks:
    """The untrained chunks.

    Attributes
    ----------
    rate
        Chunks that one worker trains per slot, shape ``(jobs,)``.
    left
        By job: untrained chunks by site, shape ``(servers,)``. The arrays are replaced, never changed in place.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.rate: Floats = scenario.slot_chunks
        self.left: list[Ints] = list(scenario.jobs.data)
        self._moved: dict[int, tuple[int, set[tuple[int, int]]]] = {}

    def extend(self, scenario: Scenario) -> None:
        """Add the jobs that follow the present ones."""
        self.rate = scenario.slot_chunks
        self.left += list(scenario.jobs.data[len(self.left) :])

    def returns(self, job: int, source: int, target: int, now: int) -> bool:
        """Whether this move returns data to a site that they have left at `now`, directly or via other sites (M31).

        Parameters
        ----------
        job
            Whose chunks move.
        source, target
            Sites of the move.
        now
            The present [µs].
        """
        time, moved = self._moved.get(job, (now, set()))
        # which sites the moves of this instant lead to from the target: the move closes a cycle if one is its source
        reached, left = {target}, [target] if time == now else []
        while left:
            site = left.pop()
            further = {b for a, b in moved if a == site} - reached
            reached |= further
            left += further
        return source in reached

    def move(self, job: int, source: int, target: int, chunks: int, now: int) -> None:
        """Move `chunks` chunks, all present at `source`, at `now` [µs].

        Parameters
        ----------
        job, chunks
            Whose chunks move, and how many; at most those at `source`.
        source, target
            Sites of the move.
        now
            The present [µs].
        """
        time, moved = self._moved.get(job, (now, set()))
        # only the moves of this instant are kept: at a later one chunks may come back
        self._moved[job] = now, {*(moved if time == now else ()), (source, target)}
        left = self.left[job].copy()
        left[source] -= chunks
        left[target] += chunks
        self.left[job] = left

    def trains(self, job: int, placement: Placement) -> Placement:
        """(site, chunks) pairs that these workers train in a slot; sites with none are omitted."""
        rate, left = float(self.rate[job]), self.left[job]
        pairs = ((site, min(int(left[site]), whole_chunks(rate, n))) for site, n in placement)
        return tuple((site, chunks) for site, chunks in pairs if chunks > 0)

    def trained(self, job: int, pairs: Placement) -> bool:
        """Record trained chunks; returns whether none are left."""
        left = self.left[job].copy()
        for site, chunks in pairs:
            left[site] -= chunks
        self.left[job] = left
        return not left.any()
