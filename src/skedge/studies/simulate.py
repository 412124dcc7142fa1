"""Runs simulated studies, several runs in parallel."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
from skedge.optimum.utility.counts import most_completed
from skedge.recorded_run import Run
from skedge.runs.tasks import Executor, KeyedTask, key_of, run_tasks
from skedge.scenario.file import scenario_from_dict
from skedge.scenario.save import digest_of
from skedge.simulate import run
from skedge.studies.kinds.course import BUSY
from skedge.studies.kinds.ratio import Instance, Ratio
from skedge.studies.kinds.ratios import Ratios
from skedge.studies.kinds.sweep import Simulation
from skedge.studies.reading import with_parameters
from skedge.studies.trial import displaced_workers

Violations = tuple[str, ...]
"""Rules that a record breaks, one sentence each."""

Numbers = dict[str, Any]
"""Measurements of a run, by column."""

Parameters = Mapping[str, Mapping[str, Any]]
"""Parameters of policies, by their registered names."""

LATE = "finished_after_horizon"
"""The metric that every study has beside its own."""

DISPLACED = "workers_displaced"
"""Preemptions in workers: :func:`~skedge.studies.trial.displaced_workers` of all jobs; no metric of a run has it."""


COMPLETABLE = "completable_jobs"
"""The bound on the jobs that any policy can complete by the horizon, beside the metrics where jobs have utilities."""


def run_simulations(
    simulations: Sequence[Simulation],
    metrics: tuple[str, ...],
    progress: Callable[[str, Violations], None],
    executor: Executor | None = None,
) -> list[dict[str, Any]]:
    """Run all of them; returns one row of results each, in the order of the requests.

    A row has the first of the `metrics` as `value`, the others by their names; `late`: the jobs finished after the
    horizon, None without one; and `done`: the share of the jobs that are finished, by the horizon if there is one.

    Parameters
    ----------
    simulations
        Their labels are unique.
    metrics
        Names of metrics, at least one.
    progress
        Called with a run's label, and the rules that its record breaks, when the run is done.
    executor
        Where the runs are made; by default in this process.
    """
    numbers_of: dict[str, Numbers] = {}
    executor = executor or Executor()
    make = _PointFactory(executor)
    points = [make.point(_simulate_policy, s.label, s.data, s.policy, BUSY in metrics) for s in simulations]
    first_metric, *other_metrics = metrics
    with closing(run_tasks(points, executor)) as stream:
        for label, numbers, broken in stream:
            also = {name: numbers[name] for name in other_metrics}
            numbers_of[label] = {"value": numbers[first_metric], "late": numbers[LATE], "done": numbers["done"], **also}
            progress(label, broken)
    return [{"seed": simulation.seed, **simulation.place, **numbers_of[simulation.label]} for simulation in simulations]


class _PointFactory:
    """Makes points; elsewhere than here a scenario is sent with its trace, which is a file of ours.

    Runs that follow one another with the same fields share the scenario and its digest, which can take longer to make
    than a run.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.data: dict[str, Any] | None = None

    def point(self, function: Callable[..., Any], label: str, data: dict[str, Any], *arguments: Any) -> KeyedTask:
        """The point of `function` of a scenario."""
        if self.executor.is_local_uncached:
            return KeyedTask("", function, (label, data, *arguments))
        # identity, not equality: a study passes the same object for the runs of one scenario
        if self.data is not data:
            self.data, self.scenario = data, _scenario(label, data)
            self.digest = digest_of(self.scenario)
        # the digest stands for the scenario's content, so that studies of the same one share results
        key = key_of(function.__qualname__, label, self.digest, *arguments)
        return KeyedTask(key, function, (label, self.scenario, *arguments))


def _scenario(label: str, source: dict[str, Any] | Scenario) -> Scenario:
    return source if isinstance(source, Scenario) else scenario_from_dict(source, label, Path())


def _simulate_policy(
    label: str, source: dict[str, Any] | Scenario, policy: str, with_course: bool
) -> tuple[str, Numbers, Violations]:
    """A run and all its metrics, whichever a study compares: so that studies share runs."""
    result = run(_scenario(label, source), policy)
    broken = tuple(f"{v.rule} {v.constraint}: {v.message}" for v in result.verify(limit=3))
    numeric = {name: value for name, value in result.metrics.items() if value is None or isinstance(value, int | float)}
    numbers: Numbers = {name: None if value is None else float(value) for name, value in numeric.items()}
    numbers |= {LATE: result.metrics[LATE], "done": _done_share(result), "decisions_s": result.decisions_s}
    if "utility_total" in numbers:
        numbers[COMPLETABLE] = most_completed(result.scenario)
    numbers[DISPLACED] = float(sum(displaced_workers(result.schedule.runs).values()))
    return label, numbers | ({BUSY: _busy_shares(result)} if with_course else {}), broken


def _done_share(result: Run) -> float:
    """The share of the jobs that are finished, by the horizon if there is one."""
    metrics = result.metrics
    return float((metrics["finished"] - (metrics[LATE] or 0)) / metrics["jobs"])


