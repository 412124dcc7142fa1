"""Simulated studies: a metric of several policies over a field of a scenario.

JSAC'22 Fig. 7 to 10; She et al. Fig. 3 to 13; PD-ORS Fig. 6 to 9, 11 and 12 to 17; Okita Fig. 9 to 14; the studies
across papers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

from skedge.core.errors import InputError
from skedge.core.model.cluster import Floats
from skedge.studies.figure import Figure, Line
from skedge.studies.judge import Part, by_ranks
from skedge.studies.outcome import (
    Cell,
    Outcome,
    caveats_of,
    format_cell,
    format_mean,
    format_pair,
    mean_of,
    points,
    slope,
)

from .varied import scenario_fields

Value = float | str
"""A value of the varied field: a number or a name."""

MATTERS = 0.01
"""The smallest lead that matters, as a part of the other policy's mean: two policies that are nearer are level."""


@dataclass(frozen=True)
class Simulation:
    """One run of a study; `data`: fields of a scenario file, `place`: columns that identify its results."""

    label: str
    policy: str
    seed: int
    data: dict[str, Any]
    place: dict[str, Value]


class SweptRuns(BaseModel):
    """The runs of a study of a metric of several policies over a field of a scenario.

    Attributes
    ----------
    base, set
        A shipped scenario, and the fields of it to set, by their dotted names.
    vary, values, axis
        The varied field, its values (numbers or names), and the title of the axis. Without a field the values take the
        place of ``{at}`` in the policies.
    cases
        Instead of `vary` and `values`: names, and the fields that each sets.
    with_trace
        True: the arrivals are those of a trace file that the user names; every seed takes another part of it.
    set_for
        By a policy's name, fields that are set for its runs alone, on the same jobs: what the paper has one policy
        ignore.
    policies
        The policies of the claim. The figure's labels are the policies as given.
    beside
        Further policies, run and shown beside those of the claim.
    metric
        The metric compared.
    also
        Further metrics that are shown beside it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    base: str
    set: dict[str, Any] = {}
    vary: str | None = None
    values: list[int] | list[float] | list[str] = Field(min_length=1)
    cases: dict[str, dict[str, Any]] = {}
    axis: str
    with_trace: bool = False
    set_for: dict[str, dict[str, Any]] = {}
    policies: list[str] = Field(min_length=1)
    beside: list[str] = []
    metric: str
    also: list[str] = []

    @model_validator(mode="before")
    @classmethod
    def _values_are_the_cases(cls, fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "values": list(fields["cases"])} if fields.get("cases") else fields

    @model_validator(mode="after")
    def _fields_are_of_its_policies(self) -> SweptRuns:
        names = {_name_of(policy) for policy in (*self.policies, *self.beside)}
        if unknown := sorted(set(self.set_for) - names):
            raise ValueError(f"set_for names {unknown[0]}, which is no policy of the study: {', '.join(sorted(names))}")
        return self

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics that are measured; claims are about the first."""
        return (self.metric, *self.also)

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
        for name, fields in self._scenarios():
            shared_data = self._data(fields, seed, trace)
            for policy in (*self.policies, *self.beside):
                policy_fields = self.set_for.get(_name_of(policy))
                data = shared_data if policy_fields is None else self._data(fields | policy_fields, seed, trace)
                # the policy as written in the file, with its {at}: a line of the figure is one such policy
                place: dict[str, Value] = {**name, "policy": policy}
                label = "-".join(str(part) for part in (*place.values(), f"seed{seed}"))
                yield Simulation(label, policy.format(at=name["at"]), seed, data, place)

    def _scenarios(self) -> Iterator[tuple[dict[str, Value], dict[str, Any]]]:
        """Columns that identify a scenario, and the fields that it sets."""
        for value in self.values:
            yield {"at": value}, self.set | self._varied(value)

    def _varied(self, value: Value) -> dict[str, Any]:
        return self.cases.get(str(value), {}) if self.vary is None else {self.vary: value}

    def _data(self, fields: dict[str, Any], seed: int, trace: Path | None) -> dict[str, Any]:
        """The base scenario with `fields` set and, with a trace, the seed's part of it."""
        data = scenario_fields(self.base, fields, seed)
        if trace is not None:
            # seeds must not share arrivals: each skips as many rows as the largest of them takes
            part = data["workload"]["trace"]
            jobs = [value for value in self.values if isinstance(value, int)]
            part |= {"path": str(trace.resolve()), "skip": seed * max([*jobs, part.get("first", 1)])}
        return data


