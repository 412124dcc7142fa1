"""Jobs on machines with several resources, in plain lists: DRF, Dorm and Optimus place workers and PSs with these."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

Amounts = tuple[float, ...]
Counts = list[int]
"""By machine."""


@dataclass(frozen=True)
class JobDemand:
    """The announcement of a job: demands alpha and beta of a worker and a PS, gamma workers per PS, most workers."""

    worker: Amounts
    ps: Amounts
    ratio: float
    max_workers: int


def n_ps_for(workers: int, ratio: float) -> int:
    """PSs for this number of workers: max(1, ceil(workers / gamma))."""
    return max(1, ceil(workers / ratio - 1e-9 * max(1.0, workers / ratio)))


def fits(free: list[float], demand: Amounts) -> bool:
    return all(n <= available + 1e-9 * n for n, available in zip(demand, free, strict=True))


def take(free: list[float], demand: Amounts, sign: int = 1) -> None:
    for r, n in enumerate(demand):
        free[r] -= sign * n


def place_worker(
    job: JobDemand, n_ps: int, free: list[list[float]], w: Counts, p: Counts, turn: int
) -> tuple[int, bool]:
    """A worker on the next machine with room, its PSs on the next ones after it; all of them or none.

    Parameters
    ----------
    job
        The job.
    n_ps
        PSs that the worker needs on top of those placed before.
    free
        Free resources by machine; used up in place.
    w, p
        Workers and PSs of the job by machine; counted up in place.
    turn
        The machine whose turn it is.

    Returns
    -------
    The machine whose turn is next, and whether there was room.
    """
    machines = len(free)
    for step in range(machines):
        home = (turn + step) % machines
        if not fits(free[home], job.worker):
            continue
        free_after = [row.copy() for row in free]
        take(free_after[home], job.worker)
        next_turn, hosts = (home + 1) % machines, []
        for _ in range(n_ps):
            turns = [(next_turn + k) % machines for k in range(machines)]
            host = next((h for h in turns if fits(free_after[h], job.ps)), -1)
            if host < 0:
                break
            take(free_after[host], job.ps)
            hosts.append(host)
            next_turn = (host + 1) % machines
        if len(hosts) == n_ps:
            free[:] = free_after
            w[home] += 1
            for host in hosts:
                p[host] += 1
            return next_turn, True
    return turn, False


def share(job: JobDemand, workers: int, n_ps: int, total: list[float]) -> float:
    """Dominant share of workers and PSs: the largest part of a resource that they take."""
    parts = zip(job.worker, job.ps, total, strict=True)
    return max((workers * a + n_ps * b) / t for a, b, t in parts if t > 0)
