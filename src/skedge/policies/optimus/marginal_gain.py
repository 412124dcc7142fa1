"""Optimus' allocation by marginal gains, and its placement, on arrays (Peng et al., EuroSys'18, Sec. 4)."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import servers_for
from skedge.core.model.ties import NOISE, TOLERANCE
from skedge.platform.jit import compiled, inlined
from skedge.policies.common.round_robin import fits, round_robin


class Demands(NamedTuple):
    """Demands and speeds of jobs; rows are jobs in the order of their arrival.

    Attributes
    ----------
    worker, ps
        Shape ``(jobs, resources)``.
    ratio
        gamma, most workers of a PS, shape ``(jobs,)``.
    batch
        M, the global batch and the most workers, shape ``(jobs,)``.
    left
        Q, iterations that remain, shape ``(jobs,)``.
    speed
        Coefficients of :mod:`.speed_model`, shape ``(jobs, 6)``.
    """

    worker: Floats
    ps: Floats
    ratio: Floats
    batch: Ints
    left: Floats
    speed: Floats


@inlined
def iteration(speed: Floats, batch: int, w: int, p: int) -> float:
    """Time t(p, w) of an iteration [slots], Eq. (4).

    Parameters
    ----------
    speed
        Coefficients of :mod:`.speed_model`, shape ``(6,)``.
    batch
        M.
    w, p
        Workers and PSs, both at least 1.
    """
    return speed[0] * batch / w + speed[1] + speed[2] * w / p + speed[3] * w + speed[4] * p + speed[5] / p


@inlined
def weight(worker: Floats, ps: Floats, w: int, p: int, total: Floats) -> float:
    """Dominant share of w workers and p PSs (D3).

    Parameters
    ----------
    worker, ps
        Demands, shape ``(resources,)``.
    w, p
        Numbers of workers and PSs.
    total
        The cluster's resources, shape ``(resources,)``, > 0; inf for a resource that does not count.
    """
    share = 0.0
    for r in range(len(total)):
        share = max(share, (w * worker[r] + p * ps[r]) / total[r])
    return share


@inlined
def time_saved(before: float, after: float) -> float:
    """Reduction of an iteration's time by a task [slots]; 0 if it is rounding."""
    return 0.0 if abs(before - after) <= NOISE * before else before - after


@compiled
def gain(d: Demands, job: int, w: int, p: int, extra_ps: bool, total: Floats) -> tuple[float, int, int]:
    """The best next task of a job: its marginal gain, and the (workers, PSs) that it adds.

    Q (t(p, w) - t(p', w')) over the dominant share of the addition. A worker that would leave more than gamma workers
    to a PS comes with PSs (D2). 0 where there is no task, or where the time that it saves is rounding.

    Parameters
    ----------
    d, job
        The jobs, and the row of one.
    w, p
        Its workers and PSs.
    extra_ps
        A PS alone is a task too (``servers=free``), and preferred at a tie.
    total
        As in :func:`weight`.
    """
    before = iteration(d.speed[job], d.batch[job], w, p)
    best, add_w, add_p = 0.0, 0, 0
    if extra_ps:
        after = iteration(d.speed[job], d.batch[job], w, p + 1)
        best, add_w, add_p = (
            d.left[job] * time_saved(before, after) / weight(d.worker[job], d.ps[job], 0, 1, total),
            0,
            1,
        )
    if w < d.batch[job]:
        n_ps = max(servers_for(w + 1, d.ratio[job]) - p, 0)
        after = iteration(d.speed[job], d.batch[job], w + 1, p + n_ps)
        # Sec. 4: the gain in remaining time for each part of the dominant resource
        value = d.left[job] * time_saved(before, after) / weight(d.worker[job], d.ps[job], 1, n_ps, total)
        if value > best * (1 + TOLERANCE):
            best, add_w, add_p = value, 1, n_ps
    return best, add_w, add_p


@compiled
def allocate(d: Demands, free: Floats, total: Floats, extra_ps: bool, skip: bool) -> tuple[Ints, Ints]:
    """Numbers of workers and PSs of each job, from the cluster's resources added up.

    First each job gets 1 worker and 1 PS, in order, if that fits. Then the task of the largest marginal gain is added,
    at a tie (:mod:`skedge.core.model.ties`) that of the first job, until none is above 0, or the one that was picked
    does not fit.

    Parameters
    ----------
    d
        The jobs.
    free
        The resources to give, shape ``(resources,)``; used up in place.
    total
        As in :func:`weight`.
    extra_ps
        As in :func:`gain`.
    skip
        True: a job whose task does not fit drops out, and the others continue.

    Returns
    -------
    Workers and PSs, shape ``(jobs,)`` each.
    """
    jobs = len(d.batch)
    counts = np.zeros((2, jobs), np.int64)
    need = np.empty(len(free))
    # an entry that is popped at once: numba learns the type of the list from it
    queue = [(0.0, -1, 0, 0)]
    heappop(queue)
    for job in range(jobs):
        first = servers_for(1, d.ratio[job])
        _set_need(need, d.worker[job], d.ps[job], 1, first)
        if fits(need, free):
            free -= need
            counts[0, job], counts[1, job] = 1, first
            value, add_w, add_p = gain(d, job, 1, first, extra_ps, total)
            heappush(queue, (-value, job, add_w, add_p))
    while len(queue) > 0:
        value, job, add_w, add_p = _first_of_ties(queue)
        # gains are negated in the heap: no task that is left makes its job faster
        if value >= 0:
            break
        _set_need(need, d.worker[job], d.ps[job], add_w, add_p)
        if not fits(need, free):
            if skip:
                continue
            break
        free -= need
        counts[0, job] += add_w
        counts[1, job] += add_p
        value, add_w, add_p = gain(d, job, counts[0, job], counts[1, job], extra_ps, total)
        heappush(queue, (-value, job, add_w, add_p))
    return counts[0], counts[1]


