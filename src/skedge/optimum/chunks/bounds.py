"""All bounds on the total JCT of a scenario whose servers have worker slots."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import numpy as np

from skedge.core.model.cluster import Floats
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.optimum.pools.flow import flow
from skedge.optimum.pools.pools import Family, JobPool, pools
from skedge.optimum.pools.prices import Grid, improve
from skedge.optimum.pools.simple import alone, srpt
from skedge.optimum.types import ROUNDING, Bound

_CELLS = 2000
"""Number of cells of a grid of prices."""

_ROUNDS = 300
"""Most supergradient steps; a few tens are usual."""


def chunk_bounds(scenario: Scenario, family: Family, *, fast: bool = False, part: int | None = None) -> list[Bound]:
    """Bounds on the total JCT [s] of the schedules of `family` that finish every job; none if some job never can.

    With `part` they are on the jobs of one pool; those on all pools are the sums (:func:`~skedge.optimum.types.added`).
    """
    return bounds_on(lambda: pools(scenario, family), fast=fast, part=part)


def number_of_pools(scenario: Scenario) -> int:
    """How many pools :func:`~skedge.optimum.pools.pools.pools` makes, of any family."""
    return len(np.unique(scenario.jobs.worker_type))


def bounds_on(make: Callable[[], list[JobPool]], *, fast: bool, part: int | None = None) -> list[Bound]:
    """Bounds [s] for the pools that `make` creates, or for one of them.

    These are ``alone`` and ``srpt`` of :mod:`skedge.optimum.pools.simple`; ``prices`` of
    :mod:`skedge.optimum.pools.prices`, which uses the best of the three for every pool; and, unless only `fast` bounds
    are requested, ``flow`` of :mod:`skedge.optimum.pools.flow` for small slotted scenarios.
    """
    started = process_time()
    made = make() if part is None else make()[part : part + 1]
    # a job that can never run has no completion, so there is no total to bound
    if not all(np.isfinite(pool.alone).all() for pool in made):
        return []
    setting_up = process_time() - started

    def timed(name: str, bound: Callable[[], float | None], note: str = "") -> Bound | None:
        begun = process_time()
        value = bound()
        seconds = setting_up + process_time() - begun
        return None if value is None else Bound(name, value / SECOND * (1 - ROUNDING), seconds, note)

    found = [
        timed("alone", lambda: alone(made), "every job with all workers of its type, or the cloud, for itself"),
        timed("srpt", lambda: srpt(made), "shortest remaining time first on one machine as fast as all workers"),
        timed("flow", lambda: None if fast else flow(made), "the linear relaxation of ILP (4), by its dual"),
        timed("prices", lambda: priced(made), "Lagrangian: every job buys worker time at the best prices found"),
    ]
    return [bound for bound in found if bound is not None]


def priced(made: list[JobPool]) -> float:
    """Sum over the pools, which are independent, of the best bound on each [µs]."""
    return sum(max(_prices(pool), alone([pool]), srpt([pool]) or 0.0) for pool in made)


def _prices(pool: JobPool) -> float:
    if not pool.lanes:
        return 0.0
    return improve(pool, Grid(edges := grid(pool), np.zeros(len(edges) - 1)), _ROUNDS)[0]


def grid(pool: JobPool, cells: int = _CELLS) -> Floats:
    """Edges of the cells [µs]: half of them even in time, half where jobs become ready and can first be done.

    They extend to the time after which no job can use the pool: all have gone to the cloud, or all work is done.
    """
    to_cloud = pool.arrival + pool.away
    busy = pool.ready.max() + pool.work.sum() / pool.lanes
    until = min(float(to_cloud.max()), float(busy)) if np.isfinite(to_cloud).all() else float(busy)
    first = float(pool.ready.min())
    until = max(until, first + 1.0)
    points = np.concatenate([pool.ready, pool.ready + pool.least])
    dense = np.quantile(points, np.linspace(0, 1, cells // 2))
    edges: Floats = np.unique(np.concatenate([dense, np.linspace(first, until, cells // 2)]))
    return edges[edges <= until]
