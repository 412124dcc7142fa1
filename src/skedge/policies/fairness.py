"""Dominant resource fairness: progressive filling (Ghodsi et al., NSDI'11, Alg. 1) on vectors of resources.

All users begin with nothing. Again and again the one with the least dominant share, the largest part that it has of any
resource, is given one task more, if that fits what is left; one whose task does not fit drops out and the others go on
(Sec. 4.2). A task is a worker, and with every n-th a parameter server as well.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from skedge.core.jit import compiled, inlined
from skedge.core.model import Floats, Ints

ONCE = 2**40
"""Workers per PS of a job that has one PS however many workers it has."""

_GRAIN = 2.0**40
"""Shares are compared in whole multiples of 1 / _GRAIN, so that equal ones tie whatever their rounding."""

_SLACK = 1e-9
"""By how much of itself a demand may exceed what is left: sums of floats."""


@compiled
def progressive_filling(worker: Floats, ps: Floats, per_ps: Ints, most: Ints, left: Floats, total: Floats) -> Ints:
    """How many workers each job gets; ties go by row.

    Parameters
    ----------
    worker, ps
        What each worker and each PS of a job takes, shape ``(jobs, resources)``, >= 0.
    per_ps
        Workers that a PS serves, shape ``(jobs,)``, >= 1: worker 1, n + 1, 2n + 1, ... come with a PS. ONCE for one PS.
    most
        Most workers of each job, shape ``(jobs,)``, >= 0.
    left
        What there is to give, shape ``(resources,)``, inf without limit; used up in place.
    total
        What shares are parts of, shape ``(resources,)``, > 0; inf for a resource that does not count.

    Returns
    -------
    Workers, shape ``(jobs,)``.

    Notes
    -----
    Workers and PSs of a job that drops out stay with it: filling is monotone, so what does not fit now never will.
    O(grants * (resources + log jobs)).
    """
    count = np.zeros(len(most), np.int64)
    queue = [(0, job) for job in range(len(most)) if most[job] > 0]
    heapify(queue)
    while len(queue) > 0:
        _, job = heappop(queue)
        with_ps = count[job] % per_ps[job] == 0
        if not _fits(worker[job], ps[job], with_ps, left):
            continue
        for r in range(len(left)):
            left[r] -= worker[job, r] + (ps[job, r] if with_ps else 0.0)
        count[job] += 1
        if count[job] < most[job]:
            servers = (count[job] - 1) // per_ps[job] + 1
            heappush(queue, (dominant_share(worker[job], ps[job], count[job], servers, total), job))
    return count


@inlined
def _fits(worker: Floats, ps: Floats, with_ps: bool, left: Floats) -> bool:
    fits = True
    for r in range(len(left)):
        need = worker[r] + (ps[r] if with_ps else 0.0)
        fits = fits and need <= left[r] + _SLACK * need
    return fits


@inlined
def dominant_share(worker: Floats, ps: Floats, workers: int, servers: int, total: Floats) -> int:
    """Largest part of any resource that so many workers and PSs take, in multiples of 2^-40."""
    share = 0.0
    for r in range(len(total)):
        share = max(share, (workers * worker[r] + servers * ps[r]) / total[r])
    return int(np.rint(share * _GRAIN))
