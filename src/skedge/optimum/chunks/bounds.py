"""All bounds on the total JCT of a scenario whose servers have worker slots."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from skedge.core.model.cluster import Floats
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.optimum.pools.flow import flow
from skedge.optimum.pools.pools import Family, JobPool, pools
from skedge.optimum.pools.prices import Grid, improve
from skedge.optimum.pools.simple import alone, srpt
from skedge.optimum.types import Bound, BoundClock

_N_CELLS = 2000
"""Number of cells of a grid of prices."""

_MAX_ROUNDS = 300
"""Most supergradient steps; a few tens are usual."""


def chunk_bounds(
    scenario: Scenario, family: Family, *, fast: bool = False, pool_index: int | None = None
) -> list[Bound]:
    """Bounds on the total JCT [s] of the schedules of `family` that finish every job; none if some job never can.

    Parameters
    ----------
    scenario, family
        The scenario, and the schedules that the bounds cover.
    fast
        True: without ``flow``, whose linear program may take seconds.
    pool_index
        Number of a pool: the bounds are on its jobs alone. Those on all pools are the sums
        (:func:`~skedge.optimum.types.sum_bounds`). None: all pools.
    """
    return bounds_on(lambda: pools(scenario, family), fast=fast, pool_index=pool_index)


def number_of_pools(scenario: Scenario) -> int:
    """The number of pools that :func:`~skedge.optimum.pools.pools.pools` makes, of any family."""
    return len(np.unique(scenario.jobs.worker_type))


def bounds_on(make: Callable[[], list[JobPool]], *, fast: bool, pool_index: int | None = None) -> list[Bound]:
    """Bounds [s] for the pools that `make` creates, or for one of them.

    These are ``alone`` and ``srpt`` of :mod:`skedge.optimum.pools.simple`; ``prices`` of
    :mod:`skedge.optimum.pools.prices`, which uses the best of the three for every pool; and, unless only `fast` bounds
    are requested, ``flow`` of :mod:`skedge.optimum.pools.flow` for small slotted scenarios.
    """
    clock = BoundClock("lower")
    job_pools = make() if pool_index is None else make()[pool_index : pool_index + 1]
    # a job that can never run has no completion, so there is no total to bound
    if not all(np.isfinite(pool.min_jct).all() for pool in job_pools):
        return []
    bounds = list[Bound]()
    for name, compute, note in _COMPUTATIONS:
        total = None if fast and name == "flow" else compute(job_pools)
        if total is not None:
            bounds.append(clock.bound(name, total / SECOND, note))
    return bounds


def pool_price_bound(job_pools: list[JobPool]) -> float:
    """Sum over the pools, which are independent, of the best bound on each [µs]."""
    # not max of the sums: the best bound may differ from pool to pool. With a cloud there is no srpt
    return sum(max(_price_bound(pool), alone([pool]), srpt([pool]) or 0.0) for pool in job_pools)


def _price_bound(pool: JobPool) -> float:
    # without workers there is nothing to sell, and `alone` is exact
    if not pool.lanes:
        return 0.0
    return improve(pool, Grid(edges := grid(pool), np.zeros(len(edges) - 1)), _MAX_ROUNDS)[0]


def grid(pool: JobPool, cells: int = _N_CELLS) -> Floats:
    """Edges of the cells [µs]: half of them even in time, half where jobs become ready and can first be done.

    The last one is :attr:`skedge.optimum.pools.pools.JobPool.end`, after which no job can use the pool.
    """
    first = float(pool.release.min())
    until = max(pool.end, first + 1.0)
    # completions, and so demand, bunch where jobs become ready: prices are finer there
    points = np.concatenate([pool.release, pool.release + pool.min_time])
    dense = np.quantile(points, np.linspace(0, 1, cells // 2))
    edges: Floats = np.unique(np.concatenate([dense, np.linspace(first, until, cells // 2)]))
    return edges[edges <= until]


_COMPUTATIONS: tuple[tuple[str, Callable[[list[JobPool]], float | None], str], ...] = (
    ("alone", alone, "every job with all workers of its type, or the cloud, for itself"),
    ("srpt", srpt, "shortest remaining time first on one machine as fast as all workers"),
    ("flow", flow, "the linear relaxation of ILP (4), by its dual"),
    ("prices", pool_price_bound, "Lagrangian: every job buys worker time at the best prices found"),
)
"""Name, function from pools to the bound [µs], and note of each bound."""
