"""All bounds on the total utility of a scenario whose servers have resources."""

from __future__ import annotations

from skedge.core.model.scenario import Scenario
from skedge.optimum.types import Bound, BoundClock

from .columns_lp import alone, columns
from .job_slots import job_slots


def utility_bounds(scenario: Scenario) -> list[Bound]:
    """Bounds on the total utility by the horizon; empty without a horizon, or if a job has no utility."""
    clock = BoundClock("higher")
    jobs = job_slots(scenario)
    if jobs is None:
        return []
    value = alone(jobs)
    bounds = [clock.bound("alone", value, "every job with all machines for itself")]
    best = columns(jobs)
    if best is not None:
        text = f"the linear program of R-DMLRS, machines together, {best[1]} rounds of columns"
        bounds.append(clock.bound("columns", min(best[0], value), text))
    return bounds
