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


def check_orders(c: Columns, findings: Findings, slack: int) -> None:
    """M2: a job is admitted by its first order, and orders on gangs match the starts and ends of their runs."""
    _admissions(c, findings)
    followed_exactly = slack == 0 and followed(c).orders
    if len(c.gangs) or not (followed_exactly or gang_orders(c).is_empty()):
        if not followed_exactly:
            _gang_rules(c, findings, slack)
        _ps_spans(c, findings, slack, gang_intervals(c))
        _postponements(c, findings, slack, gang_intervals(c))


def _gang_rules(c: Columns, findings: Findings, slack: int) -> None:
    """M2, M11: orders on gangs match the starts and ends of their runs; :func:`.followed.followed` in plain steps."""
    orders, intervals = gang_orders(c), gang_intervals(c)
    worker_orders = orders.filter(~pl.col("verb").is_in(["upload", "assign_ps"]))
    if slack > 0 or not carried_out_exactly(c):
        _allocations(findings, slack, worker_orders, c.gangs, "workers")
    _repetitions(findings, orders)
    first_rows = worker_orders.filter(pl.col("order") != pl.col("order").shift(fill_value=-1)).select(
        "job", "time", "verb"
    )
    _early_ends(findings, slack, intervals, first_rows, c)
    _suspensions(findings, slack, intervals, first_rows)


def check_ps_orders(c: Columns, findings: Findings, slack: int) -> None:
    """M2: PSs on servers with resources are held from an order that allocates them to an order that releases them."""
    orders = gang_orders(c)
    if len(c.gangs) or len(orders):
        _allocations(findings, slack, _ps_orders(orders), c.ps, "count")


def _ps_orders(orders: pl.DataFrame) -> pl.DataFrame:
    return orders.filter(pl.col("verb").is_in(["assign_ps", "suspend"]))


def check_order(t: Mapping[str, Array] | Table, findings: Findings) -> None:
    """M2: the decisions `t` are in time order."""
    out_of_order = np.concatenate([[False], t["time"][1:] < t["time"][:-1]]) if len(t["time"]) else np.zeros(0, bool)
    findings.add_rows(
        "M2",
        out_of_order,
        t["job"],
        t["time"],
        lambda i: f"decided at {t['time'][i]} µs, but listed after a later decision",
    )


def _admissions(c: Columns, findings: Findings) -> None:
    """M2: a job is admitted when it is first dispatched or allocated."""
    d, t = c.decisions, c.jobs
    rows = np.flatnonzero(d.has("verb", *_PLACES))
    first = np.full(len(c.scenario.jobs), NEVER, np.int64)
    np.minimum.at(first, d["job"][rows], d["time"][rows])
    expected = np.where(first == NEVER, -1, first)[t["job"]]
    template = "is admitted at {} µs; its first dispatch or allocation is at {} µs (-1: none)"
    findings.add_rows(
        "M2", t["admitted"] != expected, t["job"], t["arrival"],
        lambda i: template.format(t["admitted"][i], expected[i]),
    )  # fmt: skip


def _allocations(findings: Findings, slack: int, orders: pl.DataFrame, t: Table, count: str) -> None:
    """M2: exactly what an order allocates is held, unless another order of the same instant replaces it.

    `orders` allocate workers or PSs, or suspend; `t` has the holdings, with the number in column `count`.
    """
    noun = "workers" if count == "workers" else "PSs"
    last = pl.col("order") == pl.col("order").max().over("job", "time")
    final_orders = orders.filter(last, pl.col("verb") != "suspend").with_columns(parts=pl.len().over("order"))
    holdings = pl.DataFrame({"job": t["job"], "server": t["server"], "time": t["start"], "held": t[count]})
    holdings = holdings.cast(pl.Int64).group_by("job", "server", "time").agg(pl.col("held").sum())
    holdings = holdings.with_columns(places=pl.len().over("job", "time")).sort("time")
    matched = final_orders.sort("time", maintain_order=True).join_asof(
        holdings, on="time", by=["job", "server"], strategy="nearest", tolerance=slack, check_sortedness=False
    )
    wrong = matched.filter(pl.col("held").fill_null(0) != pl.col("workers")).sort("order")
    for row in wrong.head(findings.limit).iter_rows(named=True):
        text = f"is given {row['workers']} {noun} on server {row['server']}; it then holds {row['held'] or 0} there"
        findings.add("M2", row["job"], row["time"], text)
    for row in matched.filter(pl.col("places") != pl.col("parts")).head(findings.limit).iter_rows(named=True):
        text = f"is given {noun} on {row['parts']} servers; it then holds {noun} on {row['places']}"
        findings.add("M2", row["job"], row["time"], text)
    starts = holdings.with_columns(pl.col("time").alias("begun")).join_asof(
        final_orders.select("job", "server", "time", "parts").sort("time"), on="time", by=["job", "server"],
        strategy="nearest", tolerance=slack, check_sortedness=False,
    )  # fmt: skip
    for row in starts.filter(pl.col("parts").is_null()).head(findings.limit).iter_rows(named=True):
        text = f"holds {row['held']} {noun} on server {row['server']}; no order allocates them"
        findings.add("M2", row["job"], row["begun"], text)


