"""Preemptions of several policies over the number of jobs (JSAC'22 Fig. 5)."""

from __future__ import annotations

from typing import Any, Literal

import polars as pl

from skedge.studies.figure import Figure, Line
from skedge.studies.judge import Part
from skedge.studies.outcome import Cell, Outcome, format_mean, format_pair, mean_by_seed, mean_of, slope
from skedge.studies.trial import TrialResult

from .growing import Growing


class Preemptions(Growing):
    """Settings of a study of preemptions."""

    kind: Literal["preemptions"]

    def rows(self, result: TrialResult) -> list[dict[str, Any]]:
        """One row: counts of the run, and of the simulation that predicted it."""
        counts = {
            "preemptions": result.metrics["preemptions"],
            "workers_displaced": result.displaced_workers,
            "jobs_displaced": result.displaced_jobs,
            "jct_mean_s": result.metrics["jct_mean_s"],
            "preemptions_simulated": result.simulated["preemptions"],
            "jct_mean_simulated_s": result.simulated["jct_mean_s"],
        }
        return [result.row(**counts)]

    def outcome(self, rows: pl.DataFrame) -> Outcome:
        """Judge the growth of every policy, and whether one stays low."""
        by_policy = {policy: rows.filter(pl.col("policy") == policy) for policy in self.policies}
        parts = [self._grows(policy, policy_rows) for policy, policy_rows in by_policy.items()]
        lows = [self._stays_low(by_policy, rival) for rival in self.policies if rival != self.low]
        lines = tuple(self._line(policy, policy_rows) for policy, policy_rows in by_policy.items())
        table: list[tuple[Cell, ...]] = [
            (policy, count, *(mean_of(policy_rows.filter(pl.col("jobs") == count)[column]) for column in _COUNTS))
            for policy, policy_rows in by_policy.items()
            for count in self.jobs
        ]
        columns = ("policy", "jobs", *(column.replace("_", " ") for column in _COUNTS))
        figure = Figure("Preemptions over the number of jobs", "jobs", "preemptions", lines)
        return Outcome((*parts, *lows), columns, tuple(table), figure)

    def _grows(self, policy: str, rows: pl.DataFrame) -> Part:
        seeds = [seed_rows.sort("jobs") for seed_rows in rows.sort("seed").partition_by("seed", maintain_order=True)]
        # one slope a seed, as values at different J of a seed are not independent
        growth = [slope(seed_rows["jobs"].to_list(), seed_rows["preemptions"].to_list()) for seed_rows in seeds]
        return Part(f"{policy}: preemptions grow with J", tuple(growth), f"{format_mean(growth)} for each job more")

    def _stays_low(self, by_policy: dict[str, pl.DataFrame], rival: str) -> Part:
        """The strict reading of "relatively low": the mean over all J is below another policy's."""
        low_means, policy_means = (mean_by_seed(by_policy[policy], "preemptions") for policy in (self.low, rival))
        numbers = format_pair(low_means, policy_means)
        return Part(f"{self.low} has fewer than {rival} over all J", tuple(policy_means - low_means), numbers)

    def _line(self, policy: str, rows: pl.DataFrame) -> Line:
        by_count = rows.group_by("jobs").agg("preemptions").sort("jobs")
        return Line(policy, tuple(map(float, by_count["jobs"])), tuple(map(mean_of, by_count["preemptions"])))


_COUNTS = ("preemptions", "preemptions_simulated", "workers_displaced", "jobs_displaced")
