"""All bounds on the total cost of a scenario at sites."""

from __future__ import annotations

from collections.abc import Sequence
from time import process_time

from skedge.core.model.scenario import Scenario
from skedge.optimum.linear import relaxed
from skedge.optimum.types import ROUNDING, Bound

from .alone import Alone, alone, pooled
from .milp import site_program, size
from .terms import SiteTerms, site_terms

_MOST = 30_000
"""Most variables of the linear relaxation."""
_TIMES, _SLOTS, _SECONDS = 4.0, 30, 60.0
"""Limits of a job's table in it: a multiple of the job's cost alone, and a number of slots."""


def site_bounds(scenario: Scenario, *, fast: bool) -> list[Bound]:
    """Bounds on the total cost of the schedules that finish every job; empty if there is no such schedule.

    Parameters
    ----------
    fast
        True: without the linear relaxation.
    """
    started = process_time()
    terms = site_terms(scenario)
    if terms is None:
        return []
    jobs = alone(terms)
    return bounds_of(terms, jobs, process_time() - started, fast=fast)


def bounds_of(terms: SiteTerms, jobs: Sequence[Alone], seconds: float, *, fast: bool) -> list[Bound]:
    """The same for jobs that are already bounded alone; `seconds`: the time that took."""
    by_itself = sum(of.value for of in jobs)
    found = [Bound("alone", by_itself * (1 - ROUNDING), seconds, "every job with all sites for itself")]
    begun = process_time()
    together = pooled(terms, jobs)
    if together is not None:
        text = "as alone, and the resources of all sites together are sold by slot"
        value = max(together, by_itself) * (1 - ROUNDING)
        found.append(Bound("pooled", value, process_time() - begun, text))
    begun = process_time()
    ends = [of.last(_TIMES * of.value, of.job.first + of.soonest + _SLOTS) for of in jobs]
    if not fast and size(terms, ends) <= _MOST:
        program = site_program(terms, jobs, ends, late=[True] * len(jobs))
        value_ = relaxed(program.cost, program.upper, program.rows, _SECONDS)
        if value_ is not None:
            text = "the linear relaxation of the integer program"
            found.append(Bound("relaxed", value_ * (1 - ROUNDING), process_time() - begun, text))
    return found