@compiled
def _first_of_ties(queue: list[tuple[float, int, int, int]]) -> tuple[float, int, int, int]:
    """Pop the entry of the first job among those whose gains tie with the largest; gains are negated."""
    best = heappop(queue)
    largest, tied = best[0], [best]
    tied.pop()  # numba learns the type of the list from its entry
    while len(queue) > 0 and queue[0][0] * (1 + TOLERANCE) <= largest:
        entry = heappop(queue)
        if entry[1] < best[1]:
            best, entry = entry, best
        tied.append(entry)
    for entry in tied:
        heappush(queue, entry)
    return best


@inlined
def _set_need(need: Floats, worker: Floats, ps: Floats, w: int, p: int) -> None:
    for r in range(len(need)):
        need[r] = w * worker[r] + p * ps[r]


@compiled
def place(d: Demands, workers: Ints, servers: Ints, free: Floats, total: Floats) -> tuple[Ints, Ints]:
    """Put the jobs on machines: small ones first, each on the fewest machines over which it spreads evenly.

    Jobs go by workers and PSs together, ascending; machines by what is free of the job's dominant resource, descending.
    A job takes the first k machines for the least k for which workers and PSs, each spread so that counts differ by at
    most one, fit. If none does, PSs and workers are put alternately where they first fit, and the job shrinks to what
    found room; if that is no worker with its PSs, to one worker with its PSs wherever there is room for them.

    Parameters
    ----------
    d
        The jobs.
    workers, servers
        From :func:`allocate`.
    free
        Shape ``(machines, resources)``; used up in place.
    total
        As in :func:`weight`.

    Returns
    -------
    Workers and PSs by job and machine, shape ``(jobs, machines)`` each.
    """
    jobs, machines = len(workers), len(free)
    w, p = np.zeros((jobs, machines), np.int64), np.zeros((jobs, machines), np.int64)
    for job in np.argsort(workers + servers, kind="mergesort"):
        if workers[job] == 0:
            continue
        # a stable order: of machines with as much free the lower one first
        order = np.argsort(-free[:, _dominant(d, job, workers[job], servers[job], total)], kind="mergesort")
        is_placed = False
        # on more machines than there are workers or PSs some would get nothing
        for k in range(1, min(machines, max(workers[job], servers[job])) + 1):
            if not is_placed and _fits_evenly(d, job, workers[job], servers[job], order[:k], free):
                is_placed = True
                for n in range(k):
                    w[job, order[n]] = _even_count(workers[job], n, k)
                    p[job, order[n]] = _even_count(servers[job], n, k)
        if not is_placed:
            _place_alternately(d, job, workers[job], servers[job], order, free, w[job], p[job])
        # D6: better one worker wherever it fits than a job without any
        if w[job].sum() == 0:
            placed, _ = round_robin(d.worker[job], d.ps[job], 1, d.ratio[job], free, 0)
            w[job], p[job] = placed[0], placed[1]
        else:
            for h in range(machines):
                free[h] -= w[job, h] * d.worker[job] + p[job, h] * d.ps[job]
    return w, p


@inlined
def _even_count(count: int, n: int, k: int) -> int:
    """Part of `count` on the n-th of k machines; counts differ by at most one (D4)."""
    return count // k + (1 if n < count % k else 0)


@compiled
def _dominant(d: Demands, job: int, w: int, p: int, total: Floats) -> int:
    """The resource of which the job takes the largest share; machines are ordered by it (D3)."""
    return int(np.argmax((w * d.worker[job] + p * d.ps[job]) / total))


@compiled
def _fits_evenly(d: Demands, job: int, w: int, p: int, order: Ints, free: Floats) -> bool:
    need, k = np.empty(free.shape[1]), len(order)
    for n in range(k):
        _set_need(need, d.worker[job], d.ps[job], _even_count(w, n, k), _even_count(p, n, k))
        if not fits(need, free[order[n]]):
            return False
    return True


@compiled
def _place_alternately(d: Demands, job: int, w: int, p: int, order: Ints, free: Floats, at_w: Ints, at_p: Ints) -> None:
    """A PS, a worker, a PS, ... as long as one of them finds room; PSs that no worker needs are left out again."""
    put_w, put_p = 0, 0
    for _ in range(max(w, p)):
        put_p += put_p < p and _first_fit(d, job, 0, 1, order, free, at_w, at_p)
        # a worker goes in only when the PSs that it needs are there
        allowed = put_w < w and servers_for(put_w + 1, d.ratio[job]) <= put_p
        put_w += allowed and _first_fit(d, job, 1, 0, order, free, at_w, at_p)
    needed = servers_for(put_w, d.ratio[job]) if put_w > 0 else 0
    # from the last machine back, so that what is left stays on the first ones
    for h in order[::-1]:
        idle = min(at_p[h], put_p - needed) if put_w < w else 0
        at_p[h] -= idle
        put_p -= idle


@compiled
def _first_fit(d: Demands, job: int, add_w: int, add_p: int, order: Ints, free: Floats, at_w: Ints, at_p: Ints) -> bool:
    need = np.empty(free.shape[1])
    for h in order:
        _set_need(need, d.worker[job], d.ps[job], at_w[h] + add_w, at_p[h] + add_p)
        if fits(need, free[h]):
            at_w[h] += add_w
            at_p[h] += add_p
            return True
    return False
