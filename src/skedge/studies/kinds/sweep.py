"""Simulated studies: a metric of several policies over a field of a scenario.

PD-ORS Fig. 6 to 9 and 12 to 17; Okita Fig. 9, 10 and 14.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from skedge.core.errors import InputError
from skedge.core.model import Floats
from skedge.studies.figure import Figure, Line
from skedge.studies.judge import Part
from skedge.studies.outcome import Cell, Outcome, mean_of, shown, slope

from .varied import scenario_fields

MATTERS = 0.01
"""The smallest lead that matters, as a part of the other policy's mean: two policies that are nearer are level."""


@dataclass(frozen=True)
class Simulation:
    """One run of a study; `data`: fields of a scenario file, `place`: columns that identify its results."""

    label: str
    policy: str
    seed: int
    data: dict[str, Any]
    place: dict[str, str | int]


class Sweep(BaseModel):
    """Settings of a study of a metric of several policies over a field of a scenario.

    Attributes
    ----------
    base, set
        A shipped scenario, and the fields of it to set, by their dotted names.
    vary, values, axis
        The varied field, its values (numbers or names), and the title of the axis.
    with_trace
        True: the arrivals are those of a trace file that the user names; every seed takes another part of it.
    policies, best
        The policies to run, and the one that is claimed to be best. The figure's labels are the policies as given.
    metric, lower
        The metric compared, and whether lower values are better.
    log
        True: take the metric's logarithm to base 10, as costs that grow exponentially have no useful mean.
    grows
        True: the gap between the best and each of the others is claimed to grow with the field.
    most_at
        The value at which the gap is claimed to be largest.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["sweep"]
    base: str
    set: dict[str, Any] = {}
    vary: str
    values: list[int] | list[str] = Field(min_length=1)
    axis: str
    with_trace: bool = False
    policies: list[str] = Field(min_length=2)
    best: str
    metric: str
    lower: bool = False
    log: bool = False
    grows: bool = False
    most_at: str | None = None

    def simulations(self, seed: int, trace: Path | None) -> Iterator[Simulation]:
        """All runs of a seed: every policy at every value.

        Raises
        ------
        InputError
            If the study takes a trace and none is given, or the other way round.
        """
        if self.with_trace and trace is None:
            raise InputError("this study takes the arrivals of a trace: give --trace FILE, Google's table of jobs")
        if trace is not None and not self.with_trace:
            raise InputError(f"--trace {str(trace)!r}: this study draws its arrivals and takes no trace")
        for name, data in self._scenarios(seed, trace):
            for policy in self.policies:
                place: dict[str, str | int] = {**name, "policy": policy}
                label = "-".join(str(part) for part in (*place.values(), f"seed{seed}"))
                yield Simulation(label, policy, seed, data, place)

    def _scenarios(self, seed: int, trace: Path | None) -> Iterator[tuple[dict[str, str | int], dict[str, Any]]]:
        for value in self.values:
            yield {"at": value}, self._data({**self.set, self.vary: value}, seed, trace)

    def _data(self, fields: dict[str, Any], seed: int, trace: Path | None) -> dict[str, Any]:
        """The base scenario with `fields` set and, with a trace, the seed's part of it."""
        data = scenario_fields(self.base, fields, seed)
        if trace is not None:
            part = data["workload"]["trace"]
            jobs = [value for value in self.values if isinstance(value, int)]
            part |= {"path": str(trace.resolve()), "skip": seed * max([*jobs, part.get("first", 1)])}
        return data

    def outcome(self, rows: pl.DataFrame) -> Outcome:
        """Judge whether the best is best at each value, whether its lead grows, and where it is largest."""
        if self.log:
            rows = rows.with_columns(pl.col("value").log10())
        by_policy = {policy: rows.filter(pl.col("policy") == policy) for policy in self.policies}
        others = [policy for policy in self.policies if policy != self.best]
        parts = [part for other in others for part in self._better(by_policy, other)]
        if self.grows:
            parts += [self._grows(by_policy, other) for other in others]
        if self.most_at is not None:
            parts += [part for other in others for part in self._most(by_policy, other, self.most_at)]
        name = f"log10 of {self.metric}" if self.log else self.metric
        shown_of = {"value": name} | ({} if _without(rows, "late") else {"late": "jobs finished after T"})
        table: list[tuple[Cell, ...]] = [
            (policy, value, *(mean_of(of.filter(pl.col("at") == value)[column]) for column in shown_of))
            for policy, of in by_policy.items()
            for value in self.values
        ]
        lines = tuple(self._line(policy, of) for policy, of in by_policy.items())
        figure = Figure(f"{name} over {self.axis}", self.axis, name, lines, names=self._names)
        return Outcome(tuple(parts), ("policy", self.axis, *shown_of.values()), tuple(table), figure)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(value for value in self.values if isinstance(value, str))

    def _line(self, label: str, rows: pl.DataFrame) -> Line:
        means = tuple(mean_of(rows.filter(pl.col("at") == value)["value"]) for value in self.values)
        x = tuple(float(value) if isinstance(value, int) else float(i) for i, value in enumerate(self.values))
        return Line(label, x, means, joined=not self._names)

    def _lead(self, by_policy: dict[str, pl.DataFrame], other: str) -> pl.DataFrame:
        """The lead of the best policy by seed and value; columns seed, at, lead."""
        theirs = by_policy[other].select("seed", "at", theirs="value")
        sign = -1 if self.lower else 1
        both = by_policy[self.best].join(theirs, on=["seed", "at"])
        return both.with_columns(lead=sign * (pl.col("value") - pl.col("theirs"))).sort("seed", "at")

    def _better(self, by_policy: dict[str, pl.DataFrame], other: str) -> list[Part]:
        """That the best policy is better at each value, judged value by value."""
        lead = self._lead(by_policy, other)
        return [self._better_at(lead.filter(pl.col("at") == value), other, value) for value in self.values]

    def _better_at(self, lead: pl.DataFrame, other: str, value: int | str) -> Part:
        ours, theirs = mean_of(lead["value"]), mean_of(lead["theirs"])
        where = f"under {value}" if self._names else f"with {value} {self.axis}"
        return Part(
            f"{self.best} is {'below' if self.lower else 'above'} {other} {where}",
            tuple(lead["lead"]),
            f"{shown(ours)} against {shown(theirs)}",
            least=math.log10(1 + MATTERS) if self.log else MATTERS * abs(theirs.mean),
        )

    def _grows(self, by_policy: dict[str, pl.DataFrame], other: str) -> Part:
        lead = self._lead(by_policy, other)
        slopes = [
            slope(of["at"].to_list(), of["lead"].to_list()) for of in lead.partition_by("seed", maintain_order=True)
        ]
        numbers = f"{shown(mean_of(slopes), 4)} more for each of the {self.axis}"
        return Part(f"the gap between {self.best} and {other} grows with the {self.axis}", tuple(slopes), numbers)

    def _most(self, by_policy: dict[str, pl.DataFrame], other: str, at: str) -> list[Part]:
        """That the gap is larger at `at` than at each other value."""
        lead = self._lead(by_policy, other).pivot("at", index="seed", values="lead").sort("seed")
        return [
            Part(
                f"the gap between {self.best} and {other} is larger under {at} than under {value}",
                tuple(lead[at] - lead[str(value)]),
                f"{shown(mean_of(lead[at]))} against {shown(mean_of(lead[str(value)]))}",
            )
            for value in self.values
            if value != at
        ]


