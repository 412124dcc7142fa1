"""The search for an optimum, one for all problems.

1. The policies that solve the problem run; the best run is the first schedule, and where the solvers start.
2. Each solver in turn gets an equal share of the time that is left. It plans, and proves a bound.
3. A plan counts when it has been carried out as a run that keeps every rule.
4. The search ends when value and bound meet, or no solver is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Generic, TypeVar

from skedge.core.errors import InputError, SkedgeError
from skedge.core.model.scenario import Scenario
from skedge.core.policy import Policy
from skedge.recorded_run import Run
from skedge.simulate import run

from .solvers import SolverResult
from .types import OPTIMALITY_TOLERANCE, Attempt, Bound, Optimum, Sense, best_bound

T = TypeVar("T")

Runs = list[tuple[str, Run]]
"""Schedules, each with the name of the policy or solver that found it."""


@dataclass(frozen=True)
class Objective:
    """The objective of a problem.

    Attributes
    ----------
    problem, metric, sense
        As in :class:`~.types.Optimum`.
    """

    problem: str
    metric: str
    sense: Sense

    def value(self, result: Run) -> float:
        """The objective of a run."""
        return float(result.metrics[self.metric])

    def is_better(self, value: float, reference: float) -> bool:
        """Whether `value` is the better one of two."""
        return value < reference if self.sense == "lower" else value > reference

    def is_optimal(self, value: float, bound: float) -> bool:
        """Whether a schedule of this value is optimal, as the bound shows."""
        sign = 1 if self.sense == "lower" else -1
        return sign * value <= sign * bound * (1 + sign * OPTIMALITY_TOLERANCE)


@dataclass(frozen=True)
class SolverAnswer:
    """The answer of a solver: its attempt, its plan as a run that keeps the rules, and the bound that it proved."""

    attempt: Attempt
    run: Run | None = None
    bound: Bound | None = None
    source: str = ""


class SolverModel(Generic[T]):
    """Base of a model of the problem that solvers can be asked about; a solution is a ``T``."""

    def is_closed(self, bound: Bound) -> bool:  # noqa: ARG002 - for models that know more than value and bound
        """Whether a solver has nothing left to find, beyond what value and bound show."""
        return False

    def improve(self, solver: str, best: Run, bound: Bound, seconds: float) -> SolverAnswer:
        """Let a solver look for a schedule better than `best`, and for a bound better than `bound`.

        Parameters
        ----------
        solver
            Name of a solver of the problem.
        best, bound
            The best run and the best bound so far.
        seconds
            Limit of wall time [s].
        """
        start_s = perf_counter()
        result = self.solve(solver, best, bound, seconds)
        value, planned = (None, None) if result.solution is None else self.carry_out(result.solution, best)
        elapsed_s = perf_counter() - start_s
        proved = None if result.bound is None else Bound(solver, result.bound, elapsed_s, "proved by the solver")
        return SolverAnswer(Attempt(solver, value, result.bound, elapsed_s, result.message), planned, proved)

    def solve(self, solver: str, best: Run, bound: Bound, seconds: float) -> SolverResult[T]:
        """The solver's solution, and its bound in the unit of the objective.

        Parameters
        ----------
        solver, best, bound, seconds
            As in :meth:`improve`.
        """
        raise NotImplementedError

    def carry_out(self, solution: T, best: Run) -> tuple[float | None, Run | None]:
        """The value of a solution, and its run, if that keeps the rules and may be better than `best`."""
        raise NotImplementedError


def policies_runs(scenario: Scenario, policies: Iterable[str], solves: Callable[[Run], bool], failure: str) -> Runs:
    """The runs of the policies that can run and solve the problem.

    Parameters
    ----------
    scenario, policies
        What is run.
    solves
        Returns whether a run is a schedule of the problem.
    failure
        What none of the policies does, for the error.

    Raises
    ------
    InputError
        If there is no such run.
    """
    runs: Runs = []
    for policy in policies:
        try:
            result = run(scenario, policy)
        except SkedgeError:
            continue  # it does not fit the scenario: too few PSs, no cloud to leave out, slots too long for its batches
        if solves(result):
            runs.append((policy, result))
    if not runs:
        raise InputError(f"{scenario.name}: none of {', '.join(policies)} {failure}")
    return runs


def all_finished(result: Run) -> bool:
    """Whether a run finishes all jobs."""
    return bool(result.metrics["finished"] == len(result.scenario.jobs))


def run_plan(scenario: Scenario, plan: Policy) -> Run | None:
    """A plan as a run; None where it does not keep the rules."""
    # a model leaves out some rules (PSs, storage, checkpoints): the verifier decides, not the model
    try:
        result = run(scenario, plan)
    except SkedgeError:
        return None
    return None if result.verify(limit=1) else result


def search(
    objective: Objective,
    runs: Runs,
    bounds: Sequence[Bound],
    program: SolverModel[Any] | None,
    solvers: Sequence[str],
    seconds: float,
    *,
    joint_bound: Bound | None = None,
    extra_bounds: Iterable[Bound | None] = (),
) -> Optimum:
    """The best schedule found within `seconds` of wall time, and the best bound.

    Parameters
    ----------
    objective
        What is optimised.
    runs
        Schedules to start from, at least one.
    bounds
        Bounds that need no solver.
    program
        The model; None: there is no exact model of this scenario.
    solvers
        Names of its solvers, asked in this order.
    seconds
        Limit of wall time for all of them together [s].
    joint_bound
        A bound that the program's parts have together before a solver is asked; used, and not shown among `bounds`.
    extra_bounds
        Bounds that are shown and not used: those that hold for less than the problem.
    """
    source, best = runs[0]
    for name, result in runs[1:]:
        if objective.is_better(objective.value(result), objective.value(best)):
            source, best = name, result
    bound = best_bound([*bounds, *([] if joint_bound is None else [joint_bound])], objective.sense)
    attempts, deadline = list[Attempt](), perf_counter() + seconds
    for i, solver in enumerate(solvers):
        if program is None or program.is_closed(bound) or objective.is_optimal(objective.value(best), bound.value):
            break
        # an equal share of the time left: what one solver spares, the next ones get
        answer = program.improve(solver, best, bound, (deadline - perf_counter()) / (len(solvers) - i))
        attempts.append(answer.attempt)
        # runs are compared, not plans: a run may differ from its plan in either direction
        if answer.run is not None and objective.is_better(objective.value(answer.run), objective.value(best)):
            source, best = answer.source or solver, answer.run
        if answer.bound is not None and objective.is_better(bound.value, answer.bound.value):
            bound = answer.bound
    shown_bounds = (*bounds, *(extra for extra in extra_bounds if extra is not None))
    return Optimum(
        objective.problem,
        objective.metric,
        objective.sense,
        best,
        source,
        objective.value(best),
        bound,
        shown_bounds,
        tuple(attempts),
    )
