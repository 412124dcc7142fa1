"""Jobs in the system on servers with resources: arrivals, demands, and the orders that change placements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from skedge.core.events import Allocate, Event, Order, Reject, Suspend, pairs
from skedge.core.model.cluster import Cluster, Floats, Ints
from skedge.core.policy import View

from .round_robin import round_robin


class ResourceJobs:
    """The jobs in the system, for policies that decide on all of them together.

    Parameters
    ----------
    cluster
        Servers with resources.

    Attributes
    ----------
    active
        Rows of the jobs, in the order of (arrival, id), shape ``(jobs,)``.
    total
        The cluster's amount of each resource, inf where the resource is absent, so its share is 0.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.active: Ints = np.empty(0, np.int64)
        self.total: Floats = _positive_or_inf(cluster.amounts.sum(axis=0))

    def admit(self, event: Event, view: View) -> Iterator[Order]:
        """Drop jobs that have left, take in those that have arrived; reject a job that no empty cluster holds."""
        self.active = self.active[~np.isin(self.active, event.left)]
        for job in event.arrived:
            if self.count_fitting(job, 1, view) == 0:
                yield Reject(job, "never_fits: a worker and its PSs have no room on the servers, even on empty ones")
            else:
                self.active = np.append(self.active, job)

    def count_fitting(self, job: int, workers: int, view: View) -> int:
        """Number of workers, up to `workers`, that the empty cluster holds with their PSs, placed round robin."""
        worker, ps, ratio, _ = self.demands(np.array([job]), view)
        placed, _ = round_robin(worker[0], ps[0], workers, float(ratio[0]), self.cluster.amounts.copy(), 0)
        return int(placed[0].sum())

    def demands(self, jobs: Ints, view: View) -> tuple[Floats, Floats, Floats, Ints]:
        """Demands alpha and beta, shape ``(jobs, resources)``, gamma and F, shape ``(jobs,)``."""
        columns = view.jobs
        return columns.worker_needs[jobs], columns.ps_needs[jobs], columns.ratio[jobs], columns.batch[jobs]

    def allocations(self, view: View) -> tuple[Ints, Ints]:
        """Workers and PSs of the active jobs by server, shape ``(jobs, servers)`` each."""
        counts = np.zeros((2, len(self.active), len(self.cluster.servers)), np.int64)
        for row, job in enumerate(self.active.tolist()):
            for kind, placement in enumerate((view.placement(job), view.ps_placement(job))):
                for server, n in placement:
                    counts[kind, row, server] = n
        return counts[0], counts[1]

    def settle(self, workers: Ints, servers: Ints, view: View, reason: str) -> Iterator[Order]:
        """Orders that give the active jobs these workers and PSs; a job whose allocation stays gets none.

        Parameters
        ----------
        workers, servers
            Workers and PSs of the active jobs, shape ``(jobs, servers)`` each.
        view
            The state before the orders.
        reason
            The reason of the allocations, on record.
        """
        present = self.allocations(view)
        changed = np.any([workers != present[0], servers != present[1]], axis=(0, 2))
        was_running, will_run = (np.asarray(counts.any(axis=1)) for counts in (present[0], workers))
        # suspensions free what the allocations below take, so all of them come first
        for row in np.flatnonzero(changed & was_running).tolist():
            yield Suspend(int(self.active[row]), "moved" if will_run[row] else "preempted")
        for row in np.flatnonzero(changed & will_run).tolist():
            yield Allocate(int(self.active[row]), pairs(workers[row]), pairs(servers[row]), reason)

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """The policy's view of `job`: its demands, the free resources, and the holdings of the jobs in the system."""
        names, jobs = self.cluster.resources, view.jobs
        worker, ps = (dict(zip(names, c[job].tolist(), strict=True)) for c in (jobs.worker_needs, jobs.ps_needs))
        return {
            "compares": "workers and PSs against what is free; the jobs in the system by id",
            "worker_needs": worker,
            "ps_needs": ps,
            "workers_per_ps": float(jobs.ratio[job]),
            "most_workers": int(jobs.batch[job]),
            "free": dict(zip(names, view.free.sum(axis=0).tolist(), strict=True)),
            "in_system": [
                {"job": view.job_id(peer), "workers": int(view.workers[peer])}
                for peer in view.active.tolist()
                if peer != job
            ],
        }


def _positive_or_inf(total: Floats) -> Floats:
    return np.where(total > 0, total, np.inf)