def _without(rows: pl.DataFrame, column: str) -> bool:
    """Whether a column is empty in all rows."""
    return column not in rows.columns or rows[column].null_count() == len(rows)


class Gain(Sweep):
    """Settings of a study of one policy's gain over another's, in two variants of the scenario.

    Attributes
    ----------
    variants
        Names and the fields that each sets; the gain is claimed to be larger in the first.
    """

    kind: Literal["gain"]  # type: ignore[assignment]
    variants: dict[str, dict[str, Any]] = Field(min_length=2, max_length=2)

    def _scenarios(self, seed: int, trace: Path | None) -> Iterator[tuple[dict[str, str | int], dict[str, Any]]]:
        for variant, fields in self.variants.items():
            for value in self.values:
                yield (
                    {"variant": variant, "at": value},
                    self._data({**self.set, **fields, self.vary: value}, seed, trace),
                )

    def outcome(self, rows: pl.DataFrame) -> Outcome:
        """Judge the ratio of the sums over the seeds of both policies' metrics, by variant."""
        other = next(policy for policy in self.policies if policy != self.best)
        lines = tuple(
            self._gains(variant, other, rows.filter(pl.col("variant") == variant)) for variant in self.variants
        )
        first, second = (self._by_seed(variant, other, rows) for variant in self.variants)
        larger = mean_of(1 + first), mean_of(1 + second)
        numbers = f"{shown(larger[0], 3)} against {shown(larger[1], 3)} times its {self.metric}"
        more = f"the gain over {other} is larger with {lines[0].label} than with {lines[1].label}"
        parts = (
            Part(more, tuple(first - second), numbers),
            *(
                Part(f"{self.best} gains over {other} with {line.label}", tuple(of), f"{shown(mean, 3)} times as much")
                for line, of, mean in zip(lines, (first, second), larger, strict=True)
            ),
        )
        table: list[tuple[Cell, ...]] = [
            (line.label, int(x), value) for line in lines for x, value in zip(line.x, line.values, strict=True)
        ]
        name = f"{self.metric} of {self.best} over that of {other}"
        figure = Figure(f"{name}, over {self.axis}", self.axis, name, lines, guides=(1.0,))
        return Outcome(parts, ("mix", self.axis, name), tuple(table), figure)

    def _by_seed(self, variant: str, other: str, rows: pl.DataFrame) -> Floats:
        """By seed, the gain over the values, linear in the seed's numbers: its mean is that of the ratios less 1."""
        of_variant = rows.filter(pl.col("variant") == variant)
        wide = of_variant.pivot("policy", index=["seed", "at"], values="value").sort("seed", "at")
        ours, theirs = (wide[policy].to_numpy().reshape(-1, len(self.values)) for policy in (self.best, other))
        ratios = ours.mean(0) / theirs.mean(0)
        gains = (ours - ratios * theirs) / theirs.mean(0) + ratios - 1
        return np.asarray(gains.mean(1))

    def _gains(self, variant: str, other: str, rows: pl.DataFrame) -> Line:
        """The ratio of means at each value, with the interval of its linear form in the seeds' numbers."""
        wide = rows.pivot("policy", index=["seed", "at"], values="value").sort("at", "seed")
        values = []
        for value in self.values:
            here = wide.filter(pl.col("at") == value)
            ours, theirs = here[self.best].to_numpy(), here[other].to_numpy()
            ratio = float(ours.mean() / theirs.mean())
            values.append(mean_of((ours - ratio * theirs) / theirs.mean() + ratio))
        return Line(variant, tuple(map(float, self.values)), tuple(values))