def _busy_shares(result: Run) -> list[float]:
    """The share of busy workers at each slot's beginning."""
    slots = round(result.metrics["makespan_s"] * SECOND) // result.scenario.physics.slot
    shares: list[float] = utilisation(result.scenario, result.schedule, slots + 1)["busy_share"].to_list()
    return shares


def compare_with_bounds(
    instances: Sequence[Instance],
    settings: Ratio | Ratios,
    progress: Callable[[str, Violations], None],
    executor: Executor | None = None,
    parameters: Parameters | None = None,
) -> list[dict[str, Any]]:
    """The ratio of the policies' runs to the offline optimum at speed 1, or its best bound; one row per run.

    The bounds are points of their own, which studies with the same instances share. An instance of which no schedule
    finishes every job has no optimum, and so one row without a policy.

    Parameters
    ----------
    instances
        Their labels are unique.
    settings
        The problem, the policies and their speeds.
    progress
        Called when the bound of an instance is computed, and again, with its label and the rules that its runs break,
        when they are done.
    executor
        Where the bounds are computed and the runs made; by default in this process.
    parameters
        Of the policies, by the reading of the paper.
    """
    executor = executor or Executor()
    make = _PointFactory(executor)
    points = [make.point(_bound_instance, i.label, i.data, settings.problem, settings.solve_s) for i in instances]
    bounds = dict[str, _InstanceBound | None]()
    with closing(run_tasks(points, replace(executor, processes=1))) as stream:  # the solvers use all cores
        for label, bound in stream:
            bounds[label] = bound
            progress(f"the bound of {label}", ())
    bounded = [(instance, bound) for instance in instances if (bound := bounds[instance.label]) is not None]
    points = [
        make.point(_policy_ratios, i.label, i.data, i.seed, i.at, settings, dict(parameters or {}), bound)
        for i, bound in bounded
    ]
    rows_of = {instance.label: [{"seed": instance.seed, "at": instance.at, "policy": ""}] for instance in instances}
    with closing(run_tasks(points, executor)) as stream:
        for label, rows, broken in stream:
            rows_of[label] = rows
            progress(label, broken)
    for label in bounds.keys() - {instance.label for instance, _ in bounded}:
        progress(label, ())
    return [row for instance in instances for row in rows_of[instance.label]]


class _InstanceBound(NamedTuple):
    """The best bound on an instance's optimum, where it is from, and the best solution found; None: not searched."""

    value: float
    by: str
    best: float | None


def _bound_instance(
    label: str, source: dict[str, Any] | Scenario, problem: str | None, solve_s: float
) -> tuple[str, _InstanceBound | None]:
    scenario = _scenario(label, source)
    known_problem = problem_of(scenario, problem)[1]
    bounds = known_problem.bounds(scenario, False)
    if not bounds:
        return label, None
    # without a solver the best bound stands for the optimum; with one, what it proved
    bound, best = best_bound(bounds, known_problem.sense), None
    if solve_s > 0 and known_problem.optimum is not None:
        solution = known_problem.optimum(scenario, solve_s)
        bound, best = solution.bound, solution.value
    return label, _InstanceBound(bound.value, bound.name, best)


def _policy_ratios(
    label: str,
    source: dict[str, Any] | Scenario,
    seed: int,
    value_index: int,
    settings: Ratio | Ratios,
    parameters: Parameters,
    bound: _InstanceBound,
) -> tuple[str, list[dict[str, Any]], Violations]:
    scenario = _scenario(label, source)
    problem = problem_of(scenario, settings.problem)[1]
    rows, broken = [], []
    for policy, epsilon in product(settings.all_policies, settings.epsilons):
        # resource augmentation: only the policy is faster, the bound is that at speed 1
        sped_up = replace(scenario, physics=replace(scenario.physics, speedup=1 + epsilon))
        result = run(sped_up, with_parameters(policy, parameters))
        # at most three a run: they are shown, not counted
        broken += [f"{v.rule} {v.constraint}: {v.message}" for v in result.verify(limit=3)]
        value, rejected = float(result.metrics[problem.metric]), result.metrics["rejected"]
        # what costs nothing although it has done every job cannot be
        if problem.sense == "lower" and value <= 0 < bound.value and not rejected:
            raise SkedgeError(f"{label}: {policy} has {problem.metric} = 0, which has no ratio")
        rows.append(
            {"seed": seed, "at": value_index, "policy": policy, "epsilon": epsilon,
             "value": ratio_of(value, bound.value, problem.sense), "run": value, "done": _done_share(result),
             "rejected": rejected, "bound": bound.value, "by": bound.by, "best": bound.best}
        )  # fmt: skip
    return label, rows, tuple(broken)


def ratio_of(value: float, bound: float, sense: str) -> float:
    """The ratio of a run to a bound, at least 1 in either direction; infinite where a policy earns nothing."""
    if value == bound:  # also where no policy can do better than nothing
        return 1.0
    if sense == "lower":
        return value / bound
    return bound / value if value > 0 else math.inf
