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

from skedge.core.errors import InputError, SkedgeError
from skedge.core.model.scenario import Scenario
from skedge.core.policy import Policy
from skedge.recorded_run import Run
from skedge.simulate import run

from .types import MET, Attempt, Bound, Optimum, Sense, best_bound

Runs = list[tuple[str, Run]]
"""Who found a schedule, and the schedule."""


@dataclass(frozen=True)
class Objective:
    """What is optimised.

    Attributes
    ----------
    problem, metric, sense
        As in :class:`~.types.Optimum`.
    value
        The objective of a run.
    """

    problem: str
    metric: str
    sense: Sense
    value: Callable[[Run], float]

    def is_better(self, value: float, other: float) -> bool:
        """Whether `value` is the better one of two."""
        return value < other if self.sense == "lower" else value > other

    def have_met(self, value: float, bound: float) -> bool:
        """Whether a schedule of this value is optimal, as the bound shows."""
        return value <= bound * (1 + MET) if self.sense == "lower" else value >= bound * (1 - MET)


@dataclass(frozen=True)
class Solved:
    """What a solver came back with: its attempt, its plan as a run that keeps the rules, and what it proved."""

    attempt: Attempt
    planned: Run | None = None
    bound: Bound | None = None
    source: str = ""


class SolverModel:
    """Base of a model of the problem that solvers can be asked about."""

    def is_closed(self, known: Bound) -> bool:  # noqa: ARG002 - for models that know more than value and bound
        """Whether a solver has nothing left to find, beyond what value and bound show."""
        return False

    def improve(self, solver: str, best: Run, known: Bound, seconds: float) -> Solved:
        """Let a solver look for a schedule better than `best`, and for a bound better than `known`."""
        raise NotImplementedError


def policies_runs(scenario: Scenario, policies: Iterable[str], solves: Callable[[Run], bool], lack: str) -> Runs:
    """The runs of the policies that can run and whose run `solves` the problem.

    Raises
    ------
    InputError
        If there is none; `lack` says what none of them does.
    """
    found: Runs = []
    for policy in policies:
        try:
            result = run(scenario, policy)
        except SkedgeError:
            continue  # it does not fit the scenario: too few PSs, no cloud to leave out, slots too long for its batches
        if solves(result):
            found.append((policy, result))
    if not found:
        raise InputError(f"{scenario.name}: none of {', '.join(policies)} {lack}")
    return found


def all_finished(result: Run) -> bool:
    """Whether a run finishes all jobs."""
    return bool(result.metrics["finished"] == len(result.scenario.jobs))


def carried_out(scenario: Scenario, plan: Policy) -> Run | None:
    """A plan as a run; None where it does not keep the rules."""
    try:
        result = run(scenario, plan)
    except SkedgeError:
        return None
    return None if result.verify(limit=1) else result


def search(
    of: Objective,
    runs: Runs,
    bounds: Sequence[Bound],
    program: SolverModel | None,
    solvers: Sequence[str],
    seconds: float,
    *,
    joint: Bound | None = None,
    beside: Iterable[Bound | None] = (),
) -> Optimum:
    """The best schedule found within `seconds` of wall time, and the best bound.

    Parameters
    ----------
    program
        None: there is no exact model of this scenario.
    joint
        A bound that the program's parts have together before a solver is asked; used, and not shown among `bounds`.
    beside
        Bounds that are shown and not used: those that hold for less than the problem.
    """
    source, best = runs[0]
    for name, one in runs[1:]:
        if of.is_better(of.value(one), of.value(best)):
            source, best = name, one
    known = best_bound([*bounds, *([] if joint is None else [joint])], of.sense)
    attempts, ends = list[Attempt](), perf_counter() + seconds
    for i, solver in enumerate(solvers):
        if program is None or program.is_closed(known) or of.have_met(of.value(best), known.value):
            break
        # an equal share of the time left: what one solver spares, the next ones get
        answer = program.improve(solver, best, known, (ends - perf_counter()) / (len(solvers) - i))
        attempts.append(answer.attempt)
        if answer.planned is not None and of.is_better(of.value(answer.planned), of.value(best)):
            source, best = answer.source or solver, answer.planned
        if answer.bound is not None and of.is_better(known.value, answer.bound.value):
            known = answer.bound
    shown = (*bounds, *(bound for bound in beside if bound is not None))
    return Optimum(of.problem, of.metric, of.sense, best, source, of.value(best), known, shown, tuple(attempts))
