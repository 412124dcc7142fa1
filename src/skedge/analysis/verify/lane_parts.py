"""The chunks on lanes, taken from parts of the jobs and given back lane by lane, by way of files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from skedge.analysis.columns import Array, Columns, Table
from skedge.core.model import Ints
from skedge.core.stored import NUMBER

from .lanes import OnLanes

_OF_DISPATCH = ("job", "chunk", "lane", "time", "rank", "postponed", NUMBER)
_OF_RUN = ("job", "chunk", "lane", "start", "end", "preempted")


class LaneParts:
    """Ranges of lanes, and a file for each of them and each part of the jobs.

    Parameters
    ----------
    folder
        Where the files are kept.
    whole
        Columns of the whole scenario, without rows.
    parts
        Number of ranges of lanes.
    """

    def __init__(self, folder: Path, whole: Columns, parts: int) -> None:
        lanes = whole.scenario.cluster.lanes
        self.folder, self.whole, self.added = folder, whole, 0
        self.edges: list[int] = np.unique(np.linspace(0, lanes, parts + 1).astype(np.int64)).tolist()
        # a lane of -1, the cloud, belongs to the range after the last
        self._range_of = np.append(np.repeat(np.arange(len(self.edges) - 1), np.diff(self.edges)), len(self.edges) - 1)

    def add(self, k: OnLanes, first_job: int) -> None:
        """Keep the rows of a part of the jobs that begins with `first_job`."""
        d, t = k.c.dispatches, k.c.chunks
        of_dispatch, of_run = self._range_of[d["lane"]], self._range_of[t["lane"]]
        elsewhere = _elsewhere(k, of_dispatch, of_run)
        for part in range(len(self.edges) - 1):
            runs = np.flatnonzero(of_run == part)
            rows = np.flatnonzero(of_dispatch == part)
            if elsewhere:
                also = k.row[runs][k.row[runs] >= 0]
                rows = np.unique(np.concatenate([rows, also, k.first[rows], k.first[also]]))
                runs = np.flatnonzero((of_run == part) | np.isin(k.of, rows))
            self._keep(k, part, rows, runs, first_job)
        self.added += 1

    def _keep(self, k: OnLanes, part: int, rows: Ints, runs: Ints, first_job: int) -> None:
        d, t = k.c.dispatches, k.c.chunks
        place = np.full(len(d) + 1, -1, np.int32)  # the last one stands for none
        place[rows] = np.arange(len(rows), dtype=np.int32)
        sent = pl.DataFrame({name: d[name][rows] for name in _OF_DISPATCH}).with_columns(
            pl.Series("value", d.frame["value"].gather(rows)),
            job=pl.col("job") + first_job,
            ready=k.ready[rows], done=k.done[rows], gone=k.gone[rows], counts=k.counts[rows],
            first=place[k.first[rows]],
        )  # fmt: skip
        ran = pl.DataFrame({name: t[name][runs] for name in _OF_RUN}).with_columns(
            job=pl.col("job") + first_job, row=place[k.row[runs]], of=place[k.of[runs]]
        )
        sent.write_ipc(self._file("sent", part, self.added), compression="lz4")
        ran.write_ipc(self._file("ran", part, self.added), compression="lz4")

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


def _elsewhere(k: OnLanes, of_dispatch: Array, of_run: Array) -> bool:
    """Whether a chunk runs, or is dispatched again, outside the range of lanes of its dispatch (M6)."""
    if not len(of_dispatch):
        return False
    stray = (k.row >= 0) & (of_dispatch[k.row] != of_run)
    return bool(stray.any() or (of_dispatch[k.first] != of_dispatch).any())


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
    return OnLanes(c, lanes, d["ready"], d["done"], d["gone"], d["first"], d["counts"], t["row"], t["of"])
