"""Revocable allocations: gangs, whose workers start and stop together, and jobs whose workers start one by one.

A gang's workers all begin when the slowest upload has ended. Each worker of a job that is not a gang
(``Allocate(gang=False)``) begins when its own data arrive, and the present workers continue while others join or leave.

One ledger serves the kernel's belief (announced work) and the simulated truth (true work). Work is counted in
worker-µs at the job's present zeta, and converted when zeta changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from skedge.core.jit import compiled
from skedge.core.model import Ints, Placement
from skedge.core.network import Delays, upload_row
from skedge.core.time import NEVER

Parts = tuple[tuple[int, int], ...]
"""(workers, time [µs]) pairs, in order of time."""

Data = dict[int, Parts]
"""By server: the number of workers whose data it has or is receiving, and when the data arrive."""

_NOWHERE: Data = {}


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
        Where the data of each job are.
    ahead
        Uploads of jobs that had no data before, as long as nothing else is known of the servers: workers by server, and
        when they began [µs]. A job may have them on all servers, and be placed on one.
    parts
        For jobs that are not gangs: workers of the present or last allocation, by server, and when they begin
        computing.
    joins
        For present allocations whose workers begin at different times: (start [µs], workers) pairs in order.
    stopped
        When the last allocation of a job that is not a gang ended [µs].
    started
        Jobs that have held workers before.
    delay_rows
        Upload delays to every server of the jobs that have held workers [µs].
    """

    work: Ints
    delays: Delays
    step: int
    overhead: int
    kept: bool = True
    left: Ints = field(init=False)
    workers: Ints = field(init=False)
    compute_from: Ints = field(init=False)
    since: list[int] = field(init=False)
    zeta: list[int] = field(init=False)
    started: set[int] = field(default_factory=set)
    delay_rows: dict[int, list[int]] = field(default_factory=dict)
    placed: dict[int, Placement] = field(default_factory=dict)
    data: dict[int, Data] = field(default_factory=dict)
    ahead: dict[int, tuple[dict[int, int], int]] = field(default_factory=dict)
    parts: dict[int, dict[int, Parts]] = field(default_factory=dict)
    joins: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    stopped: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        jobs = len(self.work)
        self.left = self.work[:, 0].copy()
        self.workers, self.compute_from = np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
        self.since, self.zeta = [0] * jobs, [0] * jobs

    def extend(self, work: Ints, delays: Delays) -> None:
        """Add the jobs that follow the present ones; `work` and `delays` cover all jobs."""
        new = work[len(self.work) :, 0]
        self.work, self.delays = np.concatenate([self.work, work[len(self.work) :]]), delays
        self.left = np.append(self.left, new)
        self.workers = np.append(self.workers, np.zeros_like(new))
        self.compute_from = np.append(self.compute_from, np.zeros_like(new))
        self.since += [0] * len(new)
        self.zeta += [0] * len(new)

    def stretch(self, job: int, factor: float, now: int) -> None:
        """Scale the work of `job` by `factor` from `now` on."""
        left = self.left_of(job, now)
        if self.workers[job] > 0:
            self.compute_from[job] = max(now, int(self.compute_from[job]))
            if job in self.parts:
                self._set_parts(job, {server: _from(now, parts) for server, parts in self.parts[job].items()})
        self.left[job] = max(1, int(left * factor))
        self.work = self.work.copy()
        self.work[job] = np.maximum(1, (self.work[job] * factor).astype(np.int64))

    def forget(self, server: int) -> None:
        """Drop all data on `server`, which are lost."""
        for job, there in list(self.data.items()):
            if server in there:
                del there[server]
                if not there:
                    del self.data[job]
        for job, (servers, _) in list(self.ahead.items()):
            servers.pop(server, None)
            if not servers:
                del self.ahead[job]

    def place(self, job: int, where: Placement, zeta: int, now: int, *, gang: bool = True) -> None:
        """Allocate these workers to `job` from `now`.

        A gang waits until all its servers have its data. A server without data for all of its workers begins an upload
        now; uploads under way continue while the job is suspended. A job that has run before pays the checkpoint
        overhead.
        """
        if not gang:
            self._place_each(job, where, zeta, now)
            return
        ready = self._bring(job, where, now)
        if job in self.started:
            ready += self.overhead
        else:
            self.started.add(job)
        if zeta != self.zeta[job]:
            self._convert(job, zeta)
        self.compute_from[job], self.workers[job] = ready, sum(n for _, n in where)
        self.since[job], self.placed[job] = now, where

    def hold(self, job: int, where: Placement, now: int) -> None:
        """Allocate these workers to `job` from `now`, without counting work: at sites it is counted in whole chunks."""
        self.started.add(job)
        self.compute_from[job], self.workers[job] = NEVER, sum(n for _, n in where)
        self.since[job], self.placed[job] = now, where

    def _place_each(self, job: int, where: Placement, zeta: int, now: int) -> None:
        """Allocate these workers to `job` from `now`; each begins computing when its own data arrive.

        On each server the job's present workers continue; if there are to be fewer, those that begin first. The others
        begin when their data arrive: first the workers whose data the server has or is receiving, in order of arrival,
        then the rest, after the upload delay. They pay the checkpoint overhead if the job has run before.
        """
        holds = self.parts[job] if self.stopped.get(job) == now else _NOWHERE
        restore = self.overhead if job in self.started else 0
        parts, data = dict[int, Parts](), dict[int, Parts]()
        for server, n in where:
            there = self._there(job, server)
            data[server] = brought = self._brought(job, server, there, n, now)
            stay = _from(now, _part(holds.get(server, ()), 0, n)) if there else ()
            stays = _count(stay)
            if stays < n:
                join = _part(brought, stays, n)
                stay = (*stay, *((k, max(now, ready) + restore) for k, ready in join))
            parts[server] = stay
        if zeta != self.zeta[job]:
            self._convert(job, zeta)
        self.started.add(job)
        self._set_parts(job, parts)
        self._store(job, data if self.kept else {s: _part(data[s], 0, n) for s, n in where})
        self.since[job], self.placed[job] = now, where

    def _set_parts(self, job: int, parts: dict[int, Parts]) -> None:
        """Set the present workers of `job`."""
        begins = dict[int, int]()
        for of_server in parts.values():
            for n, begin in of_server:
                begins[begin] = begins.get(begin, 0) + n
        self.parts[job], self.compute_from[job], self.workers[job] = parts, min(begins), sum(begins.values())
        self.joins.pop(job, None)
        if len(begins) > 1:
            self.joins[job] = sorted(begins.items())

    def begins(self, job: int) -> Iterator[tuple[int, int, int]]:
        """(server, workers, start of computing [µs]) of the present allocation of `job`."""
        if job not in self.parts:
            at = int(self.compute_from[job])
            yield from ((server, n, at) for server, n in self.placed[job])
            return
        for server, parts in self.parts[job].items():
            yield from ((server, n, begin) for n, begin in parts)

    def upload(self, job: int, where: Placement, now: int) -> None:
        """Upload the data of `job` to these servers from `now` on."""
        if self.has_data(job):
            self._bring(job, where, now)
        else:
            self.ahead[job] = dict(where), now

    def has_data(self, job: int) -> bool:
        """Whether a server has data of `job`, or is receiving them."""
        return job in self.data or job in self.ahead

    def _bring(self, job: int, where: Placement, now: int) -> int:
        """Upload what is not there yet from `now` on; returns when all data on these servers have arrived [µs]."""
        data, ready = dict[int, Parts](), now
        for server, n in where:
            data[server] = parts = self._brought(job, server, self._there(job, server), n, now)
            ready = max(ready, parts[-1][1])
        self._store(job, data if self.kept else {server: ((n, data[server][-1][1]),) for server, n in where})
        return ready

    def _there(self, job: int, server: int) -> Parts:
        """The data of `job` that `server` has or is receiving."""
        parts = self.data.get(job, _NOWHERE).get(server, ())
        if not parts and job in self.ahead:
            servers, since = self.ahead[job]
            if server in servers:
                return ((servers[server], since + self._delays_of(job)[server]),)
        return parts

    def _brought(self, job: int, server: int, there: Parts, n: int, now: int) -> Parts:
        """The data on `server` once it holds those of `n` workers; what is missing is uploaded from `now` on."""
        new = n - _count(there)
        return (*there, (new, now + self._delays_of(job)[server])) if new > 0 else there

    def _store(self, job: int, data: Data) -> None:
        """Note the data that servers have now, besides what others have if data are kept."""
        if self.kept and job in self.data:
            self.data[job].update(data)
        else:
            self.data[job] = data
            if not self.kept:
                self.ahead.pop(job, None)

    def supplied(self, job: int) -> dict[int, int]:
        """Number of workers of `job` whose data each server has or is receiving."""
        servers, _ = self.ahead.get(job, (dict[int, int](), 0))
        return {**servers, **{server: _count(there) for server, there in self.data.get(job, _NOWHERE).items()}}

    def supplied_on(self, job: int, where: Placement) -> dict[int, int]:
        """As :meth:`supplied`, on the servers of `where`."""
        return {server: _count(self._there(job, server)) for server, _ in where}

    def _delays_of(self, job: int) -> list[int]:
        row = self.delay_rows.get(job)
        if row is None:
            row = self.delay_rows[job] = upload_row(self.delays, job).tolist()
        return row

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
            self.joins.pop(job, None)

    def finish(self, job: int) -> None:
        """Remove a finished job."""
        self.left[job] = self.workers[job] = 0
        for books in (self.placed, self.data, self.ahead, self.delay_rows, self.parts, self.joins, self.stopped):
            books.pop(job, None)

    def left_of(self, job: int, now: int) -> int:
        """Remaining work of `job` at `now` [worker-µs], at its present zeta, at least 1."""
        if job in self.joins:
            done = sum(n * max(now - begin, 0) for begin, n in self.joins[job])
        else:
            done = max(now - int(self.compute_from[job]), 0) * int(self.workers[job])
        return max(int(self.left[job]) - done, 1)

    def left_at(self, jobs: Ints, now: int) -> Ints:
        """Remaining work of `jobs` at `now` [worker-µs], at their present zeta, at least 1."""
        left = _left_at(jobs, now, self.left, self.compute_from, self.workers)
        if self.joins:
            for i, job in enumerate(jobs.tolist()):
                if job in self.joins:
                    left[i] = self.left_of(job, now)
        return left

    def finish_time(self, job: int) -> int:
        """Completion of `job` if nothing changes [µs]; NEVER while it is suspended."""
        workers = int(self.workers[job])
        if workers == 0:
            return NEVER
        if job in self.joins:
            end = _finish(self.joins[job], int(self.left[job]))
        else:
            end = int(self.compute_from[job]) - (-int(self.left[job]) // workers)
        return -(-end // self.step) * self.step


@compiled
def _left_at(jobs: Ints, now: int, left: Ints, compute_from: Ints, workers: Ints) -> Ints:
    """Remaining work at `now` of `jobs` whose workers began together [worker-µs], at least 1."""
    out = np.empty(len(jobs), np.int64)
    for i in range(len(jobs)):
        job = jobs[i]
        out[i] = max(left[job] - max(now - compute_from[job], 0) * workers[job], 1)
    return out


def _count(parts: Parts) -> int:
    """Workers of `parts`."""
    return parts[0][0] if len(parts) == 1 else sum(n for n, _ in parts)


def _part(parts: Parts, first: int, last: int) -> Parts:
    """Workers `first` to `last` - 1 of `parts`."""
    if first == 0 and _count(parts) <= last:
        return parts
    chosen, at = [], 0
    for n, time in parts:
        size = min(at + n, last) - max(at, first)
        if size > 0:
            chosen.append((size, time))
        at += n
    return tuple(chosen)


def _from(now: int, parts: Parts) -> Parts:
    """`parts` with no start before `now`."""
    return tuple([(n, max(now, begin)) for n, begin in parts])


def _finish(begins: list[tuple[int, int]], left: int) -> int:
    """When workers that begin one by one, (start [µs], workers) in order, have done `left` worker-µs [µs]."""
    rate, at = 0, begins[0][0]
    for begin, n in begins:
        if left <= (begin - at) * rate:
            break
        left, rate, at = left - (begin - at) * rate, rate + n, begin
    return at - (-left // rate)
