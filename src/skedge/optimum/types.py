"""What is known of the best that a scenario allows: bounds, and the best schedule found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from skedge.run import Run

Sense = Literal["lower", "higher"]
"""Whether the lower or the higher value of an objective is better."""

ROUNDING = 1e-9
"""By so much of themselves bounds are relaxed, so that float arithmetic cannot make them beat a schedule."""

PLANNED = "optimum"
"""What a run that carried out a plan says its policy is; no policy has this name, so it cannot be replayed."""

SAME = 1e-6
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
        What is to be known of it, empty for nothing.
    """

    name: str
    value: float
    seconds: float
    note: str = ""


def best_bound(bounds: Sequence[Bound], sense: Sense) -> Bound:
    """The largest bound where lower values are better, the smallest where higher ones are; the first of equals."""
    return max(bounds, key=lambda b: b.value if sense == "lower" else -b.value)


@dataclass(frozen=True)
class Attempt:
    """What a solver came back with.

    Attributes
    ----------
    solver
        Its name, and that of the model.
    value, bound
        Of the best schedule that it found, and what it proved; None where it has none.
    seconds
        Wall time.
    said
        Its own last word.
    """

    solver: str
    value: float | None
    bound: float | None
    seconds: float
    said: str


@dataclass(frozen=True)
class Optimum:
    """The best schedule found, and the best bound on all of them.

    Attributes
    ----------
    problem, metric, sense
        Which problem was solved; the metric of a run that is its objective; which direction is better.
    run
        The best schedule, a run that the verifier accepts, and `source`: who found it.
    value
        Its objective.
    bound
        The best of what the solvers proved and of `bounds`, certificates left out: they are shown beside it.
    attempts
        Of the solvers, one each.
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
        """|value - bound| over the value: 0 where the value is proved optimal."""
        return 0.0 if self.proved else abs(self.value - self.bound.value) / max(abs(self.value), 1e-12)

    @property
    def proved(self) -> bool:
        """Whether value and bound have met."""
        return abs(self.value - self.bound.value) <= SAME * abs(self.value)
