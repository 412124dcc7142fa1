"""Preemptions of several policies over the number of jobs (JSAC'22 Fig. 5)."""

from __future__ import annotations

from typing import Any, Literal

import polars as pl

from skedge.studies.figure import Figure, Line
from skedge.studies.judge import Part
from skedge.studies.outcome import Cell, Outcome, mean_by_seed, mean_of, shown, slope
from skedge.studies.trial import Ran

from .growing import Growing


class Preemptions(Growing):
    """Settings of a study of preemptions."""

    kind: Literal["preemptions"]

    def rows(self, ran: Ran) -> list[dict[str, Any]]:
        """One row: counts of the run, and of the simulation that predicted it."""
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
        lows = [self._stays_low(by_policy, other) for other in self.policies if other != self.low]
        lines = tuple(self._line(policy, of) for policy, of in by_policy.items())
        table: list[tuple[Cell, ...]] = [
            (policy, count, *(mean_of(of.filter(pl.col("jobs") == count)[column]) for column in _COUNTS))
            for policy, of in by_policy.items()
            for count in self.jobs
        ]
        columns = ("policy", "jobs", *(column.replace("_", " ") for column in _COUNTS))
        figure = Figure("Preemptions over the number of jobs", "jobs", "preemptions", lines)
        return Outcome((*parts, *lows), columns, tuple(table), figure)

    def _grows(self, policy: str, rows: pl.DataFrame) -> Part:
        seeds = [of.sort("jobs") for of in rows.sort("seed").partition_by("seed", maintain_order=True)]
        growth = [slope(of["jobs"].to_list(), of["preemptions"].to_list()) for of in seeds]
        return Part(f"{policy}: preemptions grow with J", tuple(growth), f"{shown(mean_of(growth))} for each job more")

    def _stays_low(self, by_policy: dict[str, pl.DataFrame], other: str) -> Part:
        """That the mean over all J is below another policy's: the strict reading of "relatively low"."""
        ours, theirs = (mean_by_seed(by_policy[policy], "preemptions") for policy in (self.low, other))
        numbers = f"{shown(mean_of(ours))} against {shown(mean_of(theirs))}"
        return Part(f"{self.low} has fewer than {other} over all J", tuple(theirs - ours), numbers)

    def _line(self, policy: str, rows: pl.DataFrame) -> Line:
        by_count = rows.group_by("jobs").agg("preemptions").sort("jobs")
        return Line(policy, tuple(map(float, by_count["jobs"])), tuple(map(mean_of, by_count["preemptions"])))


_COUNTS = ("preemptions", "preemptions_simulated", "workers_displaced", "jobs_displaced")
