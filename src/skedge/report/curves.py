"""The data of the line charts: distribution of the completion times, and values over time.

All policies share one x axis, because the charting library takes aligned columns. As long as the points are few they
are the schedule's own; above that they are taken on a grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from skedge.core.model.cluster import Floats
from skedge.core.model.time import SECOND

POINTS = 2000
"""Most distinct x of a chart that are kept as they are."""
GRID = 1000
"""Points of the grid that replaces them."""

_INTERVALS_S = (
    1e-3, 1e-2, 0.1, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 21600.0, 43200.0,
    86400.0, 172800.0, 432000.0, 864000.0, 2592000.0, 8640000.0,
)  # fmt: skip
_SHORTEST_S = 1e-6
"""A completion time of 0 is drawn as 1 µs: the axis is logarithmic."""


def jct_distribution(jobs: Sequence[pl.DataFrame]) -> dict[str, Any]:
    """Share of a run's jobs that finished within x seconds of their arrival, by run.

    Rejected jobs count in the denominator: a policy that rejects does not reach 1.
    """
    times = [np.sort(j["jct"].drop_nulls().to_numpy() / SECOND) for j in jobs]
    times = [np.maximum(t, _SHORTEST_S) for t in times]
    x = np.unique(np.concatenate([*times, np.empty(0)]))
    exact = len(x) <= POINTS
    if not exact:
        # The axis is logarithmic. The last point is set, as one that is rounded down would miss the longest job.
        x = np.geomspace(x[0], x[-1], GRID)
        x[-1] = max(float(t[-1]) for t in times if len(t))
    # "right": a job that took exactly x seconds has finished within x.
    shares = [np.searchsorted(t, x, side="right") / max(j.height, 1) for t, j in zip(times, jobs, strict=True)]
    return {"exact": exact, "x": x.tolist(), "share": [s.round(9).tolist() for s in shares]}


def over_time(tables: Sequence[pl.DataFrame], submitting: Sequence[int]) -> dict[str, Any]:
    """Busy share, waiting jobs and submissions of every run on one time axis [s].

    A value holds from its row's time to the next row's. On a grid it is the mean over the interval. None: after the
    run's last row. Submissions are counted per `interval` and only for the runs in `submitting`: those of one scenario
    have the same.
    """
    tables = [t.sort("time_s") for t in tables]
    x = np.unique(np.concatenate([*(_floats(t, "time_s") for t in tables), np.empty(0)]))
    exact = len(x) <= POINTS
    if not exact:
        # Without the last point: a value on the grid is a mean over the interval that begins there.
        x = np.linspace(x[0], x[-1], GRID + 1)[:-1]
    chart: dict[str, Any] = {"exact": exact, "x": x.tolist()}
    for name in ("busy_share", "waiting_jobs", "running_jobs"):
        chart[name] = [_values_at(t, name, x, exact=exact) for t in tables]
    chart["interval"] = _interval(float(x[-1] - x[0])) if len(x) else 1.0
    chart["submitted"] = [_submissions(tables[i], x, chart["interval"]) for i in submitting]
    chart["submitted_runs"] = list(submitting)
    return chart


def _interval(span: float) -> float:
    """Round length [s] of which at most a hundred cover `span` [s]."""
    return next((step for step in _INTERVALS_S if step * 100 >= span), _INTERVALS_S[-1])


def _floats(table: pl.DataFrame, column: str) -> Floats:
    return table[column].cast(pl.Float64).fill_null(0.0).to_numpy().astype(np.float64)


def _values_at(table: pl.DataFrame, column: str, x: Floats, *, exact: bool) -> list[float | None]:
    time, value = _floats(table, "time_s"), _floats(table, column)
    if len(time) == 0:
        return [None] * len(x)
    if exact:
        # A value holds from its row's time on: the last row at or before x.
        row = np.searchsorted(time, x, side="right") - 1
        y = value[np.maximum(row, 0)]
    else:
        # Means by the integral, not by sampling: no peak between two points of the grid is lost.
        area = np.concatenate([[0.0], np.cumsum(value[:-1] * np.diff(time))])
        edges = np.append(x, 2 * x[-1] - x[-2])
        y = np.diff(np.interp(edges, time, area)) / np.diff(edges)
    in_range = (x >= time[0]) & (x <= time[-1])
    return [float(v) if is_defined else None for v, is_defined in zip(y.round(6), in_range, strict=True)]


def _submissions(table: pl.DataFrame, x: Floats, interval: float) -> list[float]:
    """Jobs submitted in the interval that holds each of `x`."""
    # Intervals are multiples of their length since 0, so that those of several runs coincide.
    of_row = np.floor(_floats(table, "time_s") / interval).astype(np.int64)
    of_x = np.floor(x / interval).astype(np.int64)
    counts = np.bincount(of_row, weights=_floats(table, "submitted"), minlength=int(of_x.max(initial=0)) + 1)
    return [float(v) for v in counts[of_x]]
