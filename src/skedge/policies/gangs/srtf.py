"""SRTF: gangs by (remaining training time, arrival, id)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from skedge.core.events import Event, Order
from skedge.core.model.cluster import Cluster, Ints, Physics
from skedge.core.policy import View
from skedge.platform.jit import lean

from .base import GangPolicy

if TYPE_CHECKING:
    from numpy.random import Generator


class Srtf(GangPolicy):
    """Shortest remaining time first."""

    name: ClassVar[str] = "srtf"

    @property
    def shares(self) -> bool:
        """Tenants and classes are kept to."""
        return True

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.ranked: Ints = np.empty(0, np.int64)
        self.remaining: Ints = np.empty(0, np.int64)

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Rank all jobs by remaining time and run as many as fit."""
        yield from self.admit(event, view)
        n_new = len(self.gang.used) - len(self.remaining)
        if n_new > 0:
            self.remaining = np.append(self.remaining, np.full(n_new, -1))
        left = view.remaining(self.active)
        order = np.empty_like(self.active)
        rank(self.ranked, self.active, left, self.gang.workers, self.remaining, order)
        self.ranked = order
        changes = self.note(*self.share_out(self.ranked, view))
        yield from self.carry_out(changes, view, "shortest_remaining_time")
        yield from self.note_shares(changes, view)


@lean
def rank(last_order: Ints, jobs: Ints, left: Ints, workers: Ints, remaining: Ints, order: Ints) -> None:
    """Fill `order` with the `jobs` by (remaining time, job).

    Their order hardly changes from event to event: the remaining times of running jobs fall together, the others stay.
    So the order `last_order` is sorted by insertion, new jobs at its end.

    Parameters
    ----------
    left
        Work left of each of `jobs` [worker-µs].
    workers
        Requested workers, by job.
    remaining
        By job, -1 - remaining time of the jobs in `last_order` [µs], negative for all others; updated.
    """
    for n in range(len(jobs)):
        # 0 or more marks a job that is still to be sorted; below 0 it is done, or has left
        k = workers[jobs[n]]
        remaining[jobs[n]] = left[n] if k == 1 else -(-left[n] // k)  # a division takes as long as all the rest
    n = 0
    for candidates in (last_order, jobs):
        for job in candidates:
            if remaining[job] < 0:
                continue
            # the mark: each job is sorted once, from `before` or, if it is new, from `jobs`
            remaining[job] = time = -1 - remaining[job]
            i = n
            while i > 0 and (remaining[order[i - 1]], -order[i - 1]) < (time, -job):
                order[i] = order[i - 1]
                i -= 1
            order[i] = job
            n += 1
