"""All bounds on the total utility of a scenario whose servers have resources."""

from __future__ import annotations

from time import process_time

from skedge.core.model.scenario import Scenario
from skedge.optimum.types import ROUNDING, Bound

from .columns_lp import alone, columns
from .job_slots import job_slots


def utility_bounds(scenario: Scenario) -> list[Bound]:
    """Bounds on the total utility by the horizon; empty without a horizon, or if a job has no utility."""
    started = process_time()
    jobs = job_slots(scenario)
    if jobs is None:
        return []
    value = alone(jobs)
    text = "every job with all machines for itself"
    found = [Bound("alone", value * (1 + ROUNDING), process_time() - started, text)]
    begun = process_time()
    best = columns(jobs)
    if best is not None:
        text = f"the linear program of R-DMLRS, machines together, {best[1]} rounds of columns"
        found.append(Bound("columns", min(best[0], value) * (1 + ROUNDING), process_time() - begun, text))
    return found