def _repetitions(findings: Findings, orders: pl.DataFrame) -> None:
    """M2: no two consecutive orders of one instant are the same."""
    holding_verbs = ("allocate", "allocate_each", "suspend")
    for verbs in (holding_verbs, ("assign_ps", "suspend"), ("upload",)):
        rows_of_kind = orders.filter(pl.col("verb").is_in(verbs))
        begins = rows_of_kind.filter(pl.col("order") != pl.col("order").shift(fill_value=-1))
        alike = pl.all_horizontal(pl.col(name) == pl.col(name).shift() for name in ("job", "time", "verb"))
        if not begins.select(alike.any()).item():
            continue
        by_order = rows_of_kind.group_by("order", maintain_order=True).agg(
            pl.col("job", "time", "verb").first(), pl.struct("server", "workers").alias("what")
        )  # fmt: skip
        same = pl.all_horizontal(pl.col(name) == pl.col(name).shift() for name in ("job", "time", "verb", "what"))
        repeats = by_order.filter(same & (pl.col("verb") != "suspend"))
        for job, time, verb in repeats.select("job", "time", "verb").head(findings.limit).iter_rows():
            findings.add("M2", job, time, f"the same order, {verb}, is given twice at the same time")


def _ps_spans(c: Columns, findings: Findings, slack: int, intervals: pl.DataFrame) -> None:
    """M14: the PSs of a gang are held exactly as long as the allocation that they serve."""
    t = c.ps
    if served_exactly(c) or (slack == 0 and same_rows((t["job"], t["start"], t["end"]), _interval_columns(intervals))):
        return
    rows = np.flatnonzero(np.isin(t["job"], c.gangs["job"]))
    ps_holdings = pl.DataFrame({"job": t["job"][rows], "time": t["start"][rows], "end": t["end"][rows]}).cast(pl.Int64)
    ps_holdings = ps_holdings.sort("time", maintain_order=True)
    allocations = intervals.select(pl.col("job").cast(pl.Int64), time="start", until="end").sort("time")
    matched = ps_holdings.join_asof(
        allocations, on="time", by="job", strategy="nearest", tolerance=slack, check_sortedness=False
    )
    wrong = matched.filter(pl.col("until").is_null() | ((pl.col("until") - pl.col("end")).abs() > slack))
    for job, time, end, until in wrong.head(findings.limit).iter_rows():
        findings.add(
            "M14", job, time, f"holds a PS until {end} µs, and the workers that began with it until {until} µs"
        )


def _interval_columns(intervals: pl.DataFrame) -> tuple[Ints, Ints, Ints]:
    """(job, start, end) of the allocations."""
    job, start, end = (intervals[name].to_numpy() for name in ("job", "start", "end"))
    return job, start, end


def _postponements(c: Columns, findings: Findings, slack: int, intervals: pl.DataFrame) -> None:
    """M2: a job that is postponed holds no workers at that time."""
    d = c.decisions
    rows = np.flatnonzero(d.has("verb", "postpone"))
    if not len(rows):
        return
    postponements = pl.DataFrame({"job": d["job"][rows], "time": d["time"][rows]}).cast(pl.Int64).sort("time")
    holdings = intervals.select(pl.col("job").cast(pl.Int64), "end", time=pl.col("start") + slack + 1).sort("time")
    matched = postponements.join_asof(holdings, on="time", by="job", check_sortedness=False).filter(
        pl.col("end") > pl.col("time") + slack
    )
    for job, time, *_ in matched.head(findings.limit).iter_rows():
        findings.add("M2", job, time, "is postponed while it holds workers")


