"""Optimus on servers with resources as a plain program: a whole run, slot after slot."""

from __future__ import annotations

from dataclasses import dataclass

from reference.machines import Counts, JobDemand, fits, n_ps_for, place_worker, share, take

Place = tuple[Counts, Counts]
"""Workers and PSs by server."""

Allocation = dict[int, Place]
"""By job; jobs without workers are left out."""


@dataclass
class Job:
    """A job; `inside` and `outside`: worker-slots of all its work, on one server and elsewhere; `left`: part of it."""

    demand: JobDemand
    arrival: int
    iterations: float
    sample: float
    exchange: float
    inside: float
    outside: float
    left: float = 1.0

    def slots_per_iteration(self, w: int, p: int) -> float:
        """Slots of an iteration, of the batch divided among w workers: tau M / w + (2 g / b) / p."""
        return self.sample * self.demand.max_workers / w + self.exchange / p


def run(jobs: list[Job], capacity: list[list[float]], slots: int, *, skip: bool, free: bool) -> list[Allocation]:
    """The allocations of every slot.

    Parameters
    ----------
    jobs
        In the order of (arrival, id); each fits an empty cluster. Their work is used up.
    capacity
        By server and resource.
    slots
        Length of the run.
    skip
        True: a job whose next task does not fit is passed over; False: the filling ends there.
    free
        True: PSs are added one by one, too; False: only by the ratio.
    """
    record = []
    for t in range(slots):
        present = [i for i, job in enumerate(jobs) if job.arrival <= t and job.left > 0]
        counts = _counts([jobs[i] for i in present], capacity, skip=skip, free=free)
        placed = _places([jobs[i].demand for i in present], counts, capacity)
        record.append({i: place for i, place in zip(present, placed, strict=True) if any(place[0])})
        for i, (w, p) in record[-1].items():
            hosts = {h for h in range(len(w)) if w[h] or p[h]}
            job = jobs[i]
            job.left -= sum(w) / (job.inside if len(hosts) == 1 else job.outside)
            if job.left < 1e-7:
                job.left = 0.0
    return record


def _counts(jobs: list[Job], capacity: list[list[float]], *, skip: bool, free: bool) -> list[tuple[int, int]]:
    """Workers and PSs by job: one worker with its PSs each, then the task of the largest gain, while it is above 0."""
    total = [sum(column) for column in zip(*capacity, strict=True)]
    unused, counts = list(total), [(0, 0)] * len(jobs)
    for i, job in enumerate(jobs):
        first = n_ps_for(1, job.demand.ratio)
        if _try_take(unused, job.demand, 1, first):
            counts[i] = (1, first)
    stopped = {i for i, (w, _) in enumerate(counts) if w == 0}
    while True:
        tasks = [(*_gain(job, *counts[i], total, free=free), i) for i, job in enumerate(jobs) if i not in stopped]
        tasks = [task for task in tasks if task[0] > 0]
        if not tasks:
            return counts
        largest = max(task[0] for task in tasks)
        # the first job of those whose gains are the same but for rounding
        _, w, p, i = next(task for task in tasks if task[0] * (1 + 1e-9) >= largest)
        if _try_take(unused, jobs[i].demand, w, p):
            counts[i] = (counts[i][0] + w, counts[i][1] + p)
        elif skip:
            stopped.add(i)
        else:
            return counts


def _try_take(free: list[float], demand: JobDemand, w: int, p: int) -> bool:
    needed = _demand(demand, w, p)
    has_room = fits(free, needed)
    if has_room:
        take(free, needed)
    return has_room


def _demand(demand: JobDemand, w: int, p: int) -> tuple[float, ...]:
    return tuple(w * a + p * b for a, b in zip(demand.worker, demand.ps, strict=True))


def _gain(job: Job, w: int, p: int, total: list[float], *, free: bool) -> tuple[float, int, int]:
    """Gain of the next task, slots saved per share taken, and its worker and PSs; at a tie a PS alone."""
    slots_now, iterations_left = job.slots_per_iteration(w, p), job.left * job.iterations
    best = (0.0, 0, 0)
    if free:
        best = (
            iterations_left * _saved(slots_now, job.slots_per_iteration(w, p + 1)) / share(job.demand, 0, 1, total),
            0,
            1,
        )
    if w < job.demand.max_workers:
        n_new_ps = max(n_ps_for(w + 1, job.demand.ratio) - p, 0)
        value = (
            iterations_left
            * _saved(slots_now, job.slots_per_iteration(w + 1, p + n_new_ps))
            / share(job.demand, 1, n_new_ps, total)
        )
        if value > best[0] * (1 + 1e-9):
            best = (value, 1, n_new_ps)
    return best


def _saved(now: float, after: float) -> float:
    return 0.0 if abs(now - after) <= 1e-9 * now else now - after


def _places(jobs: list[JobDemand], counts: list[tuple[int, int]], capacity: list[list[float]]) -> list[Place]:
    """Small jobs first; each evenly on the fewest of the servers with most room, else alternately, else one worker."""
    free, machines = [row.copy() for row in capacity], len(capacity)
    total = [sum(column) for column in zip(*capacity, strict=True)]
    placed = [([0] * machines, [0] * machines) for _ in jobs]
    for i in sorted(range(len(jobs)), key=lambda i: sum(counts[i])):
        (w, p), demand = counts[i], jobs[i]
        if w == 0:
            continue
        parts = [n / t if t else 0.0 for n, t in zip(_demand(demand, w, p), total, strict=True)]
        r = parts.index(max(parts))
        order = sorted(range(machines), key=lambda h: -free[h][r])
        place = _evenly(demand, w, p, order, free) or _alternately(demand, w, p, order, free)
        if place is None:
            place = ([0] * machines, [0] * machines)
            place_worker(demand, n_ps_for(1, demand.ratio), free, *place, 0)
        else:
            for h in range(machines):
                take(free[h], _demand(demand, place[0][h], place[1][h]))
        placed[i] = place
    return placed


def _evenly(demand: JobDemand, w: int, p: int, order: list[int], free: list[list[float]]) -> Place | None:
    """On k servers, which differ by at most one worker and one PS; the least k for which they fit."""
    for k in range(1, min(len(order), max(w, p)) + 1):
        parts = [(w // k + (n < w % k), p // k + (n < p % k)) for n in range(k)]
        if all(fits(free[order[n]], _demand(demand, *parts[n])) for n in range(k)):
            place: Place = [0] * len(order), [0] * len(order)
            for n, (a, b) in enumerate(parts):
                place[0][order[n]], place[1][order[n]] = a, b
            return place
    return None


def _alternately(demand: JobDemand, w: int, p: int, order: list[int], free: list[list[float]]) -> Place | None:
    """A PS, a worker, a PS, ... each where it first fits; PSs beyond those that the placed workers need are removed."""
    place: Place = [0] * len(order), [0] * len(order)

    def put(kind: int) -> bool:
        for h in order:
            counts = (place[0][h] + (kind == 0), place[1][h] + (kind == 1))
            if fits(free[h], _demand(demand, *counts)):
                place[0][h], place[1][h] = counts
                return True
        return False

    for _ in range(max(w, p)):
        if sum(place[1]) < p:
            put(1)
        if sum(place[0]) < w and n_ps_for(sum(place[0]) + 1, demand.ratio) <= sum(place[1]):
            put(0)
    if sum(place[0]) < w:
        n_ps = n_ps_for(sum(place[0]), demand.ratio) if sum(place[0]) else 0
        for h in reversed(order):
            n_removed = min(place[1][h], sum(place[1]) - n_ps)
            place[1][h] -= n_removed
    return place if sum(place[0]) else None
