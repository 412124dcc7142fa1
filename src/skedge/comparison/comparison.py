"""The comparison of policies over seeds: estimates, differences, and which of these are significant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import polars as pl

from skedge.analysis.intervals import FEWEST, Estimate, bounded, estimate
from skedge.analysis.verify.verify import Violation
from skedge.core.errors import SkedgeError
from skedge.core.model.cluster import Floats
from skedge.core.model.time import SECOND
from skedge.optimum.problems import Reference
from skedge.recorded_run import Run
from skedge.report.build import ReportTable, build_report
from skedge.report.notebook import notebook_html
from skedge.report.plots import Plots

from . import texts
from .columns import (
    COLUMNS,
    COST_COLUMNS,
    FINISHED_COLUMN,
    HIGHER_IS_BETTER,
    HORIZON_COLUMN,
    NEITHER_IS_BETTER,
    VALUE_COLUMNS,
    is_censored,
    limits,
    needs_same_jobs,
)
from .rates import reference_among

Seeding = Literal["drawn", "resampled", "same"]
"""Effect of seeds on jobs: drawn; resampled from a trace, except at the trace's own seed; or the same for all seeds."""

_NOISE = 1e-9
"""Differences up to this part of the values compared are rounding."""


@dataclass(frozen=True)
class Times:
    """Times of a run [s]: CPU time of the policy's decisions, wall-clock times of simulation and verification.

    The decisions of a run in a compiled loop (:mod:`skedge.loops`) are not timed: None.
    """

    decisions: float | None
    run: float
    verify: float


@dataclass(frozen=True)
class Failure:
    """A run that ended with an error; `trace` says where it arose, unless it is one of skedge's sentences."""

    policy: str
    seed: int
    error: Exception
    trace: str = ""

    @property
    def text(self) -> str:
        """The error as a sentence."""
        return str(self.error) if isinstance(self.error, SkedgeError) else f"{type(self.error).__name__}: {self.error}"


