"""The optimum of She et al.'s problem (2): total JCT of schedules that give every job one gang, once and for good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import polars as pl

from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.core.record.schedule import Schedule
from skedge.optimum.planned import PlannedGangs
from skedge.optimum.search import Objective, Solved, SolverModel, carried_out, policies_runs, search
from skedge.optimum.solvers import Found
from skedge.optimum.types import MET, Attempt, Bound, Optimum
from skedge.recorded_run import Run

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
    lack = "finishes all jobs; the optimum of the total JCT is of schedules in which all do"
    runs = policies_runs(scenario, policies, lambda found: one_gang_each(scenario, found.schedule), lack)
    policy, first = min(runs, key=lambda item: _total(item[1]))
    model = gang_model(scenario)
    program = _Program(scenario, model, plan_of(model, scenario, first))
    improved = program.carried_out(program.plan, _total(first))
    if improved is not None:
        runs.append((f"{policy}, improved", improved))
    objective = Objective("gangs", "jct_total_s", "lower", _total)
    return search(objective, runs, gang_bounds(scenario), program, solvers, seconds)


@dataclass
class _Program(SolverModel):
    """The model, and the best plan for it so far."""

    scenario: Scenario
    model: GangModel
    plan: GangPlan

    def is_closed(self, known: Bound) -> bool:
        return self.model.total(self.plan) / SECOND <= known.value * (1 + MET)

    def improve(self, solver: str, best: Run, known: Bound, seconds: float) -> Solved:
        begun, model = perf_counter(), self.model
        least = int(np.ceil((known.value * SECOND + model.arrivals) / model.unit - 1e-6))
        found = SOLVERS[solver](model, self.plan, least, seconds)
        value = None if found.solution is None else model.total(found.solution) / SECOND
        bound = None if found.bound is None else (found.bound * model.unit - model.arrivals) / SECOND
        took = perf_counter() - begun
        planned = None
        if found.solution is not None:
            self.plan = min(self.plan, found.solution, key=model.total)
            planned = self.carried_out(found.solution, _total(best))
        proved = None if bound is None else Bound(solver, bound, took, "proved by the solver")
        return Solved(Attempt(solver, value, bound, took, found.message), planned, proved)

    def carried_out(self, plan: GangPlan, least: float) -> Run | None:
        """The plan as a run, if its total JCT is below `least` [s] and it keeps the rules."""
        if self.model.total(plan) / SECOND >= least:
            return None
        return carried_out(self.scenario, PlannedGangs(gangs_of(self.model, plan)))


def _total(result: Run) -> float:
    return float(result.metrics["jct_total_s"])
