"""Storage of the servers, and the data chunks in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skedge.core.errors import OrderError, StateError
from skedge.core.model.cluster import Cluster, Ints
from skedge.core.model.size import UNLIMITED

if TYPE_CHECKING:
    from skedge.core.model.scenario import Jobs


class Storage:
    """The ledger of storage.

    Attributes
    ----------
    free
        Free storage [bytes], shape ``(servers,)``; UNLIMITED for no limit.
    held
        By job: chunks by server, of servers with a limit; chunks of size 0 are not kept.
    """

    def __init__(self, cluster: Cluster, jobs: Jobs) -> None:
        self.cluster, self.jobs = cluster, jobs
        self.free: Ints = cluster.storage_bytes.copy()
        self.limited = self.free != UNLIMITED
        self.held: dict[int, dict[int, int]] = {}

    def store(self, job: int, lanes: Ints) -> None:
        """Store one chunk of `job` for each of these lanes on the lane's server.

        Raises
        ------
        OrderError
            If a server has too little free storage (M17).
        """
        size = self.jobs.chunk_bytes[job]
        if not self.limited.any() or size == 0:
            return
        lane_servers = self.cluster.lane_server[lanes]
        servers, chunks = np.unique(lane_servers[self.limited[lane_servers]], return_counts=True)
        # divided, as the product of a dispatch that does not fit may exceed 64 bits
        short = chunks > self.free[servers] // size
        if short.any():
            server = self.cluster.label(int(servers[short][0]))
            raise OrderError("M17", f"server {server!r} has no room for the chunks of job {self.jobs.ids[job]!r}")
        self.free[servers] -= chunks * size
        chunks_on = self.held.setdefault(job, {})
        for host, n in zip(servers.tolist(), chunks.tolist(), strict=True):
            chunks_on[host] = chunks_on.get(host, 0) + n

    def forget(self, job: int) -> None:
        """Delete the chunks of `job`."""
        # a list, as `_clear` removes the servers one by one
        for server in list(self.held.get(job, ())):
            self._clear(job, server)
        self.held.pop(job, None)

    def lose(self, server: int) -> None:
        """Delete all chunks on `server`, which are lost."""
        for job in self.held:
            self._clear(job, server)

    def validate(self) -> None:
        """Recompute the free storage, and compare.

        Raises
        ------
        StateError
            If it is inconsistent with the chunks stored.
        """
        free = self.cluster.storage_bytes.copy()
        for job, chunks_on in self.held.items():
            for server, chunks in chunks_on.items():
                free[server] -= chunks * self.jobs.chunk_bytes[job]
        if not np.array_equal(free, self.free):
            raise StateError("free storage does not follow from what is stored")

    def _clear(self, job: int, server: int) -> None:
        self.free[server] += self.held[job].pop(server, 0) * self.jobs.chunk_bytes[job]
