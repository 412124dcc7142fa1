"""The optimum of Okita's problem (2): the least total cost of schedules that finish every job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skedge.core.errors import InputError
from skedge.core.model.cluster import Floats
from skedge.core.model.scenario import Scenario
from skedge.optimum.search import Objective, SolverModel, all_finished, policies_runs, run_plan, search
from skedge.optimum.solvers import SolverResult, integer_solvers
from skedge.optimum.types import OPTIMALITY_TOLERANCE, Bound, BoundClock, Optimum
from skedge.recorded_run import Run

from .alone import JobBound, alone
from .bounds import bounds_of
from .milp import SiteProgram, site_program, size
from .planned import PlannedSites
from .run_plans import plans_of_run
from .terms import SiteTerms, never_fits, site_terms

POLICIES = ("okita", "fifo", "drf", "oasis:split_sites=false")
"""The policies whose runs the solvers start from."""
MAX_VARIABLES = 60_000
"""Most variables."""
_EXTRA_SLOTS = 10
"""Slots after the last one of the best run in which a job may end in the program."""
OBJECTIVE = Objective("sites", "cost_total", "lower")
SOLVERS = integer_solvers(gap=1e-6)


def optimum_of_sites(
    scenario: Scenario, seconds: float, solvers: Sequence[str] = tuple(SOLVERS), policies: Sequence[str] = POLICIES
) -> Optimum:
    """The schedule of least total cost that is found within `seconds` of wall time after the policies' runs.

    Parameters
    ----------
    scenario
        Its servers are sites.
    seconds
        Limit of wall time for all solvers together [s].
    solvers, policies
        Names of :data:`SOLVERS`, asked in this order, and the policies whose runs they start from.

    Raises
    ------
    InputError
        If a job has no room on the empty sites, no policy finishes all jobs, or a solver is not installed.
    """
    clock = BoundClock("lower")
    terms = site_terms(scenario)
    if terms is None:
        raise InputError(
            f"{scenario.name}: job {never_fits(scenario)!r} can never run: a worker and its PS have no room, even on "
            "empty sites; no schedule finishes all jobs"
        )
    jobs = alone(terms)
    bounds = bounds_of(terms, jobs, clock, fast=False)
    runs = policies_runs(scenario, policies, all_finished, "finishes all its jobs")
    program = _Program(scenario, terms, _model(terms, jobs, min((result for _, result in runs), key=OBJECTIVE.value)))
    return search(OBJECTIVE, runs, bounds, program, solvers, seconds)


@dataclass(frozen=True)
class _Program(SolverModel[Floats]):
    """The integer program of the scenario; None where it has too many variables."""

    scenario: Scenario
    terms: SiteTerms
    model: SiteProgram | None

    def solve(self, solver: str, best: Run, bound: Bound, seconds: float) -> SolverResult[Floats]:  # noqa: ARG002
        if self.model is None:
            return SolverResult(None, None, f"not asked: more than {MAX_VARIABLES:,} variables")
        return SOLVERS[solver](self.model, self.model.point(plans_of_run(self.terms, best)), seconds)

    def carry_out(self, solution: Floats, best: Run) -> tuple[float | None, Run | None]:  # noqa: ARG002
        plans = None if self.model is None else self.model.plan(solution)
        planned = None if plans is None else run_plan(self.scenario, PlannedSites(dict(enumerate(plans))))
        # where the run differs from the plan, a job may be left unfinished, which the objective does not count
        if planned is None or not all_finished(planned):
            return None, None
        return OBJECTIVE.value(planned), planned


def _model(terms: SiteTerms, jobs: Sequence[JobBound], best: Run) -> SiteProgram | None:
    """The program of all schedules that cost no more than the best run; None where it has too many variables.

    A job that ends after its table makes the schedule cost more than the best run, as every other job costs at least
    what it costs alone. Otherwise the table ends some slots after the best run, and the job may be late. Some schedule
    of least cost has no slot without training after the last arrival, so no table needs more slots than there are
    chunks.
    """
    total_bound = sum(bound.value for bound in jobs)
    completion = int(best.schedule.jobs["completion"].max())  # type: ignore[arg-type]
    max_last = max(bound.job.first for bound in jobs) + sum(bound.job.chunks for bound in jobs)
    limit = min(completion // best.scenario.physics.slot + _EXTRA_SLOTS, max_last)
    ends = [
        max(
            bound.last(OBJECTIVE.value(best) * (1 + OPTIMALITY_TOLERANCE) - total_bound + bound.value, limit),
            bound.job.first,
        )
        for bound in jobs
    ]
    if size(terms, ends) > MAX_VARIABLES:
        return None
    may_be_late = [limit < max_last and end == limit for end in ends]
    return site_program(terms, jobs, ends, may_be_late=may_be_late)
