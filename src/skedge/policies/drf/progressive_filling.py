"""Dominant resource fairness: progressive filling (Ghodsi et al., NSDI'11, Alg. 1) on vectors of resources.

All users begin with nothing. Again and again the one with the least dominant share, the largest part that it has of any
resource, is given one task more, if that fits what is left; one whose task does not fit drops out and the others
continue (Sec. 4.2). A task is a worker, and with every gamma-th a parameter server as well.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from skedge.core.engine.ledger import CHUNKS, PS_TYPE, TYPE
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import servers_for
from skedge.core.model.ties import GRAIN
from skedge.platform.jit import compiled, inlined, lean
from skedge.policies.common.round_robin import place_worker

ONE_PS = 2.0**40
"""Workers per PS of a job that has one PS however many workers it has."""


@compiled
def progressive_filling(
    worker: Floats, ps: Floats, ratio: Floats, max_workers: Ints, left: Floats, total: Floats
) -> tuple[Ints, Ints]:  # fmt: skip
    """Workers and PSs that each job gets on each machine; ties go by row.

    Parameters
    ----------
    worker, ps
        Demands of a worker and of a PS of each job, shape ``(jobs, resources)``, >= 0.
    ratio
        Workers that a PS serves, shape ``(jobs,)``, > 0: w workers have max(1, ceil(w / ratio)) PSs. ONE_PS for one PS.
    max_workers
        Most workers of each job, shape ``(jobs,)``, >= 0.
    left
        Free capacity, shape ``(machines, resources)``, inf without limit; used up in place. One machine for resources
        that are pooled. Workers and PSs go to the machines in turn, to the next one that has room.
    total
        The whole of which shares are parts, shape ``(resources,)``, > 0; inf for a resource that does not count.

    Returns
    -------
    Workers and PSs, shape ``(jobs, machines)`` each.

    Notes
    -----
    Workers and PSs of a job that drops out stay with it: filling is monotone, so what does not fit now never will.
    O(grants * (machines * resources + log jobs)).
    """
    workers = np.zeros((len(max_workers), len(left)), np.int64)
    servers = np.zeros((len(max_workers), len(left)), np.int64)
    counts = np.zeros((len(max_workers), 2), np.int64)
    queue = [(0, job) for job in range(len(max_workers)) if max_workers[job] > 0]
    heapify(queue)
    turn = 0
    while len(queue) > 0:
        _, job = heappop(queue)
        extra_ps = servers_for(counts[job, 0] + 1, ratio[job]) - counts[job, 1]
        turn, placed = place_worker(worker[job], ps[job], extra_ps, left, workers[job], servers[job], turn)
        # Sec. 4.2: its task does not fit now and so never will; it drops out, and the others continue
        if not placed:
            continue
        counts[job, 0] += 1
        counts[job, 1] += extra_ps
        if counts[job, 0] < max_workers[job]:
            heappush(queue, (dominant_share(worker[job], ps[job], counts[job, 0], counts[job, 1], total), job))
    return workers, servers


@inlined
def dominant_share(worker: Floats, ps: Floats, workers: int, servers: int, total: Floats) -> int:
    """Largest part of any resource that the workers and PSs take, in multiples of 2^-40.

    Parameters
    ----------
    worker, ps
        Demands, shape ``(resources,)``.
    workers, servers
        Numbers of workers and PSs.
    total
        As in :func:`progressive_filling`.
    """
    share = 0.0
    for r in range(len(total)):
        share = max(share, (workers * worker[r] + servers * ps[r]) / total[r])
    # an integer key: shares that differ by rounding alone are ties, decided by row
    return int(np.rint(share * GRAIN))


@lean
def level_filling(jobs: Ints, table: Ints, left: Ints, ps_left: Ints, counts: Ints) -> None:
    """:func:`progressive_filling` where a worker takes one slot of a type, and a job's first worker a PS slot too.

    Then all jobs of a type have the same share after the same number of workers, so it is filled level by level: every
    job gets its n-th worker before any gets its next one.

    Parameters
    ----------
    jobs
        The jobs in the order that decides ties.
    table
        A row for each job (``Ledger.jobs``), with its worker type, PS type (-1 counts as the first) and D_j.
    left, ps_left
        Workers and PSs by type, used up in place.
    counts
        Out: workers of each of `jobs`.
    """
    # no heap is needed: within a level all jobs of a type have the same share
    level, progress = 0, True
    for n in range(len(jobs)):
        counts[n] = 0
    while progress:
        progress = False
        for n in range(len(jobs)):
            job_row = table[jobs[n]]
            # a job that missed a worker at an earlier level has dropped out: what is left only shrinks
            if counts[n] < level or job_row[CHUNKS] <= level or left[job_row[TYPE]] == 0:
                continue
            # the one PS of a job comes with its first worker
            if level == 0:
                ps = max(job_row[PS_TYPE], 0)
                if ps_left[ps] == 0:
                    continue
                ps_left[ps] -= 1
            counts[n] += 1
            left[job_row[TYPE]] -= 1
            progress = True
        level += 1
