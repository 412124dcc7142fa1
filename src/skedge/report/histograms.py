"""How the jobs of a trace are distributed: over time, by duration, by size, by user."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

BINS = 24
"""Bins of time and of durations."""

MOST = 12
"""Sizes and users that are shown, the most frequent ones; the others are added up."""


@dataclass(frozen=True)
class Histogram:
    """Counts of jobs by label; at least one."""

    title: str
    labels: tuple[str, ...]
    counts: tuple[int, ...]


def histograms(trace: pl.DataFrame, units: str = "GPUs") -> list[Histogram]:
    """The histograms of a trace frame with at least one job, by number of `units` too; by user if there are several."""
    charts = [_arrivals(trace["submit_s"]), _durations(trace["duration_s"]), _sizes(trace["gpus"], units)]
    return [*charts, _users(trace["group"])] if trace["group"].n_unique() > 1 else charts


def _arrivals(submit_s: pl.Series) -> Histogram:
    days = submit_s.to_numpy() / 86400
    # Not of width 0 where all jobs come at once.
    counts, edges = np.histogram(days, BINS, range=(0, max(float(days.max()), 1 / 86400)))
    return _binned("jobs submitted, by day from the first", counts, [f"{edge:.3g}" for edge in edges[:-1]])


def _durations(duration_s: pl.Series) -> Histogram:
    # Traces have jobs of 0 s, which have no logarithm.
    logs = np.log10(np.maximum(duration_s.to_numpy(), 1e-3))
    counts, edges = np.histogram(logs, BINS // 2)
    return _binned("jobs by duration, from", counts, [_time(float(10**edge)) for edge in edges[:-1]])


def _binned(title: str, counts: np.ndarray, labels: list[str]) -> Histogram:
    return Histogram(title, tuple(labels), tuple(int(n) for n in counts))


def _time(seconds: float) -> str:
    unit, length = next(((unit, length) for unit, length in _UNITS if seconds >= length), ("s", 1.0))
    return f"{seconds / length:.3g} {unit}"


_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))


def _sizes(gpus: pl.Series, units: str) -> Histogram:
    count = gpus.value_counts().sort("gpus")
    if len(count) <= MOST:
        return Histogram(f"jobs by {units}", tuple(map(str, count["gpus"])), tuple(count["count"]))
    # Too many different sizes for a bar each: bins from one power of 2 to the next.
    powers = 2 ** np.arange(int(gpus.max()).bit_length())  # type: ignore[arg-type]
    counts = np.bincount(np.log2(gpus.to_numpy()).astype(np.int64), minlength=len(powers))
    return _binned(f"jobs by {units}, from", counts, [str(power) for power in powers])


def _users(group: pl.Series) -> Histogram:
    count = group.value_counts().sort("count", "group", descending=[True, False])
    top, rest = count.head(MOST), count.slice(MOST)
    has_rest = len(rest) > 0
    labels = [*top["group"], *([f"{len(rest)} others"] if has_rest else [])]
    counts = [*top["count"], *([int(rest["count"].sum())] if has_rest else [])]
    return Histogram("jobs by user or group", tuple(labels), tuple(counts))
