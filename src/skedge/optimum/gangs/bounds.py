"""Bounds on She et al.'s problem (2): the pools of :mod:`skedge.optimum.pools.pools`, tightened for one gang per job.

A schedule with one gang per job belongs to the family ``work``. Three facts tighten its pools, and the bounds of
``pools/simple.py``, ``flow.py`` and ``prices.py`` hold for the tighter ones:

- Alone on the empty edge, a job is done at :attr:`.model.GangModel.edge_earliest` at the earliest, which respects the
  number of workers on one server, and that a spread gang has xi = 0.
- A gang of n workers holds them for d(n) whole units, n d(n) in all; a job takes at least the minimum of that over n.
- A gang that uses the cloud starts when its data are there: the edge cannot help it before that.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skedge.core.model.scenario import Scenario
from skedge.core.model.time import NEVER
from skedge.optimum.chunks.bounds import bounds_on
from skedge.optimum.pools.pools import JobPool, pools
from skedge.optimum.types import Bound

from .model import GangModel, gang_model


def gang_bounds(scenario: Scenario, *, fast: bool = False, pool_index: int | None = None) -> list[Bound]:
    """Bounds on the total JCT [s] of schedules with one gang per job that finish every job; none if some job never can.

    As :func:`skedge.optimum.chunks.bounds.chunk_bounds` has them for the other families.
    """
    return bounds_on(lambda: gang_pools(scenario), fast=fast, pool_index=pool_index)


def gang_pools(scenario: Scenario) -> list[JobPool]:
    """The pools of the family ``work``, tightened for gangs."""
    model = gang_model(scenario)
    return [_tighten(model, pool) for pool in pools(scenario, "work")]


def _tighten(model: GangModel, pool: JobPool) -> JobPool:
    members = [model.jobs[j] for j in pool.jobs.tolist()]
    edge_units = model.edge_earliest[pool.jobs]
    edge_completion = np.where(edge_units < NEVER, edge_units * float(model.unit), np.inf)
    min_work = [min((mode.workers * mode.time for mode in job.modes), default=0) * model.unit for job in members]
    times = [job.cloud_completion * float(model.unit) for job in members]
    # max with the family's values: either bound holds, as a gang is a schedule of the family
    return replace(
        pool,
        work=np.maximum(pool.work, min_work),
        min_time=np.maximum(pool.min_time, edge_completion - pool.release),
        cloud_jct=np.maximum(pool.cloud_jct, np.array(times) - pool.arrival),
        # no help from the edge: a gang that uses the cloud starts when its data are there
        edge_saving=np.zeros(len(members)),
    )
