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
    """Settings of a study of preemptions.

    Attributes
    ----------
    unit
        What is counted: ``preemptions``, chunks that are displaced or gangs that lose all their workers, each of them
        one; or the workers that jobs were deprived of, so that a gang counts with all that it holds.
    """

    kind: Literal["preemptions"]
    unit: Literal["preemptions", "workers_displaced"] = "preemptions"

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
        """Judge the growth of every policy, and whether one stays relatively low."""
        by_policy = {policy: rows.filter(pl.col("policy") == policy) for policy in self.policies}
        parts = [self._grows(policy, policy_rows) for policy, policy_rows in by_policy.items()]
        lines = tuple(self._line(policy, policy_rows) for policy, policy_rows in by_policy.items())
        table: list[tuple[Cell, ...]] = [
            (policy, count, *(mean_of(policy_rows.filter(pl.col("jobs") == count)[column]) for column in _COUNTS))
            for policy, policy_rows in by_policy.items()
            for count in self.jobs
        ]
        columns = ("policy", "jobs", *(column.replace("_", " ") for column in _COUNTS))
        name = self.unit.replace("_", " ")
        figure = Figure(f"{name.capitalize()} over the number of jobs", "jobs", name, lines)
        return Outcome((*parts, self._stays_low(by_policy)), columns, tuple(table), figure)

    def _grows(self, policy: str, rows: pl.DataFrame) -> Part:
        seeds = [seed_rows.sort("jobs") for seed_rows in rows.sort("seed").partition_by("seed", maintain_order=True)]
        # one slope a seed, as values at different J of a seed are not independent
        growth = [slope(seed_rows["jobs"].to_list(), seed_rows[self.unit].to_list()) for seed_rows in seeds]
        return Part(f"{policy}: preemptions grow with J", tuple(growth), f"{format_mean(growth)} for each job more")

    def _stays_low(self, by_policy: dict[str, pl.DataFrame]) -> Part:
        """Relatively low: the mean over all J is below that of the other policies together, one may be lower."""
        rivals = pl.concat([by_policy[policy] for policy in self.policies if policy != self.low])
        low_means, rival_means = (mean_by_seed(rows, self.unit) for rows in (by_policy[self.low], rivals))
        text = f"{self.low} has fewer over all J than the mean of the others"
        return Part(text, tuple(rival_means - low_means), format_pair(low_means, rival_means))

    def _line(self, policy: str, rows: pl.DataFrame) -> Line:
        by_count = rows.group_by("jobs").agg(self.unit).sort("jobs")
        return Line(policy, tuple(map(float, by_count["jobs"])), tuple(map(mean_of, by_count[self.unit])))


_COUNTS = ("preemptions", "preemptions_simulated", "workers_displaced", "jobs_displaced")
