"""The optimum of DMLRS: the total utility of the jobs that are done by the horizon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skedge.analysis.columns import columns
from skedge.analysis.metrics.utility import utility_of
from skedge.core.errors import InputError
from skedge.core.model.cluster import Floats
from skedge.core.model.scenario import Scenario
from skedge.optimum.certificates import certificate_of_utility
from skedge.optimum.planned import PlannedPlacements
from skedge.optimum.search import Objective, SolverModel, policies_runs, run_plan, search
from skedge.optimum.solvers import SolverResult, integer_solvers
from skedge.optimum.types import Bound, Optimum
from skedge.recorded_run import Run

from .bounds import utility_bounds
from .job_slots import JobSlots, job_slots
from .milp import Slots, UtilityProgram, utility_program

POLICIES = ("pdors", "drf", "fifo")
"""The policies whose runs the solvers start from."""
SOLVERS = integer_solvers(gap=1e-9)


class _TotalUtility(Objective):
    """The total utility at END times, to which the bounds refer, whatever times the policy values."""

    def value(self, result: Run) -> float:
        return utility_of(columns(result.scenario, result.schedule), "end") or 0.0


OBJECTIVE = _TotalUtility("utility", "utility_total", "higher")


def optimum_of_utility(
    scenario: Scenario, seconds: float, solvers: Sequence[str] = tuple(SOLVERS), policies: Sequence[str] = POLICIES
) -> Optimum:
    """The schedule of highest utility found within `seconds` of wall time after the policies' runs.

    Parameters
    ----------
    scenario
        It has a horizon, and its jobs have utilities.
    seconds
        Limit of wall time for all solvers together [s].
    solvers, policies
        Names of :data:`SOLVERS`, asked in this order, and the policies whose runs they start from.

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
    # shown, not used: these bounds are loose
    certificates = (certificate_of_utility(result) for _, result in runs)
    return search(OBJECTIVE, runs, utility_bounds(scenario), program, solvers, seconds, extra_bounds=certificates)


@dataclass(frozen=True)
class _Program(SolverModel[Floats]):
    """The integer program of the scenario."""

    scenario: Scenario
    jobs: JobSlots
    model: UtilityProgram

    def solve(self, solver: str, best: Run, bound: Bound, seconds: float) -> SolverResult[Floats]:  # noqa: ARG002
        result = SOLVERS[solver](self.model, _point(self.scenario, self.jobs, self.model, best), seconds)
        # the program minimises -u
        return result.map(np.asarray, lambda cost: -cost)

    def carry_out(self, solution: Floats, best: Run) -> tuple[float | None, Run | None]:  # noqa: ARG002
        planned = run_plan(self.scenario, PlannedPlacements(self.model.plan(solution)))
        return None if planned is None else OBJECTIVE.value(planned), planned


def _point(scenario: Scenario, jobs: JobSlots, program: UtilityProgram, best: Run) -> Floats:
    """The best run as a point of the program; zeros if time is not slotted."""
    if not scenario.physics.slotted:
        return np.zeros(len(program.cost))
    slot, schedule = scenario.physics.slot, best.schedule
    ids = {name: i for i, name in enumerate(scenario.cluster.server_ids)}
    plan: dict[int, tuple[int, Slots, set[int]]] = {}
    for job, completion in schedule.jobs.select("job", "completion").iter_rows():
        if completion is None or completion > jobs.utility.shape[1] * slot:
            continue
        slots, colocated_slots = dict[int, tuple[dict[int, int], dict[int, int]]](), set[int]()
        for k, (table, column) in enumerate(((schedule.runs, "workers"), (schedule.ps, "count"))):
            for row in table.filter(table["job"] == job).iter_rows(named=True):
                for t in range(row["start"] // slot, row["end"] // slot):
                    counts = slots.setdefault(t, ({}, {}))[k]
                    counts[ids[row["server"]]] = counts.get(ids[row["server"]], 0) + row[column]
                    if row.get("colocated"):
                        colocated_slots.add(t)
        placed = {t: (tuple(sorted(w.items())), tuple(sorted(p.items()))) for t, (w, p) in slots.items() if w}
        plan[job] = completion // slot - 1, placed, colocated_slots
    return program.point(plan)
