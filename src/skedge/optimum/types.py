"""Types of results about the best schedule of a scenario: bounds, and the best schedule found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import process_time
from typing import Literal

from skedge.recorded_run import Run
from skedge.report.notebook import notebook_html
from skedge.report.table import ReportTable

Sense = Literal["lower", "higher"]
"""Whether lower or higher values of an objective are better."""

ROUNDING = 1e-9
"""Relative slack on every bound, so that rounding cannot make a bound beat a schedule."""

PLAN_NAME = "optimum"
"""Policy name of a run that carried out a plan; no policy has this name, so it cannot be replayed."""

OPTIMALITY_TOLERANCE = 1e-6
"""A value and a bound that differ by less than this part of the value have met: ten of a MILP's tolerances."""


@dataclass(frozen=True)
class Bound:
    """A value that no schedule of the problem is better than.

    Attributes
    ----------
    name
        Which bound it is; ``docs/optimum.md`` says what each one rests on.
    value
        In the unit of the objective: total JCT [s], or utility.
    seconds
        What it took to compute, CPU time of this process.
    note
        Remark for readers; empty if there is none.
    """

    name: str
    value: float
    seconds: float
    note: str = ""


class BoundClock:
    """Makes bounds, relaxed by :data:`ROUNDING`, each with the CPU time since the one before or the clock's start.

    Parameters
    ----------
    sense
        Whether lower or higher values of the objective are better.
    """

    def __init__(self, sense: Sense) -> None:
        self.factor = 1 - ROUNDING if sense == "lower" else 1 + ROUNDING
        self.start_s = process_time()

    def bound(self, name: str, value: float, note: str) -> Bound:
        """The bound of this name; `value` is in the unit of the objective."""
        before_s, self.start_s = self.start_s, process_time()
        return Bound(name, value * self.factor, self.start_s - before_s, note)


def sum_bounds(parts: Sequence[Sequence[Bound]]) -> list[Bound]:
    """Bounds on the whole from those on its independent parts, at least one: the sums of those that every part has."""
    # a bound that one part lacks (srpt, in a pool without workers) has no sum
    by_name = [{bound.name: bound for bound in part} for part in parts]
    shared = [bound for bound in parts[0] if all(bound.name in part for part in by_name)]
    return [
        replace(
            bound,
            value=sum(part[bound.name].value for part in by_name),
            seconds=sum(part[bound.name].seconds for part in by_name),
        )
        for bound in shared
    ]


def best_bound(bounds: Sequence[Bound], sense: Sense) -> Bound:
    """The largest bound if lower values are better, else the smallest; the first of equals."""
    return max(bounds, key=lambda b: b.value if sense == "lower" else -b.value)


@dataclass(frozen=True)
class Attempt:
    """The result of a solver.

    Attributes
    ----------
    solver
        Name of the solver and of the model.
    value, bound
        Value of the best schedule that it found, and the bound that it proved; None if it has none.
    seconds
        Wall time [s].
    message
        The solver's status message.
    """

    solver: str
    value: float | None
    bound: float | None
    seconds: float
    message: str


@dataclass(frozen=True)
class Optimum:
    """The best schedule found, and the best bound on all of them.

    Attributes
    ----------
    problem, metric, sense
        Which problem was solved; the metric of a run that is its objective; which direction is better.
    run
        The best schedule, a run that the verifier accepts; `source` is the policy or solver that found it.
    value
        Its objective.
    bound
        The best of the solvers' proved bounds and of `bounds`, without certificates, which are shown beside it.
    attempts
        One per solver.
    """

    problem: str
    metric: str
    sense: Sense
    run: Run
    source: str
    value: float
    bound: Bound
    bounds: tuple[Bound, ...]
    attempts: tuple[Attempt, ...] = field(default=())

    @property
    def gap(self) -> float:
        """|value - bound| over the value; 0 if the value is proved optimal."""
        return 0.0 if self.proved else abs(self.value - self.bound.value) / max(abs(self.value), 1e-12)

    @property
    def proved(self) -> bool:
        """Whether value and bound have met."""
        return abs(self.value - self.bound.value) <= OPTIMALITY_TOLERANCE * abs(self.value)

    def _repr_html_(self) -> str:
        """The bounds, and the lanes of the best schedule found, as Jupyter shows them."""
        word = "optimal" if self.proved else f"best found, gap {self.gap:.2%}"
        rows = [[bound.name, f"{bound.value:.10g}", bound.note] for bound in self.bounds]
        title = f"{self.metric} = {self.value:.10g}: {word} (by {self.source})"
        note = f"no schedule is better than {self.bound.value:.10g} ({self.bound.name})"
        return notebook_html(title, ReportTable(("bound", "value", "what it is"), rows), [self.run.plot.lanes()], note)
