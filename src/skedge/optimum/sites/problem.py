"""The optimum of Okita's problem (2): the least total cost of schedules that finish every job."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter, process_time

from skedge.core.errors import InputError, SkedgeError
from skedge.core.model import Floats
from skedge.core.scenario import Scenario
from skedge.optimum.solvers import whole_solvers
from skedge.optimum.types import SAME, Attempt, Bound, Optimum, best_bound
from skedge.run import Run, run

from .alone import Alone, alone
from .bounds import bounds_of
from .milp import SitePlan, SiteProgram, site_program, size
from .planned import PlannedSites
from .recorded import recorded
from .terms import SiteTerms, never_fits, site_terms

POLICIES = ("okita", "fifo", "drf", "oasis")
"""The policies whose runs the solvers start from."""
MOST = 60_000
"""Most variables."""
_BEYOND = 10
"""Slots after the last one of the best run in which a job may end in the program."""
SOLVERS = whole_solvers(gap=1e-6)


def at_sites(scenario: Scenario) -> bool:
    """Whether a scenario is Okita's: sites, and jobs with a latency cost."""
    return scenario.cluster.kind == "sites" and None not in scenario.jobs.latency


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
    known = best_bound(bounds, "lower")
    source, best = min(_runs(scenario, policies), key=lambda item: _cost(item[1]))
    program = _program(terms, jobs, best)
    attempts, ends = list[Attempt](), perf_counter() + seconds
    for i, name in enumerate(solvers):
        if program is None:
            attempts.append(Attempt(name, None, None, 0.0, f"not asked: more than {MOST:,} variables"))
            continue
        if _cost(best) <= known.value * (1 + SAME):
            break
        start, share = program.point(recorded(terms, best)), (ends - perf_counter()) / (len(solvers) - i)
        attempt, planned = _attempt(scenario, name, program, start, share)
        attempts.append(attempt)
        if planned is not None and _cost(planned) < _cost(best):
            source, best = name, planned
        if attempt.bound is not None and attempt.bound > known.value:
            known = Bound(name, attempt.bound, attempt.seconds, "proved by the solver")
    return Optimum("sites", "cost_total", "lower", best, source, _cost(best), known, tuple(bounds), tuple(attempts))


def _cost(result: Run) -> float:
    return float(result.metrics["cost_total"])


def _runs(scenario: Scenario, policies: Sequence[str]) -> list[tuple[str, Run]]:
    found = []
    for policy in policies:
        try:
            done = run(scenario, policy)
        except SkedgeError:
            continue
        if done.metrics["finished"] == len(scenario.jobs):
            found.append((policy, done))
    if not found:
        raise InputError(f"{scenario.name}: none of {', '.join(policies)} finishes all its jobs")
    return found


def _program(terms: SiteTerms, jobs: Sequence[Alone], best: Run) -> SiteProgram | None:
    """The program of all schedules that cost no more than the best run; None if it has too many variables.

    A job that ends after its table makes the schedule cost more than the best run, as every other job costs at least
    what it costs alone. Otherwise the table ends some slots after the best run, and the job may be late. Some schedule
    of least cost has no slot without training after the last arrival, so no table needs more slots than there are
    chunks.
    """
    rest = sum(of.value for of in jobs)
    completion = int(best.schedule.jobs["completion"].max())  # type: ignore[arg-type]
    enough = max(of.job.first for of in jobs) + sum(of.job.chunks for of in jobs)
    limit = min(completion // best.scenario.physics.slot + _BEYOND, enough)
    ends = [max(of.last(_cost(best) * (1 + SAME) - rest + of.value, limit), of.job.first) for of in jobs]
    if size(terms, ends) > MOST:
        return None
    late = [limit < enough and end == limit for end in ends]
    return site_program(terms, jobs, ends, late=late)


def _attempt(
    scenario: Scenario, name: str, program: SiteProgram, start: Floats, seconds: float
) -> tuple[Attempt, Run | None]:
    begun = perf_counter()
    found = SOLVERS[name](program, start, seconds)
    plans = None if found.solution is None else program.plan(found.solution)
    planned = None if plans is None else _carried_out(scenario, plans)
    value = None if planned is None else _cost(planned)
    return Attempt(name, value, found.bound, perf_counter() - begun, found.said), planned


def _carried_out(scenario: Scenario, plans: Sequence[SitePlan]) -> Run | None:
    """The plans as a run; None if it breaks a rule or leaves out a job."""
    try:
        result = run(scenario, PlannedSites(dict(enumerate(plans))))
    except SkedgeError:
        return None
    return None if result.verify(limit=1) or result.metrics["finished"] < len(scenario.jobs) else result