def _unmatched(rows: pl.DataFrame, partners: pl.DataFrame, slack: int) -> pl.DataFrame:
    """The rows of `rows` without a row of `partners` for the same job and time; both have columns job and time."""
    if slack == 0:
        partners = partners.select(pl.col("job").cast(pl.Int64), "time")
        return rows.join(partners, on=["job", "time"], how="anti", maintain_order="left").sort(
            "time", maintain_order=True
        )
    present = partners.select(pl.col("job").cast(pl.Int64), "time", there=pl.lit(value=True)).unique().sort("time")
    matched = rows.sort("time", maintain_order=True).join_asof(
        present, on="time", by="job", strategy="nearest", tolerance=slack, check_sortedness=False
    )
    return matched.filter(pl.col("there").is_null())


def _early_ends(findings: Findings, slack: int, intervals: pl.DataFrame, orders: pl.DataFrame, c: Columns) -> None:
    """M11: an allocation that ends before its job is ended by an order: the job is suspended or allocated again."""
    early_ends = intervals.filter("preempted").select(pl.col("job").cast(pl.Int64), pl.col("end").alias("time"))
    ends = pl.concat([orders.select("job", "time"), _failures(c)])
    for job, time, *_ in _unmatched(early_ends, ends, slack).head(findings.limit).iter_rows():
        findings.add("M11", job, time, "loses its workers; no decision at that time takes them")


def _failures(c: Columns) -> pl.DataFrame:
    times = failure_times(c)
    jobs = np.flatnonzero(times < NEVER)
    return pl.DataFrame({"job": jobs, "time": times[jobs]}).cast(pl.Int64)


def _suspensions(findings: Findings, slack: int, intervals: pl.DataFrame, orders: pl.DataFrame) -> None:
    """M2: a suspended job held workers until then, by a run or by an order of the same instant."""
    key = pl.col("job", "time")
    suspended = orders.filter(pl.col("verb") == "suspend")
    allocations = orders.filter(pl.col("verb").is_in(["allocate", "allocate_each"]))
    if slack == 0:  # live, a job suspended in its last mini-batch is complete nevertheless
        intervals = intervals.filter("preempted")
    ends = pl.concat([intervals.select(pl.col("job").cast(pl.Int64), time="end"), allocations.select(key)])
    for job, time, *_ in _unmatched(suspended.select(key), ends, slack).head(findings.limit).iter_rows():
        findings.add("M2", job, time, "is suspended, but held no workers until then")
    repeats = orders.filter(
        pl.col("verb") == "suspend", pl.col("verb").shift() == "suspend", pl.col("job") == pl.col("job").shift()
    )
    for job, time in repeats.select(key).head(findings.limit).iter_rows():
        findings.add("M2", job, time, "is suspended twice without holding workers in between")


def check_suspensions(c: Columns, findings: Findings, promised: str, *, slots: bool) -> None:
    """M11: in a simulation, a job is suspended only for another job (``for_others``), or never (``never``).

    For gangs on slots that do not continue at that instant: another job of their worker type or PS type then begins.
    """
    if promised not in ("never", "for_others") or (promised == "for_others" and not slots):
        return
    d, allocations, jobs = c.decisions, gang_intervals(c), c.scenario.jobs
    start_times, start_jobs = allocations["start"].to_numpy(), allocations["job"].to_numpy()
    rows = np.flatnonzero(d.has("verb", "suspend") & (d["server"] < 0))
    job, time = d["job"][rows], d["time"][rows]
    has_successor = np.zeros(len(rows), bool)
    if promised == "for_others":
        for kind in (jobs.worker_type, jobs.ps_type):  # the same job among them has its own types
            has_successor |= _contains(time, kind[job], start_times, kind[start_jobs])
    template = "is suspended, and no other job is given workers or a PS that it can have held"
    findings.add_rows("M11", ~has_successor, job, time, lambda _: template)


def _contains(time: Ints, kind: Ints, times: Ints, kinds: Ints) -> Bools:
    """Whether each pair of `time` and `kind` is one of the pairs of `times` and `kinds`; kinds are few."""
    is_member = np.zeros(len(time), bool)
    for value in np.unique(kind):
        rows = np.flatnonzero(kind == value)
        is_member[rows] = np.isin(time[rows], times[kinds == value])
    return is_member
