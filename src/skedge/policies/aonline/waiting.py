"""Jobs that wait for storage, in order of arrival; finds the next one that fits without trying the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.ties import SLACK
from skedge.platform.jit import compiled

_REMOVED = -1
"""Number of chunks of an entry that has been removed: no job has it, so places stay as they are."""

_ROUND_UP = 1 + SLACK
"""Makes a sum in floats an upper bound."""


class StorageDemand(NamedTuple):
    """The storage that a job waits for.

    Attributes
    ----------
    job
        Its number.
    lost
        Chunks to dispatch again; None: all, for the first time.
    kind
        Index of its worker type; -1 if no edge server has it.
    size
        u_j [bytes].
    chunks
        Number of chunks to place.
    """

    job: int
    lost: tuple[int, ...] | None
    kind: int
    size: int
    chunks: int


class StorageQueue:
    """Queue of the jobs that wait for storage.

    Parameters
    ----------
    servers
        Servers that have workers of a type, by worker type.
    """

    def __init__(self, servers: list[Ints]) -> None:
        self.servers = np.concatenate([np.zeros(0, np.int64), *servers])
        self.first = np.cumsum([0, *(len(type_servers) for type_servers in servers)])
        self.demands: list[StorageDemand] = []
        self.table = np.zeros((8, 3), np.int64)
        self.entries: dict[int, int] = {}

    def __len__(self) -> int:
        """Number of jobs."""
        return len(self.entries)

    def add(self, demand: StorageDemand) -> None:
        """Append a job, or a part of one that lost a server: a job may have several entries."""
        end = len(self.demands)
        if end == len(self.table):
            self.table = np.concatenate([self.table, np.zeros_like(self.table)])
        self.table[end] = demand.kind, demand.size, demand.chunks
        self.demands.append(demand)
        self.entries[demand.job] = self.entries.get(demand.job, 0) + 1

    def remove(self, entry: int) -> StorageDemand:
        """Take the entry at a place of :meth:`next_fit` out of the queue; places stay as they are."""
        self.table[entry, 2] = _REMOVED
        job = self.demands[entry].job
        self.entries[job] -= 1
        if self.entries[job] == 0:
            del self.entries[job]
        return self.demands[entry]

    def remove_jobs(self, jobs: tuple[int, ...]) -> None:
        """Take all entries of `jobs` out of the queue."""
        if self.entries.keys().isdisjoint(jobs):
            return
        for entry, demand in enumerate(self.demands):
            if demand.job in jobs and self.table[entry, 2] != _REMOVED:
                self.remove(entry)

    def next_fit(self, free_bytes: Ints, start: int, *, cloud_available: bool) -> int:
        """Place of the first entry at or after `start` that fits; -1 if there is none.

        Parameters
        ----------
        free_bytes
            Storage left on every server [bytes]; below 0: out of service.
        start
            Place in the queue, >= 0.
        cloud_available
            True: the cloud takes every job.
        """
        return int(
            _next_fit(self.table[: len(self.demands)], self.servers, self.first, free_bytes, start, cloud_available)
        )

    def compact(self) -> None:
        """Drop removed entries once they are the majority; this changes the places."""
        if 2 * sum(self.entries.values()) < len(self.demands):
            rows = np.flatnonzero(self.table[: len(self.demands), 2] != _REMOVED)
            self.demands = [self.demands[row] for row in rows]
            self.table[: len(rows)] = self.table[rows]


@compiled
def _next_fit(table: Ints, servers: Ints, first: Ints, free_bytes: Ints, start: int, cloud_available: bool) -> int:
    """See :meth:`StorageQueue.next_fit`; rows of `table` are (worker type, bytes, chunks)."""
    max_free, total_free = _totals(servers, first, free_bytes)
    for entry in range(start, len(table)):
        kind, size, chunks = table[entry, 0], table[entry, 1], table[entry, 2]
        if chunks == _REMOVED:
            continue
        if cloud_available:
            return entry
        # two cheap bounds come first: most jobs of a long queue fail one of them
        if kind < 0 or max_free[kind] < size or total_free[kind] < size * float(chunks):
            continue
        for i in range(first[kind], first[kind + 1]):
            # a chunk is stored on one server, so each server holds a whole number of them (7c)
            if free_bytes[servers[i]] >= size:
                chunks -= chunks if size == 0 else min(chunks, free_bytes[servers[i]] // size)
        if chunks == 0:
            return entry
    return -1


@compiled
def _totals(servers: Ints, first: Ints, free_bytes: Ints) -> tuple[Ints, Floats]:
    """By worker type: the most storage left on a server, and an upper bound of that of all [bytes]."""
    max_free = np.full(len(first) - 1, -1, np.int64)
    total_free = np.zeros(len(first) - 1)
    for kind in range(len(max_free)):
        for i in range(first[kind], first[kind + 1]):
            max_free[kind] = max(max_free[kind], free_bytes[servers[i]])
            total_free[kind] += _ROUND_UP * max(free_bytes[servers[i]], 0)
    return max_free, total_free
