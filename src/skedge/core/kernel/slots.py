"""Free and held slots of each server: workers by type, and PS slots.

The cloud is not kept here: it has unlimited workers and PSs.
"""

from __future__ import annotations

import numpy as np

from skedge.core.engine.shares import give_back, lacks, rows_of
from skedge.core.errors import OrderError, StateError
from skedge.core.events import CLOUD, OUT_OF_SERVICE
from skedge.core.model.cluster import Cluster, Ints, Placement
from skedge.core.model.scenario import Jobs


class Slots:
    """The ledger of slots.

    Attributes
    ----------
    capacity, free
        Workers of the servers in service, and those not held by any job, shape ``(servers, types)``.
    held
        Workers of each job that holds any.
    ps_job
        Job of each PS slot; -1 if free, OUT_OF_SERVICE if its server is out of service.
    """

    def __init__(self, cluster: Cluster, jobs: Jobs) -> None:
        self.cluster, self.jobs = cluster, jobs
        self.cloud = -1 if cluster.cloud is None else cluster.cloud
        self.capacity: Ints = cluster.workers.copy()
        self.free: Ints = cluster.workers.copy()
        self.held: dict[int, Placement] = {}
        self.ps_job: Ints = np.full(len(cluster.ps_server), -1, np.int64)

    def take(self, job: int, where: Placement) -> None:
        """Allocate these workers to `job`.

        Raises
        ------
        OrderError
            If their number is 0 or exceeds its chunks (M5), or a server has too few free of its type (M4).
        """
        jobs, kind, total = self.jobs, self.jobs.worker_type[job], sum(n for _, n in where)
        if not 1 <= total <= jobs.chunks[job] or min(n for _, n in where) < 1:
            raise OrderError("M5", f"job {jobs.ids[job]!r} has {jobs.chunks[job]} chunks; {total} workers are given")
        short = lacks(self.free, rows_of(where), kind, self.cloud)
        if short >= 0:
            server, n = where[short]
            free, label = int(self.free[server, kind]) if kind >= 0 else 0, self.cluster.label(server)
            raise OrderError("M4", f"job {jobs.ids[job]!r} is given {n} workers on {label!r}; {free} are free")
        self.held[job] = where

    def release(self, job: int) -> None:
        """Release the workers that `job` holds."""
        give_back(self.free, rows_of(self.held.pop(job)), self.jobs.worker_type[job], self.cloud)

    def take_ps(self, job: int, ps: int) -> None:
        """Assign this PS slot, or one in the cloud, to `job`.

        Raises
        ------
        OrderError
            If it has another type or serves another job (M13), or its server is out of service (M25).
        """
        name = self.jobs.ids[job]
        if ps == CLOUD:
            return
        if not 0 <= ps < len(self.ps_job) or self.cluster.ps_type[ps] != self.jobs.ps_type[job]:
            raise OrderError("M13", f"job {name!r} is given a PS slot of the wrong type")
        if self.ps_job[ps] == OUT_OF_SERVICE:
            raise OrderError("M25", f"job {name!r} is given PS slot {ps}, whose server is out of service")
        if self.ps_job[ps] >= 0:
            raise OrderError("M13", f"PS slot {ps} serves job {self.jobs.ids[self.ps_job[ps]]!r} already")
        self.ps_job[ps] = job

    def release_ps(self, ps: int) -> None:
        """Release a PS slot; PSs in the cloud are not kept here."""
        if ps != CLOUD:
            self.ps_job[ps] = -1

    def serve(self, server: int, *, back: bool) -> None:
        """Take `server`, which no job uses, out of service or back into it."""
        self.capacity[server] = self.cluster.workers[server] if back else 0
        self.free[server] = self.capacity[server]
        self.ps_job[self.cluster.ps_server == server] = -1 if back else OUT_OF_SERVICE

    def validate(self, ps_of: dict[int, int]) -> None:
        """Recompute the free slots, and compare; `ps_of` is the PS slot of each job that has one.

        Raises
        ------
        StateError
            If they are inconsistent with the holdings.
        """
        free = self.capacity.copy()
        for job, where in self.held.items():
            for server, n in where:
                if server != self.cloud:
                    free[server, self.jobs.worker_type[job]] -= n
        if (free != self.free).any() or (free < 0).any():
            raise StateError("free workers do not follow from the placements")
        serving = {job: ps for job, ps in ps_of.items() if ps != CLOUD}
        if serving != {int(j): int(p) for p, j in enumerate(self.ps_job) if 0 <= j < OUT_OF_SERVICE}:
            raise StateError("PS slots do not follow from who holds them")
