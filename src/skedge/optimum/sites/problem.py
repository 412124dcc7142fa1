"""The optimum of Okita's problem (2): the least total cost of schedules that finish every job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter, process_time

from skedge.core.errors import InputError
from skedge.core.model.scenario import Scenario
from skedge.optimum.search import Objective, Solved, SolverModel, all_finished, carried_out, policies_runs, search
from skedge.optimum.solvers import whole_solvers
from skedge.optimum.types import MET, Attempt, Bound, Optimum
from skedge.recorded_run import Run

from .alone import Alone, alone
from .bounds import bounds_of
from .milp import SiteProgram, site_program, size
from .planned import PlannedSites
from .recorded import recorded
from .terms import SiteTerms, never_fits, site_terms

POLICIES = ("okita", "fifo", "drf", "oasis:split_sites=false")
"""The policies whose runs the solvers start from."""
MOST = 60_000
"""Most variables."""
_BEYOND = 10
"""Slots after the last one of the best run in which a job may end in the program."""
SOLVERS = whole_solvers(gap=1e-6)


def optimum_of_sites(
    scenario: Scenario, seconds: float, solvers: Sequence[str] = tuple(SOLVERS), policies: Sequence[str] = POLICIES
) -> Optimum:
    """The schedule of least total cost that is found within `seconds` of wall time after the policies' runs.

    Raises
    ------
    InputError
        If a job has no room on the empty sites, no policy finishes all jobs, or a solver is not installed.
    """
    begun = process_time()
    terms = site_terms(scenario)
    if terms is None:
        raise InputError(
            f"{scenario.name}: job {never_fits(scenario)!r} can never run: a worker and its PS have no room, even on "
            "empty sites; no schedule finishes all jobs"
        )
    jobs = alone(terms)
    bounds = bounds_of(terms, jobs, process_time() - begun, fast=False)
    runs = policies_runs(scenario, policies, all_finished, "finishes all its jobs")
    program = _Program(scenario, terms, _model(terms, jobs, min((one for _, one in runs), key=_cost)))
    return search(Objective("sites", "cost_total", "lower", _cost), runs, bounds, program, solvers, seconds)


@dataclass(frozen=True)
class _Program(SolverModel):
    """The integer program of the scenario; None where it has too many variables."""

    scenario: Scenario
    terms: SiteTerms
    model: SiteProgram | None

    def improve(self, solver: str, best: Run, known: Bound, seconds: float) -> Solved:  # noqa: ARG002
        if self.model is None:
            return Solved(Attempt(solver, None, None, 0.0, f"not asked: more than {MOST:,} variables"))
        begun = perf_counter()
        found = SOLVERS[solver](self.model, self.model.point(recorded(self.terms, best)), seconds)
        plans = None if found.solution is None else self.model.plan(found.solution)
        planned = None if plans is None else carried_out(self.scenario, PlannedSites(dict(enumerate(plans))))
        if planned is not None and not all_finished(planned):
            planned = None
        took = perf_counter() - begun
        proved = None if found.bound is None else Bound(solver, found.bound, took, "proved by the solver")
        value = None if planned is None else _cost(planned)
        return Solved(Attempt(solver, value, found.bound, took, found.message), planned, proved)


def _cost(result: Run) -> float:
    return float(result.metrics["cost_total"])


def _model(terms: SiteTerms, jobs: Sequence[Alone], best: Run) -> SiteProgram | None:
    """The program of all schedules that cost no more than the best run; None where it has too many variables.

    A job that ends after its table makes the schedule cost more than the best run, as every other job costs at least
    what it costs alone. Otherwise the table ends some slots after the best run, and the job may be late. Some schedule
    of least cost has no slot without training after the last arrival, so no table needs more slots than there are
    chunks.
    """
    rest = sum(of.value for of in jobs)
    completion = int(best.schedule.jobs["completion"].max())  # type: ignore[arg-type]
    enough = max(of.job.first for of in jobs) + sum(of.job.chunks for of in jobs)
    limit = min(completion // best.scenario.physics.slot + _BEYOND, enough)
    ends = [max(of.last(_cost(best) * (1 + MET) - rest + of.value, limit), of.job.first) for of in jobs]
    if size(terms, ends) > MOST:
        return None
    late = [limit < enough and end == limit for end in ends]
    return site_program(terms, jobs, ends, late=late)