@dataclass(frozen=True)
class Comparison:
    """Metrics of each policy and seed.

    Attributes
    ----------
    policies, seeds
        The policies and seeds compared.
    metrics
        ``metrics[policy][i]`` are the metrics for ``seeds[i]``, with ``jct_rate`` and ``bound_ratio`` added.
    first_runs
        The runs of the first seed, for the report.
    references
        By seed: the bound that ``bound_ratio`` is relative to; None if no bound holds for all the runs.
    violations
        By policy and seed: the violations found by the verifier; None if it was not run.
    times
        By policy and seed. They differ from run to run, so no result shows them.
    seeding
        Effect of seeds on jobs, which decides what the intervals are of.
    finished
        By policy and seed: a hash of which jobs finished. Where it is left out, the same ones did.
    failures
        Runs that ended with an error; their policies are not among those compared.
    may_use_cloud
        Which policies may send to the cloud what the edge could hold. One that is left out may if it used the cloud.
    """

    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    metrics: dict[str, list[dict[str, Any]]]
    first_runs: tuple[Run, ...]
    references: tuple[Reference | None, ...] = ()
    violations: dict[str, list[list[Violation]]] | None = None
    times: dict[str, list[Times]] = field(default_factory=dict)
    seeding: Seeding = "drawn"
    finished: dict[str, list[str]] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    may_use_cloud: dict[str, bool] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        """The policy that rates and differences are relative to."""
        return reference_among(self.policies)

    @property
    def leading_metric(self) -> str:
        """The metric of the differences: mean JCT, total utility or total cost."""
        return self.columns[0]

    @property
    def best_mean_policy(self) -> str:
        """The policy with the best mean of the leading metric, significant or not; the first of equals.

        Where means are over the finished jobs, of the policies that finished the most.
        """

        def rank(policy: str) -> tuple[float, float]:
            # A policy that finishes fewer jobs has the shorter mean, as it leaves the long ones undone: count these
            # first.
            rows = self.metrics[policy] if needs_same_jobs(self.leading_metric) else []
            mean = self.estimate(policy, self.leading_metric)
            worse = np.inf if mean is None else -_better(self.leading_metric) * mean.mean
            return -sum(row.get(FINISHED_COLUMN, 0) for row in rows), worse

        return min(self.policies, key=rank)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the metrics to show."""
        rows = [row for rows in self.metrics.values() for row in rows]
        sets: tuple[tuple[str, ...], ...] = (VALUE_COLUMNS, COST_COLUMNS)
        first = next((columns for columns in sets if all(columns[0] in row for row in rows)), COLUMNS[:1])
        second = (FINISHED_COLUMN,) if self.unfinished_shares else ()
        last = (HORIZON_COLUMN,) if all(row.get(HORIZON_COLUMN) is not None for row in rows) else ()
        return tuple(dict.fromkeys((*first, *second, *COLUMNS, *last)))

    @property
    def unfinished_shares(self) -> dict[str, float]:
        """The share of jobs that did not finish, of the policies with such jobs."""
        share = {
            policy: float(np.mean([1 - row["finished"] / max(row["jobs"], 1) for row in rows if "jobs" in row] or 0))
            for policy, rows in self.metrics.items()
        }
        return {policy: fraction for policy, fraction in share.items() if fraction > 0}

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The policies that may not use the cloud, and those that may; one group if no run trained anything there.

        A cloud of limited size is a server like the others, which all policies may use.
        """
        # Without an unlimited cloud there are no two groups: capacity binds all policies alike.
        limited = any(run.scenario.cluster.cloud is None for run in self.first_runs[:1])
        cloud_used = not limited and any(map(self._has_used_cloud, self.policies))
        parts = ([p for p in self.policies if (cloud_used and self._may_use_cloud(p)) == may] for may in (False, True))
        return [tuple(part) for part in parts if part]

    @property
    def has_cloud(self) -> bool:
        """Whether there is a cloud, without limit or of limited size."""
        return any(server.far for run in self.first_runs[:1] for server in run.scenario.cluster.servers)

    def _may_use_cloud(self, policy: str) -> bool:
        return self.may_use_cloud.get(policy, self._has_used_cloud(policy))

    def _has_used_cloud(self, policy: str) -> bool:
        return any((row.get("cloud_share") or 0.0) > 0 for row in self.metrics[policy])

    def estimate(self, policy: str, column: str) -> Estimate | None:
        """Mean of a metric and its interval; None if it does not apply.

        The interval is a bootstrap's over seeds; of windows resampled from a trace, it is Student's t of one window.
        Without an interval if nothing varies, or the jobs are the same for every seed.
        """
        values = self._values(policy, column)
        # Equal values, or a single one, say nothing about other seeds: an interval of width 0 would claim certainty.
        if values is None or not np.ptp(values):
            return None if values is None else Estimate(float(values[0]))
        return self._without_interval_if_same(bounded(values, of_one=self._one_window, limits=limits(column)))

    def difference(self, policy: str, column: str, to: str | None = None) -> Estimate | None:
        """Mean and interval of a metric less that of policy `to` (default: the reference), seed by seed.

        None if it does not apply, for the reference itself, or if the two finished different jobs and the metric does
        not compare then.
        """
        base = to or self.reference
        values, base_values = self._values(policy, column), self._values(base, column)
        if values is None or base_values is None or policy == base or not self._has_same_jobs(policy, base, column):
            return None
        # Seed by seed: what equal jobs do to both policies cancels, and the interval is of the policies' difference
        # alone.
        delta, scale = values - base_values, max(np.abs(values).max(), np.abs(base_values).max())
        # Sums in another order differ in their last digits; they are equal, not decidedly different.
        if np.ptp(delta) <= _NOISE * scale:
            mean = float(delta.mean())
            return Estimate(mean if abs(mean) > _NOISE * scale else 0.0)
        if len(delta) < FEWEST:
            return Estimate(float(delta.mean()))
        return self._without_interval_if_same(estimate(delta, of_one=self._one_window))

    def is_equal(self, policy: str, column: str, to: str | None = None) -> bool:
        """Whether a metric equals that of policy `to` (default: the reference) with every seed, up to rounding."""
        delta = self.difference(policy, column, to)
        return delta is not None and delta == Estimate(0.0)

    def sign(self, policy: str, column: str, to: str | None = None) -> int:
        """-1 or 1 if a metric is decidedly below or above that of policy `to` (default: the reference), else 0.

        Between a policy that may use the cloud, which has neither an end nor a price, and one that may not, nothing is
        decided, nor is it of a bound from below.
        """
        base = to or self.reference
        delta = self.difference(policy, column, base)
        comparable = any({policy, base} <= set(group) for group in self.groups)
        is_bound = self.is_censored(policy, column) or self.is_censored(base, column)
        return 0 if delta is None or is_bound or not comparable else delta.sign

    def best(self, column: str, among: Sequence[str] | None = None) -> str | None:
        """The policy decidedly better in a metric than each other one `among` these (default: all); else None."""
        policies = self.policies if among is None else among
        if column in NEITHER_IS_BETTER:
            return None
        # Better than each other one by itself, not than their mean. At most one policy can be.
        for policy in policies:
            signs = [self.sign(policy, column, to=rival) for rival in policies if rival != policy]
            if signs and all(sign == _better(column) for sign in signs):
                return policy
        return None

    def is_censored(self, policy: str, column: str) -> bool:
        """Whether a metric is a bound from below with some seed, as the horizon cut off what it measures."""
        return any(is_censored(column, row) for row in self.metrics[policy])

    @property
    def texts(self) -> list[str]:
        """The sentences on seeds and intervals, and on what the comparison does not show by itself."""
        return texts.sentences(self)

    @property
    def interval_text(self) -> str:
        """A sentence on the kind of the intervals; empty for one seed."""
        return texts.interval_text(self)

    @property
    def bound_text(self) -> str:
        """A sentence on the bound that ``bound_ratio`` is relative to; empty without a bound."""
        return texts.bound_text(self)

    @property
    def verified_text(self) -> str:
        """A sentence on the result of the verification."""
        return texts.verified_text(self)

    def report(self, title: str = "Comparison", command: str = "skedge.compare") -> str:
        """The report as one HTML page: table, lanes and charts of the first seed; `command` is how it was made."""
        scenario, versions = self.first_runs[0].scenario, self.first_runs[0].meta["versions"]
        settings = {
            "compared seeds": ", ".join(map(str, self.seeds)),
            "chunks": str(int(scenario.jobs.chunks.sum())),
            "versions": ", ".join(f"{k} {v}" for k, v in versions.items()),
            "command": command,
        }
        return build_report(self.plot.runs, self._table(), title, settings)

    @property
    def plot(self) -> Plots:
        """The charts of the first seed: ``comparison.plot.jct()``, ``.utilisation()`` and ``.lanes("srtf")``."""
        return Plots([run.shown(policy) for policy, run in zip(self.policies, self.first_runs, strict=True)])

    def _repr_html_(self) -> str:
        """The table and the completion times of the first seed, as Jupyter shows them."""
        seeds = f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''}"
        title = f"{len(self.policies)} policies on {self.first_runs[0].scenario.name}, {seeds}"
        return notebook_html(title, self._table(), [self.plot.jct()], "; ".join(self.texts))

    def _table(self) -> ReportTable:
        """The table in the report: the leading metric, its difference to the reference, all others."""
        rows = []
        for policy in self.policies:
            leading, *rest = (self.cell(policy, column) for column in self.columns)
            delta = (
                "equal"
                if self.is_equal(policy, self.leading_metric)
                else estimate_fields(self.difference(policy, self.leading_metric))
            )
            rows.append([policy, leading, delta, *rest])
        columns = ["policy", self.leading_metric, f"difference_{self.leading_metric}", *self.columns[1:]]
        best = {column: tuple(map(self.policies.index, self._best_of_groups(column))) for column in self.columns}
        return ReportTable(columns, rows, best, note="; ".join(self.texts))

    def _best_of_groups(self, column: str) -> Iterator[str]:
        for group in self.groups:
            if (best := self.best(column, group)) is not None:
                yield best

    def cell(self, policy: str, column: str) -> dict[str, Any] | None:
        """The estimate of a metric as JSON; a bound from below has ``censored``."""
        fields = estimate_fields(self.estimate(policy, column))
        return fields and fields | ({"censored": True} if self.is_censored(policy, column) else {})

    def to_frame(self) -> pl.DataFrame:
        """A row for each policy and seed: columns ``policy``, ``seed`` and the metrics.

        Metrics in seconds are durations, named without ``_s``; the other names end in their unit.
        """
        rows = [
            {"policy": policy, "seed": seed, **row}
            for policy, by_seed in self.metrics.items()
            for seed, row in zip(self.seeds, by_seed, strict=True)
        ]
        frame = pl.DataFrame(rows, infer_schema_length=None)
        times = [name for name in frame.columns if name.endswith("_s")]
        # Whole µs, as in the record: polars cuts off the rest of a float when it makes a duration.
        lasting = [(pl.col(name) * SECOND).round().cast(pl.Duration("us")) for name in times]
        return frame.with_columns(lasting).rename({name: name.removesuffix("_s") for name in times})

    @property
    def _one_window(self) -> bool:
        return self.seeding == "resampled"

    def _without_interval_if_same(self, value: Estimate) -> Estimate:
        return Estimate(value.mean) if self.seeding == "same" else value

    def _has_same_jobs(self, policy: str, base: str, column: str) -> bool:
        return not needs_same_jobs(column) or self.finished.get(policy) == self.finished.get(base)

    def _values(self, policy: str, column: str) -> Floats | None:
        values = [row[column] for row in self.metrics[policy]]
        # Not the mean of those seeds that have one: it would be of other jobs than the other policies' means.
        return None if any(value is None for value in values) else np.array(values, float)


def estimate_fields(value: Estimate | None) -> dict[str, Any] | None:
    """An estimate as JSON."""
    return None if value is None else asdict(value)


def _better(column: str) -> int:
    """Sign of a difference in favour of a policy: 1 where higher is better, else -1."""
    return 1 if column in HIGHER_IS_BETTER else -1
