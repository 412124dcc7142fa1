"""Optimus on servers with resources, a whole run in plain Python: counts, places and work, slot after slot."""

from __future__ import annotations

from dataclasses import dataclass

from oracles.plain_machines import Asks, Counts, holds, one_more, pss, share, take

Place = tuple[Counts, Counts]
"""Workers and PSs by server."""

Held = dict[int, Place]
"""Of each job that has some."""


@dataclass
class Job:
    """A job: `inside` and `outside` are worker-slots of all its work, on one server and elsewhere."""

    asks: Asks
    arrival: int
    iterations: float
    sample: float
    exchange: float
    inside: float
    outside: float
    left: float = 1.0

    def slots_each(self, w: int, p: int) -> float:
        """Slots of an iteration, of the batch divided among w workers: tau M / w + (2 g / b) / p."""
        return self.sample * self.asks.most / w + self.exchange / p


def run(jobs: list[Job], capacity: list[list[float]], slots: int, *, skip: bool, free: bool) -> list[Held]:
    """What each job has in every slot; jobs in the order of (arrival, id), those that fit nowhere left out by hand."""
    record = []
    for t in range(slots):
        there = [i for i, job in enumerate(jobs) if job.arrival <= t and job.left > 0]
        counts = _counts([jobs[i] for i in there], capacity, skip=skip, free=free)
        placed = _places([jobs[i].asks for i in there], counts, capacity)
        record.append({i: at for i, at in zip(there, placed, strict=True) if any(at[0])})
        for i, (w, p) in record[-1].items():
            hosts = {h for h in range(len(w)) if w[h] or p[h]}
            job = jobs[i]
            job.left -= sum(w) / (job.inside if len(hosts) == 1 else job.outside)
            if job.left < 1e-7:
                job.left = 0.0
    return record


def _counts(jobs: list[Job], capacity: list[list[float]], *, skip: bool, free: bool) -> list[tuple[int, int]]:
    """One worker with its PSs each, in order; then the task of the largest gain, as long as there is one above 0."""
    total = [sum(column) for column in zip(*capacity, strict=True)]
    left, counts = list(total), [(0, 0)] * len(jobs)
    for i, job in enumerate(jobs):
        first = pss(1, job.asks.ratio)
        if _takes(left, job.asks, 1, first):
            counts[i] = (1, first)
    out = {i for i, (w, _) in enumerate(counts) if w == 0}
    while True:
        tasks = [(*_gain(job, *counts[i], total, free=free), i) for i, job in enumerate(jobs) if i not in out]
        tasks = [task for task in tasks if task[0] > 0]
        if not tasks:
            return counts
        largest = max(task[0] for task in tasks)
        # the first job of those whose gains are the same but for rounding
        _, w, p, i = next(task for task in tasks if task[0] * (1 + 1e-9) >= largest)
        if _takes(left, jobs[i].asks, w, p):
            counts[i] = (counts[i][0] + w, counts[i][1] + p)
        elif skip:
            out.add(i)
        else:
            return counts


def _takes(left: list[float], asks: Asks, w: int, p: int) -> bool:
    need = _need(asks, w, p)
    fits = holds(left, need)
    if fits:
        take(left, need)
    return fits


def _need(asks: Asks, w: int, p: int) -> tuple[float, ...]:
    return tuple(w * a + p * b for a, b in zip(asks.worker, asks.ps, strict=True))


def _gain(job: Job, w: int, p: int, total: list[float], *, free: bool) -> tuple[float, int, int]:
    """What the next task saves over the share that it takes: a worker with its PSs, or a PS (preferred at a tie)."""
    now, left = job.slots_each(w, p), job.left * job.iterations
    best = (0.0, 0, 0)
    if free:
        best = (left * _saved(now, job.slots_each(w, p + 1)) / share(job.asks, 0, 1, total), 0, 1)
    if w < job.asks.most:
        more = max(pss(w + 1, job.asks.ratio) - p, 0)
        value = left * _saved(now, job.slots_each(w + 1, p + more)) / share(job.asks, 1, more, total)
        if value > best[0] * (1 + 1e-9):
            best = (value, 1, more)
    return best


def _saved(now: float, then: float) -> float:
    return 0.0 if abs(now - then) <= 1e-9 * now else now - then


def _places(jobs: list[Asks], counts: list[tuple[int, int]], capacity: list[list[float]]) -> list[Place]:
    """Small jobs first; each evenly on the fewest servers with most room, or alternately, or one worker anywhere."""
    left, machines = [row.copy() for row in capacity], len(capacity)
    total = [sum(column) for column in zip(*capacity, strict=True)]
    placed = [([0] * machines, [0] * machines) for _ in jobs]
    for i in sorted(range(len(jobs)), key=lambda i: sum(counts[i])):
        (w, p), asks = counts[i], jobs[i]
        if w == 0:
            continue
        parts = [n / t if t else 0.0 for n, t in zip(_need(asks, w, p), total, strict=True)]
        r = parts.index(max(parts))
        order = sorted(range(machines), key=lambda h: -left[h][r])
        at = _evenly(asks, w, p, order, left) or _alternately(asks, w, p, order, left)
        if at is None:
            at = ([0] * machines, [0] * machines)
            one_more(asks, pss(1, asks.ratio), left, *at, 0)
        else:
            for h in range(machines):
                take(left[h], _need(asks, at[0][h], at[1][h]))
        placed[i] = at
    return placed


def _evenly(asks: Asks, w: int, p: int, order: list[int], left: list[list[float]]) -> Place | None:
    for k in range(1, min(len(order), max(w, p)) + 1):
        parts = [(w // k + (n < w % k), p // k + (n < p % k)) for n in range(k)]
        if all(holds(left[order[n]], _need(asks, *parts[n])) for n in range(k)):
            at: Place = [0] * len(order), [0] * len(order)
            for n, (a, b) in enumerate(parts):
                at[0][order[n]], at[1][order[n]] = a, b
            return at
    return None


def _alternately(asks: Asks, w: int, p: int, order: list[int], left: list[list[float]]) -> Place | None:
    """A PS, a worker, a PS, ... where they first fit; PSs beyond those of the workers that found room go again."""
    at: Place = [0] * len(order), [0] * len(order)

    def put(kind: int) -> bool:
        for h in order:
            more = (at[0][h] + (kind == 0), at[1][h] + (kind == 1))
            if holds(left[h], _need(asks, *more)):
                at[0][h], at[1][h] = more
                return True
        return False

    for _ in range(max(w, p)):
        if sum(at[1]) < p:
            put(1)
        if sum(at[0]) < w and pss(sum(at[0]) + 1, asks.ratio) <= sum(at[1]):
            put(0)
    if sum(at[0]) < w:
        keep = pss(sum(at[0]), asks.ratio) if sum(at[0]) else 0
        for h in reversed(order):
            gone = min(at[1][h], sum(at[1]) - keep)
            at[1][h] -= gone
    return at if sum(at[0]) else None
