"""How many jobs any policy can complete by the horizon, on servers with resources."""

from __future__ import annotations

import numpy as np

from skedge.core.errors import SolverError
from skedge.core.model.scenario import Scenario

from .job_slots import JobSlots, job_slots

_ROUNDING = 1e-6
"""Slack of the linear program's optimum, so that a whole number is not rounded down."""


def most_completed(scenario: Scenario) -> int | None:
    """A bound on the number of jobs that any schedule completes by the horizon; None without a horizon or utilities.

    **Proof.** In the relaxation of :mod:`.job_slots` a whole job takes at least ``workers[j, 0]`` worker-slots, those
    of its faster rate, each with ``needs[j]`` of the resources, in slots from its first on. So for every slot s and
    resource r the jobs that are completed and cannot begin before s take no more than all machines have from s to the
    horizon. The largest number of jobs under these rows, as a linear program in the shares of the jobs, is at least
    what any schedule completes; jobs that cannot be complete by the horizon on empty machines have no share.

    Raises
    ------
    SolverError
        If HiGHS finds no optimum.
    """
    jobs = job_slots(scenario)
    return None if jobs is None else int(np.floor(_largest_share(jobs) + _ROUNDING))


def _largest_share(jobs: JobSlots) -> float:
    """The optimum of the linear program [jobs]."""
    from scipy.optimize import linprog  # noqa: PLC0415 - takes 0.3 s to import

    n_slots = jobs.utility.shape[1]
    feasible = np.asarray(np.isfinite(jobs.utility).any(axis=1))
    take = jobs.workers[:, :1] * jobs.needs
    # only slots in which some job can begin first have rows of their own: others repeat the next one's with more room
    rows, room = [], []
    for start in np.unique(jobs.first_slot[feasible]):
        late = (jobs.first_slot >= start)[:, None]
        rows.append((take * late).T)
        room.append((n_slots - start) * jobs.capacity)
    if not rows:
        return 0.0
    bounds = np.column_stack([np.zeros(len(feasible)), feasible])
    result = linprog(-np.ones(len(feasible)), A_ub=np.vstack(rows), b_ub=np.concatenate(room), bounds=bounds)
    if result.status != 0:
        raise SolverError(f"HiGHS: {result.message}")
    return -float(result.fun)
