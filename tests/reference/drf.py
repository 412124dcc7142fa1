"""Progressive filling of DRF (Ghodsi et al., NSDI'11, Alg. 1) as plain programs: on pooled resources, and on machines.

A task of the paper is a worker here, and with every gamma-th worker comes a PS.
"""

from __future__ import annotations

from fractions import Fraction

from reference.machines import Counts, JobDemand, n_ps_for, place_worker, share

PooledJob = tuple[tuple[int, ...], tuple[int, ...], int, int]
"""Demand of a worker, demand of a PS, workers per PS, most workers."""

PooledJobs = list[PooledJob]


# -- on pooled resources, in exact fractions --------------------------------------------------------------------------


def pooled_filling(jobs: PooledJobs, free: list[int], total: list[int]) -> list[int]:
    """Workers by job: again and again one more for the job of the least dominant share, the first of equals.

    A job whose next worker does not fit drops out, and the others continue.
    """
    counts, dropped = [0] * len(jobs), {j for j, (*_, max_workers) in enumerate(jobs) if max_workers == 0}
    while len(dropped) < len(jobs):
        remaining = [j for j in range(len(jobs)) if j not in dropped]
        j = min(remaining, key=lambda j: (dominant_share(jobs[j], counts[j], total), j))
        raised = [n + (i == j) for i, n in enumerate(counts)]
        if not all_fit(jobs, raised, free):
            dropped.add(j)
            continue
        counts = raised
        *_, max_workers = jobs[j]
        if counts[j] == max_workers:
            dropped.add(j)
    return counts


def dominant_share(job: PooledJob, workers: int, total: list[int]) -> Fraction:
    return max(Fraction(u, t) for u, t in zip(usage(job, workers), total, strict=True))


def usage(job: PooledJob, workers: int) -> list[int]:
    """Amount of each resource, PSs included."""
    worker, ps, per_ps, _ = job
    return [workers * w + -(-workers // per_ps) * p for w, p in zip(worker, ps, strict=True)]


def all_fit(jobs: PooledJobs, counts: list[int], free: list[int]) -> bool:
    used = [sum(column) for column in zip(*(usage(job, n) for job, n in zip(jobs, counts, strict=True)), strict=True)]
    return all(u <= available for u, available in zip(used, free, strict=True))


# -- on machines ------------------------------------------------------------------------------------------------------


def filling(jobs: list[JobDemand], free: list[list[float]], total: list[float]) -> tuple[list[Counts], list[Counts]]:
    """Workers and PSs of each job by machine; as above, and each worker on the next machine in turn.

    Dorm falls back on this where no partition keeps its bounds, and takes its fair shares from it.
    """
    machines = len(free)
    w, p = ([[0] * machines for _ in jobs] for _ in range(2))
    waiting, turn = [i for i, job in enumerate(jobs) if job.max_workers > 0], 0
    while waiting:
        # in multiples of 2^-40, so that shares that are equal on paper are equal
        i = min(waiting, key=lambda j: (round(share(jobs[j], sum(w[j]), sum(p[j]), total) * 2**40), j))
        n_new_ps = n_ps_for(sum(w[i]) + 1, jobs[i].ratio) - sum(p[i])
        turn, placed = place_worker(jobs[i], n_new_ps, free, w[i], p[i], turn)
        if not placed or sum(w[i]) == jobs[i].max_workers:
            waiting.remove(i)
    return w, p