class Sweep(SweptRuns):
    """Settings of a study of a metric of several policies over a field of a scenario: its runs, and what is claimed.

    Attributes
    ----------
    lower
        Whether lower values of the metric are better.
    best
        If given, the claim: this policy is better than each other one at each value.
    metric, lower
        The metric compared, and whether lower values are better.
    base_policy
        If given, all values are divided by this policy's at the same seed and value.
    log
        True: take the metric's logarithm to base 10, and judge by ranks, as costs that grow exponentially have no
        useful mean.
    absolute_gaps
        With `log`. True: the gaps of `grows` and `most_at` are those of the metric itself, not of its logarithms.
    grows
        True: the gap between the best and each of the others is claimed to grow with the field.
    most_at
        The value at which the gap is claimed to be largest.
    below
        Pairs of policies: the metric of the first is claimed to be below that of the second at each value.
    below_at
        Pairs of values: the metric of the first policy is claimed to be below at the first than at the second.
    rises, falls
        Policies whose metric is claimed to rise, or to fall, with the field.
    gap_grows
        Pairs of policies: the lead of the first over the second is claimed to grow with the field.
    gap_metric
        If given, the metric of these leads, one of `also`; else that which is compared.
    flat
        If given, the claim: the means of the first policy at any two values differ by less than this part of its mean.
    at_most
        If given, the claim: the mean of the first policy is at most this at each value.
    largest_at
        If given, the claim: the metric of the first policy is larger at this value than at each other one.
    """

    kind: Literal["sweep"]
    best: str | None = None
    base_policy: str | None = None
    lower: bool = False
    log: bool = False
    absolute_gaps: bool = False
    grows: bool = False
    most_at: str | None = None
    below: list[tuple[str, str]] = []
    below_at: list[tuple[str, str]] = []
    rises: list[str] = []
    falls: list[str] = []
    gap_grows: list[tuple[str, str]] = []
    gap_metric: str | None = None
    flat: float | None = Field(None, gt=0)
    at_most: float | None = None
    largest_at: float | None = None

    @model_validator(mode="after")
    def _measures_its_gaps(self) -> Sweep:
        if self.gap_metric is not None and self.gap_metric not in self.also:
            raise ValueError(f"gap_metric {self.gap_metric!r} is none of also: {', '.join(self.also) or 'empty'}")
        return self

    def outcome(self, raw_rows: pl.DataFrame) -> Outcome:
        """Judge each part of the claim."""
        # sorted, so that values of two policies at one point are in the same order of seeds
        rows = self._scaled(raw_rows).sort("seed", "at")
        by_policy = {policy: rows.filter(pl.col("policy") == policy) for policy in (*self.policies, *self.beside)}
        name = f"log10 of {self.metric}" if self.log else self.metric
        if self.base_policy is not None:
            name = f"{name} over that of {self.base_policy}"
        # only where there is a horizon
        late_column = {} if _is_empty(rows, "late") else {"late": "jobs finished after T"}
        shown_of = {"value": name, **late_column} | {metric: metric for metric in self.also}
        table: list[tuple[Cell, ...]] = [
            (policy, value, *(_mean(policy_rows.filter(pl.col("at") == value)[column]) for column in shown_of))
            for policy, policy_rows in by_policy.items()
            for value in self.values
        ]
        lines = tuple(self._line(policy, policy_rows) for policy, policy_rows in by_policy.items())
        figure = Figure(f"{name} over {self.axis}", self.axis, name, lines, names=self._names)
        parts = tuple(by_ranks(part) if self.log else part for part in self._parts(by_policy))
        claimed = raw_rows.filter(pl.col("policy").is_in(self.policies))
        columns = ("policy", self.axis, *shown_of.values())
        return Outcome(parts, columns, tuple(table), figure, caveats_of(claimed, self.metric))

    def _scaled(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows as they are compared: relative to a policy, or as logarithms."""
        if self.base_policy is not None:
            base_rows = rows.filter(pl.col("policy") == self.base_policy).select("seed", "at", one="value")
            # by seed and value: the base policy ran on the same scenario
            rows = rows.join(base_rows, on=["seed", "at"], maintain_order="left").with_columns(
                pl.col("value") / pl.col("one")
            )
        return rows.with_columns(pl.col("value").log10()) if self.log else rows

    def _parts(self, by_policy: dict[str, pl.DataFrame]) -> Iterator[Part]:
        first = by_policy[self.policies[0]]
        if self.best is not None:
            yield from self._best_parts(by_policy, self.best)
        for winner, loser in self.below:
            yield from self._better_parts(by_policy, winner, loser, lower=True)
        for low, high in self.below_at:
            yield self._below_at(first, low, high)
        for policy in self.rises:
            yield self._trend(by_policy[policy], policy, 1)
        for policy in self.falls:
            yield self._trend(by_policy[policy], policy, -1)
        for leader, rival in self.gap_grows:
            lead = self._lead(by_policy, leader, rival, lower=self.lower, metric=self.gap_metric)
            yield self._grows(lead, leader, rival)
        if self.flat is not None:
            for value_a, value_b in combinations(list[Value](self.values), 2):
                yield self._flat(first, value_a, value_b, self.flat)
        if self.at_most is not None:
            for value in self.values:
                yield self._at_most(first.filter(pl.col("at") == value)["value"], value, self.at_most)
        if self.largest_at is not None:
            yield from self._largest_parts(first, self.largest_at)

    def _best_parts(self, by_policy: dict[str, pl.DataFrame], best: str) -> Iterator[Part]:
        """The best policy is better than each other one, its lead grows, and is largest at a value."""
        # policies of `beside` are shown, and no part of the claim
        rivals = [policy for policy in self.policies if policy != best]
        for rival in rivals:
            yield from self._better_parts(by_policy, best, rival, lower=self.lower)
        for rival in rivals:
            gap = self._gap(self._lead(by_policy, best, rival, lower=self.lower))
            if self.grows:
                yield self._grows(gap, best, rival)
            if self.most_at is not None:
                yield from self._most_parts(gap, f"{best} and {rival}", self.most_at)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(value for value in self.values if isinstance(value, str))

    def _line(self, label: str, rows: pl.DataFrame) -> Line:
        means = tuple(mean_of(rows.filter(pl.col("at") == value)["value"]) for value in self.values)
        values = list[Value](self.values)
        # names have no position: points stand side by side, and no line joins them
        x = tuple(float(i) if isinstance(value, str) else float(value) for i, value in enumerate(values))
        return Line(label, x, means, joined=not self._names)

    def _lead(
        self, by_policy: dict[str, pl.DataFrame], leader: str, rival: str, *, lower: bool, metric: str | None = None
    ) -> pl.DataFrame:
        """The lead of one policy over another by seed and value; columns seed, at, value, theirs, lead.

        With `metric`, one of `also`, it is in that one instead of what is compared.
        """
        column = metric or "value"
        rival_rows = by_policy[rival].select("seed", "at", theirs=column)
        # a lead is positive where the policy is better, whichever direction that is
        sign = -1 if lower else 1
        pairs = by_policy[leader].select("seed", "at", value=column).join(rival_rows, on=["seed", "at"])
        return pairs.with_columns(lead=sign * (pl.col("value") - pl.col("theirs"))).sort("seed", "at")

    def _gap(self, lead: pl.DataFrame) -> pl.DataFrame:
        """The lead as `grows` and `most_at` take it: of the metric, or of its logarithms."""
        if not (self.log and self.absolute_gaps):
            return lead
        sign = -1 if self.lower else 1
        return lead.with_columns(lead=sign * (pl.lit(10.0).pow(pl.col("value")) - pl.lit(10.0).pow(pl.col("theirs"))))

    def _where(self, value: Value) -> str:
        return f"under {value}" if self._names else f"with {value:g} {self.axis}"

    def _better_parts(
        self, by_policy: dict[str, pl.DataFrame], leader: str, rival: str, *, lower: bool
    ) -> Iterator[Part]:
        """One policy is better than another at each value: a part for each."""
        lead = self._lead(by_policy, leader, rival, lower=lower)
        text = f"{leader} is {'below' if lower else 'above'} {rival}"
        for value in self.values:
            value_lead = lead.filter(pl.col("at") == value)
            rival_mean = mean_of(value_lead["theirs"])
            yield Part(
                f"{text} {self._where(value)}",
                tuple(value_lead["lead"]),
                f"{format_mean(value_lead['value'])} against {format_cell(rival_mean)}",
                least=math.log10(1 + MATTERS) if self.log else MATTERS * abs(rival_mean.mean),
            )

    def _grows(self, lead: pl.DataFrame, leader: str, rival: str) -> Part:
        rows = lead.drop("value").rename({"lead": "value"})
        return self._slope(rows, f"the gap between {leader} and {rival} grows", 1)

    def _trend(self, rows: pl.DataFrame, policy: str, sign: int) -> Part:
        return self._slope(rows, f"{policy} {'rises' if sign > 0 else 'falls'}", sign)

    def _slope(self, rows: pl.DataFrame, text: str, sign: int) -> Part:
        """The slope of the values over the field is above 0, or below with the sign -1."""
        seeds = rows.partition_by("seed", maintain_order=True)
        slopes = [slope(seed["at"].to_list(), seed["value"].to_list()) for seed in seeds]
        numbers = f"{format_mean(slopes, 4)} more for each of the {self.axis}"
        return Part(f"{text} with the {self.axis}", tuple(sign * seed_slope for seed_slope in slopes), numbers)

    def _flat(self, rows: pl.DataFrame, value_a: Value, value_b: Value, flat: float) -> Part:
        first, second = (rows.filter(pl.col("at") == value)["value"] for value in (value_a, value_b))
        # logarithms are relative already
        differences = (second - first) / (1.0 if self.log else mean_of(rows["value"]).mean)
        # a ratio of 1 + flat, as a difference of logarithms
        margin = math.log10(1 + flat) if self.log else flat
        text = f"{self.policies[0]} {self._where(value_a)} and {self._where(value_b)} differs by less than {flat:.0%}"
        by = format_mean(differences, 3) if self.log else f"{format_cell(points(mean_of(differences)), 1)} %"
        return Part(text, tuple(differences), f"by {by}", within=margin)

    def _at_most(self, values: pl.Series, value: Value, at_most: float) -> Part:
        text = f"{self.policies[0]} is at most {at_most:g} {self._where(value)}"
        return Part(text, tuple(at_most - values), format_mean(values))

    def _below_at(self, rows: pl.DataFrame, low: str, high: str) -> Part:
        low_values, high_values = (rows.filter(pl.col("at") == value)["value"] for value in (low, high))
        numbers, least = format_pair(low_values, high_values), MATTERS * abs(mean_of(high_values).mean)
        text = f"{self.policies[0]} is lower {self._where(low)} than {self._where(high)}"
        return Part(text, tuple(high_values - low_values), numbers, least=least)

    def _largest_parts(self, rows: pl.DataFrame, peak: float) -> Iterator[Part]:
        peak_values = rows.filter(pl.col("at") == peak)["value"]
        for value in (value for value in list[Value](self.values) if value != peak):
            other_values = rows.filter(pl.col("at") == value)["value"]
            text = f"{self.policies[0]} is larger {self._where(peak)} than {self._where(value)}"
            numbers = format_pair(peak_values, other_values)
            least = MATTERS * abs(mean_of(other_values).mean)
            yield Part(text, tuple(peak_values - other_values), numbers, least=least)

    def _most_parts(self, lead: pl.DataFrame, gap: str, peak: str) -> Iterator[Part]:
        """The gap is larger at `peak` than at each other value: a part for each."""
        # paired by seed
        wide = lead.pivot("at", index="seed", values="lead").sort("seed")
        for value in (str(value) for value in self.values if value != peak):
            text = f"the gap between {gap} is larger under {peak} than under {value}"
            numbers = format_pair(wide[peak], wide[value])
            yield Part(text, tuple(wide[peak] - wide[value]), numbers)


def _name_of(policy: str) -> str:
    """The registered name of a policy that is given with its parameters."""
    return policy.partition(":")[0]


def _mean(values: pl.Series) -> Cell:
    """The mean of the values that there are, or None."""
    # a run may lack a metric, as a mean over no finished job
    present = values.drop_nulls()
    return mean_of(present) if len(present) else None


def _is_empty(rows: pl.DataFrame, column: str) -> bool:
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
    best: str
    variants: dict[str, dict[str, Any]] = Field(min_length=2, max_length=2)

    def _scenarios(self) -> Iterator[tuple[dict[str, Value], dict[str, Any]]]:
        for variant, fields in self.variants.items():
            for value in self.values:
                yield {"variant": variant, "at": value}, self.set | fields | self._varied(value)

    def outcome(self, rows: pl.DataFrame) -> Outcome:
        """Judge the ratio of the sums over the seeds of both policies' metrics, by variant."""
        rival = next(policy for policy in self.policies if policy != self.best)
        lines = tuple(
            self._gains(variant, rival, rows.filter(pl.col("variant") == variant)) for variant in self.variants
        )
        first, second = (self._by_seed(variant, rival, rows) for variant in self.variants)
        means = mean_of(1 + first), mean_of(1 + second)
        numbers = f"{format_cell(means[0], 3)} against {format_cell(means[1], 3)} times its {self.metric}"
        text = f"the gain over {rival} is larger with {lines[0].label} than with {lines[1].label}"
        parts = (
            Part(text, tuple(first - second), numbers),
            *(
                Part(
                    f"{self.best} gains over {rival} with {line.label}",
                    tuple(gains),
                    f"{format_cell(mean, 3)} times as much",
                )
                for line, gains, mean in zip(lines, (first, second), means, strict=True)
            ),
        )
        table: list[tuple[Cell, ...]] = [
            (line.label, int(x), value) for line in lines for x, value in zip(line.x, line.values, strict=True)
        ]
        name = f"{self.metric} of {self.best} over that of {rival}"
        figure = Figure(f"{name}, over {self.axis}", self.axis, name, lines, guides=((1.0, "no gain"),))
        return Outcome(parts, ("mix", self.axis, name), tuple(table), figure)

    def _by_seed(self, variant: str, rival: str, rows: pl.DataFrame) -> Floats:
        """The gain of every seed, linear in the seed's numbers: its mean is that of the ratios less 1."""
        of_variant = rows.filter(pl.col("variant") == variant)
        wide = of_variant.pivot("policy", index=["seed", "at"], values="value").sort("seed", "at")
        best_values, rival_values = (
            wide[policy].to_numpy().reshape(-1, len(self.values)) for policy in (self.best, rival)
        )
        # shape (seeds, values): the ratio of means over the seeds, at each value
        ratios = best_values.mean(0) / rival_values.mean(0)
        # the ratio of means is no mean over seeds; its linear form (delta method) is, so that it can be tested by seed
        gains = (best_values - ratios * rival_values) / rival_values.mean(0) + ratios - 1
        return np.asarray(gains.mean(1))

    def _gains(self, variant: str, rival: str, rows: pl.DataFrame) -> Line:
        """The ratio of means at each value, with the interval of its linear form in the seeds' numbers."""
        wide = rows.pivot("policy", index=["seed", "at"], values="value").sort("at", "seed")
        values = []
        for value in self.values:
            value_rows = wide.filter(pl.col("at") == value)
            best_values, rival_values = value_rows[self.best].to_numpy(), value_rows[rival].to_numpy()
            ratio = float(best_values.mean() / rival_values.mean())
            values.append(mean_of((best_values - ratio * rival_values) / rival_values.mean() + ratio))
        return Line(variant, tuple(map(float, self.values)), tuple(values))
