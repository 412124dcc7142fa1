"""Free and held resources of each server: the ledger of clusters without slots.

w workers and s PSs of a job on a server take w alpha + s beta of each resource (PD-ORS, Eq. (5)). Comparisons allow
1e-9 of the capacity, because amounts are floats.
"""

from __future__ import annotations

import numpy as np

from skedge.core.errors import OrderError, StateError
from skedge.core.model.cluster import Cluster, Floats, Ints, Placement
from skedge.core.model.scenario import Jobs
from skedge.core.model.speed import servers_for
from skedge.core.model.ties import SLACK


class Pool:
    """The ledger of resources.

    Attributes
    ----------
    capacity
        Amounts of the servers in service, 0 for the others, shape ``(servers, resources)``.
    free
        The part of it not held by any job, same shape, at least 0.
    held
        Workers and PSs of each job that holds any.
    """

    def __init__(self, cluster: Cluster, jobs: Jobs) -> None:
        self.cluster, self.jobs = cluster, jobs
        self.capacity: Floats = cluster.amounts.copy()
        self.free: Floats = cluster.amounts.copy()
        self.held: dict[int, tuple[Placement, Placement]] = {}
        self.holders: Ints = np.zeros(len(cluster.servers), np.int64)

    def take(self, job: int, workers: Placement, ps: Placement) -> None:
        """Allocate these workers and PSs to `job`.

        Raises
        ------
        OrderError
            If a server has too little of a resource (M26), there are more workers than F (M27) or too few PSs (M28).
        """
        name = self.jobs.ids[job]
        self.check_counts(name, workers, ps, int(self.jobs.batch[job]), float(self.jobs.ratio[job]))
        servers, amounts = self.amounts(job, workers, ps)
        left = self.free[servers] - amounts
        # relative to the capacity: free amounts are sums of floats, off by rounding
        short = left < -SLACK * self.capacity[servers]
        if short.any():
            i, r = (int(k[0]) for k in np.nonzero(short))
            amount, free = amounts[i, r], self.free[servers[i], r]
            label, resource = self.cluster.label(int(servers[i])), self.cluster.resources[r]
            raise OrderError("M26", f"job {name!r} is given {amount:g} of {resource} on {label!r}; {free:g} are free")
        # within the slack a shortage is rounding: as a negative amount it would count against the next job
        self.free[servers] = np.maximum(left, 0.0)
        # jobs per server: with none left, the free amounts are set anew, and rounding does not add up over a run
        self.holders[servers] += 1
        self.held[job] = workers, ps

    @staticmethod
    def check_counts(name: str, workers: Placement, ps: Placement, batch: int, ratio: float) -> None:
        """Check the numbers of workers and PSs of an allocation.

        Parameters
        ----------
        name
            Id of the job, for the message.
        workers, ps
            (server, number) pairs.
        batch, ratio
            F_i, the most workers; gamma_i, workers for each PS.
        """
        total, servers = sum(n for _, n in workers), sum(n for _, n in ps)
        if not 1 <= total <= batch or min(n for _, n in (*workers, *ps)) < 1:
            raise OrderError("M27", f"job {name!r} has a batch of {batch}; {total} workers are given")
        least = servers_for(total, ratio)
        if servers < least:
            text = f"job {name!r} is given {servers} PSs for {total} workers; {ratio:g} workers a PS take {least}"
            raise OrderError("M28", text)

    def release(self, job: int) -> None:
        """Release what `job` holds; a server without jobs is reset to exactly its capacity."""
        servers, amounts = self.amounts(job, *self.held.pop(job))
        self.holders[servers] -= 1
        # what is given back may sum to slightly more than was there
        self.free[servers] = np.minimum(self.free[servers] + amounts, self.capacity[servers])
        empty = servers[self.holders[servers] == 0]
        self.free[empty] = self.capacity[empty]

    def amounts(self, job: int, workers: Placement, ps: Placement) -> tuple[Ints, Floats]:
        """Servers used by a placement, ascending, and the amounts taken on each, shape ``(used, resources)``."""
        counts = dict[int, list[int]]()
        # a server's workers and PSs as one row: they draw on the same amounts, which are checked together
        for kind, placement in enumerate((workers, ps)):
            for server, n in placement:
                counts.setdefault(server, [0, 0])[kind] = n
        servers = sorted(counts)
        numbers = np.array([counts[server] for server in servers], np.float64)
        needs = np.stack([self.jobs.worker_needs[job], self.jobs.ps_needs[job]])
        return np.array(servers, np.int64), numbers @ needs

    def serve(self, server: int, *, back: bool) -> None:
        """Take `server`, which no job uses, out of service or back into it."""
        self.capacity[server] = self.cluster.amounts[server] if back else 0.0
        self.free[server] = self.capacity[server]

    def validate(self) -> None:
        """Recompute the free amounts, and compare.

        Raises
        ------
        StateError
            If they are inconsistent with the holdings.
        """
        free = self.capacity.copy()
        for job, placements in self.held.items():
            servers, amounts = self.amounts(job, *placements)
            free[servers] -= amounts
        # looser than SLACK, as the same amounts are summed in another order here
        if not np.allclose(free, self.free, rtol=0, atol=1e-6 * max(1.0, float(self.capacity.max(initial=0)))):
            raise StateError("free resources do not follow from the placements")


class SitePool(Pool):
    """The ledger of resources at sites, where a job has one PS."""

    @staticmethod
    def check_counts(name: str, workers: Placement, ps: Placement, batch: int, ratio: float) -> None:  # noqa: ARG004
        """Check that there is one PS (M32).

        Parameters
        ----------
        name, workers, ps
            As in the base.
        batch, ratio
            Not used at sites.
        """
        if [n for _, n in ps] != [1] or min(n for _, n in workers) < 1:
            raise OrderError("M32", f"job {name!r} is given workers {workers} and PSs {ps}; at sites it has one PS")
