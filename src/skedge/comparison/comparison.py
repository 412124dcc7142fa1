"""The comparison of policies over seeds: estimates, differences, and which of them decide."""

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
from skedge.report.build import ReportTable, build_report
from skedge.report.notebook import displayed
from skedge.report.plots import Plots
from skedge.run import Run

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
    of_finished,
)
from .rates import reference_among

Seeding = Literal["drawn", "resampled", "same"]
"""What seeds do to the jobs: draw them; resample those of a trace, but for its own seed; or leave them the same."""

_NOISE = 1e-9
"""Differences up to this part of the values compared are rounding."""


@dataclass(frozen=True)
class Times:
    """Times of a run [s]: CPU time of the policy's decisions, wall-clock times of simulation and verification.

    The decisions of a run in a compiled loop (:mod:`skedge.quick`) are not timed: None.
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
    first
        The runs of the first seed, for the report.
    references
        By seed: the bound that ``bound_ratio`` is relative to; None if no bound holds for all the runs.
    violations
        By policy and seed: the violations found by the verifier; None if it was not run.
    times
        By policy and seed. They differ from run to run, so no result shows them.
    seeding
        What seeds do to the jobs, which says of what the intervals are.
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
    first: tuple[Run, ...]
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
    def leading(self) -> str:
        """The metric of the differences: mean JCT, total utility or total cost."""
        return self.columns[0]

    @property
    def best_in_the_mean(self) -> str:
        """The policy with the best mean of the leading metric, significant or not; the first of equals.

        Where means are over the finished jobs, of the policies that finished the most.
        """

        def rank(policy: str) -> tuple[float, float]:
            rows = self.metrics[policy] if of_finished(self.leading) else []
            mean = self.estimate(policy, self.leading)
            worse = np.inf if mean is None else -_better(self.leading) * mean.mean
            return -sum(row.get(FINISHED_COLUMN, 0) for row in rows), worse

        return min(self.policies, key=rank)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the metrics to show."""
        rows = [row for rows in self.metrics.values() for row in rows]
        sets: tuple[tuple[str, ...], ...] = (VALUE_COLUMNS, COST_COLUMNS)
        first = next((columns for columns in sets if all(columns[0] in row for row in rows)), COLUMNS[:1])
        second = (FINISHED_COLUMN,) if self.unfinished else ()
        last = (HORIZON_COLUMN,) if all(row.get(HORIZON_COLUMN) is not None for row in rows) else ()
        return tuple(dict.fromkeys((*first, *second, *COLUMNS, *last)))

    @property
    def unfinished(self) -> dict[str, float]:
        """The share of jobs that did not finish, of the policies with such jobs."""
        share = {
            policy: float(np.mean([1 - row["finished"] / max(row["jobs"], 1) for row in rows if "jobs" in row] or 0))
            for policy, rows in self.metrics.items()
        }
        return {policy: left for policy, left in share.items() if left > 0}

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The policies that may not use the cloud, and those that may; one group if no run trained anything there.

        A cloud of limited size is a server like the others, which all policies may use.
        """
        limited = any(run.scenario.cluster.cloud is None for run in self.first[:1])
        used = not limited and any(map(self._used_cloud, self.policies))
        parts = ([p for p in self.policies if (used and self._has_cloud(p)) == may] for may in (False, True))
        return [tuple(part) for part in parts if part]

    @property
    def has_cloud(self) -> bool:
        """Whether there is a cloud, without limit or of limited size."""
        return any(server.far for run in self.first[:1] for server in run.scenario.cluster.servers)

    def _has_cloud(self, policy: str) -> bool:
        return self.may_use_cloud.get(policy, self._used_cloud(policy))

    def _used_cloud(self, policy: str) -> bool:
        return any((row.get("cloud_share") or 0.0) > 0 for row in self.metrics[policy])

    def estimate(self, policy: str, column: str) -> Estimate | None:
        """Mean of a metric and its interval; None if it does not apply.

        The interval is a bootstrap's over seeds; of windows resampled from a trace, it is Student's t of one window.
        Without an interval if nothing varies, or the jobs are the same for every seed.
        """
        values = self._values(policy, column)
        if values is None or not np.ptp(values):
            return None if values is None else Estimate(float(values[0]))
        return self._without_interval_if_same(bounded(values, of_one=self._of_one, limits=limits(column)))

    def difference(self, policy: str, column: str, to: str | None = None) -> Estimate | None:
        """Mean and interval of a metric less that of policy `to` (default: the reference), seed by seed.

        None if it does not apply, for the reference itself, or if the two finished different jobs and the metric does
        not compare then.
        """
        other = to or self.reference
        mine, theirs = self._values(policy, column), self._values(other, column)
        if mine is None or theirs is None or policy == other or not self._over_same_jobs(policy, other, column):
            return None
        less, scale = mine - theirs, max(np.abs(mine).max(), np.abs(theirs).max())
        if np.ptp(less) <= _NOISE * scale:
            mean = float(less.mean())
            return Estimate(mean if abs(mean) > _NOISE * scale else 0.0)
        if len(less) < FEWEST:
            return Estimate(float(less.mean()))
        return self._without_interval_if_same(estimate(less, of_one=self._of_one))

    def is_equal(self, policy: str, column: str, to: str | None = None) -> bool:
        """Whether a metric equals that of policy `to` (default: the reference) with every seed, up to rounding."""
        less = self.difference(policy, column, to)
        return less is not None and less == Estimate(0.0)

    def sign(self, policy: str, column: str, to: str | None = None) -> int:
        """-1 or 1 if a metric is decidedly below or above that of policy `to` (default: the reference), else 0.

        Between a policy that may use the cloud, which has neither an end nor a price, and one that may not, nothing is
        decided, nor is it of a bound from below.
        """
        other = to or self.reference
        less = self.difference(policy, column, other)
        together = any({policy, other} <= set(group) for group in self.groups)
        cut = self.is_censored(policy, column) or self.is_censored(other, column)
        return 0 if less is None or cut or not together else less.sign

    def best(self, column: str, among: Sequence[str] | None = None) -> str | None:
        """The policy decidedly better in a metric than each other one `among` these (default: all); else None."""
        policies = self.policies if among is None else among
        if column in NEITHER_IS_BETTER:
            return None
        for policy in policies:
            signs = [self.sign(policy, column, to=other) for other in policies if other != policy]
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
    def unfinished_text(self) -> str:
        """A sentence on unfinished jobs, by policy; empty if all jobs finish, or if utilities are compared."""
        return texts.unfinished_text(self)

    @property
    def verified_text(self) -> str:
        """A sentence on the result of the verification."""
        return texts.verified_text(self)

    def report(self, title: str = "Comparison", command: str = "skedge.compare") -> str:
        """The report as one HTML page: table, lanes and charts of the first seed; `command` is how it was made."""
        scenario, versions = self.first[0].scenario, self.first[0].meta["versions"]
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
        return Plots([run.shown(policy) for policy, run in zip(self.policies, self.first, strict=True)])

    def _repr_html_(self) -> str:
        """The table and the completion times of the first seed, as Jupyter shows them."""
        seeds = f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''}"
        title = f"{len(self.policies)} policies on {self.first[0].scenario.name}, {seeds}"
        return displayed(title, self._table(), [self.plot.jct()], "; ".join(self.texts))

    def _table(self) -> ReportTable:
        """The table in the report: the leading metric, its difference to the reference, all others."""
        rows = []
        for policy in self.policies:
            leading, *others = (self.cell(policy, column) for column in self.columns)
            less = "equal" if self.is_equal(policy, self.leading) else plain(self.difference(policy, self.leading))
            rows.append([policy, leading, less, *others])
        columns = ["policy", self.leading, f"difference_{self.leading}", *self.columns[1:]]
        best = {column: tuple(map(self.policies.index, self._best_of_groups(column))) for column in self.columns}
        return ReportTable(columns, rows, best, note="; ".join(self.texts))

    def _best_of_groups(self, column: str) -> Iterator[str]:
        for group in self.groups:
            if (best := self.best(column, group)) is not None:
                yield best

    def cell(self, policy: str, column: str) -> dict[str, Any] | None:
        """The estimate of a metric as JSON; a bound from below has ``censored``."""
        found = plain(self.estimate(policy, column))
        return found and found | ({"censored": True} if self.is_censored(policy, column) else {})

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
        lasting = [(pl.col(name) * SECOND).round().cast(pl.Duration("us")) for name in times]
        return frame.with_columns(lasting).rename({name: name.removesuffix("_s") for name in times})

    @property
    def _of_one(self) -> bool:
        return self.seeding == "resampled"

    def _without_interval_if_same(self, found: Estimate) -> Estimate:
        return Estimate(found.mean) if self.seeding == "same" else found

    def _over_same_jobs(self, one: str, other: str, column: str) -> bool:
        return not of_finished(column) or self.finished.get(one) == self.finished.get(other)

    def _values(self, policy: str, column: str) -> Floats | None:
        values = [row[column] for row in self.metrics[policy]]
        return None if any(value is None for value in values) else np.array(values, float)


def plain(found: Estimate | None) -> dict[str, Any] | None:
    """An estimate as JSON."""
    return None if found is None else asdict(found)


def _better(column: str) -> int:
    """The sign of a difference to the better."""
    return 1 if column in HIGHER_IS_BETTER else -1
