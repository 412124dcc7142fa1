"""Runs simulated studies, several runs in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from joblib import delayed

from skedge.core.errors import SkedgeError
from skedge.optimum.problems import problem_of
from skedge.optimum.types import best_bound
from skedge.run import run
from skedge.runs.parallel import parallel
from skedge.scenario.file import scenario_from_dict
from skedge.studies.kinds.ratio import Instance, Ratio
from skedge.studies.kinds.ratios import Ratios
from skedge.studies.kinds.sweep import Simulation

Verified = tuple[str, ...]
"""Rules that a record breaks, one sentence each."""


def carry_out(
    simulations: Sequence[Simulation],
    metric: str,
    progress: Callable[[str, Verified], None],
    *,
    processes: int = -1,
) -> list[dict[str, Any]]:
    """Run all of them; returns one row of results each, in the order of the requests.

    A row has the metric, `value`, and `late`: the jobs finished after the horizon, None without one.

    `progress` is called with a run's label, and the rules that its record breaks, when the run is done.
    """
    found: dict[str, tuple[float, int | None]] = {}
    with closing(parallel([delayed(_one)(one, metric) for one in simulations], processes)) as done:
        for label, numbers, broken in done:
            found[label] = numbers
            progress(label, broken)
    return [
        {"seed": one.seed, **one.place, **dict(zip(("value", "late"), found[one.label], strict=True))}
        for one in simulations
    ]


def _one(one: Simulation, metric: str) -> tuple[str, tuple[float, int | None], Verified]:
    scenario = scenario_from_dict(one.data, one.label, Path())
    done = run(scenario, one.policy)
    broken = tuple(f"{v.rule} {v.constraint}: {v.message}" for v in done.verify(limit=3))
    return one.label, (float(done.metrics[metric]), done.metrics["finished_after_horizon"]), broken


def set_against_bounds(
    instances: Sequence[Instance], settings: Ratio | Ratios, progress: Callable[[str, Verified], None]
) -> list[dict[str, Any]]:
    """The ratio of the policies' runs to the offline optimum at speed 1, or its best bound; one row per run.

    `progress` is called with an instance's label, and the rules that its runs break, when it is done.
    """
    rows = []
    for one in instances:  # one at a time, as the solvers use all cores
        of_instance, broken = _ratios(one, settings)
        rows += of_instance
        progress(one.label, broken)
    return rows


def _ratios(one: Instance, settings: Ratio | Ratios) -> tuple[list[dict[str, Any]], Verified]:
    scenario = scenario_from_dict(one.data, one.label, Path())
    problem = problem_of(scenario, settings.problem)[1]
    bound = best_bound(problem.bounds(scenario, False), problem.sense)
    best: float | None = None
    if settings.solve_s > 0 and problem.optimum is not None:
        found = problem.optimum(scenario, settings.solve_s)
        bound, best = found.bound, found.value
    rows, broken = [], []
    for policy, epsilon in product(settings.policies, settings.epsilons):
        faster = replace(scenario, physics=replace(scenario.physics, speedup=1 + epsilon))
        done = run(faster, policy)
        broken += [f"{v.rule} {v.constraint}: {v.message}" for v in done.verify(limit=3)]
        value = float(done.metrics[problem.metric])
        if value <= 0 < bound.value:
            raise SkedgeError(f"{one.label}: {policy} has {problem.metric} = 0, which has no ratio")
        ratio = value / bound.value if problem.sense == "lower" else bound.value / max(value, 1e-300)
        ratio = 1.0 if value == bound.value else ratio  # also where nobody can do anything
        rows.append(
            {"seed": one.seed, "at": one.at, "policy": policy, "epsilon": epsilon, "value": ratio, "run": value,
             "bound": bound.value, "by": bound.name, "best": best}
        )  # fmt: skip
    return rows, tuple(broken)
