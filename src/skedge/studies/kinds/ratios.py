"""Ratios of several policies to the offline optimum, over several fields in turn (Okita Fig. 7 and 8).

Costs grow exponentially with a job's wait, so that one seed can outweigh all others: ratios are judged by ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from skedge.analysis.intervals import Estimate
from skedge.studies.figure import Figure, Line
from skedge.studies.judge import Part, by_ranks
from skedge.studies.outcome import Cell, Outcome, mean_of, shown

from .ratio import Instance, proved
from .sweep import MATTERS
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
        The policies of the claim: the ratios of the first are below those of the others, if there are others.
    beside
        Further policies, run and shown beside those of the claim.
    solve_s
        Time limit of the solvers per scenario [s].
    below
        If given, the claim: the ratio of the first policy is typically below this at every point.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["ratios"]
    base: str
    set: dict[str, Any]
    over: list[Axis] = Field(min_length=1)
    problem: str | None = None
    policies: list[str] = Field(min_length=1)
    beside: list[str] = []
    solve_s: float = Field(gt=0)
    below: float | None = Field(None, gt=1)

    @property
    def all_policies(self) -> tuple[str, ...]:
        """The policies to run."""
        return (*self.policies, *self.beside)

    @property
    def epsilons(self) -> tuple[float, ...]:
        """All runs have the optimum's speed."""
        return (0.0,)

    @property
    def completions(self) -> bool:
        """The optimum's own objective counts."""
        return False

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
        """Judge how large the ratio of the first is, and whether it is the smallest, point by point."""
        names = tuple(self._name(point) for point in self._points)
        means = {policy: self._means(rows, policy) for policy in self.all_policies}
        _, *others = self.policies
        parts: list[Part] = []
        if self.below is not None:
            parts += [self._below(rows, at, name, self.below) for at, name in enumerate(names)]
        parts += [self._smaller(rows, other, at, name) for other in others for at, name in enumerate(names)]
        parts = [by_ranks(part) for part in parts]
        parts[0] = replace(parts[0], numbers=f"{parts[0].numbers}; {proved(rows)}{_left_out(rows)}")
        table: list[tuple[Cell, ...]] = [
            (policy, name, shown(mean, 3)) for policy, of in means.items() for name, mean in zip(names, of, strict=True)
        ]
        x = tuple(map(float, range(len(names))))
        lines = tuple(Line(policy, x, of, joined=False) for policy, of in means.items())
        title = "ratio to the optimum, or its bound"
        figure = Figure(
            title, ", ".join(axis.axis for axis in self.over), title, lines, names=names, guides=((1.0, "the optimum"),)
        )
        return Outcome(tuple(parts), ("policy", "at", "ratio"), tuple(table), figure)

    def _by_seed(self, rows: pl.DataFrame, policy: str, at: int) -> pl.Series:
        return rows.filter(pl.col("policy") == policy, pl.col("at") == at).sort("seed")["value"]

    def _below(self, rows: pl.DataFrame, at: int, name: str, below: float) -> Part:
        ratios = self._by_seed(rows, self.policies[0], at)
        return Part(f"the ratio is below {below:g} at {name}", tuple(below - ratios), shown(mean_of(ratios), 3))

    def _smaller(self, rows: pl.DataFrame, other: str, at: int, name: str) -> Part:
        ours, theirs = (self._by_seed(rows, policy, at) for policy in (self.policies[0], other))
        numbers = f"{shown(mean_of(ours), 3)} against {shown(mean_of(theirs), 3)}"
        text = f"the ratio of {self.policies[0]} is below that of {other} at {name}"
        return Part(text, tuple(theirs - ours), numbers, least=MATTERS * mean_of(theirs).mean)

    def _means(self, rows: pl.DataFrame, policy: str) -> tuple[Estimate, ...]:
        here = rows.filter(pl.col("policy") == policy)
        return tuple(mean_of(here.filter(pl.col("at") == at)["value"]) for at in range(len(self._points)))


def _left_out(rows: pl.DataFrame) -> str:
    """In words: how many instances have no optimum."""
    none = rows.filter(pl.col("policy") == "").height
    return f"; {none} without a schedule that finishes every job, left out" if none else ""
