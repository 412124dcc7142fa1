"""Progressive filling and turns over machines, in plain lists: what Dorm and Optimus fall back on."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

Needs = tuple[float, ...]
Counts = list[int]
"""By machine."""


@dataclass(frozen=True)
class Asks:
    """What a job announces: demands, workers per PS, most workers."""

    worker: Needs
    ps: Needs
    ratio: float
    most: int


def pss(workers: int, ratio: float) -> int:
    """PSs for so many workers, at least one."""
    return max(1, ceil(workers / ratio - 1e-9 * max(1.0, workers / ratio)))


def holds(left: list[float], need: Needs) -> bool:
    return all(n <= have + 1e-9 * n for n, have in zip(need, left, strict=True))


def take(left: list[float], need: Needs, sign: int = 1) -> None:
    for r, n in enumerate(need):
        left[r] -= sign * n


def one_more(job: Asks, more: int, left: list[list[float]], w: Counts, p: Counts, turn: int) -> tuple[int, bool]:
    """A worker on the next machine with room, its PSs on the next ones after it; all of it or nothing."""
    machines = len(left)
    for step in range(machines):
        home = (turn + step) % machines
        if not holds(left[home], job.worker):
            continue
        after = [row.copy() for row in left]
        take(after[home], job.worker)
        then, hosts = (home + 1) % machines, []
        for _ in range(more):
            turns = [(then + k) % machines for k in range(machines)]
            host = next((h for h in turns if holds(after[h], job.ps)), -1)
            if host < 0:
                break
            take(after[host], job.ps)
            hosts.append(host)
            then = (host + 1) % machines
        if len(hosts) == more:
            left[:] = after
            w[home] += 1
            for host in hosts:
                p[host] += 1
            return then, True
    return turn, False


def filling(jobs: list[Asks], left: list[list[float]], total: list[float]) -> tuple[list[Counts], list[Counts]]:
    """DRF: again and again a worker (and with every gamma-th a PS) for the job of the least dominant share."""
    machines = len(left)
    w, p = ([[0] * machines for _ in jobs] for _ in range(2))
    waiting, turn = [i for i, job in enumerate(jobs) if job.most > 0], 0
    while waiting:
        i = min(waiting, key=lambda j: (round(share(jobs[j], sum(w[j]), sum(p[j]), total) * 2**40), j))
        more = pss(sum(w[i]) + 1, jobs[i].ratio) - sum(p[i])
        turn, given = one_more(jobs[i], more, left, w[i], p[i], turn)
        if not given or sum(w[i]) == jobs[i].most:
            waiting.remove(i)
    return w, p


def share(job: Asks, workers: int, servers: int, total: list[float]) -> float:
    """The largest part of any resource that they take."""
    parts = zip(job.worker, job.ps, total, strict=True)
    return max((workers * a + servers * b) / t for a, b, t in parts if t > 0)
