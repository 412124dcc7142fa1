"""The metrics that a comparison shows, and how they compare."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

COLUMNS = (
    "jct_mean_s", "jct_rate", "bound_ratio", "jct_p50_s", "jct_p99_s", "slowdown_mean", "makespan_s", "preemptions",
    "migrations", "postponed_chunks", "utilisation_mean", "uploaded_mb", "upload_jct_share", "cloud_share", "rejected",
)  # fmt: skip
"""Metrics shown by a comparison, in order."""

VALUE_COLUMNS = ("utility_total", "bound_ratio", "acceptance_share", "training_time_p50_s")
"""Metrics shown first if all jobs have a utility."""

COST_COLUMNS = (
    "cost_total", "bound_ratio", "cost_latency", "cost_bandwidth", "cost_exchange", "cost_transfers", "moved_mb",
)  # fmt: skip
"""Metrics shown first at sites."""

FINISHED_COLUMN = "finished"
"""Metric shown second if a job did not finish: means of times and costs are over so many."""

HORIZON_COLUMN = "finished_after_horizon"
"""Metric shown last if there is a horizon."""

REFERENCE = "srtf"
"""Policy to which JCT rate and differences are relative (JSAC'22 Sec. V); the first policy if it is not compared."""

HIGHER_IS_BETTER = ("utility_total", "acceptance_share", "utilisation_mean", "finished")
NEITHER_IS_BETTER = ("cloud_share",)
"""Metrics for which higher is better; for the others lower is better."""

_OF_ALL = ("finished", "rejected", "acceptance_share", "utility_total")
"""Metrics that compare whichever jobs finished: a policy that finishes fewer does not gain in them."""

_CENSORED = {"training_time_p50_s": ("censored_share", 0.5)}
"""Metrics that are bounds from below from this share of jobs on that were cut off at the horizon."""


def needs_same_jobs(column: str) -> bool:
    """Whether a metric compares only where the same jobs finished: most do, as work left undone costs nothing."""
    return column not in _OF_ALL


def limits(column: str) -> tuple[float, float]:
    """Smallest and largest possible value of a metric."""
    if column == "bound_ratio":
        return 1.0, inf
    return 0.0, 1.0 if column.endswith("_share") or column == "utilisation_mean" else inf


def is_censored(column: str, row: Mapping[str, float | None]) -> bool:
    """Whether a metric of a run is a bound from below, as the horizon cut off what it measures."""
    share, threshold = _CENSORED.get(column, ("", 0.0))
    # A median is known as long as less than half of the values are cut off.
    return (row.get(share) or 0.0) >= threshold if share else False
