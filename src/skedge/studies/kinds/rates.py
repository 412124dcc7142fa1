"""A metric of several policies relative to that of one, over the number of jobs (JSAC'22 Fig. 4 and 6)."""

from __future__ import annotations

from typing import Any, Literal

import polars as pl
from pydantic import Field

from skedge.studies.figure import Figure, Line
from skedge.studies.judge import Part
from skedge.studies.outcome import Cell, Outcome, format_pair, mean_by_seed, mean_of
from skedge.studies.trial import TrialResult

from .growing import Growing
from .sweep import MATTERS


class Rates(Growing):
    """Settings of a study of rates.

    Attributes
    ----------
    base_policy
        The policy whose metric is 1.
    metrics
        Names of metrics, whose sum is compared.
    what
        Name of the sum.
    """

    kind: Literal["rates"]
    base_policy: str
    metrics: list[str] = Field(min_length=1)
    what: str

    def rows(self, result: TrialResult) -> list[dict[str, Any]]:
        """One row: the metric of the run, and of the simulation that predicted it."""
        live, simulated = (
            sum(metrics[name] for name in self.metrics) for metrics in (result.metrics, result.simulated)
        )
        return [result.row(value=live, simulated=simulated)]

    def outcome(self, rows: pl.DataFrame) -> Outcome:
        """Judge whether one policy's rate is the lowest."""
        base = rows.filter(pl.col("policy") == self.base_policy)
        base = base.select("seed", "jobs", one="value", one_simulated="simulated")
        # by seed and J: the base policy ran on the same jobs
        rates = rows.join(base, on=["seed", "jobs"]).with_columns(
            rate=pl.col("value") / pl.col("one"), rate_simulated=pl.col("simulated") / pl.col("one_simulated")
        )
        by_policy = {policy: rates.filter(pl.col("policy") == policy) for policy in self.policies}
        rivals = [policy for policy in self.policies if policy != self.low]
        table: list[tuple[Cell, ...]] = [
            (policy, count, *(mean_of(policy_rows.filter(pl.col("jobs") == count)[column]) for column in _COLUMNS))
            for policy, policy_rows in by_policy.items()
            for count in self.jobs
        ]
        columns = ("policy", "jobs", f"{self.what} rate", "rate simulated", "live s", "simulated s")
        lines = tuple(self._line(policy, policy_rows) for policy, policy_rows in by_policy.items())
        figure = Figure(f"{self.what} rate over the number of jobs", "jobs", f"{self.what} rate", lines)
        return Outcome(tuple(self._below(by_policy, rival) for rival in rivals), columns, tuple(table), figure)

    def _below(self, by_policy: dict[str, pl.DataFrame], rival: str) -> Part:
        """The rate over all J is below another policy's, in the mean over the seeds."""
        # the mean over all J of each seed: one difference a seed
        low_means, policy_means = (mean_by_seed(by_policy[policy], "rate") for policy in (self.low, rival))
        numbers = format_pair(low_means, policy_means)
        least = MATTERS * mean_of(policy_means).mean
        return Part(f"{self.low} is below {rival} over all J", tuple(policy_means - low_means), numbers, least=least)

    def _line(self, policy: str, rows: pl.DataFrame) -> Line:
        by_count = rows.group_by("jobs").agg("rate").sort("jobs")
        return Line(policy, tuple(map(float, by_count["jobs"])), tuple(map(mean_of, by_count["rate"])))


_COLUMNS = ("rate", "rate_simulated", "value", "simulated")
