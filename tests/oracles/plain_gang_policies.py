"""SRTF, Tiresias-L and Preemptive with their world as plain programs: dictionaries, every subset of servers tried.

They know nothing of the product but a scenario's numbers: workers of one type by server, PSs to spare, no cloud, so
that zeta = 0, and announced work that is true. Times are µs, work is worker-µs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from skedge.core.model.scenario import Scenario
from skedge.core.model.time import ticks

Where = dict[int, int]
"""Workers by server."""

Interval = tuple[int, int, int, int, tuple[tuple[int, int, int], ...]]
"""job, from, to, number of workers, (server, computing from, workers) of those that begin together."""


@dataclass
class Worker:
    """A worker of a job, and from when it computes."""

    server: int
    begin: int


@dataclass
class Job:
    """A job and all that is remembered of it.

    `ready` by server: when the data of its first, second, ... worker there are, or will be, there.
    """

    number: int
    arrival: int
    k: int
    chunks: int
    left: int
    delay: list[int]
    where: Where = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)
    ready: dict[int, list[int]] = field(default_factory=dict)
    since: int = 0
    ran: bool = False
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
        return max(self.left - sum(max(now - w.begin, 0) for w in self.workers), 1)

    def end(self) -> int:
        return time_to_end([w.begin for w in self.workers], self.left)


def time_to_end(begins: list[int], left: int) -> int:
    """The least time by which workers that begin at these times have done `left`, by bisection."""
    low, high = min(begins), max(begins) + left
    while low < high:
        middle = (low + high) // 2
        if sum(max(middle - begin, 0) for begin in begins) >= left:
            high = middle
        else:
            low = middle + 1
    return low


class World:
    """Jobs on servers; a policy says at every event which job is to have which workers."""

    def __init__(self, scenario: Scenario) -> None:
        cluster, jobs, physics = scenario.cluster, scenario.jobs, scenario.physics
        assert cluster.cloud is None
        assert physics.estimate_error == 0
        assert not physics.slotted
        self.capacity = [int(row.sum()) for row in cluster.workers]
        self.overhead, self.kept = physics.checkpoint_overhead, physics.data == "kept"
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

    def run(self, decide: Callable[[World], dict[int, Where]], *, gangs: bool = True) -> list[Interval]:
        """Go from event to event; `decide` gives the workers of all jobs that are to run."""
        coming = list(self.jobs)
        while coming or self.active:
            ends = [job.end() for job in self.active if job.running]
            self.now = int(min([*ends, self.wake, *(job.arrival for job in coming)]))
            self.ended = [job for job in self.active if job.running and job.end() == self.now]
            for job in self.ended:
                self.stop(job)
                self.active.remove(job)
            self.active += [job for job in coming if job.arrival == self.now]
            coming = [job for job in coming if job.arrival > self.now]
            self.wake = math.inf
            chosen = decide(self)
            changed = [job for job in self.active if chosen.get(job.number, {}) != (job.where if job.running else {})]
            held = {job.number: self.stop(job) for job in changed}
            for job in changed:
                if job.number in chosen:
                    self.place(job, chosen[job.number], held[job.number], gang=gangs)
        return sorted(self.intervals)

    def stop(self, job: Job) -> list[Worker]:
        """Take all workers of a job; returns them."""
        held, now = job.workers, self.now
        if held and now > job.since:
            parts: dict[tuple[int, int], int] = {}
            for w in held:
                key = w.server, min(w.begin, now)
                parts[key] = parts.get(key, 0) + 1
            rows = tuple(sorted((s, begin, n) for (s, begin), n in parts.items()))
            self.intervals.append((job.number, job.since, now, len(held), rows))
        job.left, job.workers = job.left_at(now), []
        return held

    def place(self, job: Job, where: Where, held: list[Worker], *, gang: bool) -> None:
        """Give a job workers; `held` are those that it had until now."""
        now, restore = self.now, self.overhead if job.ran else 0
        workers: list[Worker] = []
        for server, n in where.items():
            stay = [] if gang else sorted((w for w in held if w.server == server), key=lambda w: w.begin)[:n]
            workers += [Worker(server, max(now, w.begin)) for w in stay]
            ready = job.ready.setdefault(server, [])
            ready += [now + job.delay[server]] * (n - len(ready))
            workers += [Worker(server, max(now, r) + restore) for r in ready[len(stay) : n]]
        if gang:
            latest = max(now, *(job.ready[server][-1] for server in where)) + restore
            workers = [Worker(w.server, latest) for w in workers]
        if not self.kept:
            job.ready = {
                server: [job.ready[server][-1]] * n if gang else job.ready[server][:n] for server, n in where.items()
            }
        job.where, job.workers, job.since, job.ran = where, workers, now, True

    # -- gangs ---------------------------------------------------------------------------------------------------

    def select(self, order: list[Job], *, keep_running: bool) -> dict[int, Where]:
        """Give each job of `order` all its workers if so many are left.

        Its last place if that is free. With `keep_running` a job that returns, and any job that is placed anew, takes
        workers that no running job holds, if there are enough of them.
        """
        free = list(self.capacity)
        unheld = list(self.capacity)
        for job in order:
            for server, n in job.where.items() if job.running else ():
                unheld[server] -= n
        chosen: dict[int, Where] = {}
        for job in order:
            if sum(free) < job.k:
                continue
            spare = [max(0, min(f, u)) for f, u in zip(free, unheld, strict=True)]
            use_spare = keep_running and sum(spare) >= job.k
            at_home = bool(job.where) and _holds(free, job.where)
            if at_home and not job.running and use_spare:
                at_home = _holds(spare, job.where)
            where = job.where if at_home else self.best_place(job, spare if use_spare else free)
            chosen[job.number] = where
            for server, n in where.items():
                free[server] -= n
                if not (at_home and job.running):
                    unheld[server] -= n
        return chosen

    def best_place(self, job: Job, room: list[int]) -> Where:
        """The smallest set of servers, then least largest delay, least sum, first; filled in order of delay."""
        delay = [0 if self.covers(job, s, min(job.k, n)) else job.delay[s] for s, n in enumerate(room)]
        usable = [s for s, n in enumerate(room) if n]
        sets = (c for size in range(1, len(usable) + 1) for c in combinations(usable, size))
        able = (c for c in sets if sum(room[s] for s in c) >= job.k)
        best = min(able, key=lambda c: (len(c), max(delay[s] for s in c), sum(delay[s] for s in c), c))
        where, left = {}, job.k
        for s in sorted(best, key=lambda s: (delay[s], s)):
            where[s] = min(left, room[s])
            left -= where[s]
        return dict(sorted(where.items()))

    def covers(self, job: Job, server: int, workers: int) -> bool:
        """Whether the server needs no upload for so many workers, and that counts."""
        return self.kept and 0 < workers <= len(job.ready.get(server, []))


def _holds(room: list[int], where: Where) -> bool:
    return all(room[s] >= n for s, n in where.items())


def srtf(scenario: Scenario, *, keep_running: bool = True) -> list[Interval]:
    """Shortest remaining time first."""

    def decide(world: World) -> dict[int, Where]:
        order = sorted(world.active, key=lambda job: (-(-job.left_at(world.now) // job.k), job.number))
        return world.select(order, keep_running=keep_running)

    return World(scenario).run(decide)


class Tiresias:
    """Two queues: BASELINES section 2, steps 2 to 6."""

    def __init__(self, limit: float | None, knob: float, *, keep_running: bool) -> None:
        self.limit, self.knob, self.keep_running, self.at = limit or math.inf, knob, keep_running, 0
        self.learns, self.services = limit is None, list[float]()

    def decide(self, world: World) -> dict[int, Where]:
        now, passed = world.now, world.now - self.at
        self.at = now
        for job in world.active:
            if job.running:
                job.executed += passed
        if self.learns:
            self.services += [job.k * (job.earlier + self.served(job, now)) for job in world.ended]
            self.limit = beyond_nine_tenths(self.services)
        for job in world.active:
            if job.running and job.k * self.served(job, now) >= self.limit:
                job.queue = 1
        self.promote([job for job in world.active if not job.running], now)
        while True:
            order = sorted(world.active, key=lambda job: (job.queue, job.first_start, job.number))
            chosen = world.select(order, keep_running=self.keep_running)
            if not self.promote([job for job in world.active if job.number not in chosen], now):
                break
        self.note(world, chosen)
        return chosen

    def served(self, job: Job, now: int) -> float:
        return job.served + max(0, now - job.serves_from)

    def waited(self, job: Job, now: int) -> float:
        return job.waited + (now - job.stopped if job.ran and not job.running else 0)

    def promote(self, jobs: list[Job], now: int) -> bool:
        due = [job for job in jobs if job.ran and job.queue and self.waited(job, now) >= self.knob * job.executed]
        for job in due:
            job.earlier += self.served(job, now)
            job.queue, job.executed, job.waited, job.served, job.stopped = 0, 0, 0, 0, now
            job.serves_from = max(now, job.serves_from)
        return bool(due)

    def note(self, world: World, chosen: dict[int, Where]) -> None:
        """Clocks of what begins and stops, and when the next demotion or promotion is due."""
        now, dues = world.now, []
        for job in world.active:
            if job.number in chosen and not job.running:
                if job.ran:
                    job.waited, job.serves_from = self.waited(job, now), now + world.overhead
                else:
                    job.first_start = job.serves_from = now
            if job.running and job.number not in chosen:
                job.served, job.serves_from, job.stopped = self.served(job, now), math.inf, now
            if job.number in chosen and job.queue == 0 and self.limit < math.inf:
                dues.append(self.limit / job.k - (job.served + now - job.serves_from))
            elif job.number not in chosen and job.queue and job.ran and not math.isinf(self.knob):
                waited = job.waited if job.running else self.waited(job, now)
                dues.append(self.knob * job.executed - waited)
        if dues:
            world.wake = max(now + math.ceil(min(dues)), now + 1)


def beyond_nine_tenths(services: Sequence[float]) -> float:
    """The least of 1, 2, ..., 16 and then eight steps an octave that is above the services of nine tenths of all."""
    if not services:
        return math.inf
    service = sorted(services)[math.ceil(0.9 * len(services) - 1e-9) - 1]
    return next(m << octave for octave in range(64) for m in range(1, 17) if m << octave > service)


def tiresias(scenario: Scenario, limit: float | None, knob: float, *, keep_running: bool = True) -> list[Interval]:
    """Tiresias-L with a limit in worker-µs; None: one that follows the jobs that have finished."""
    return World(scenario).run(Tiresias(limit, knob, keep_running=keep_running).decide)


# -- Preemptive --------------------------------------------------------------------------------------------------------


def preemptive(scenario: Scenario) -> list[Interval]:
    """Shortest completion first, worker by worker."""

    def decide(world: World) -> dict[int, Where]:
        slots = sum(world.capacity)
        order = sorted(world.active, key=lambda job: (-(-job.left_at(world.now) // min(job.chunks, slots)), job.number))
        free, chosen = list(world.capacity), dict[int, Where]()
        for job in order:
            if sum(free):
                chosen[job.number] = _taken(world, job, free)
                for server, n in chosen[job.number].items():
                    free[server] -= n
        return chosen

    return World(scenario).run(decide, gangs=False)


def _taken(world: World, job: Job, free: list[int]) -> Where:
    """What a job takes: of the one server on which it ends first or, if it ends earlier so, of all."""
    left, later = job.left_at(world.now), world.overhead if job.ran else 0
    at_once = 0 if job.running else later
    delay = [later + (0 if world.covers(job, s, min(job.chunks, n)) else job.delay[s]) for s, n in enumerate(free)]

    def end(where: Where) -> float:
        begins = []
        for s, n in where.items():
            kept = min(n, job.where.get(s, 0))
            begins += [at_once] * kept + [delay[s]] * (n - kept)
        return time_to_end(begins, left) if begins else math.inf

    single = min(({s: min(job.chunks, n)} for s, n in enumerate(free) if n), key=end)
    spread = {s: min(n, job.where.get(s, 0)) for s, n in enumerate(free) if n}
    for s in sorted(spread, key=lambda s: (delay[s], s)):
        more = min(free[s] - spread[s], job.chunks - sum(spread.values()))
        if end({s: n for s, n in spread.items() if n}) > delay[s]:
            spread[s] += more
    spread = {s: n for s, n in spread.items() if n}
    return spread if end(spread) < end(single) else single


def rows_of(intervals: list[Interval]) -> Iterator[tuple[int, int, int, int, int, int]]:
    """(job, server, workers, from, computing from, to), as the record's runs."""
    for job, start, stop, _, parts in intervals:
        for server, begin, n in parts:
            yield job, server, n, start, begin, stop
