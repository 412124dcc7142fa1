"""The chunks on lanes, range by range of the lanes: of a record in memory, or of parts of the jobs by way of files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns, Table
from skedge.core.model.cluster import Ints
from skedge.core.record.stored import NUMBER

from .lanes import OnLanes, chosen

_OF_DISPATCH = ("job", "chunk", "lane", "time", "rank", "postponed", "value", NUMBER)
_ANNOUNCED = ("each", "chunks", "release")
_OF_RUN = ("job", "chunk", "lane", "start", "end", "preempted")

RUNS = 2**19
"""Runs of a range of lanes in memory."""

Lanes = tuple[int, int]
"""A range of lanes: the first one, and the one after the last."""


def lane_ranges(k: OnLanes) -> list[Lanes]:
    """Ranges of the lanes with about :data:`RUNS` runs each."""
    lane, (first, end) = k.c.chunks["lane"], k.lanes
    edges = lane_edges(np.bincount(lane[lane >= 0], minlength=end)[first:end], RUNS)
    return list(pairwise([first + edge for edge in edges]))


def lane_edges(runs: Ints, most: int) -> list[int]:
    """First lane of each range of about `most` runs, given those of each lane; and the number of lanes."""
    until = np.cumsum(runs)
    inner = np.searchsorted(until, np.arange(most, until[-1] if len(until) else 0, most))
    edges: list[int] = np.unique([0, *inner, len(runs)]).tolist()
    return edges


def concerned(k: OnLanes, lanes: Lanes) -> tuple[Ints, Ints]:
    """The dispatch rows and the chunk runs that concern a range of the lanes.

    Chunks may run, or be dispatched again, on other lanes than that of their dispatch (M6).
    """
    lane, (first, end) = k.c.chunks["lane"], lanes
    sent_to = k.c.dispatches["lane"]
    rows, runs = (np.flatnonzero((of >= first) & (of < end)) for of in (sent_to, lane))
    if k.strays:
        also = k.row[runs][k.row[runs] >= 0]
        rows = np.unique(np.concatenate([rows, also, k.first[rows], k.first[also]]))
        runs = np.union1d(runs, np.flatnonzero(np.isin(k.of, rows)))
    return rows, runs


def _frames(k: OnLanes, first_job: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The dispatch rows and the chunk runs, jobs numbered from `first_job`."""
    d, t = k.c.dispatches, k.c.chunks
    sent = {name: d[name] for name in _OF_DISPATCH} | {
        "job": d["job"] + first_job, "ready": k.ready, "done": k.done, "gone": k.gone, "counts": k.counts,
        "first": k.first, **dict(zip(_ANNOUNCED, k.announced, strict=True)),
    }  # fmt: skip
    ran = {name: t[name] for name in _OF_RUN} | {"job": t["job"] + first_job, "row": k.row, "of": k.of}
    return pl.DataFrame(sent), pl.DataFrame(ran)


class LaneParts:
    """Ranges of lanes, and a file for each of them and each part of the jobs.

    Parameters
    ----------
    folder
        Where the files are kept.
    whole
        Columns of the whole record, without rows and jobs.
    edges
        First lane of each range, and the number of lanes.
    """

    def __init__(self, folder: Path, whole: Columns, edges: list[int]) -> None:
        self.folder, self.whole, self.edges, self.added = folder, whole, edges, 0

    def add(self, k: OnLanes, first_job: int) -> None:
        """Keep the rows of a part of the jobs that begins with `first_job`."""
        for part, lanes in enumerate(pairwise(self.edges)):
            for what, frame in zip(("sent", "ran"), _frames(chosen(k, *concerned(k, lanes)), first_job), strict=True):
                frame.write_ipc(self._file(what, part, self.added), compression="lz4")
        self.added += 1

    def _file(self, what: str, part: int, number: int) -> Path:
        return self.folder / f"{what}-{part}-{number}.arrow"

    def __iter__(self) -> Iterator[OnLanes]:
        """The lanes, range by range; the files of each are removed."""
        for part, lanes in enumerate(pairwise(self.edges)):
            yield self._read(part, lanes)

    def _read(self, part: int, lanes: tuple[int, int]) -> OnLanes:
        sent, ran, so_far = list[pl.DataFrame](), list[pl.DataFrame](), 0
        for number in range(self.added):
            files = self._file("sent", part, number), self._file("ran", part, number)
            one, other = (pl.read_ipc(file) for file in files)
            for file in files:
                file.unlink()
            sent.append(one.with_columns(_moved("first", so_far)))
            ran.append(other.with_columns(_moved("row", so_far), _moved("of", so_far)))
            so_far += len(one)
        return _on_lanes(self.whole, lanes, *_in_order(pl.concat(sent, rechunk=True), pl.concat(ran, rechunk=True)))


def _moved(name: str, by: int) -> pl.Expr:
    """Row numbers among all parts; -1 for none."""
    return pl.when(pl.col(name) >= 0).then(pl.col(name) + by).otherwise(-1).cast(pl.Int32).alias(name)


def _in_order(sent: pl.DataFrame, ran: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of dispatches as they were decided, which is not always by job, and the runs that refer to them."""
    number = sent[NUMBER].to_numpy()
    if (number[1:] > number[:-1]).all():
        return sent, ran
    order = np.argsort(number, kind="stable")
    place = np.full(len(order) + 1, -1, np.int32)  # the last one stands for none
    place[order] = np.arange(len(order), dtype=np.int32)
    sent = sent.with_columns(first=place[sent["first"].to_numpy()])[order]
    return sent, ran.with_columns(row=place[ran["row"].to_numpy()], of=place[ran["of"].to_numpy()])


def _on_lanes(whole: Columns, lanes: tuple[int, int], sent: pl.DataFrame, ran: pl.DataFrame) -> OnLanes:
    cluster = whole.scenario.cluster
    # a known run is on the server of its lane (M1); those in the cloud are not on the lanes that are checked
    ran = ran.with_columns(server=cluster.lane_server.astype(np.int32)[ran["lane"].to_numpy()])
    c = replace(whole, dispatches=Table(sent, cluster), chunks=Table(ran, cluster))
    d, t = c.dispatches, c.chunks
    return OnLanes(
        c, lanes, d["ready"], d["done"], d["gone"], d["first"], d["counts"], t["row"], t["of"], True,
        (d["each"], d["chunks"], d["release"]),
    )  # fmt: skip
