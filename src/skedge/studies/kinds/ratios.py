"""Ratios of several policies to the offline optimum, over several fields in turn (Okita Fig. 7 and 8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from skedge.analysis.intervals import Estimate
from skedge.studies.figure import Figure, Line
from skedge.studies.outcome import Cell, Outcome, Part, mean_of, shown

from .ratio import Instance
from .varied import scenario_fields


class Axis(BaseModel):
    """A field to vary while the others keep their set values.

    Attributes
    ----------
    vary, values, axis
        The field, by its dotted name, its values, and the title of the axis.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    vary: str
    values: list[int] = Field(min_length=1)
    axis: str


class Ratios(BaseModel):
    """Settings of a study of policies' ratios to the optimum, or to the best bound on it.

    Attributes
    ----------
    base, set
        A shipped scenario, and the fields of it to set, including the varied ones.
    over
        The fields to vary, one after the other.
    problem
        Name of the optimum (:data:`skedge.optimum.problems.PROBLEMS`); default: the first that applies.
    policies
        The policies to run; the claim: the ratios of the first are below those of the others, if there are others.
    solve_s
        Time limit of the solvers per scenario [s].
    below
        If given, the claim: every mean ratio of the first policy is below this.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["ratios"]
    base: str
    set: dict[str, Any]
    over: list[Axis] = Field(min_length=1)
    problem: str | None = None
    policies: list[str] = Field(min_length=1)
    solve_s: float = Field(gt=0)
    below: float | None = Field(None, gt=1)

    @property
    def epsilons(self) -> tuple[float, ...]:
        """All runs have the optimum's speed."""
        return (0.0,)

    @property
    def _points(self) -> list[dict[str, Any]]:
        """Values of the varied fields by name; no point occurs twice."""
        centre = {axis.vary: self.set[axis.vary] for axis in self.over}
        every = [centre | {axis.vary: value} for axis in self.over for value in axis.values]
        return [point for i, point in enumerate(every) if point not in every[:i]]

    def _name(self, point: dict[str, Any]) -> str:
        return ", ".join(f"{point[axis.vary]} {axis.axis}" for axis in self.over)

    def instances(self, seed: int) -> Iterator[Instance]:
        """The scenarios of a seed."""
        for at, point in enumerate(self._points):
            label = "-".join(str(value) for value in point.values())
            yield Instance(f"{label}-seed{seed}", seed, at, scenario_fields(self.base, self.set | point, seed))

    def outcome(self, rows: pl.DataFrame) -> Outcome:
        """Judge how large the ratio of the first is, and whether it is the smallest at every point."""
        names = tuple(self._name(point) for point in self._points)
        means = {policy: self._means(rows, policy) for policy in self.policies}
        first, *others = self.policies
        parts = []
        if self.below is not None:
            largest, text = max(mean.mean for mean in means[first]), f"every mean ratio is below {self.below:g}"
            parts.append(Part(text, largest < self.below, f"at most {largest:.3f}"))
        for other in others:
            ahead = sum(ours.mean < theirs.mean for ours, theirs in zip(means[first], means[other], strict=True))
            ours, theirs = (mean_of(rows.filter(pl.col("policy") == policy)["value"]) for policy in (first, other))
            numbers = f"{shown(ours, 3)} against {shown(theirs, 3)}; ahead in the mean at {ahead} of {len(names)}"
            parts.append(Part(f"the ratio of {first} is below that of {other}", ahead == len(names), numbers))
        parts[0] = Part(parts[0].text, parts[0].holds, f"{parts[0].numbers}; {_proved(rows)}")
        table: list[tuple[Cell, ...]] = [
            (policy, name, shown(mean, 3)) for policy, of in means.items() for name, mean in zip(names, of, strict=True)
        ]
        x = tuple(map(float, range(len(names))))
        lines = tuple(Line(policy, x, of, joined=False) for policy, of in means.items())
        title = "ratio to the optimum, or its bound"
        figure = Figure(title, ", ".join(axis.axis for axis in self.over), title, lines, names=names, guides=(1.0,))
        return Outcome(tuple(parts), ("policy", "at", "ratio"), tuple(table), figure)

    def _means(self, rows: pl.DataFrame, policy: str) -> tuple[Estimate, ...]:
        here = rows.filter(pl.col("policy") == policy)
        return tuple(mean_of(here.filter(pl.col("at") == at)["value"]) for at in range(len(self._points)))


def _proved(rows: pl.DataFrame) -> str:
    known = rows.filter(pl.col("best").is_not_null()).unique(["seed", "at"])
    gap = ((known["best"] - known["bound"]).abs() / known["best"]).fill_nan(0.0).to_list()
    largest = max(gap, default=0.0)
    return f"{sum(g <= 1e-6 for g in gap)} of {len(gap)} optima proved; largest gap {largest:.1%}"
