"""A world for the gang policies as a plain program: dictionaries, every subset of servers tried.

It knows nothing of the product but a scenario's numbers: workers of one type by server, PSs to spare, no cloud, so that
zeta = 0, and announced work that is true. Times are µs, work is worker-µs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from skedge.core.model.scenario import Scenario
from skedge.core.model.time import ticks

Placement = dict[int, int]
"""Workers by server."""

Interval = tuple[int, int, int, int, tuple[tuple[int, int, int], ...]]
"""job, from, to, number of workers, (server, computing from, workers) of those that begin together."""


@dataclass
class Worker:
    """A worker of a job, and from when it computes."""

    server: int
    compute_from: int


@dataclass
class Job:
    """A job and its state.

    Attributes
    ----------
    k, chunks
        Workers of its gang, and D_j, the most that Preemptive gives it.
    left
        Work left at `interval_start` [worker-µs].
    delay
        Upload delay by server [µs].
    placement, workers
        Its last placement; its workers now.
    data_ready
        By server: when the data of its first, second, ... worker are there [µs].
    interval_start, has_run
        Start of the present interval of `workers` [µs]; whether it ever had workers.
    queue, executed, earlier, served, serves_from, waited, stopped, first_start
        Of Tiresias: queue 0 or 1; time with workers since the last promotion; service per worker before it, and
        after it up to `serves_from`; time without workers, up to `stopped`; first start [µs].
    """

    number: int
    arrival: int
    k: int
    chunks: int
    left: int
    delay: list[int]
    placement: Placement = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)
    data_ready: dict[int, list[int]] = field(default_factory=dict)
    interval_start: int = 0
    has_run: bool = False
    queue: int = 0
    executed: float = 0
    earlier: float = 0
    served: float = 0
    serves_from: float = math.inf
    waited: float = 0
    stopped: int = 0
    first_start: float = math.inf

    @property
    def running(self) -> bool:
        return bool(self.workers)

    def left_at(self, now: int) -> int:
        return max(self.left - sum(max(now - w.compute_from, 0) for w in self.workers), 1)

    def end(self) -> int:
        return time_to_end([w.compute_from for w in self.workers], self.left)


def time_to_end(starts: list[int], work: int) -> int:
    """The least time by which workers that start at these times have done `work`, by bisection."""
    low, high = min(starts), max(starts) + work
    while low < high:
        middle = (low + high) // 2
        if sum(max(middle - start, 0) for start in starts) >= work:
            high = middle
        else:
            low = middle + 1
    return low


class World:
    """Jobs on servers, from event to event."""

    def __init__(self, scenario: Scenario) -> None:
        cluster, jobs, physics = scenario.cluster, scenario.jobs, scenario.physics
        assert cluster.cloud is None
        assert physics.estimate_error == 0
        assert not physics.slotted
        self.capacity = [int(row.sum()) for row in cluster.workers]
        self.overhead, self.keeps_data = physics.checkpoint_overhead, physics.data == "kept"
        self.jobs = [
            Job(
                j, int(jobs.arrival[j]), int(jobs.workers[j]), int(jobs.chunks[j]), int(scenario.announced_work[j, 0]),
                [ticks(jobs.fixed_delays[jobs.ids[j]][name]) * physics.charge_upload for name in cluster.server_ids],
            )
            for j in range(len(jobs))
        ]  # fmt: skip
        self.now, self.wake = 0, math.inf
        self.active: list[Job] = []
        self.ended: list[Job] = []
        self.intervals: list[Interval] = []

    def run(self, decide: Callable[[World], dict[int, Placement]], *, gangs: bool = True) -> list[Interval]:
        """Go from event to event: completions, wake-ups, arrivals.

        `decide` returns the placements of the jobs that are to run; a job whose placement changes is stopped first, so
        that no worker is held twice.
        """
        upcoming = list(self.jobs)
        while upcoming or self.active:
            ends = [job.end() for job in self.active if job.running]
            self.now = int(min([*ends, self.wake, *(job.arrival for job in upcoming)]))
            self.ended = [job for job in self.active if job.running and job.end() == self.now]
            for job in self.ended:
                self.stop(job)
                self.active.remove(job)
            self.active += [job for job in upcoming if job.arrival == self.now]
            upcoming = [job for job in upcoming if job.arrival > self.now]
            self.wake = math.inf
            chosen = decide(self)
            changed = [
                job for job in self.active if chosen.get(job.number, {}) != (job.placement if job.running else {})
            ]
            previous = {job.number: self.stop(job) for job in changed}
            for job in changed:
                if job.number in chosen:
                    self.place(job, chosen[job.number], previous[job.number], gang=gangs)
        return sorted(self.intervals)

    def stop(self, job: Job) -> list[Worker]:
        """Take all workers from a job and return them; an interval of its record ends."""
        workers, now = job.workers, self.now
        if workers and now > job.interval_start:
            counts: dict[tuple[int, int], int] = {}
            for w in workers:
                key = w.server, min(w.compute_from, now)
                counts[key] = counts.get(key, 0) + 1
            rows = tuple(sorted((s, compute_from, n) for (s, compute_from), n in counts.items()))
            self.intervals.append((job.number, job.interval_start, now, len(workers), rows))
        job.left, job.workers = job.left_at(now), []
        return workers

    def place(self, job: Job, placement: Placement, previous: list[Worker], *, gang: bool) -> None:
        """Place a job; `previous` are the workers that it had until now.

        A gang begins together, when all its data are there. Otherwise (Preemptive) workers that stay on a server
        continue, and each new one begins when its data are there.
        """
        now, restore = self.now, self.overhead if job.has_run else 0
        workers: list[Worker] = []
        for server, n in placement.items():
            on_server = sorted((w for w in previous if w.server == server), key=lambda w: w.compute_from)
            staying = [] if gang else on_server[:n]
            workers += [Worker(server, max(now, w.compute_from)) for w in staying]
            data_ready = job.data_ready.setdefault(server, [])
            data_ready += [now + job.delay[server]] * (n - len(data_ready))
            workers += [Worker(server, max(now, r) + restore) for r in data_ready[len(staying) : n]]
        if gang:
            latest = max(now, *(job.data_ready[server][-1] for server in placement)) + restore
            workers = [Worker(w.server, latest) for w in workers]
        # physics.data = last_place: a server that the job has left loses its data
        if not self.keeps_data:
            job.data_ready = {
                server: [job.data_ready[server][-1]] * n if gang else job.data_ready[server][:n]
                for server, n in placement.items()
            }
        job.placement, job.workers, job.interval_start, job.has_run = placement, workers, now, True

    # -- gangs ---------------------------------------------------------------------------------------------------

    def select(self, order: list[Job], *, keep_running: bool) -> dict[int, Placement]:
        """Scan the jobs in this order: each gets its whole gang if enough workers are left, else the scan continues.

        A job gets its last placement if that is free. With `keep_running` a job that is placed anew, or returns, takes
        workers that no running job holds, if there are enough of them: running jobs are not moved for it.
        """
        free = list(self.capacity)
        unused = list(self.capacity)
        for job in order:
            if job.running:
                take(unused, job.placement)
        chosen: dict[int, Placement] = {}
        for job in order:
            if sum(free) < job.k:
                continue
            spare = [max(0, min(f, u)) for f, u in zip(free, unused, strict=True)]
            use_spare = keep_running and sum(spare) >= job.k
            stays = bool(job.placement) and _fits(free, job.placement)
            if stays and not job.running and use_spare:
                stays = _fits(spare, job.placement)
            placement = job.placement if stays else self.best_place(job, spare if use_spare else free)
            chosen[job.number] = placement
            take(free, placement)
            if not (stays and job.running):
                take(unused, placement)
        return chosen

    def best_place(self, job: Job, free: list[int]) -> Placement:
        """The smallest set of servers with enough workers; of these the least largest delay, then the least sum.

        Its servers are filled in order of delay.
        """
        delay = [0 if self.covers(job, s, min(job.k, n)) else job.delay[s] for s, n in enumerate(free)]
        usable = [s for s, n in enumerate(free) if n]
        sets = (c for size in range(1, len(usable) + 1) for c in combinations(usable, size))
        sufficient = (c for c in sets if sum(free[s] for s in c) >= job.k)
        best = min(sufficient, key=lambda c: (len(c), max(delay[s] for s in c), sum(delay[s] for s in c), c))
        placement, missing = {}, job.k
        for s in sorted(best, key=lambda s: (delay[s], s)):
            placement[s] = min(missing, free[s])
            missing -= placement[s]
        return dict(sorted(placement.items()))

    def covers(self, job: Job, server: int, workers: int) -> bool:
        """True if data are kept and the server has those of this number of workers: then it needs no upload."""
        return self.keeps_data and 0 < workers <= len(job.data_ready.get(server, []))


def take(free: list[int], placement: Placement) -> None:
    for server, n in placement.items():
        free[server] -= n


def _fits(free: list[int], placement: Placement) -> bool:
    return all(free[s] >= n for s, n in placement.items())


def rows_of(intervals: list[Interval]) -> Iterator[tuple[int, int, int, int, int, int]]:
    """(job, server, workers, from, computing from, to), as the record's runs."""
    for job, start, stop, _, groups in intervals:
        for server, compute_from, n in groups:
            yield job, server, n, start, compute_from, stop
