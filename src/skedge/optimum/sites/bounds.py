"""All bounds on the total cost of a scenario at sites."""

from __future__ import annotations

from collections.abc import Sequence

from skedge.core.model.scenario import Scenario
from skedge.optimum.linear import relaxation_bound
from skedge.optimum.types import Bound, BoundClock

from .alone import JobBound, alone, pooled_bound
from .milp import site_program, size
from .terms import SiteTerms, site_terms

_MAX_VARIABLES = 30_000
"""Most variables of the linear relaxation."""
_COST_MULTIPLE, _MAX_EXTRA_SLOTS, _LIMIT_S = 4.0, 30, 60.0
"""Limits of a job's table in it: a multiple of the job's cost alone, and a number of slots."""


def site_bounds(scenario: Scenario, *, fast: bool) -> list[Bound]:
    """Bounds on the total cost of the schedules that finish every job; empty if there is no such schedule.

    Parameters
    ----------
    scenario
        On a cluster of sites.
    fast
        True: without the linear relaxation.
    """
    clock = BoundClock("lower")
    terms = site_terms(scenario)
    return [] if terms is None else bounds_of(terms, alone(terms), clock, fast=fast)


def bounds_of(terms: SiteTerms, jobs: Sequence[JobBound], clock: BoundClock, *, fast: bool) -> list[Bound]:
    """The bounds of :func:`site_bounds`, given those on every job alone.

    Parameters
    ----------
    terms, jobs
        The scenario, and the bound on every job of it.
    clock
        Its time so far is that of the bound ``alone``.
    fast
        True: without the linear relaxation.
    """
    alone_cost = sum(job_bound.value for job_bound in jobs)
    bounds = [clock.bound("alone", alone_cost, "every job with all sites for itself")]
    pooled_cost = pooled_bound(terms, jobs)
    if pooled_cost is not None:
        text = "as alone, and the resources of all sites together are sold by slot"
        bounds.append(clock.bound("pooled", max(pooled_cost, alone_cost), text))
    ends = [job_bound.table_end(_COST_MULTIPLE, _MAX_EXTRA_SLOTS) for job_bound in jobs]
    if not fast and size(terms, ends) <= _MAX_VARIABLES:
        program = site_program(terms, jobs, ends, may_be_late=[True] * len(jobs))
        relaxed_cost = relaxation_bound(program.cost, program.upper, program.rows, _LIMIT_S)
        if relaxed_cost is not None:
            bounds.append(clock.bound("relaxed", relaxed_cost, "the linear relaxation of the integer program"))
    return bounds
