"""Revocable allocations: gangs, whose workers start and stop together, and jobs whose workers start one by one.

A gang's workers all begin when the slowest upload has ended. Each worker of a job that is not a gang
(``Allocate(gang=False)``) begins when its own data arrive, and the present workers continue while others join or leave.

One ledger serves the kernel's belief (announced work) and the simulated truth (true work). Work is counted in
worker-µs at the job's present zeta, and converted when zeta changes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from skedge.core.model.cluster import Ints, Placement
from skedge.core.model.network import Delays
from skedge.core.model.time import NEVER
from skedge.platform.jit import compiled

from .shares import NOTHING, begin, done, end_of, only_on, rows_of, summary, supply


@dataclass
class Gangs:
    """Progress and placements of all jobs.

    Attributes
    ----------
    work
        Total work by job and zeta [worker-µs], shape ``(jobs, 2)``.
    left
        Remaining work at the job's present zeta [worker-µs], exact at :attr:`since`.
    workers
        Workers held now; 0 while suspended.
    compute_from
        When the present allocation begins computing [µs]; its first worker if it is not a gang. Later than the
        allocation's start if data must be uploaded.
    zeta
        1 if the present allocation is co-located, else 0.
    placed
        Present placement.
    kept
        True: data stay on every server that received them until the job ends or the server is lost. False: only the
        data of the last placement count.
    data
        Where the data of each job are: the number of workers whose data each server has or is receiving, and when they
        arrive, as :mod:`.shares` has them.
    parts
        Likewise, for jobs that are not gangs: workers of the present or last allocation, and when they begin computing.
    joins
        Jobs whose present workers begin at different times.
    all_from, missed
        When the last of these workers begins, and the work that they would have done more had all begun with the first
        [worker-µs]; 0 for other jobs.
    stopped
        When the last allocation of a job that is not a gang ended [µs].
    started
        Jobs that have held workers before.
    """

    work: Ints
    delays: Delays
    step: int
    overhead: int
    kept: bool = True
    left: Ints = field(init=False)
    workers: Ints = field(init=False)
    compute_from: Ints = field(init=False)
    all_from: Ints = field(init=False)
    missed: Ints = field(init=False)
    since: array[int] = field(init=False)
    zeta: array[int] = field(init=False)
    started: set[int] = field(default_factory=set)
    placed: dict[int, Placement] = field(default_factory=dict)
    data: dict[int, Ints] = field(default_factory=dict)
    parts: dict[int, Ints] = field(default_factory=dict)
    joins: set[int] = field(default_factory=set)
    stopped: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        jobs = len(self.work)
        self.left = self.work[:, 0].copy()
        self.workers, self.compute_from = np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
        self.all_from, self.missed = np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
        self.since, self.zeta = array("q", bytes(8 * jobs)), array("q", bytes(8 * jobs))

    def extend(self, work: Ints, delays: Delays) -> None:
        """Add the jobs that follow the present ones; `work` and `delays` cover all jobs."""
        new = work[len(self.work) :, 0]
        self.work, self.delays = np.concatenate([self.work, work[len(self.work) :]]), delays
        self.left = np.append(self.left, new)
        self.workers = np.append(self.workers, np.zeros_like(new))
        self.compute_from = np.append(self.compute_from, np.zeros_like(new))
        self.all_from = np.append(self.all_from, np.zeros_like(new))
        self.missed = np.append(self.missed, np.zeros_like(new))
        self.since.frombytes(bytes(8 * len(new)))
        self.zeta.frombytes(bytes(8 * len(new)))

    def stretch(self, job: int, factor: float, now: int) -> None:
        """Scale the work of `job` by `factor` from `now` on."""
        self.set_left(job, int(self.left_of(job, now) * factor), now)
        self.work = self.work.copy()
        self.work[job] = np.maximum(1, (self.work[job] * factor).astype(np.int64))

    def set_left(self, job: int, left: int, now: int) -> None:
        """Set the remaining work of `job` at `now` [worker-µs], at its present zeta; at least 1 is left."""
        if self.workers[job] > 0:
            # `left` is exact at `now`, so the workers count as beginning no earlier
            self.compute_from[job] = max(now, int(self.compute_from[job]))
            if job in self.parts:
                parts = self.parts[job]
                self._set_parts(job, np.column_stack([parts[:, :2], np.maximum(parts[:, 2], now)]))
        self.left[job] = max(1, left)

    def forget(self, server: int) -> None:
        """Drop all data on `server`, which are lost."""
        for job, there in list(self.data.items()):
            self.data[job] = there[there[:, 0] != server]
            if not len(self.data[job]):
                del self.data[job]

    def place(self, job: int, where: Placement, zeta: int, now: int, *, gang: bool = True) -> Ints:
        """Allocate these workers to `job` from `now`.

        A gang waits until all its servers have its data. A server without data for all of its workers begins an upload
        now; uploads under way continue while the job is suspended. A job that has run before pays the checkpoint
        overhead. The workers of a job that is not a gang begin one by one (:func:`.shares.begin`).

        Returns
        -------
        The number of workers whose data each server of `where` had before, or was receiving.
        """
        rows, restore = rows_of(where), self.overhead if job in self.started else 0
        # data may be under way since an earlier allocation: then only the rest of the delay is waited for
        data, before, ready = supply(self.data.get(job, NOTHING), rows, now, self.delays, job)
        if gang:
            self.compute_from[job], self.workers[job] = ready + restore, sum(n for _, n in where)
        else:
            held = self.parts[job] if self.stopped.get(job) == now else NOTHING
            self._set_parts(job, begin(data, rows, before, held, now, restore))
        self.started.add(job)
        if zeta != self.zeta[job]:
            self._convert(job, zeta)
        self.data[job] = data if self.kept else only_on(data, rows, gang)
        self.since[job], self.placed[job] = now, where
        return before

    def hold(self, job: int, where: Placement, now: int) -> None:
        """Allocate these workers to `job` from `now`, without counting work: at sites it is counted in whole chunks."""
        self.started.add(job)
        self.compute_from[job], self.workers[job] = NEVER, sum(n for _, n in where)
        self.since[job], self.placed[job] = now, where

    def _set_parts(self, job: int, parts: Ints) -> None:
        """Set the present workers of `job`, which is not a gang."""
        self.parts[job] = parts
        self.workers[job], self.compute_from[job], last, self.missed[job] = summary(parts)
        self.all_from[job] = last if self.missed[job] else 0
        (self.joins.add if self.missed[job] else self.joins.discard)(job)

    def begins(self, job: int) -> Iterator[tuple[int, int, int]]:
        """(server, workers, start of computing [µs]) of the present allocation of `job`."""
        if job in self.parts:
            yield from ((server, n, at) for server, n, at in self.parts[job].tolist())
            return
        at = int(self.compute_from[job])
        yield from ((server, n, at) for server, n in self.placed[job])

    def upload(self, job: int, where: Placement, now: int) -> Ints:
        """Upload the data of `job` to these servers from `now` on; returns what :meth:`place` does."""
        rows = rows_of(where)
        data, before, _ = supply(self.data.get(job, NOTHING), rows, now, self.delays, job)
        self.data[job] = data if self.kept else only_on(data, rows, True)
        return before

    def supplied(self, job: int) -> dict[int, int]:
        """Number of workers of `job` whose data each server has or is receiving."""
        counts = dict[int, int]()
        for server, n, _ in self.data.get(job, NOTHING).tolist():
            counts[server] = counts.get(server, 0) + n
        return counts

    def _convert(self, job: int, zeta: int) -> None:
        """Convert the remaining work of `job` to another zeta, rounded down so that a plan without slack holds."""
        old = self.zeta[job]
        self.left[job] = max(1, int(self.left[job]) * int(self.work[job, zeta]) // int(self.work[job, old]))
        self.zeta[job] = zeta

    def suspend(self, job: int, now: int) -> None:
        """Release all workers of `job` at `now`; its data stay."""
        self.left[job], self.workers[job] = self.left_of(job, now), 0
        del self.placed[job]
        if job in self.parts:
            self.stopped[job] = now
            self._joined(job)

    def finish(self, job: int) -> None:
        """Remove a finished job."""
        self.left[job] = self.workers[job] = 0
        for books in (self.placed, self.data, self.parts, self.stopped):
            books.pop(job, None)
        self._joined(job)

    def _joined(self, job: int) -> None:
        """Forget that the workers of `job` begin at different times."""
        if job in self.joins:
            self.joins.discard(job)
            self.all_from[job] = self.missed[job] = 0

    def left_of(self, job: int, now: int) -> int:
        """Remaining work of `job` at `now` [worker-µs], at its present zeta, at least 1."""
        if job in self.joins:
            so_far = int(done(self.parts[job], now))
        else:
            so_far = max(now - int(self.compute_from[job]), 0) * int(self.workers[job])
        return max(int(self.left[job]) - so_far, 1)

    def left_at(self, jobs: Ints, now: int) -> Ints:
        """Remaining work of `jobs` at `now` [worker-µs], at their present zeta, at least 1."""
        # as if all workers began with the first, plus what they missed: exact once all have begun
        left = _left_at(jobs, now, self.left, self.compute_from, self.workers, self.missed)
        if self.joins:
            begin = np.flatnonzero(self.all_from[jobs] > now)
            if len(begin):
                parts = [self.parts[job] for job in jobs[begin].tolist()]
                sizes = np.array([len(rows) for rows in parts], np.int64)
                left[begin] = _left_of_parts(self.left[jobs[begin]], np.concatenate(parts), sizes, now)
        return left

    def finish_time(self, job: int) -> int:
        """Completion of `job` if nothing changes [µs]; NEVER while it is suspended."""
        workers = int(self.workers[job])
        if workers == 0:
            return NEVER
        if job in self.joins:
            end = int(end_of(self.parts[job], int(self.left[job])))
        else:
            # x - (-a // b) is x plus a / b rounded up
            end = int(self.compute_from[job]) - (-int(self.left[job]) // workers)
        return -(-end // self.step) * self.step


@compiled
def _left_of_parts(left: Ints, parts: Ints, sizes: Ints, now: int) -> Ints:
    """Remaining work at `now` of jobs that had `left` when their `parts` began, `sizes` rows each; at least 1."""
    out, first = np.empty(len(left), np.int64), 0
    for i in range(len(left)):
        out[i] = max(left[i] - done(parts[first : first + sizes[i]], now), 1)
        first += sizes[i]
    return out


@compiled
def _left_at(jobs: Ints, now: int, left: Ints, compute_from: Ints, workers: Ints, missed: Ints) -> Ints:
    """Remaining work at `now` of `jobs` whose workers have all begun, or none [worker-µs], at least 1."""
    out = np.empty(len(jobs), np.int64)
    for i in range(len(jobs)):
        job = jobs[i]
        out[i] = max(left[job] + missed[job] - max(now - compute_from[job], 0) * workers[job], 1)
    return out
