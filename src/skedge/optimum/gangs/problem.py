"""The optimum of She et al.'s problem (2): total JCT of schedules that give every job one gang, once and for good."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter

import numpy as np
import polars as pl

from skedge.core.errors import InputError, SkedgeError
from skedge.core.scenario import Scenario
from skedge.core.schedule import Schedule
from skedge.core.time import SECOND
from skedge.optimum.planned import PlannedGangs
from skedge.optimum.solvers import Found
from skedge.optimum.types import SAME, Attempt, Bound, Optimum, best_bound
from skedge.run import Run, run

from .bounds import gang_bounds
from .cp import solve_gang_intervals
from .milp import solve_gangs_time_indexed
from .model import GangModel, GangPlan, gang_model, gangs_of, plan_of

POLICIES = ("batch", "batch:order=shortest", "batchsche", "fifo", "fifo:rule=earliest_server")
"""The policies whose runs the solvers start from: those that give each job one gang."""

Solver = Callable[[GangModel, GangPlan, int, float], Found[GangPlan]]
SOLVERS: dict[str, Solver] = {"CP-SAT intervals": solve_gang_intervals, "HiGHS time-indexed": solve_gangs_time_indexed}


def one_gang_each(scenario: Scenario, schedule: Schedule) -> bool:
    """Whether all jobs finished, each by one allocation of a gang with one PS."""
    runs, verbs = schedule.runs, schedule.decisions["verb"].cast(pl.String)
    if (schedule.jobs["state"].cast(pl.String) != "finished").any() or verbs.eq("allocate_each").any():
        return False
    once = runs.select("job", "start").unique().height == schedule.ps.height == len(scenario.jobs)
    return once and bool(runs["chunk"].is_null().all())


def optimum_of_gangs(
    scenario: Scenario, seconds: float, solvers: Sequence[str] = tuple(SOLVERS), policies: Sequence[str] = POLICIES
) -> Optimum:
    """The best schedule of one gang a job, found within `seconds` of wall time after the policies' runs.

    Raises
    ------
    InputError
        If no policy finishes all jobs, or a solver is not installed.
    """
    found = min(_runs(scenario, policies), key=lambda item: _total(item[1]))
    bounds, model = gang_bounds(scenario), gang_model(scenario)
    known, plan = best_bound(bounds, "lower"), plan_of(model, scenario, found[1])
    best = _better(scenario, model, found, f"{found[0]}, improved", plan)
    attempts, ends = list[Attempt](), perf_counter() + seconds
    for i, name in enumerate(solvers):
        if model.total(plan) / SECOND - known.value <= SAME * known.value:
            break
        attempt, solution = _attempt(name, model, plan, known.value, (ends - perf_counter()) / (len(solvers) - i))
        attempts.append(attempt)
        if solution is not None:
            plan = min(plan, solution, key=model.total)
            best = _better(scenario, model, best, name, solution)
        if attempt.bound is not None and attempt.bound > known.value:
            known = Bound(name, attempt.bound, attempt.seconds, "proved by the solver")
    source, result = best
    return Optimum(
        "gangs", "jct_total_s", "lower", result, source, _total(result), known, tuple(bounds), tuple(attempts)
    )


def _attempt(
    name: str, model: GangModel, plan: GangPlan, known: float, seconds: float
) -> tuple[Attempt, GangPlan | None]:
    """The result of a solver that starts from `plan`; `known` is a bound on the total JCT [s]."""
    begun = perf_counter()
    least = int(np.ceil((known * SECOND + model.arrivals) / model.unit - 1e-6))
    found = SOLVERS[name](model, plan, least, seconds)
    value = None if found.solution is None else model.total(found.solution) / SECOND
    bound = None if found.bound is None else (found.bound * model.unit - model.arrivals) / SECOND
    return Attempt(name, value, bound, perf_counter() - begun, found.said), found.solution


def _better(scenario: Scenario, model: GangModel, best: tuple[str, Run], name: str, plan: GangPlan) -> tuple[str, Run]:
    """The plan as a run, found by `name`, if it is better than the best known run and keeps the rules."""
    if model.total(plan) / SECOND >= _total(best[1]):
        return best
    try:
        result = run(scenario, PlannedGangs(gangs_of(model, plan)))
    except SkedgeError:
        return best
    return best if result.verify(limit=1) or _total(result) >= _total(best[1]) else (name, result)


def _total(result: Run) -> float:
    return float(result.metrics["jct_total_s"])


def _runs(scenario: Scenario, policies: Iterable[str]) -> list[tuple[str, Run]]:
    found = []
    for policy in policies:
        try:
            result = run(scenario, policy)
        except SkedgeError:
            continue  # slots that are too long for its batches, or no server that it can use
        if one_gang_each(scenario, result.schedule):
            found.append((policy, result))
    if not found:
        raise InputError(
            f"{scenario.name}: none of {', '.join(policies)} finishes all jobs; the optimum of the total JCT is of "
            "schedules in which all do"
        )
    return found
