"""Preemptions of several policies over the number of jobs (JSAC'22 Fig. 5)."""

from __future__ import annotations

from typing import Any, Literal

import polars as pl
from numpy.random import default_rng
from pydantic import BaseModel, ConfigDict, Field

from .figure import Figure, Line
from .outcome import Cell, Outcome, Part, mean_of, shown, slope
from .trial import Fields, Ran, Trial, seeded

_STREAM = 5
"""Of a seed: the jobs."""


class Preemptions(BaseModel):
    """Settings of a study of preemptions.

    Attributes
    ----------
    low
        The policy whose preemptions are claimed to stay low.
    jobs
        Numbers of jobs; the smaller workloads of a seed are parts of its largest.
    span_s
        Jobs arrive at random in it, whatever their number.
    models
        What the jobs train, in turn: a name and arguments of the factory.
    epochs, chunks
        Ranges that are drawn from.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["preemptions"]
    policies: list[str] = Field(min_length=2)
    low: str
    jobs: list[int] = Field(min_length=2)
    span_s: float
    factory: str
    models: list[dict[str, Any]] = Field(min_length=1)
    epochs: tuple[int, int]
    chunks: tuple[int, int]

    def trials(self, shared: Fields, seed: int) -> list[Trial]:
        """Every policy on every number of jobs."""
        jobs = self._drawn(shared, seed)
        return [
            Trial(f"{policy}-{count}jobs-seed{seed}", policy, seed, jobs[:count], {"policy": policy, "jobs": count})
            for count in self.jobs
            for policy in self.policies
        ]

    def _drawn(self, shared: Fields, seed: int) -> tuple[Fields, ...]:
        """The largest workload of a seed; a gang asks for a worker per chunk."""
        rng, made = default_rng([seed, _STREAM]), []
        for i in range(max(self.jobs)):
            chunks, epochs = (int(rng.integers(*each, endpoint=True)) for each in (self.chunks, self.epochs))
            model = self.models[i % len(self.models)]
            job = {
                "id": f"{i:02}-{model['model']}",
                "arrival_s": round(float(rng.uniform(0, self.span_s)), 3),
                "epochs": epochs,
                "chunks": chunks,
                "workers": chunks,
                "train": {"factory": self.factory, "args": {**model, "chunks": chunks}},
            }
            made.append(seeded({**shared, **job}, seed))
        return tuple(made)

    def rows(self, ran: Ran) -> list[dict[str, Any]]:
        """One row: counts of the run, and those of the simulation that foresaw it."""
        counts = {
            "preemptions": ran.metrics["preemptions"],
            "workers_displaced": ran.displaced_workers,
            "jobs_displaced": ran.displaced_jobs,
            "jct_mean_s": ran.metrics["jct_mean_s"],
            "preemptions_simulated": ran.simulated["preemptions"],
            "jct_mean_simulated_s": ran.simulated["jct_mean_s"],
        }
        return [{"seed": ran.trial.seed, **ran.trial.place, **counts}]

    def outcome(self, rows: pl.DataFrame) -> Outcome:
        """Judge the growth of every policy, and whether one stays low."""
        by_policy = {policy: rows.filter(pl.col("policy") == policy) for policy in self.policies}
        parts = [self._grows(policy, of) for policy, of in by_policy.items()]
        lines = tuple(self._line(policy, of) for policy, of in by_policy.items())
        table: list[tuple[Cell, ...]] = [
            (policy, count, *(mean_of(of.filter(pl.col("jobs") == count)[column]) for column in _COUNTS))
            for policy, of in by_policy.items()
            for count in self.jobs
        ]
        columns = ("policy", "jobs", *(column.replace("_", " ") for column in _COUNTS))
        figure = Figure("Preemptions over the number of jobs", "jobs", "preemptions", lines)
        return Outcome((*parts, self._stays_low(by_policy)), columns, tuple(table), figure)

    def _grows(self, policy: str, rows: pl.DataFrame) -> Part:
        seeds = [of.sort("jobs") for of in rows.partition_by("seed")]
        growth = mean_of(slope(of["jobs"].to_list(), of["preemptions"].to_list()) for of in seeds)
        return Part(f"{policy}: preemptions grow with J", growth.mean > 0, f"{shown(growth)} for each job more")

    def _stays_low(self, by_policy: dict[str, pl.DataFrame]) -> Part:
        """No more than any other, in the mean over all runs: the strict reading of "relatively low"."""
        means = {policy: mean_of(of["preemptions"]) for policy, of in by_policy.items()}
        holds = all(means[self.low].mean <= other.mean for other in means.values())
        numbers = ", ".join(f"{policy} {shown(mean)}" for policy, mean in means.items())
        return Part(f"{self.low} has the fewest over all J", holds, numbers)

    def _line(self, policy: str, rows: pl.DataFrame) -> Line:
        by_count = rows.group_by("jobs").agg("preemptions").sort("jobs")
        return Line(policy, tuple(map(float, by_count["jobs"])), tuple(map(mean_of, by_count["preemptions"])))


_COUNTS = ("preemptions", "preemptions_simulated", "workers_displaced", "jobs_displaced")
