"""The optimum of DMLRS: the total utility of the jobs that are done by the horizon."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from skedge.analysis.columns import columns
from skedge.analysis.metrics.worth import worth
from skedge.core.errors import InputError, SkedgeError
from skedge.core.model import Floats
from skedge.core.scenario import Scenario
from skedge.optimum.certificates import certificate_of_utility
from skedge.optimum.planned import PlannedPlacements
from skedge.optimum.solvers import whole_solvers
from skedge.optimum.types import SAME, Attempt, Bound, Optimum, best_bound
from skedge.run import Run, run

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
    runs = _runs(scenario, policies)
    source, best = max(runs, key=lambda item: _worth(item[1]))
    bounds = utility_bounds(scenario)
    known = best_bound(bounds, "higher")
    program = utility_program(scenario, jobs)
    attempts, ends = list[Attempt](), perf_counter() + seconds
    for i, name in enumerate(solvers):
        if program is None or _worth(best) >= known.value * (1 - SAME):
            break
        attempt, planned = _attempt(scenario, name, program, _point(scenario, jobs, program, best),
                                    (ends - perf_counter()) / (len(solvers) - i))  # fmt: skip
        attempts.append(attempt)
        if planned is not None and _worth(planned) > _worth(best):
            source, best = name, planned
        if attempt.bound is not None and attempt.bound < known.value:
            known = Bound(name, attempt.bound, attempt.seconds, "proved by the solver")
    certificates = (certificate_of_utility(one) for _, one in runs)
    shown = (*bounds, *(bound for bound in certificates if bound is not None))
    return Optimum("utility", "utility_total", "higher", best, source, _worth(best), known, shown, tuple(attempts))


def _worth(result: Run) -> float:
    """The total utility at END times, to which the bounds refer, whatever times the policy values."""
    return float(worth(columns(result.scenario, result.schedule))["utility_total"] or 0.0)


def _runs(scenario: Scenario, policies: Sequence[str]) -> list[tuple[str, Run]]:
    found = []
    for policy in policies:
        try:
            found.append((policy, run(scenario, policy)))
        except SkedgeError:
            continue
    if not found:
        raise InputError(f"{scenario.name}: none of {', '.join(policies)} runs on it")
    return found


def _attempt(
    scenario: Scenario, name: str, program: UtilityProgram, start: Floats, seconds: float
) -> tuple[Attempt, Run | None]:
    begun = perf_counter()
    found = SOLVERS[name](program, start, seconds)
    planned = None if found.solution is None else _carried_out(scenario, program.plan(found.solution))
    bound = None if found.bound is None else -found.bound
    value = None if planned is None else _worth(planned)
    return Attempt(name, value, bound, perf_counter() - begun, found.said), planned


def _carried_out(scenario: Scenario, plan: dict[int, Slots]) -> Run | None:
    """The plan as a run; None if it breaks a rule."""
    try:
        result = run(scenario, PlannedPlacements(plan))
    except SkedgeError:
        return None
    return None if result.verify(limit=1) else result


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
