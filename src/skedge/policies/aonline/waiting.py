"""Jobs that wait for storage, in order of arrival; finds the next one that fits without trying the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.ties import SLACK
from skedge.platform.jit import compiled

_GONE = -1
_ABOVE = 1 + SLACK
"""Makes a sum in floats an upper bound."""


class Need(NamedTuple):
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
        self.first = np.cumsum([0, *(len(of_type) for of_type in servers)])
        self.needs: list[Need] = []
        self.table = np.zeros((8, 3), np.int64)
        self.entries: dict[int, int] = {}

    def __len__(self) -> int:
        """Number of jobs."""
        return len(self.entries)

    def add(self, need: Need) -> None:
        """Put a job at the end."""
        end = len(self.needs)
        if end == len(self.table):
            self.table = np.concatenate([self.table, np.zeros_like(self.table)])
        self.table[end] = need.kind, need.size, need.chunks
        self.needs.append(need)
        self.entries[need.job] = self.entries.get(need.job, 0) + 1

    def remove(self, at: int) -> Need:
        """Take the entry at a place of :meth:`next_fit` out of the queue; places stay as they are."""
        self.table[at, 2] = _GONE
        job = self.needs[at].job
        self.entries[job] -= 1
        if self.entries[job] == 0:
            del self.entries[job]
        return self.needs[at]

    def remove_jobs(self, jobs: tuple[int, ...]) -> None:
        """Take all entries of `jobs` out of the queue."""
        if self.entries.keys().isdisjoint(jobs):
            return
        for at, need in enumerate(self.needs):
            if need.job in jobs and self.table[at, 2] != _GONE:
                self.remove(at)

    def next_fit(self, free: Ints, start: int, *, anywhere: bool) -> int:
        """Place of the first entry at or after `start` that fits; -1 if there is none.

        Parameters
        ----------
        free
            Storage left on every server [bytes]; below 0: out of service.
        anywhere
            True: the cloud takes every job.
        """
        return int(_next_fit(self.table[: len(self.needs)], self.servers, self.first, free, start, anywhere))

    def tidy(self) -> None:
        """Drop removed entries once they are the majority; this changes the places."""
        if 2 * sum(self.entries.values()) < len(self.needs):
            kept = np.flatnonzero(self.table[: len(self.needs), 2] != _GONE)
            self.needs = [self.needs[at] for at in kept]
            self.table[: len(kept)] = self.table[kept]


@compiled
def _next_fit(table: Ints, servers: Ints, first: Ints, free: Ints, start: int, anywhere: bool) -> int:
    """See :meth:`StorageQueue.next_fit`; rows of `table` are (worker type, bytes, chunks)."""
    most, total = _totals(servers, first, free)
    for at in range(start, len(table)):
        kind, size, chunks = table[at, 0], table[at, 1], table[at, 2]
        if chunks == _GONE:
            continue
        if anywhere:
            return at
        if kind < 0 or most[kind] < size or total[kind] < size * float(chunks):
            continue
        for i in range(first[kind], first[kind + 1]):
            if free[servers[i]] >= size:
                chunks -= chunks if size == 0 else min(chunks, free[servers[i]] // size)
        if chunks == 0:
            return at
    return -1


@compiled
def _totals(servers: Ints, first: Ints, free: Ints) -> tuple[Ints, Floats]:
    """By worker type: the most storage left on a server, and an upper bound of that of all [bytes]."""
    most = np.full(len(first) - 1, -1, np.int64)
    total = np.zeros(len(first) - 1)
    for kind in range(len(most)):
        for i in range(first[kind], first[kind + 1]):
            most[kind] = max(most[kind], free[servers[i]])
            total[kind] += _ABOVE * max(free[servers[i]], 0)
    return most, total
