"""Combinatorial bounds on the total JCT: every job alone, and SRPT on one fast machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skedge.core.model.cluster import Floats
from skedge.platform.jit import compiled

from .pools import JobPool


def alone(pools: Sequence[JobPool]) -> float:
    """The sum over jobs of the least JCT alone on the whole edge, or in the cloud [µs].

    **Proof.** On the edge a job computes from :attr:`~.pools.JobPool.ready` on at the earliest, with at most
    min(D_j, m) workers. Chunks that stay on their workers take ceil(D_j / m) p_j then, as some worker has at least
    ceil(D_j / m) of them. Divided work takes D_j p_j / min(D_j, m). In the cloud the job completes after
    :attr:`~.pools.JobPool.away` at the earliest. Completions are on slot boundaries, so both are rounded up to
    one. Other jobs can only take workers away.
    """
    return float(sum(pool.alone.sum() for pool in pools))


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
    if any(np.isfinite(pool.away).any() for pool in pools):
        return None
    total = 0.0
    for pool in pools:
        if not pool.lanes:
            return None
        order = np.argsort(pool.ready, kind="stable")
        ends = _srpt_ends(pool.ready[order], pool.work[order] / pool.lanes)
        ends = np.ceil(ends / pool.step * (1 - 1e-12) - 1e-9) * pool.step if pool.step > 1 else ends
        total += float(ends.sum() - pool.arrival.sum())
    return total


@compiled
def _srpt_ends(ready: Floats, work: Floats) -> Floats:
    """Completions of SRPT on one machine of speed 1, by a binary heap of (remaining work, job); `ready` ascends."""
    n = len(ready)
    left, who, size = np.empty(n), np.empty(n, np.int64), 0
    ends, now, k = np.empty(n), 0.0, 0
    while k < n or size > 0:
        # nothing is left: the machine is idle until the next job is ready
        if size == 0:
            now = max(now, ready[k])
        while k < n and ready[k] <= now:
            size = _push(left, who, size, work[k], k)
            k += 1
        until = ready[k] if k < n else np.inf
        spent = min(left[0], until - now)
        if left[0] <= until - now:
            now += spent
            ends[who[0]] = now
            size = _pop(left, who, size)
        else:  # the job in service remains the least
            left[0] -= spent
            now = until
    return ends


@compiled
def _push(left: Floats, who: np.ndarray, size: int, work: float, job: int) -> int:
    i = size
    while i > 0 and left[(i - 1) // 2] > work:
        left[i], who[i] = left[(i - 1) // 2], who[(i - 1) // 2]
        i = (i - 1) // 2
    left[i], who[i] = work, job
    return size + 1


@compiled
def _pop(left: Floats, who: np.ndarray, size: int) -> int:
    size -= 1
    work, job, i = left[size], who[size], 0
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and left[child + 1] < left[child]:
            child += 1
        if left[child] >= work:
            break
        left[i], who[i] = left[child], who[child]
        i = child
    left[i], who[i] = work, job
    return size
