"""The data that a run brings to servers, in operations on columns; :mod:`skedge.analysis.supplies` takes one pass."""

from __future__ import annotations

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns
from skedge.core.model.cluster import Ints
from skedge.core.record.schedule import COPIES, SUPPLIES


def supplies(c: Columns) -> pl.DataFrame:
    """One row per server of each order that brings data to servers, in the order given.

    Columns: job, server, time, verb, `n` (workers of the order), `before` (workers whose data the server already had)
    and `chunks` (chunks that must be brought). A server has the data of the largest number of workers in any order on
    the job since its last outage or, if the physics is ``last_place``, of those in the job's last order.
    """
    rows = _orders(c)
    if c.scenario.physics.data == "kept" and c.scenario.cluster.kind != "sites":
        max_before = pl.col("n").cum_max().shift(1, fill_value=0).over("job", "server", "outage")
        rows = rows.with_columns(before=max_before)
    else:
        previous = rows.select("job", "server", "outage", before="n", order=pl.col("order") + 1)
        rows = rows.join(previous, on=["job", "server", "outage", "order"], how="left", maintain_order="left")
        rows = rows.with_columns(pl.col("before").fill_null(0))
    return _with_chunks(c, rows).sort("row").drop("row", "order", "outage", "copies")


def _orders(c: Columns) -> pl.DataFrame:
    """Rows of all such orders, with the order's number within its job and the number of the server's outages so far."""
    d = c.decisions
    chosen = np.flatnonzero(d.frame["verb"].is_in(SUPPLIES).fill_null(value=False).to_numpy() & (d["server"] >= 0))
    rows = pl.DataFrame({name: d[name][chosen] for name in ("job", "server", "time")}).with_columns(
        n=pl.Series(d["workers"][chosen]).cast(pl.Int64),
        verb=d.frame["verb"][chosen].cast(pl.String),
        copies=(d.frame["verb"][chosen] == "upload") & (d.frame["reason"][chosen].cast(pl.String) == COPIES),
        row=pl.Series(chosen),
        at=pl.Series(_number_in_job(d["job"])[chosen]),
    )
    rows = rows.sort("job", "row", maintain_order=True)
    before = {name: pl.col(name).shift(1) for name in ("job", "server", "time", "at")}
    continues = (pl.col("job") == before["job"]) & (pl.col("time") == before["time"])
    continues &= (pl.col("at") == before["at"] + 1) & (pl.col("server") > before["server"])
    continues &= pl.col("verb") == pl.col("verb").shift(1)
    rows = rows.with_columns(order=(~continues.fill_null(value=False)).cum_sum())
    return rows.drop("at").with_columns(outage=pl.Series(_outages_until(c, rows)))


def _number_in_job(job: Ints) -> Ints:
    """Number of each decision within its job."""
    order = np.argsort(job, kind="stable")
    sorted_job = job[order]
    first = np.searchsorted(sorted_job, sorted_job)
    number = np.empty(len(job), np.int64)
    number[order] = np.arange(len(job)) - first
    return number


def _outages_until(c: Columns, rows: pl.DataFrame) -> Ints:
    """Number of outages of each row's server that have begun by its time."""
    server, time, count = rows["server"].to_numpy(), rows["time"].to_numpy(), np.zeros(len(rows), np.int64)
    for outage_server in np.unique(c.outages["server"]):
        rows_of_server = server == outage_server
        starts = np.sort(c.outages["start"][c.outages["server"] == outage_server])
        count[rows_of_server] = np.searchsorted(starts, time[rows_of_server], side="right")
    return count


def _with_chunks(c: Columns, rows: pl.DataFrame) -> pl.DataFrame:
    """Add the chunks that each order must bring: those of workers whose data the server lacks, or copies of all.

    A job's chunks are spread evenly over its workers, in the order of the servers. If a server lacks the data of some
    workers, these are its last ones.
    """
    chunks = pl.Series(c.scenario.jobs.chunks[rows["job"].to_numpy()])
    total, first = pl.col("n").sum().over("order"), (pl.col("n").cum_sum() - pl.col("n")).over("order")
    supplied = pl.min_horizontal("n", "before")
    share = pl.lit(chunks) * (first + pl.col("n")) // total - pl.lit(chunks) * (first + supplied) // total
    copy = pl.when(pl.col("n") > pl.col("before")).then(pl.lit(chunks)).otherwise(0)
    return rows.with_columns(chunks=pl.when("copies").then(copy).otherwise(share))
