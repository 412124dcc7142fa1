"""The optimum of DMLRS: the total utility of the jobs that are done by the horizon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from skedge.analysis.columns import columns
from skedge.analysis.metrics.utility import utility_of
from skedge.core.errors import InputError
from skedge.core.model.cluster import Floats
from skedge.core.model.scenario import Scenario
from skedge.optimum.certificates import certificate_of_utility
from skedge.optimum.planned import PlannedPlacements
from skedge.optimum.search import Objective, Solved, SolverModel, carried_out, policies_runs, search
from skedge.optimum.solvers import whole_solvers
from skedge.optimum.types import Attempt, Bound, Optimum
from skedge.recorded_run import Run

from .bounds import utility_bounds
from .job_slots import JobSlots, job_slots
from .milp import Slots, UtilityProgram, utility_program

POLICIES = ("pdors", "drf", "fifo")
"""The policies whose runs the solvers start from."""
SOLVERS = whole_solvers(gap=1e-9)


def optimum_of_utility(
    scenario: Scenario, seconds: float, solvers: Sequence[str] = tuple(SOLVERS), policies: Sequence[str] = POLICIES
) -> Optimum:
    """The schedule of highest utility found within `seconds` of wall time after the policies' runs.

    Raises
    ------
    InputError
        If the scenario has no horizon, a job has no utility, no policy runs, or a solver is not installed.
    """
    jobs = job_slots(scenario)
    if jobs is None:
        raise InputError(f"{scenario.name}: the optimum of the total utility needs physics.horizon and jobs' utilities")
    runs = policies_runs(scenario, policies, lambda _: True, "runs on it")
    model = utility_program(scenario, jobs)
    program = None if model is None else _Program(scenario, jobs, model)
    objective = Objective("utility", "utility_total", "higher", _worth)
    certificates = (certificate_of_utility(one) for _, one in runs)
    return search(objective, runs, utility_bounds(scenario), program, solvers, seconds, beside=certificates)


@dataclass(frozen=True)
class _Program(SolverModel):
    """The integer program of the scenario."""

    scenario: Scenario
    jobs: JobSlots
    model: UtilityProgram

    def improve(self, solver: str, best: Run, known: Bound, seconds: float) -> Solved:  # noqa: ARG002
        begun = perf_counter()
        found = SOLVERS[solver](self.model, _point(self.scenario, self.jobs, self.model, best), seconds)
        plan = None if found.solution is None else self.model.plan(found.solution)
        planned = None if plan is None else carried_out(self.scenario, PlannedPlacements(plan))
        took = perf_counter() - begun
        value = None if planned is None else _worth(planned)
        bound = None if found.bound is None else -found.bound
        proved = None if bound is None else Bound(solver, bound, took, "proved by the solver")
        return Solved(Attempt(solver, value, bound, took, found.message), planned, proved)


def _worth(result: Run) -> float:
    """The total utility at END times, to which the bounds refer, whatever times the policy values."""
    return utility_of(columns(result.scenario, result.schedule), "end") or 0.0


def _point(scenario: Scenario, jobs: JobSlots, program: UtilityProgram, best: Run) -> Floats:
    """The best run as a point of the program; zeros if time is not slotted."""
    if not scenario.physics.slotted:
        return np.zeros(len(program.cost))
    slot, s = scenario.physics.slot, best.schedule
    ids = {name: i for i, name in enumerate(scenario.cluster.server_ids)}
    plan: dict[int, tuple[int, Slots, set[int]]] = {}
    for job, completion in s.jobs.select("job", "completion").iter_rows():
        if completion is None or completion > jobs.worth.shape[1] * slot:
            continue
        slots, inside = dict[int, tuple[dict[int, int], dict[int, int]]](), set[int]()
        for k, (table, column) in enumerate(((s.runs, "workers"), (s.ps, "count"))):
            for row in table.filter(table["job"] == job).iter_rows(named=True):
                for t in range(row["start"] // slot, row["end"] // slot):
                    at = slots.setdefault(t, ({}, {}))[k]
                    at[ids[row["server"]]] = at.get(ids[row["server"]], 0) + row[column]
                    if row.get("colocated"):
                        inside.add(t)
        placed = {t: (tuple(sorted(w.items())), tuple(sorted(p.items()))) for t, (w, p) in slots.items() if w}
        plan[job] = completion // slot - 1, placed, inside
    return program.point(plan)
