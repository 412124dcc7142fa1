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
from skedge.studies.judge import Part, by_ranks, pseudo_median
from skedge.studies.outcome import Cell, Outcome, caveats_of, format_cell, format_mean, format_pair, mean_of

from .ratio import Instance, proof_summary, ratio_to_best
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
    def _points(self) -> list[dict[str, Any]]:
        """Values of the varied fields by name; no point occurs twice."""
        centre = {axis.vary: self.set[axis.vary] for axis in self.over}
        candidates = [centre | {axis.vary: value} for axis in self.over for value in axis.values]
        # the centre may lie on every axis
        return [point for i, point in enumerate(candidates) if point not in candidates[:i]]

    def _name(self, point: dict[str, Any]) -> str:
        return ", ".join(f"{point[axis.vary]} {axis.axis}" for axis in self.over)

    def instances(self, seed: int) -> Iterator[Instance]:
        """The scenarios of a seed."""
        for index, point in enumerate(self._points):
            label = "-".join(str(value) for value in point.values())
            yield Instance(f"{label}-seed{seed}", seed, index, scenario_fields(self.base, self.set | point, seed))

    def outcome(self, all_rows: pl.DataFrame) -> Outcome:
        """Judge how large the ratio of the first is, and whether it is the smallest, point by point."""
        rows, partial_note = self._compared(all_rows.with_columns(ratio_to_best().alias("to_best")))
        names = tuple(self._name(point) for point in self._points)
        means = {policy: self._means(rows, policy) for policy in self.all_policies}
        _, *rivals = self.policies
        parts: list[Part] = []
        if self.below is not None:
            parts += [self._below(rows, index, name, self.below) for index, name in enumerate(names)]
        parts += [self._smaller(rows, rival, index, name) for rival in rivals for index, name in enumerate(names)]
        # a ratio may be dominated by one seed (see above)
        parts = [by_ranks(part) for part in parts]
        parts[0] = replace(
            parts[0], numbers=f"{parts[0].numbers}; {proof_summary(rows)}{_unbounded_note(rows)}{partial_note}"
        )
        table: list[tuple[Cell, ...]] = [
            (policy, name, format_cell(mean, 3), format_cell(pseudo_median(self._by_seed(rows, policy, index)), 3))
            for policy, estimates in means.items()
            for index, (name, mean) in enumerate(zip(names, estimates, strict=True))
        ]
        x = tuple(map(float, range(len(names))))
        lines = tuple(Line(policy, x, estimates, joined=False) for policy, estimates in means.items())
        title = "ratio to the optimum, or its bound"
        figure = Figure(
            title, ", ".join(axis.axis for axis in self.over), title, lines, names=names, guides=((1.0, "the optimum"),)
        )
        columns = ("policy", "at", "mean ratio", "pseudo-median")
        return Outcome(tuple(parts), columns, tuple(table), figure, caveats_of(rows, "ratio"))

    def _compared(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, str]:
        """The rows of instances of which each policy of the claim finishes every job, and in words how many are not.

        A run that leaves jobs out costs less for it, and may cost less than the optimum.
        """
        partial = (
            rows.filter(pl.col("policy").is_in(self.policies), pl.col("rejected") > 0).select("seed", "at").unique()
        )
        note = f"; {len(partial)} of which a policy leaves jobs out, not compared" if len(partial) else ""
        return rows.join(partial, on=["seed", "at"], how="anti", maintain_order="left"), note

    def _by_seed(self, rows: pl.DataFrame, policy: str, index: int, column: str = "value") -> pl.Series:
        return rows.filter(pl.col("policy") == policy, pl.col("at") == index).sort("seed")[column]

    def _below(self, rows: pl.DataFrame, index: int, name: str, below: float) -> Part:
        ratios = self._by_seed(rows, self.policies[0], index)
        # both, as one seed may make them far apart; the pseudo-median is judged
        numbers = f"{format_mean(ratios, 3)} in the mean, {format_cell(pseudo_median(ratios), 3)} in the pseudo-median"
        to_best = self._by_seed(rows, self.policies[0], index, "to_best")
        text = f"the ratio is below {below:g} at {name}"
        return Part(text, tuple(below - ratios), numbers, highest=tuple(below - to_best))

    def _smaller(self, rows: pl.DataFrame, rival: str, index: int, name: str) -> Part:
        first_ratios, policy_ratios = (self._by_seed(rows, policy, index) for policy in (self.policies[0], rival))
        numbers = format_pair(first_ratios, policy_ratios, 3)
        text = f"the ratio of {self.policies[0]} is below that of {rival} at {name}"
        return Part(text, tuple(policy_ratios - first_ratios), numbers, least=MATTERS * mean_of(policy_ratios).mean)

    def _means(self, rows: pl.DataFrame, policy: str) -> tuple[Estimate, ...]:
        policy_rows = rows.filter(pl.col("policy") == policy)
        return tuple(mean_of(policy_rows.filter(pl.col("at") == index)["value"]) for index in range(len(self._points)))


def _unbounded_note(rows: pl.DataFrame) -> str:
    """In words: how many instances have no optimum."""
    n_unbounded = rows.filter(pl.col("policy") == "").height
    return f"; {n_unbounded} without a schedule that finishes every job, left out" if n_unbounded else ""
