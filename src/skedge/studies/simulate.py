"""Runs simulated studies, several runs in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from skedge.analysis.metrics.metrics import utilisation
from skedge.core.errors import SkedgeError
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.optimum.problems import problem_of
from skedge.optimum.types import best_bound
from skedge.recorded_run import Run
from skedge.runs.tasks import Executor, KeyedTask, key_of, run_tasks
from skedge.scenario.file import scenario_from_dict
from skedge.scenario.save import digest_of
from skedge.simulate import run
from skedge.studies.kinds.course import BUSY
from skedge.studies.kinds.ratio import Instance, Ratio
from skedge.studies.kinds.ratios import Ratios
from skedge.studies.kinds.sweep import Simulation

Verified = tuple[str, ...]
"""Rules that a record breaks, one sentence each."""

Numbers = dict[str, Any]
"""What was measured of a run, by column."""

LATE = "finished_after_horizon"
"""The metric that every study has beside its own."""


def carry_out(
    simulations: Sequence[Simulation],
    metrics: tuple[str, ...],
    progress: Callable[[str, Verified], None],
    where: Executor | None = None,
) -> list[dict[str, Any]]:
    """Run all of them; returns one row of results each, in the order of the requests.

    A row has the first of the `metrics` as `value`, the others by their names, and `late`: the jobs finished after the
    horizon, None without one.

    `progress` is called with a run's label, and the rules that its record breaks, when the run is done.
    """
    found: dict[str, Numbers] = {}
    where = where or Executor()
    make = _Points(where)
    points = [make.point(_one, one.label, one.data, one.policy, BUSY in metrics) for one in simulations]
    first, *others = metrics
    with closing(run_tasks(points, where)) as done:
        for label, numbers, broken in done:
            found[label] = {"value": numbers[first], "late": numbers[LATE], **{name: numbers[name] for name in others}}
            progress(label, broken)
    return [{"seed": one.seed, **one.place, **found[one.label]} for one in simulations]


class _Points:
    """Makes points; elsewhere than here a scenario is sent with its trace, which is a file of ours.

    Runs that follow one another with the same fields share the scenario and its digest, which can take longer to make
    than a run.
    """

    def __init__(self, where: Executor) -> None:
        self.where = where
        self.data: dict[str, Any] | None = None

    def point(self, function: Callable[..., Any], label: str, data: dict[str, Any], *given: Any) -> KeyedTask:
        """The point of `function` of a scenario."""
        if self.where.is_local_uncached:
            return KeyedTask("", function, (label, data, *given))
        if self.data is not data:
            self.data, self.scenario = data, _scenario(label, data)
            self.digest = digest_of(self.scenario)
        key = key_of(function.__qualname__, label, self.digest, *given)
        return KeyedTask(key, function, (label, self.scenario, *given))


def _scenario(label: str, source: dict[str, Any] | Scenario) -> Scenario:
    return source if isinstance(source, Scenario) else scenario_from_dict(source, label, Path())


def _one(label: str, source: dict[str, Any] | Scenario, policy: str, course: bool) -> tuple[str, Numbers, Verified]:
    """A run and all its metrics, whichever a study compares: so that studies share runs."""
    done = run(_scenario(label, source), policy)
    broken = tuple(f"{v.rule} {v.constraint}: {v.message}" for v in done.verify(limit=3))
    plain = {name: value for name, value in done.metrics.items() if value is None or isinstance(value, int | float)}
    numbers: Numbers = {name: None if value is None else float(value) for name, value in plain.items()}
    numbers[LATE] = done.metrics[LATE]
    return label, numbers | {"decisions_s": done.decisions_s} | ({BUSY: _busy(done)} if course else {}), broken


def _busy(done: Run) -> list[float]:
    """The share of busy workers at each slot's beginning."""
    slots = round(done.metrics["makespan_s"] * SECOND) // done.scenario.physics.slot
    found: list[float] = utilisation(done.scenario, done.schedule, slots + 1)["busy_share"].to_list()
    return found


def set_against_bounds(
    instances: Sequence[Instance],
    settings: Ratio | Ratios,
    progress: Callable[[str, Verified], None],
    where: Executor | None = None,
) -> list[dict[str, Any]]:
    """The ratio of the policies' runs to the offline optimum at speed 1, or its best bound; one row per run.

    The bounds are points of their own, which studies with the same instances share. An instance of which no schedule
    finishes every job has no optimum, and so one row without a policy.

    `progress` is called when the bound of an instance is there, and again, with its label and the rules that its runs
    break, when they are done.
    """
    where = where or Executor()
    make = _Points(where)
    asked = [make.point(_bounded, one.label, one.data, settings.problem, settings.solve_s) for one in instances]
    bounds = dict[str, _Bounded | None]()
    with closing(run_tasks(asked, replace(where, processes=1))) as done:  # the solvers use all cores
        for label, bound in done:
            bounds[label] = bound
            progress(f"the bound of {label}", ())
    can = [(one, bound) for one in instances if (bound := bounds[one.label]) is not None]
    asked = [make.point(_ratios, i.label, i.data, i.seed, i.at, settings, bound) for i, bound in can]
    found = {one.label: [{"seed": one.seed, "at": one.at, "policy": ""}] for one in instances}
    with closing(run_tasks(asked, where)) as done:
        for label, rows, broken in done:
            found[label] = rows
            progress(label, broken)
    for label in bounds.keys() - {one.label for one, _ in can}:
        progress(label, ())
    return [row for one in instances for row in found[one.label]]


class _Bounded(NamedTuple):
    """The best bound on an instance's optimum, where it is from, and the best solution found; None: not searched."""

    value: float
    by: str
    best: float | None


def _bounded(
    label: str, source: dict[str, Any] | Scenario, problem: str | None, solve_s: float
) -> tuple[str, _Bounded | None]:
    scenario = _scenario(label, source)
    of = problem_of(scenario, problem)[1]
    bounds = of.bounds(scenario, False)
    if not bounds:
        return label, None
    bound, best = best_bound(bounds, of.sense), None
    if solve_s > 0 and of.optimum is not None:
        found = of.optimum(scenario, solve_s)
        bound, best = found.bound, found.value
    return label, _Bounded(bound.value, bound.name, best)


def _ratios(
    label: str, source: dict[str, Any] | Scenario, seed: int, at: int, settings: Ratio | Ratios, bound: _Bounded
) -> tuple[str, list[dict[str, Any]], Verified]:
    scenario = _scenario(label, source)
    problem = problem_of(scenario, settings.problem)[1]
    rows, broken = [], []
    for policy, epsilon in product(settings.all_policies, settings.epsilons):
        faster = replace(scenario, physics=replace(scenario.physics, speedup=1 + epsilon))
        done = run(faster, policy)
        broken += [f"{v.rule} {v.constraint}: {v.message}" for v in done.verify(limit=3)]
        value = float(done.metrics[problem.metric])
        if value <= 0 < bound.value:
            raise SkedgeError(f"{label}: {policy} has {problem.metric} = 0, which has no ratio")
        since = float(scenario.jobs.frame["arrival_s"].sum()) if settings.completions else 0.0
        ours, best = value + since, bound.value + since
        ratio = ours / best if problem.sense == "lower" else best / max(ours, 1e-300)
        ratio = 1.0 if value == bound.value else ratio  # also where no policy can do better
        rows.append(
            {"seed": seed, "at": at, "policy": policy, "epsilon": epsilon, "value": ratio, "run": value,
             "bound": bound.value, "by": bound.by, "best": bound.best}
        )  # fmt: skip
    return label, rows, tuple(broken)
