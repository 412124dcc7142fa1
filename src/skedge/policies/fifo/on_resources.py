"""FIFO on servers with resources: workers drawn on arrival, placed round robin, kept to the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from skedge.core.events import Allocate, Event, Order, pairs
from skedge.core.model.cluster import Cluster
from skedge.core.policy import View
from skedge.policies.common.resource_jobs import ResourceJobs
from skedge.policies.common.round_robin import round_robin

if TYPE_CHECKING:
    from numpy.random import Generator


class FifoOnResources:
    """First in, first out on servers with resources, as PD-ORS runs it."""

    def __init__(self, params: Any, cluster: Cluster, rng: Generator) -> None:
        self.params, self.rng = params, rng
        self.jobs, self.turn, self.worker_counts = ResourceJobs(cluster), 0, dict[int, int]()

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Draw the workers of arrivals, then start the jobs at the head of the queue that have room."""
        yield from self.jobs.admit(event, view)
        for job in sorted(set(event.arrived) & set(self.jobs.active.tolist())):
            # never more than an empty cluster holds, or the job would block the queue for ever
            max_workers = min(self.params.most_workers, int(view.jobs.batch[job]))
            self.worker_counts[job] = self.jobs.count_fitting(
                job, int(self.rng.integers(1, max_workers, endpoint=True)), view
            )
        for job in self.jobs.active.tolist():
            # a job that runs keeps its workers to the end
            if view.workers[job] > 0:
                continue
            order = self._begin(job, view)
            if order is not None:
                yield order
            # head of line: no job behind one that waits may start
            elif not self.params.backfill:
                return

    def _begin(self, job: int, view: View) -> Order | None:
        """The allocation of all workers and PSs of `job`, if there is room now; else None."""
        # on an empty cluster the round begins at the first server again
        turn = self.turn if view.workers.any() else 0
        worker, ps, ratio, _ = self.jobs.demands(np.array([job]), view)
        placed, turn = round_robin(worker[0], ps[0], self.worker_counts[job], float(ratio[0]), view.free.copy(), turn)
        if placed[0].sum() < self.worker_counts[job]:
            return None
        self.turn = turn
        return Allocate(job, pairs(placed[0]), pairs(placed[1]), "first_in_first_out")

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """The policy's view of `job`, with the number of workers drawn for it."""
        return {**self.jobs.terms(job, view), "workers_drawn": self.worker_counts.get(job)}
