"""Combinatorial bounds on the total JCT: every job alone, and SRPT on one fast machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skedge.core.model.cluster import Floats
from skedge.platform.heap import pop, push
from skedge.platform.jit import compiled

from .pools import JobPool


def alone(pools: Sequence[JobPool]) -> float:
    """The sum over jobs of the least JCT alone on the whole edge, or in the cloud [µs].

    **Proof.** On the edge a job computes from :attr:`~.pools.JobPool.release` on at the earliest, with at most
    min(D_j, m) workers. Chunks that stay on their workers take ceil(D_j / m) p_j then, as some worker has at least
    ceil(D_j / m) of them. Divided work takes D_j p_j / min(D_j, m). In the cloud the job completes after
    :attr:`~.pools.JobPool.cloud_jct` at the earliest. Completions are on slot boundaries, so both are rounded up to
    one. Other jobs can only take workers away.
    """
    return float(sum(pool.min_jct.sum() for pool in pools))


def srpt(pools: Sequence[JobPool]) -> float | None:
    """Shortest remaining processing time first on one machine as fast as all workers of a type [µs].

    None if there is a cloud, as work may then leave the machine.

    **Proof.** Whatever the m workers of a pool do in a time, one machine of m times their speed can do in the same time
    in slices; it respects ready times and does D_j p_j worker time for each job. So its jobs complete no later than the
    schedule's. On one machine with ready times and preemption SRPT has, at every instant, completed as many jobs as any
    schedule can (Schrage 1968). The sum of the completions is the integral of the number not completed; in slotted time
    completions are rounded up, and the sum is that of the numbers not completed at the boundaries, which SRPT minimises
    as well. The arrivals are subtracted.
    """
    if any(np.isfinite(pool.cloud_jct).any() for pool in pools):
        return None
    total = 0.0
    for pool in pools:
        if not pool.lanes:
            return None
        order = np.argsort(pool.release, kind="stable")
        ends = _srpt_ends(pool.release[order], pool.work[order] / pool.lanes)
        # both factors keep rounding from adding a slot, which would make the bound invalid
        ends = np.ceil(ends / pool.step * (1 - 1e-12) - 1e-9) * pool.step if pool.step > 1 else ends
        total += float(ends.sum() - pool.arrival.sum())
    return total


@compiled
def _srpt_ends(release: Floats, work: Floats) -> Floats:
    """Completions of SRPT on one machine of speed 1; `release` ascends."""
    n = len(release)
    left, heap, size = work.copy(), np.empty(n, np.int64), 0
    ends, now, k = np.empty(n), 0.0, 0
    while k < n or size > 0:
        # nothing is left: the machine is idle until the next job is ready
        if size == 0:
            now = max(now, release[k])
        while k < n and release[k] <= now:
            size = push(heap, size, k, left, left)
            k += 1
        next_release = release[k] if k < n else np.inf
        job = heap[0]
        if left[job] <= next_release - now:
            now += left[job]
            ends[job] = now
            size = pop(heap, size, left, left)
        else:  # the job in service remains the least
            left[job] -= next_release - now
            now = next_release
    return ends
