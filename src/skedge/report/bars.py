"""The bars of a run that the Gantt chart embeds: all, or merged ones, or those of the busiest window.

A page cannot hold the millions of runs of a large schedule. Above a cap, adjacent runs of one job on one lane become
one bar; if that is not enough, only the bars of one window of time are kept. The page shows how many were left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from skedge.core.model.cluster import Ints

_COLUMNS = ("job", "chunk", "server", "lane", "workers", "start", "compute_from", "end", "preempted")


@dataclass(frozen=True)
class Bars:
    """The embedded bars of a run, and the totals that they are part of.

    Attributes
    ----------
    frame
        ``runs`` with columns job, chunk, server (an Enum), lane, workers, start, compute_from, end, preempted, and
        `merged`: number of runs that the bar represents. Ordered by (start, server, lane, job, chunk).
    runs_total, bars_total
        Runs of the schedule; bars after merging, before the window.
    merged
        Adjacent runs of one job on one lane were merged.
    window
        Only the bars in [from, to) µs are embedded; None: all are.
    lanes_cut
        True if even one instant has more bars than the cap: only the first of the window, by server and lane, are kept.
    span
        Start of the first and end of the last run of the whole schedule [µs].
    """

    frame: pl.DataFrame
    runs_total: int
    bars_total: int
    merged: bool
    window: tuple[int, int] | None
    lanes_cut: bool
    span: tuple[int, int]


def choose_bars(runs: pl.DataFrame, servers: Sequence[str], cap: int) -> Bars:
    """At most `cap` bars of `runs` (see :class:`Bars`).

    Raises
    ------
    ValueError
        If `cap` is below 1.
    """
    if cap < 1:
        raise ValueError(f"bar cap: {cap}; it must be at least 1")
    frame = runs.select(_COLUMNS).with_columns(
        pl.col("server").cast(pl.Enum(servers)),
        pl.col("compute_from").fill_null(pl.col("start")),
        pl.lit(1, pl.Int32).alias("merged"),
    )
    runs_total, span = frame.height, _span(frame)
    # First what loses no moment of the schedule, then what does: merged bars before a window.
    merge = runs_total > cap
    if merge:
        frame = merge_adjacent(frame)
    bars_total = frame.height
    window = busiest_window(_ints(frame, "start"), _ints(frame, "end"), cap) if bars_total > cap else None
    if window is not None:
        frame = frame.filter((pl.col("start") < window[1]) & (pl.col("end") > window[0]))
    is_cut = frame.height > cap
    if is_cut:
        # More bars than the cap overlap even in the shortest window: the first lanes rather than parts of all.
        frame = frame.sort("server", "lane", "start", "job", "chunk").head(cap)
    # `lay_out` gives rows to bars in order of start; the other keys make the page the same bytes every time.
    frame = frame.sort("start", "server", "lane", "job", "chunk")
    return Bars(frame, runs_total, bars_total, merge, window, is_cut, span)


def _span(frame: pl.DataFrame) -> tuple[int, int]:
    return (int(_ints(frame, "start").min()), int(_ints(frame, "end").max())) if frame.height else (0, 0)


def _ints(frame: pl.DataFrame, column: str) -> Ints:
    return frame[column].to_numpy().astype(np.int64)


def merge_adjacent(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with back-to-back runs of one job on one lane as one bar; runs without a lane stay as they are.

    A run that was preempted, and one that waits for its upload, end and begin a bar: both show in the chart.
    """
    # Runs of a pool overlap, and their workers have no numbers: only on a lane can one run continue another.
    on_lane = frame.filter(pl.col("lane").is_not_null()).sort("lane", "start", "end")
    pooled = frame.filter(pl.col("lane").is_null())
    if on_lane.height == 0:
        return pooled
    first = np.flatnonzero(_begins(on_lane))
    last = np.append(first[1:], on_lane.height) - 1
    bars = on_lane[first].with_columns(
        on_lane["end"].gather(last),
        on_lane["preempted"].gather(last),
        pl.Series("merged", last - first + 1, pl.Int32),
    )
    return pl.concat([bars, pooled])


def _begins(on_lane: pl.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each run, in order of lane and start, cannot be joined to the one before."""
    lane, job, start, end = (_ints(on_lane, c) for c in ("lane", "job", "start", "end"))
    preempted = on_lane["preempted"].to_numpy()
    begins = np.ones(on_lane.height, np.bool_)
    # A gap in which the lane is idle, another job or a preemption must stay visible.
    joins = (lane[1:] == lane[:-1]) & (job[1:] == job[:-1]) & (start[1:] == end[:-1]) & ~preempted[:-1]
    begins[1:] = ~joins | (_ints(on_lane, "compute_from")[1:] > start[1:])
    return begins


def busiest_window(start: Ints, end: Ints, cap: int) -> tuple[int, int]:
    """Find the window [from, to) with at most `cap` bars around the moment where most bars begin per time.

    That moment is the middle of the shortest stretch in which half of `cap` bars begin; the window is as long as the
    cap allows. At the least it is 2 µs long, and may then hold more than `cap` bars.
    """
    starts, ends = np.sort(start), np.sort(end)
    # Half of the cap leaves room for bars that began before the window and last into it.
    half = max(1, min(cap // 2, len(starts)))
    shortest = int(np.argmin(starts[half - 1 :] - starts[: len(starts) - half + 1]))
    centre = int(starts[shortest] + starts[shortest + half - 1]) // 2

    def n_bars(reach: int) -> int:
        # Overlapping the window: begun before its end, less those that ended by its beginning.
        n_begun = np.searchsorted(starts, centre + reach, side="left")
        return int(n_begun - np.searchsorted(ends, centre - reach, side="right"))

    low, high = 1, int(ends[-1] - starts[0]) + 1
    while low < high:
        # Rounded up, as `low` becomes `reach`: rounded down, the search would not end at high = low + 1.
        reach = (low + high + 1) // 2
        low, high = (reach, high) if n_bars(reach) <= cap else (low, reach - 1)
    return max(centre - low, 0), centre + low
