"""The chunks on lanes, range by range of the lanes: of all jobs in memory, or of parts of them by way of files."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns, Table
from skedge.core.model.cluster import Ints
from skedge.core.record.schedule import NUMBER

from .lanes import LaneRows, SortedLaneRows, select_rows, sort_by_lane

_DISPATCH_COLUMNS = ("job", "chunk", "lane", "time", "rank", "postponed", "value", NUMBER)
_JOB_VALUES = ("each", "chunks", "release")
_RUN_COLUMNS = ("job", "chunk", "lane", "start", "end", "preempted")

RUNS_PER_RANGE = 2**19
"""Runs of a range of lanes in memory."""

Lanes = tuple[int, int]
"""A range of lanes: the first one, and the one after the last."""


def lane_edges(runs: Ints, max_runs: int) -> list[int]:
    """First lane of each range of about `max_runs` runs, given those of each lane; and the number of lanes."""
    until = np.cumsum(runs)
    inner = np.searchsorted(until, np.arange(max_runs, until[-1] if len(until) else 0, max_runs))
    # a lane with very many runs would leave ranges without lanes behind it
    edges: list[int] = np.unique([0, *inner, len(runs)]).tolist()
    return edges


def rows_of_lanes(k: LaneRows, lanes: Lanes) -> tuple[Ints, Ints]:
    """The dispatch rows and the chunk runs that concern a range of the lanes.

    Chunks may run, or be dispatched again, on other lanes than that of their dispatch (M6).
    """
    lane, (first, end) = k.c.chunks["lane"], lanes
    sent_to = k.c.dispatches["lane"]
    rows, runs = (np.flatnonzero((column >= first) & (column < end)) for column in (sent_to, lane))
    if k.has_strays:
        also = k.run_dispatch[runs][k.run_dispatch[runs] >= 0]
        rows = np.unique(np.concatenate([rows, also, k.first[rows], k.first[also]]))
        runs = np.union1d(runs, np.flatnonzero(np.isin(k.chunk_row, rows)))
    return rows, runs


def _frames(k: LaneRows, first_job: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The dispatch rows and the chunk runs, jobs numbered from `first_job`."""
    d, t = k.c.dispatches, k.c.chunks
    dispatches = {name: d[name] for name in _DISPATCH_COLUMNS} | {
        "job": d["job"] + first_job, "ready": k.arrival, "done": k.last_end, "gone": k.leave_time,
        "counts": k.takes_part, "first": k.first, **dict(zip(_JOB_VALUES, k.job_values, strict=True)),
    }  # fmt: skip
    runs = {name: t[name] for name in _RUN_COLUMNS} | {
        "job": t["job"] + first_job,
        "row": k.run_dispatch,
        "of": k.chunk_row,
    }
    return pl.DataFrame(dispatches), pl.DataFrame(runs)


class LaneParts:
    """The rows on lanes, by range of the lanes.

    Parameters
    ----------
    folder
        Where a file is kept for each range and each part of the jobs; None: all jobs are one part, in memory.
    edges
        First lane of each range, and the number of lanes.
    """

    def __init__(self, folder: Path | None, edges: list[int]) -> None:
        self.folder, self.ranges, self.added = folder, list(pairwise(edges)), 0
        self.rows_in_memory: LaneRows | None = None

    def add(self, k: LaneRows, first_job: int) -> None:
        """Keep the rows of a part of the jobs that begins with `first_job`."""
        if self.folder is None:
            self.rows_in_memory = k
            return
        for part, lanes in enumerate(self.ranges):
            for table, frame in zip(
                ("sent", "ran"), _frames(select_rows(k, *rows_of_lanes(k, lanes)), first_job), strict=True
            ):
                frame.write_ipc(self._file(table, part, self.added), compression="lz4")
        self.added += 1

    def sorted_rows(self, part: int, base: Columns) -> SortedLaneRows:
        """The rows of a range by lane; its files are removed. `base` has the columns of the record."""
        k, lanes = self.rows_in_memory, self.ranges[part]
        if k is None:
            return sort_by_lane(self._read(part, base))
        return sort_by_lane(k) if lanes == k.lanes else sort_by_lane(k, lanes, rows_of_lanes(k, lanes))

    def _file(self, table: str, part: int, number: int) -> Path:
        assert self.folder is not None  # noqa: S101 - the rows are in files
        return self.folder / f"{table}-{part}-{number}.arrow"

    def _read(self, part: int, base: Columns) -> LaneRows:
        dispatches, runs, n_rows = list[pl.DataFrame](), list[pl.DataFrame](), 0
        for number in range(self.added):
            files = self._file("sent", part, number), self._file("ran", part, number)
            dispatch_part, run_part = (pl.read_ipc(file) for file in files)
            for file in files:
                file.unlink()
            # rows of the further parts are numbered after those of the first ones
            dispatches.append(dispatch_part.with_columns(_shifted("first", n_rows)))
            runs.append(run_part.with_columns(_shifted("row", n_rows), _shifted("of", n_rows)))
            n_rows += len(dispatch_part)
        return _lane_rows(
            base,
            self.ranges[part],
            *_in_decision_order(pl.concat(dispatches, rechunk=True), pl.concat(runs, rechunk=True)),
        )


def _shifted(name: str, offset: int) -> pl.Expr:
    """Row numbers among all parts; -1 for none."""
    return pl.when(pl.col(name) >= 0).then(pl.col(name) + offset).otherwise(-1).cast(pl.Int32).alias(name)


def _in_decision_order(dispatches: pl.DataFrame, runs: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of dispatches as they were decided, which is not always by job, and the runs that refer to them."""
    number = dispatches[NUMBER].to_numpy()
    if (number[1:] > number[:-1]).all():
        return dispatches, runs
    order = np.argsort(number, kind="stable")
    place = np.full(len(order) + 1, -1, np.int32)  # the last one stands for none
    place[order] = np.arange(len(order), dtype=np.int32)
    dispatches = dispatches.with_columns(first=place[dispatches["first"].to_numpy()])[order]
    return dispatches, runs.with_columns(row=place[runs["row"].to_numpy()], of=place[runs["of"].to_numpy()])


def _lane_rows(base: Columns, lanes: tuple[int, int], dispatches: pl.DataFrame, runs: pl.DataFrame) -> LaneRows:
    cluster = base.scenario.cluster
    # a known run is on the server of its lane (M1); those in the cloud are not on the lanes that are checked
    runs = runs.with_columns(server=cluster.lane_server.astype(np.int32)[runs["lane"].to_numpy()])
    c = replace(base, dispatches=Table(dispatches, cluster), chunks=Table(runs, cluster))
    d, t = c.dispatches, c.chunks
    return LaneRows(
        c, lanes, d["ready"], d["done"], d["gone"], d["first"], d["counts"], t["row"], t["of"], True,
        (d["each"], d["chunks"], d["release"]),
    )  # fmt: skip
