"""The optimum of She et al.'s problem (2): total JCT of schedules that give every job one gang, once and for good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.core.record.schedule import Schedule
from skedge.optimum.planned import PlannedGangs
from skedge.optimum.search import Objective, SolverModel, policies_runs, run_plan, search
from skedge.optimum.solvers import SolverResult
from skedge.optimum.types import OPTIMALITY_TOLERANCE, Bound, Optimum
from skedge.recorded_run import Run

from .bounds import gang_bounds
from .cp import solve_gang_intervals
from .milp import solve_gangs_time_indexed
from .model import GangModel, GangPlan, gang_model, gangs_of, plan_of

POLICIES = ("batch", "batch:order=shortest", "batchsche", "fifo", "fifo:rule=earliest_server")
"""The policies whose runs the solvers start from: those that give each job one gang."""

Solver = Callable[[GangModel, GangPlan, int, float], SolverResult[GangPlan]]
OBJECTIVE = Objective("gangs", "jct_total_s", "lower")
SOLVERS: dict[str, Solver] = {"CP-SAT intervals": solve_gang_intervals, "HiGHS time-indexed": solve_gangs_time_indexed}


def one_gang_each(scenario: Scenario, schedule: Schedule) -> bool:
    """Whether all jobs finished, each by one allocation of a gang with one PS."""
    runs, verbs = schedule.runs, schedule.decisions["verb"].cast(pl.String)
    if (schedule.jobs["state"].cast(pl.String) != "finished").any() or verbs.eq("allocate_each").any():
        return False
    one_start_each = runs.select("job", "start").unique().height == schedule.ps.height == len(scenario.jobs)
    return one_start_each and bool(runs["chunk"].is_null().all())


def optimum_of_gangs(
    scenario: Scenario, seconds: float, solvers: Sequence[str] = tuple(SOLVERS), policies: Sequence[str] = POLICIES
) -> Optimum:
    """The best schedule of one gang a job, found within `seconds` of wall time after the policies' runs.

    Parameters
    ----------
    scenario
        Its servers have worker slots.
    seconds
        Limit of wall time for all solvers together [s].
    solvers, policies
        Names of :data:`SOLVERS`, asked in this order, and the policies whose runs they start from.

    Raises
    ------
    InputError
        If no policy finishes all jobs, or a solver is not installed.
    """
    failure = "finishes all jobs; the optimum of the total JCT is of schedules in which all do"
    runs = policies_runs(scenario, policies, lambda result: one_gang_each(scenario, result.schedule), failure)
    policy, first = min(runs, key=lambda item: OBJECTIVE.value(item[1]))
    model = gang_model(scenario)
    program = _Program(scenario, model, plan_of(model, scenario, first))
    _, improved = program.carry_out(program.plan, first)
    if improved is not None:
        runs.append((f"{policy}, improved", improved))
    return search(OBJECTIVE, runs, gang_bounds(scenario), program, solvers, seconds)


@dataclass
class _Program(SolverModel[GangPlan]):
    """The model, and the best plan for it so far."""

    scenario: Scenario
    model: GangModel
    plan: GangPlan

    def is_closed(self, bound: Bound) -> bool:
        return self.model.total(self.plan) / SECOND <= bound.value * (1 + OPTIMALITY_TOLERANCE)

    def solve(self, solver: str, best: Run, bound: Bound, seconds: float) -> SolverResult[GangPlan]:  # noqa: ARG002
        model = self.model
        # the bound in the model's units, rounded up: completions are whole units, and 1e-6 is for rounding of floats
        min_sum = int(np.ceil((bound.value * SECOND + model.arrival_sum) / model.unit - 1e-6))
        result = SOLVERS[solver](model, self.plan, min_sum, seconds)
        if result.solution is not None:
            self.plan = min(self.plan, result.solution, key=model.total)
        return result.map(lambda plan: plan, lambda units: (units * model.unit - model.arrival_sum) / SECOND)

    def carry_out(self, solution: GangPlan, best: Run) -> tuple[float, Run | None]:
        total = self.model.total(solution) / SECOND
        # to carry out a plan that is no better would only take time
        if total >= OBJECTIVE.value(best):
            return total, None
        return total, run_plan(self.scenario, PlannedGangs(gangs_of(self.model, solution)))
