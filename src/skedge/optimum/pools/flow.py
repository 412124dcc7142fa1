"""The linear relaxation of ILP (4) as a transportation problem: work of jobs to slots, aggregated by worker type.

ILP (4) charges a chunk its fractional flow time, Eq. (3): the mean of the times at which it is trained, from its
arrival on, and half of p_j. Chunks of a job and workers of a type are alike, so that of y_jdsw(t) only the sum over d,
s and w matters: y_j(t), at most min(D_j, m) and in all D_j p_j, the m workers of the type being shared in every slot.
What goes to the cloud costs a constant. All this is a minimum-cost flow from jobs to slots.

**Validity.** The program is solved by HiGHS, and only the prices of the slots, its dual, are used: the bound is
:func:`.prices.value` at these prices, which holds for any prices, solved well or not. It is at least the optimum of the
program, for a job's c_j - r_j is at least the mean time of its work plus half of D_j p_j / min(D_j, m).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skedge.core.model.cluster import Floats

from .pools import JobPool
from .prices import Grid, value

_MAX_VARIABLES = 200_000
"""Most variables of the program; more would take longer than seconds."""


def flow(pools: Sequence[JobPool]) -> float | None:
    """The bound [µs]; None if time is not slotted, or there are too many slots."""
    grids = [_slots(pool) for pool in pools]
    sizes = [len(pool.jobs) * len(edges) for pool, edges in zip(pools, grids, strict=True)]
    if any(pool.step == 1 for pool in pools) or sum(sizes) > _MAX_VARIABLES:
        return None
    total = 0.0
    for pool, edges in zip(pools, grids, strict=True):
        # without workers there is nothing to price: all jobs are in the cloud, or can never run
        dual = transport(pool, edges)[1] if pool.lanes else np.zeros(len(edges) - 1)
        total += value(pool, Grid(edges, dual)).value if pool.lanes else float(pool.min_jct.sum())
    return total


def _slots(pool: JobPool) -> Floats:
    """Slot boundaries from the first release until no job can use the pool."""
    # after the last cell prices are 0: a grid that ended earlier would weaken the bound
    first, until = pool.release.min(), pool.end
    # only its length is looked at: too many slots
    if (until - first) / pool.step > _MAX_VARIABLES:
        return np.empty(_MAX_VARIABLES + 1)
    return np.arange(first, until + 2 * pool.step, pool.step)


def transport(pool: JobPool, edges: Floats) -> tuple[float, Floats]:
    """Optimum of the program [µs] and the prices of the cells between `edges`, shape ``(cells,)``."""
    from scipy import sparse  # noqa: PLC0415 - takes 0.3 s to import
    from scipy.optimize import linprog  # noqa: PLC0415

    unit, jobs, cells = float(pool.step), len(pool.jobs), len(edges) - 1
    # half: the term p/2 of Eq. (3), of the job instead of the chunk
    width, half = np.diff(edges), pool.work / pool.rate / 2
    job, cell = np.nonzero(edges[None, 1:] > pool.release[:, None])
    # a job may be released within a cell: it can use only the rest of it
    begin = np.maximum(edges[cell], pool.release[job])
    cost = ((begin + edges[cell + 1]) / 2 - pool.arrival[job]) / pool.work[job]
    # variables: the work of a job in a cell [slots], then the part of the job that is in the cloud
    cloud = np.isfinite(pool.cloud_jct)
    cloud_cost = np.where(cloud, pool.cloud_jct - half, 0.0) / unit
    n = len(job)
    job_entries = (np.concatenate([job, np.arange(jobs)]), np.arange(n + jobs))
    share = np.concatenate([unit / pool.work[job], np.ones(jobs)])
    solution = linprog(
        np.concatenate([cost, cloud_cost]),
        A_ub=sparse.csr_matrix((np.ones(n), (cell, np.arange(n))), shape=(cells, n + jobs)),
        b_ub=pool.lanes * width / unit,
        A_eq=sparse.csr_matrix((share, job_entries), shape=(jobs, n + jobs)),
        b_eq=np.ones(jobs),
        bounds=np.stack(
            [np.zeros(n + jobs), np.concatenate([pool.rate[job] * (edges[cell + 1] - begin) / unit, cloud * 1.0])], 1
        ),
        method="highs",
    )
    # prices of 0 are valid, too: the bound is then the sum of the jobs alone
    if solution.status != 0:
        return 0.0, np.zeros(cells)
    # marginals of <= rows of a minimum are at most 0
    return float(solution.fun * unit + half.sum()), np.maximum(-solution.ineqlin.marginals, 0.0)
