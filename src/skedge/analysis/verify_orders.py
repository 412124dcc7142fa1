"""What is on record as ordered is what was done: M2 and M18 for decisions, and that each has its effect."""

from __future__ import annotations

import numpy as np
import polars as pl

from skedge.core.time import NEVER

from .columns import Columns, failure_times, gang_intervals, gang_orders
from .rules import Findings

_PLACES = ("dispatch", "redispatch", "allocate", "allocate_each")


def check_orders(c: Columns, found: Findings, slack: int) -> None:
    """M2: decisions come in the order of time, and those on gangs are the beginnings and the ends of their runs."""
    _in_order(c, found)
    _admitted(c, found)
    orders = gang_orders(c)
    if len(c.gangs) or len(orders):
        intervals = gang_intervals(c)
        _carried_out(c, found, slack, orders)
        _ended(found, slack, intervals, orders, c)
        _suspended(found, slack, intervals, orders)


def _in_order(c: Columns, found: Findings) -> None:
    t = c.decisions
    back = np.concatenate([[False], t["time"][1:] < t["time"][:-1]]) if len(t) else np.zeros(0, bool)
    found.rows("M2", back, t["job"], t["time"], lambda i: f"decided at {t['time'][i]} µs, behind a later decision")


def _admitted(c: Columns, found: Findings) -> None:
    """M2: a job is admitted when it is first dispatched or allocated."""
    d, t = c.decisions, c.jobs
    rows = np.flatnonzero(d.frame["verb"].is_in(_PLACES).to_numpy())
    first = np.full(len(c.scenario.jobs), NEVER, np.int64)
    np.minimum.at(first, d["job"][rows], d["time"][rows])
    right = np.where(first == NEVER, -1, first)[t["job"]]
    say = "is admitted at {} µs; its first dispatch or allocation is at {} µs (-1: none)"
    found.rows(
        "M2", t["admitted"] != right, t["job"], t["arrival"], lambda i: say.format(t["admitted"][i], right[i])
    )  # fmt: skip


def _carried_out(c: Columns, found: Findings, slack: int, orders: pl.DataFrame) -> None:
    """M2: every allocation has its runs, with the workers that it gives, unless another order of its instant ends it."""
    t, last = c.gangs, pl.col("order") == pl.col("order").max().over("job", "time")
    given = orders.filter(pl.col("verb") != "upload").filter(last, pl.col("verb") != "suspend")
    held = pl.DataFrame({"job": t["job"], "server": t["server"], "time": t["start"], "held": t["workers"]})
    held = held.cast(pl.Int64).group_by("job", "server", "time").agg(pl.col("held").sum())
    both = given.sort("time", maintain_order=True).join_asof(
        held.sort("time"), on="time", by=["job", "server"], strategy="nearest", tolerance=slack, check_sortedness=False
    )
    wrong = both.filter(pl.col("held").fill_null(0) != pl.col("workers")).sort("order")
    for row in wrong.head(found.limit).iter_rows(named=True):
        text = f"is allocated {row['workers']} workers on server {row['server']}; it then holds {row['held'] or 0} there"
        found.add("M2", row["job"], row["time"], text)


def _near(these: pl.DataFrame, those: pl.DataFrame, slack: int) -> pl.DataFrame:
    """The rows of `these` that have none of `those` at their time; both have columns job and time."""
    there = those.select(pl.col("job").cast(pl.Int64), "time", there=pl.lit(value=True)).unique().sort("time")
    both = these.sort("time", maintain_order=True).join_asof(
        there, on="time", by="job", strategy="nearest", tolerance=slack, check_sortedness=False
    )
    return both.filter(pl.col("there").is_null())


def _ended(found: Findings, slack: int, intervals: pl.DataFrame, orders: pl.DataFrame, c: Columns) -> None:
    """M11: an allocation that ends before its job has an order that ends it: it is suspended, or given others."""
    left = intervals.filter("preempted").select(pl.col("job").cast(pl.Int64), pl.col("end").alias("time"))
    ends = pl.concat([orders.filter(pl.col("verb") != "upload").select("job", "time"), _failures(c)])
    for job, time, *_ in _near(left, ends, slack).head(found.limit).iter_rows():
        found.add("M11", job, time, "loses its workers; no decision then takes them")


def _failures(c: Columns) -> pl.DataFrame:
    times = failure_times(c)
    jobs = np.flatnonzero(times < NEVER)
    return pl.DataFrame({"job": jobs, "time": times[jobs]}).cast(pl.Int64)


def _suspended(found: Findings, slack: int, intervals: pl.DataFrame, orders: pl.DataFrame) -> None:
    """M2: what is suspended held workers until then: by a run, or by an order of the same instant."""
    at = pl.col("job", "time")
    suspended = orders.filter(pl.col("verb") == "suspend")
    given = orders.filter(pl.col("verb").str.starts_with("allocate"))
    ends = pl.concat([intervals.select(pl.col("job").cast(pl.Int64), time="end"), given.select(at)])
    for job, time, *_ in _near(suspended.select(at), ends, slack).head(found.limit).iter_rows():
        found.add("M2", job, time, "is suspended; it held no workers until then")
    again = orders.filter(pl.col("verb") != "upload").filter(
        pl.col("verb") == "suspend", pl.col("verb").shift() == "suspend", pl.col("job") == pl.col("job").shift()
    )
    for job, time in again.select(at).head(found.limit).iter_rows():
        found.add("M2", job, time, "is suspended twice, and held no workers in between")
