"""Ratios of runs at speed 1 + eps to the offline optimum at speed 1 (JSAC'22 Fig. 12, 13; PD-ORS Fig. 10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from skedge.core.model.cluster import Floats
from skedge.studies.figure import Figure, Line
from skedge.studies.judge import Part
from skedge.studies.outcome import Cell, Outcome, caveats_of, format_cell, format_mean, mean_of, points, slope

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
        If given, the claim: at each eps the means at any two values differ by less than this part of the mean.
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
    def all_policies(self) -> tuple[str, ...]:
        """The policies to run, as in :class:`.ratios.Ratios`."""
        return (self.policy,)

    def instances(self, seed: int) -> Iterator[Instance]:
        """The scenarios of a seed."""
        for value in self.values:
            yield Instance(
                f"{value}-seed{seed}", seed, value, scenario_fields(self.base, {**self.set, self.vary: value}, seed)
            )

    def outcome(self, rows: pl.DataFrame) -> Outcome:
        """Judge how large the ratio is at each point, whether it falls with eps, and whether it is flat."""
        rows = rows.with_columns(ratio_to_best().alias("to_best"))
        by_seed = {epsilon: self._by_seed(rows, epsilon, "value") for epsilon in self.epsilons}
        to_best = {epsilon: self._by_seed(rows, epsilon, "to_best") for epsilon in self.epsilons}
        lines = [self._line(ratios, epsilon) for epsilon, ratios in by_seed.items()]
        parts = [
            self._below(ratios, to_best[epsilon], epsilon, point)
            for epsilon, ratios in by_seed.items()
            for point in self.values
        ]
        parts += [self._falls(by_seed, low, high) for low, high in pairwise(self.epsilons)]
        if self.flat is not None:
            parts += [
                self._flat(ratios, epsilon, pair, self.flat)
                for epsilon, ratios in by_seed.items()
                for pair in combinations(self.values, 2)
            ]
        if self.rises:
            parts += [self._rises(ratios, to_best[epsilon], epsilon) for epsilon, ratios in by_seed.items()]
        # stated once, beside the first part
        parts[0] = replace(parts[0], numbers=f"{parts[0].numbers}; {proof_summary(rows)}")
        table: list[tuple[Cell, ...]] = [
            (f"eps = {epsilon:g}", point, _format_ratio(ratios[:, index]))
            for epsilon, ratios in by_seed.items()
            for index, point in enumerate(self.values)
        ]
        name = f"ratio of {self.policy} to the optimum, or its bound"
        figure = Figure(f"{name}, over {self.axis}", self.axis, name, tuple(lines), guides=((1.0, "the optimum"),))
        return Outcome(tuple(parts), ("eps", self.axis, "ratio"), tuple(table), figure, caveats_of(rows, "ratio"))

    def _by_seed(self, rows: pl.DataFrame, epsilon: float, column: str) -> Floats:
        """The ratios of a column at an eps, shape ``(seeds, values)``."""
        # shape (seeds, values): a row of the table for each seed and value
        epsilon_rows = rows.filter(pl.col("epsilon") == epsilon).sort("seed", "at")
        # rows are sorted by value, columns are in the order of `values`
        return epsilon_rows[column].to_numpy().reshape(-1, len(self.values))[:, np.argsort(np.argsort(self.values))]

    def _where(self, epsilon: float) -> str:
        return f" at eps = {epsilon:g}" if len(self.epsilons) > 1 else ""

    def _below(self, ratios: Floats, to_best: Floats, epsilon: float, value: int) -> Part:
        value_ratios, best_ratios = (array[:, self.values.index(value)] for array in (ratios, to_best))
        text = f"the mean ratio with {value} {self.axis}{self._where(epsilon)} is below {self.below:g}"
        if n_infinite := int(np.isinf(value_ratios).sum()):
            # so is their mean, whatever the other seeds have
            numbers = f"infinite: {self.policy} earns nothing with {n_infinite} of {len(value_ratios)} seeds"
            return Part(text, values=False, numbers=numbers)
        numbers = format_mean(value_ratios, 3)
        if (best_ratios != value_ratios).any():
            numbers += f" to the bound, {format_mean(best_ratios, 3)} to the best found"
        return Part(text, tuple(self.below - value_ratios), numbers, highest=tuple(self.below - best_ratios))

    def _falls(self, by_seed: dict[float, Floats], low: float, high: float) -> Part:
        # by seed, over all values: one difference a seed
        low_means, high_means = by_seed[low].mean(1), by_seed[high].mean(1)
        numbers = f"{format_mean(low_means, 3)}, then {format_mean(high_means, 3)}"
        return Part(f"it falls from eps = {low:g} to {high:g}", tuple(low_means - high_means), numbers)

    def _flat(self, ratios: Floats, epsilon: float, pair: tuple[int, int], flat: float) -> Part:
        first, second = (ratios[:, self.values.index(value)] for value in pair)
        # relative to the mean over all points, so that one number serves all pairs
        differences = (second - first) / ratios.mean()
        text = f"with {pair[0]} and {pair[1]} {self.axis}{self._where(epsilon)} it differs by less than {flat:.0%}"
        return Part(text, tuple(differences), f"by {format_cell(points(mean_of(differences)), 1)} %", within=flat)

    def _rises(self, ratios: Floats, to_best: Floats, epsilon: float) -> Part:
        slopes = [slope(self.values, seed_ratios) for seed_ratios in ratios]
        # the steepest and the least steep line with each ratio between the one to the best found and that to the bound
        is_right = np.array(self.values) > np.mean(self.values)
        least = [slope(self.values, seed_ratios) for seed_ratios in np.where(is_right, to_best, ratios)]
        most = [slope(self.values, seed_ratios) for seed_ratios in np.where(is_right, ratios, to_best)]
        numbers = f"{format_mean(slopes, 5)} more for each of the {self.axis}"
        text = f"it rises with the {self.axis}{self._where(epsilon)}"
        return Part(text, tuple(least), numbers, highest=tuple(most))

    def _line(self, ratios: Floats, epsilon: float) -> Line:
        """The means at an eps; infinite ones are not drawn."""
        finite = [index for index in range(len(self.values)) if np.isfinite(ratios[:, index]).all()]
        x = tuple(float(self.values[index]) for index in finite)
        return Line(f"eps = {epsilon:g}", x, tuple(mean_of(ratios[:, index]) for index in finite))


def _format_ratio(ratios: Floats) -> str:
    """The mean ratio over the seeds and its interval."""
    return format_mean(ratios, 3) if np.isfinite(ratios).all() else "infinite"


def ratio_to_best() -> pl.Expr:
    """The ratio of each run to the best solution found: what its ratio to the optimum is at least.

    Where none was found it is 1, as the run is a solution itself; where no instance has one, no optimum was searched
    for, and the claim is about the ratio to the bound.
    """
    value, bound, best = pl.col("value"), pl.col("bound"), pl.col("best").cast(pl.Float64)
    # also where both are 0
    share = pl.when(bound == best).then(1.0).otherwise(pl.min_horizontal(bound, best) / pl.max_horizontal(bound, best))
    least = pl.when(best.is_null().all()).then(value).otherwise(pl.min_horizontal(value, 1.0))
    return pl.when(best.is_null()).then(least).otherwise(value * share)


def proof_summary(rows: pl.DataFrame) -> str:
    """In words: how many optima are proved, and the largest gap to a bound."""
    solved = rows.filter(pl.col("best").is_not_null()).unique(["seed", "at"])
    if solved.is_empty():
        return "bounds only"
    # 0 / 0 is a gap of 0: cost and bound are both 0
    gap = ((solved["best"] - solved["bound"]).abs() / solved["best"]).fill_nan(0.0).to_list()
    return f"{sum(g <= 1e-6 for g in gap)} of {len(gap)} optima proved; largest gap {max(gap):.1%}"
