"""FIFO, SRTF, Tiresias-L and Preemptive as plain programs, on the servers of ``gang_world.py``.

At every event each scans the jobs in its order; the rules are those of :mod:`skedge.policies.fifo` (strict) and
:mod:`skedge.policies.gangs`. Times are µs, work is worker-µs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from reference.gang_world import Interval, Job, Placement, World, take, time_to_end
from skedge.core.model.scenario import Scenario

# -- FIFO --------------------------------------------------------------------------------------------------------------


def fifo(scenario: Scenario, *, backfill: bool = False) -> list[Interval]:
    """First in, first out: a gang starts when its whole demand is free, and blocks those behind it."""

    def decide(world: World) -> dict[int, Placement]:
        chosen = {job.number: job.placement for job in world.active if job.running}
        free = list(world.capacity)
        for placement in chosen.values():
            take(free, placement)
        for job in (job for job in world.active if not job.running):
            if sum(free) >= job.k:
                chosen[job.number] = world.best_place(job, free)
                take(free, chosen[job.number])
            elif not backfill:
                break
        return chosen

    return World(scenario).run(decide)


# -- SRTF --------------------------------------------------------------------------------------------------------------


def srtf(scenario: Scenario, *, keep_running: bool = True) -> list[Interval]:
    """Shortest remaining time first: remaining work / k, then arrival and id."""

    def decide(world: World) -> dict[int, Placement]:
        order = sorted(world.active, key=lambda job: (-(-job.left_at(world.now) // job.k), job.number))
        return world.select(order, keep_running=keep_running)

    return World(scenario).run(decide)


# -- Tiresias-L --------------------------------------------------------------------------------------------------------


class Tiresias:
    """Least attained service in two queues; the rules, and the deviations D1 to D5, are in ``policies/gangs``.

    Attributes
    ----------
    limit
        Attained service (workers * time) from which on a job is demoted [worker-µs].
    knob
        A job of the second queue is promoted once it has waited `knob` times as long as it has executed.
    """

    def __init__(self, limit: float | None, knob: float, *, keep_running: bool) -> None:
        self.limit, self.knob, self.keep_running, self.last_time = limit or math.inf, knob, keep_running, 0
        self.learns_limit, self.services = limit is None, list[float]()

    def decide(self, world: World) -> dict[int, Placement]:
        # 1. clocks: time with workers counts as executed, uploads included (D3)
        now, elapsed = world.now, world.now - self.last_time
        self.last_time = now
        for job in world.active:
            if job.running:
                job.executed += elapsed
        # 2. the limit follows the jobs that have finished (D5)
        if self.learns_limit:
            self.services += [job.k * (job.earlier + self.served(job, now)) for job in world.ended]
            self.limit = default_limit(self.services)
        # 3. demotions, on time (D1), then the promotions that are due
        for job in world.active:
            if job.running and job.k * self.served(job, now) >= self.limit:
                job.queue = 1
        self.promote([job for job in world.active if not job.running], now)
        # 4. the scan; a job that it would preempt may be due for promotion, and then it is made again (D2)
        while True:
            order = sorted(world.active, key=lambda job: (job.queue, job.first_start, job.number))
            chosen = world.select(order, keep_running=self.keep_running)
            if not self.promote([job for job in world.active if job.number not in chosen], now):
                break
        self.set_clocks(world, chosen)
        return chosen

    def served(self, job: Job, now: int) -> float:
        """Attained service per worker since the last promotion."""
        return job.served + max(0, now - job.serves_from)

    def waited(self, job: Job, now: int) -> float:
        """Time without workers, of a job that has run."""
        return job.waited + (now - job.stopped if job.has_run and not job.running else 0)

    def promote(self, jobs: list[Job], now: int) -> bool:
        """Promote those that are due, and start their clocks anew; returns whether there was one."""
        promoted = [
            job for job in jobs if job.has_run and job.queue and self.waited(job, now) >= self.knob * job.executed
        ]
        for job in promoted:
            job.earlier += self.served(job, now)
            job.queue, job.executed, job.waited, job.served, job.stopped = 0, 0, 0, 0, now
            job.serves_from = max(now, job.serves_from)
        return bool(promoted)

    def set_clocks(self, world: World, chosen: dict[int, Placement]) -> None:
        """Clocks of the jobs that start and stop; a wake-up when the next demotion or promotion is due."""
        now, due_times = world.now, []
        for job in world.active:
            if job.number in chosen and not job.running:
                # the overhead of a resumed job is no attained service (D4)
                if job.has_run:
                    job.waited, job.serves_from = self.waited(job, now), now + world.overhead
                else:
                    job.first_start = job.serves_from = now
            if job.running and job.number not in chosen:
                job.served, job.serves_from, job.stopped = self.served(job, now), math.inf, now
            if job.number in chosen and job.queue == 0 and self.limit < math.inf:
                due_times.append(self.limit / job.k - (job.served + now - job.serves_from))
            elif job.number not in chosen and job.queue and job.has_run and not math.isinf(self.knob):
                waited = job.waited if job.running else self.waited(job, now)
                due_times.append(self.knob * job.executed - waited)
        if due_times:
            world.wake = max(now + math.ceil(min(due_times)), now + 1)


def default_limit(services: Sequence[float]) -> float:
    """The least step above the services of nine tenths of all jobs: 1, 2, ..., 16, then eight steps an octave."""
    if not services:
        return math.inf
    service = sorted(services)[math.ceil(0.9 * len(services) - 1e-9) - 1]
    return next(m << octave for octave in range(64) for m in range(1, 17) if m << octave > service)


def tiresias(scenario: Scenario, limit: float | None, knob: float, *, keep_running: bool = True) -> list[Interval]:
    """Tiresias-L with a limit in worker-µs; None: one that follows the jobs that have finished."""
    return World(scenario).run(Tiresias(limit, knob, keep_running=keep_running).decide)


# -- Preemptive --------------------------------------------------------------------------------------------------------


def preemptive(scenario: Scenario) -> list[Interval]:
    """Shortest completion first, worker by worker: estimated with min(D_j, all) workers, then arrival and id."""

    def decide(world: World) -> dict[int, Placement]:
        slots = sum(world.capacity)
        order = sorted(world.active, key=lambda job: (-(-job.left_at(world.now) // min(job.chunks, slots)), job.number))
        free, chosen = list(world.capacity), dict[int, Placement]()
        for job in order:
            if sum(free):
                chosen[job.number] = _choose(world, job, free)
                take(free, chosen[job.number])
        return chosen

    return World(scenario).run(decide, gangs=False)


def _choose(world: World, job: Job, free: list[int]) -> Placement:
    """The workers of a job: on the one server on which it ends first or, if it ends earlier so, on several."""
    work, restore = job.left_at(world.now), world.overhead if job.has_run else 0
    # workers that the job had before continue; of a job that was stopped they are restored
    restore_if_stopped = 0 if job.running else restore
    delay = [restore + (0 if world.covers(job, s, min(job.chunks, n)) else job.delay[s]) for s, n in enumerate(free)]

    def end(placement: Placement) -> float:
        starts = []
        for s, n in placement.items():
            n_kept = min(n, job.placement.get(s, 0))
            starts += [restore_if_stopped] * n_kept + [delay[s]] * (n - n_kept)
        return time_to_end(starts, work) if starts else math.inf

    single = min(({s: min(job.chunks, n)} for s, n in enumerate(free) if n), key=end)
    # first those that it has, then by delay, as long as a new worker begins before the job would end without it
    spread = {s: min(n, job.placement.get(s, 0)) for s, n in enumerate(free) if n}
    for s in sorted(spread, key=lambda s: (delay[s], s)):
        n_more = min(free[s] - spread[s], job.chunks - sum(spread.values()))
        if end({s: n for s, n in spread.items() if n}) > delay[s]:
            spread[s] += n_more
    spread = {s: n for s, n in spread.items() if n}
    return spread if end(spread) < end(single) else single
