"""Ratios of runs at speed 1 + eps to the offline optimum at speed 1 (JSAC'22 Fig. 12, 13; PD-ORS Fig. 10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from skedge.studies.figure import Figure, Line
from skedge.studies.outcome import Cell, Outcome, Part, mean_of, shown, slope

from .varied import scenario_fields


@dataclass(frozen=True)
class Instance:
    """A scenario to bound and run; `data`: fields of a scenario file, `at`: value of the varied field."""

    label: str
    seed: int
    at: int
    data: dict[str, Any]


class Ratio(BaseModel):
    """Settings of a study of a policy's ratio to the optimum, or to the best bound on it.

    Attributes
    ----------
    base, set
        A shipped scenario, and the fields of it to set, by their dotted names.
    vary, values, axis
        The varied field, its values, and the title of the axis.
    problem
        Name of the optimum (:data:`skedge.optimum.problems.PROBLEMS`); default: the first that applies.
    policy
        The policy to run.
    epsilons
        Values of eps: the policy's speed is 1 + eps times that of the optimum; one line each.
    solve_s
        Time limit of the solvers per scenario [s]; 0: bounds only.
    below
        The claim: every mean ratio is below this.
    flat
        If given, the claim: at each eps the means over the values differ by less than this part of the least.
    rises
        True: the ratio is claimed to rise with the value, at each eps.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["ratio"]
    base: str
    set: dict[str, Any] = {}
    vary: str
    values: list[int] = Field(min_length=1)
    axis: str
    problem: str | None = None
    policy: str
    epsilons: list[float] = Field(min_length=1)
    solve_s: float = Field(0.0, ge=0)
    below: float = Field(gt=1)
    flat: float | None = None
    rises: bool = False

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies to run, as in :class:`.ratios.Ratios`."""
        return (self.policy,)

    def instances(self, seed: int) -> Iterator[Instance]:
        """The scenarios of a seed."""
        for at in self.values:
            yield Instance(f"{at}-seed{seed}", seed, at, scenario_fields(self.base, {**self.set, self.vary: at}, seed))

    def outcome(self, rows: pl.DataFrame) -> Outcome:
        """Judge how large the ratio is, whether it falls with eps, and whether it is flat."""
        lines = [self._line(rows, epsilon) for epsilon in self.epsilons]
        means = [[value.mean for value in line.values] for line in lines]
        largest = max(max(of) for of in means)
        parts = [Part(f"every mean ratio is below {self.below:g}", largest < self.below, f"at most {largest:.3f}")]
        if len(lines) > 1:
            by_eps = [sum(of) / len(of) for of in means]
            numbers = ", ".join(f"{mean:.3f}" for mean in by_eps)
            parts.append(Part("it falls with eps", all(a > b for a, b in pairwise(by_eps)), numbers))
        if self.flat is not None:
            spread = max(max(of) / min(of) - 1 for of in means)
            text = f"over the {self.axis} it differs by less than {self.flat:.0%}"
            parts.append(Part(text, spread < self.flat, f"by {spread:.1%} at most"))
        if self.rises:
            parts += [self._rises(rows, epsilon) for epsilon in self.epsilons]
        known = rows.filter(pl.col("best").is_not_null()).unique(["seed", "at"])
        gap = ((known["best"] - known["bound"]).abs() / known["best"]).fill_nan(0.0).to_list()
        if gap:
            text = f"{sum(g <= 1e-6 for g in gap)} of {len(gap)} optima proved; largest gap {max(gap):.1%}"
            parts[0] = Part(parts[0].text, parts[0].holds, f"{parts[0].numbers}; {text}")
        table: list[tuple[Cell, ...]] = [
            (line.label, int(x), shown(value, 3))
            for line in lines
            for x, value in zip(line.x, line.values, strict=True)
        ]
        name = f"ratio of {self.policy} to the optimum, or its bound"
        figure = Figure(f"{name}, over {self.axis}", self.axis, name, tuple(lines), guides=(1.0,))
        return Outcome(tuple(parts), ("eps", self.axis, "ratio"), tuple(table), figure)

    def _rises(self, rows: pl.DataFrame, epsilon: float) -> Part:
        here = rows.filter(pl.col("epsilon") == epsilon).sort("at").group_by("seed")
        slopes = mean_of(slope(of["at"].to_list(), of["value"].to_list()) for _, of in here)
        numbers = f"{shown(slopes, 5)} more for each of the {self.axis}"
        return Part(f"it rises with the {self.axis}", slopes.mean > 0, numbers)

    def _line(self, rows: pl.DataFrame, epsilon: float) -> Line:
        here = rows.filter(pl.col("epsilon") == epsilon)
        values = tuple(mean_of(here.filter(pl.col("at") == at)["value"]) for at in self.values)
        return Line(f"eps = {epsilon:g}", tuple(map(float, self.values)), values)
