"""Rules M2, M11, M14 and M18 on decisions: recorded orders and what was done agree."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from skedge.analysis.columns import Array, Columns, Table, failure_times, gang_intervals, gang_orders
from skedge.core.model.cluster import Bools, Ints
from skedge.core.model.time import NEVER

from .followed import followed
from .rules import Findings
from .same import carried_out_exactly, same_rows, served_exactly

_PLACES = ("dispatch", "redispatch", "allocate", "allocate_each")


def check_orders(c: Columns, found: Findings, slack: int) -> None:
    """M2: a job is admitted by its first order, and orders on gangs match the starts and ends of their runs."""
    _admitted(c, found)
    clear = slack == 0 and followed(c).orders
    if len(c.gangs) or not (clear or gang_orders(c).is_empty()):
        if not clear:
            _on_gangs(c, found, slack)
        _served(c, found, slack, gang_intervals(c))
        _postponed(c, found, slack, gang_intervals(c))


def _on_gangs(c: Columns, found: Findings, slack: int) -> None:
    """M2, M11: orders on gangs match the starts and ends of their runs; :func:`.followed.followed` in plain steps."""
    orders, intervals = gang_orders(c), gang_intervals(c)
    given = orders.filter(~pl.col("verb").is_in(["upload", "assign_ps"]))
    if slack > 0 or not carried_out_exactly(c):
        _carried_out(found, slack, given, c.gangs, "workers")
    _repeated(found, orders)
    each = given.filter(pl.col("order") != pl.col("order").shift(fill_value=-1)).select("job", "time", "verb")
    _ended(found, slack, intervals, each, c)
    _suspended(found, slack, intervals, each)


def check_ps_orders(c: Columns, found: Findings, slack: int) -> None:
    """M2: PSs on servers with resources are held from an order that allocates them to an order that releases them."""
    orders = gang_orders(c)
    if len(c.gangs) or len(orders):
        _carried_out(found, slack, _with_suspensions(orders), c.ps, "count")


def _with_suspensions(orders: pl.DataFrame) -> pl.DataFrame:
    return orders.filter(pl.col("verb").is_in(["assign_ps", "suspend"]))


def check_order(t: Mapping[str, Array] | Table, found: Findings) -> None:
    """M2: the decisions `t` are in time order."""
    back = np.concatenate([[False], t["time"][1:] < t["time"][:-1]]) if len(t["time"]) else np.zeros(0, bool)
    found.rows(
        "M2", back, t["job"], t["time"], lambda i: f"decided at {t['time'][i]} µs, but listed after a later decision"
    )


def _admitted(c: Columns, found: Findings) -> None:
    """M2: a job is admitted when it is first dispatched or allocated."""
    d, t = c.decisions, c.jobs
    rows = np.flatnonzero(d.has("verb", *_PLACES))
    first = np.full(len(c.scenario.jobs), NEVER, np.int64)
    np.minimum.at(first, d["job"][rows], d["time"][rows])
    right = np.where(first == NEVER, -1, first)[t["job"]]
    say = "is admitted at {} µs; its first dispatch or allocation is at {} µs (-1: none)"
    found.rows(
        "M2", t["admitted"] != right, t["job"], t["arrival"], lambda i: say.format(t["admitted"][i], right[i])
    )  # fmt: skip


def _carried_out(found: Findings, slack: int, orders: pl.DataFrame, t: Table, count: str) -> None:
    """M2: exactly what an order allocates is held, unless another order of the same instant replaces it.

    `orders` allocate workers or PSs, or suspend; `t` has the holdings, with the number in column `count`.
    """
    what = "workers" if count == "workers" else "PSs"
    last = pl.col("order") == pl.col("order").max().over("job", "time")
    given = orders.filter(last, pl.col("verb") != "suspend").with_columns(parts=pl.len().over("order"))
    held = pl.DataFrame({"job": t["job"], "server": t["server"], "time": t["start"], "held": t[count]})
    held = held.cast(pl.Int64).group_by("job", "server", "time").agg(pl.col("held").sum())
    held = held.with_columns(places=pl.len().over("job", "time")).sort("time")
    both = given.sort("time", maintain_order=True).join_asof(
        held, on="time", by=["job", "server"], strategy="nearest", tolerance=slack, check_sortedness=False
    )
    wrong = both.filter(pl.col("held").fill_null(0) != pl.col("workers")).sort("order")
    for row in wrong.head(found.limit).iter_rows(named=True):
        text = f"is given {row['workers']} {what} on server {row['server']}; it then holds {row['held'] or 0} there"
        found.add("M2", row["job"], row["time"], text)
    for row in both.filter(pl.col("places") != pl.col("parts")).head(found.limit).iter_rows(named=True):
        text = f"is given {what} on {row['parts']} servers; it then holds {what} on {row['places']}"
        found.add("M2", row["job"], row["time"], text)
    begun = held.with_columns(pl.col("time").alias("begun")).join_asof(
        given.select("job", "server", "time", "parts").sort("time"), on="time", by=["job", "server"],
        strategy="nearest", tolerance=slack, check_sortedness=False,
    )  # fmt: skip
    for row in begun.filter(pl.col("parts").is_null()).head(found.limit).iter_rows(named=True):
        text = f"holds {row['held']} {what} on server {row['server']}; no order allocates them"
        found.add("M2", row["job"], row["begun"], text)


def _repeated(found: Findings, orders: pl.DataFrame) -> None:
    """M2: no two consecutive orders of one instant are the same."""
    held = ("allocate", "allocate_each", "suspend")
    for kinds in (held, ("assign_ps", "suspend"), ("upload",)):
        these = orders.filter(pl.col("verb").is_in(kinds))
        begins = these.filter(pl.col("order") != pl.col("order").shift(fill_value=-1))
        alike = pl.all_horizontal(pl.col(name) == pl.col(name).shift() for name in ("job", "time", "verb"))
        if not begins.select(alike.any()).item():
            continue
        one = these.group_by("order", maintain_order=True).agg(
            pl.col("job", "time", "verb").first(), pl.struct("server", "workers").alias("what")
        )  # fmt: skip
        same = pl.all_horizontal(pl.col(name) == pl.col(name).shift() for name in ("job", "time", "verb", "what"))
        again = one.filter(same & (pl.col("verb") != "suspend"))
        for job, time, verb in again.select("job", "time", "verb").head(found.limit).iter_rows():
            found.add("M2", job, time, f"the same order, {verb}, is given twice at the same time")


def _served(c: Columns, found: Findings, slack: int, intervals: pl.DataFrame) -> None:
    """M14: the PSs of a gang are held exactly as long as the allocation that they serve."""
    t = c.ps
    if served_exactly(c) or (slack == 0 and same_rows((t["job"], t["start"], t["end"]), _spans(intervals))):
        return
    rows = np.flatnonzero(np.isin(t["job"], c.gangs["job"]))
    held = pl.DataFrame({"job": t["job"][rows], "time": t["start"][rows], "end": t["end"][rows]}).cast(pl.Int64)
    held = held.sort("time", maintain_order=True)
    of = intervals.select(pl.col("job").cast(pl.Int64), time="start", until="end").sort("time")
    both = held.join_asof(of, on="time", by="job", strategy="nearest", tolerance=slack, check_sortedness=False)
    wrong = both.filter(pl.col("until").is_null() | ((pl.col("until") - pl.col("end")).abs() > slack))
    for job, time, end, until in wrong.head(found.limit).iter_rows():
        found.add("M14", job, time, f"holds a PS until {end} µs, and the workers that began with it until {until} µs")


def _spans(intervals: pl.DataFrame) -> tuple[Ints, Ints, Ints]:
    """(job, start, end) of the allocations."""
    job, start, end = (intervals[name].to_numpy() for name in ("job", "start", "end"))
    return job, start, end


def _postponed(c: Columns, found: Findings, slack: int, intervals: pl.DataFrame) -> None:
    """M2: a job that is postponed holds no workers at that time."""
    d = c.decisions
    rows = np.flatnonzero(d.has("verb", "postpone"))
    if not len(rows):
        return
    waits = pl.DataFrame({"job": d["job"][rows], "time": d["time"][rows]}).cast(pl.Int64).sort("time")
    held = intervals.select(pl.col("job").cast(pl.Int64), "end", time=pl.col("start") + slack + 1).sort("time")
    both = waits.join_asof(held, on="time", by="job", check_sortedness=False).filter(
        pl.col("end") > pl.col("time") + slack
    )
    for job, time, *_ in both.head(found.limit).iter_rows():
        found.add("M2", job, time, "is postponed while it holds workers")


def _near(these: pl.DataFrame, those: pl.DataFrame, slack: int) -> pl.DataFrame:
    """The rows of `these` without a row of `those` for the same job and time; both have columns job and time."""
    if slack == 0:
        those = those.select(pl.col("job").cast(pl.Int64), "time")
        return these.join(those, on=["job", "time"], how="anti", maintain_order="left").sort(
            "time", maintain_order=True
        )
    there = those.select(pl.col("job").cast(pl.Int64), "time", there=pl.lit(value=True)).unique().sort("time")
    both = these.sort("time", maintain_order=True).join_asof(
        there, on="time", by="job", strategy="nearest", tolerance=slack, check_sortedness=False
    )
    return both.filter(pl.col("there").is_null())


def _ended(found: Findings, slack: int, intervals: pl.DataFrame, orders: pl.DataFrame, c: Columns) -> None:
    """M11: an allocation that ends before its job is ended by an order: the job is suspended or allocated again."""
    left = intervals.filter("preempted").select(pl.col("job").cast(pl.Int64), pl.col("end").alias("time"))
    ends = pl.concat([orders.select("job", "time"), _failures(c)])
    for job, time, *_ in _near(left, ends, slack).head(found.limit).iter_rows():
        found.add("M11", job, time, "loses its workers; no decision at that time takes them")


def _failures(c: Columns) -> pl.DataFrame:
    times = failure_times(c)
    jobs = np.flatnonzero(times < NEVER)
    return pl.DataFrame({"job": jobs, "time": times[jobs]}).cast(pl.Int64)


def _suspended(found: Findings, slack: int, intervals: pl.DataFrame, orders: pl.DataFrame) -> None:
    """M2: a suspended job held workers until then, by a run or by an order of the same instant."""
    at = pl.col("job", "time")
    suspended = orders.filter(pl.col("verb") == "suspend")
    given = orders.filter(pl.col("verb").is_in(["allocate", "allocate_each"]))
    if slack == 0:  # live, a job suspended in its last mini-batch is complete nevertheless
        intervals = intervals.filter("preempted")
    ends = pl.concat([intervals.select(pl.col("job").cast(pl.Int64), time="end"), given.select(at)])
    for job, time, *_ in _near(suspended.select(at), ends, slack).head(found.limit).iter_rows():
        found.add("M2", job, time, "is suspended, but held no workers until then")
    again = orders.filter(
        pl.col("verb") == "suspend", pl.col("verb").shift() == "suspend", pl.col("job") == pl.col("job").shift()
    )
    for job, time in again.select(at).head(found.limit).iter_rows():
        found.add("M2", job, time, "is suspended twice without holding workers in between")


def check_suspensions(c: Columns, found: Findings, promised: str, *, slots: bool) -> None:
    """M11: in a simulation, a job is suspended only for another job (``for_others``), or never (``never``).

    For gangs on slots that do not continue at that instant: another job of their worker type or PS type then begins.
    """
    if promised not in ("never", "for_others") or (promised == "for_others" and not slots):
        return
    d, given, jobs = c.decisions, gang_intervals(c), c.scenario.jobs
    begun_at, begins = given["start"].to_numpy(), given["job"].to_numpy()
    rows = np.flatnonzero(d.has("verb", "suspend") & (d["server"] < 0))
    job, time = d["job"][rows], d["time"][rows]
    begun = np.zeros(len(rows), bool)
    if promised == "for_others":
        for kind in (jobs.worker_type, jobs.ps_type):  # the same job among them has its own types
            begun |= _among(time, kind[job], begun_at, kind[begins])
    say = "is suspended, and no other job is given workers or a PS that it can have held"
    found.rows("M11", ~begun, job, time, lambda _: say)


def _among(time: Ints, kind: Ints, times: Ints, kinds: Ints) -> Bools:
    """Whether each pair of `time` and `kind` is one of the pairs of `times` and `kinds`; kinds are few."""
    there = np.zeros(len(time), bool)
    for one in np.unique(kind):
        mine = np.flatnonzero(kind == one)
        there[mine] = np.isin(time[mine], times[kinds == one])
    return there
