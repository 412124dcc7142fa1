"""Planted violations that once got past the verifier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from skedge.core.record.schedule import Schedule

Change = Callable[[Schedule], Schedule]


VERB = pl.col("verb").cast(pl.String)


def first(table: str, where: pl.Expr, **values: Any) -> Change:
    """The first row that satisfies `where`, with these columns set."""

    def change(s: Schedule) -> Schedule:
        frame: pl.DataFrame = getattr(s, table)
        rows = frame.with_row_index("_row").filter(where)["_row"]
        assert len(rows), "there is such a row"
        at = pl.int_range(pl.len()) == rows[0]
        new = frame.with_columns(
            pl.when(at).then(value if isinstance(value, pl.Expr) else pl.lit(value)).otherwise(pl.col(name))
            .cast(frame.schema[name]).alias(name)
            for name, value in values.items()
        )  # fmt: skip
        return replace(s, **{table: new})

    return change


def drop(table: str, where: pl.Expr) -> Change:
    """Without the first row that satisfies `where`."""

    def change(s: Schedule) -> Schedule:
        frame: pl.DataFrame = getattr(s, table).with_row_index("_row")
        row = frame.filter(where)["_row"][0]
        return replace(s, **{table: frame.filter(pl.col("_row") != row).drop("_row")})

    return change


def again(table: str, where: pl.Expr) -> Change:
    """The first row that satisfies `where`, twice."""

    def change(s: Schedule) -> Schedule:
        frame: pl.DataFrame = getattr(s, table)
        return replace(s, **{table: pl.concat([frame, frame.filter(where)[:1]])})

    return change


def in_two(s: Schedule) -> Schedule:
    """The longest run, as two that touch, the first marked preempted; each with its part of the work."""
    row = (s.runs["end"] - s.runs["compute_from"]).arg_max()
    assert row is not None
    one = s.runs[row]
    at = (pl.col("start") + pl.col("end")) // 2
    part = (at - pl.col("compute_from")) / (pl.col("end") - pl.col("compute_from"))
    former = one.with_columns(end=at, work=pl.col("work") * part, preempted=pl.lit(value=True))
    latter = one.with_columns(start=at, compute_from=at, work=pl.col("work") * (1 - part))
    return replace(s, runs=pl.concat([s.runs[:row], former, latter, s.runs[row + 1 :]]))


def outage(**values: Any) -> Change:
    def change(s: Schedule) -> Schedule:
        return replace(s, outages=pl.DataFrame([values], schema=s.outages.schema))

    return change


def exchanged(s: Schedule) -> Schedule:
    """Two chunks of a job that was not preempted exchange half of their work: the job's sum is as it was."""
    job = (
        s.runs.filter(pl.col("chunk").is_not_null(), ~pl.col("preempted"))["job"]
        .value_counts()
        .sort("count")["job"][-1]
    )
    rows = s.runs.with_row_index("_row").filter(pl.col("job") == job)["_row"].to_list()[:2]
    by = s.runs["work"][rows[0]] / 2
    less = pl.when(pl.int_range(pl.len()) == rows[0]).then(pl.col("work") - by)
    work = less.when(pl.int_range(pl.len()) == rows[1]).then(pl.col("work") + by).otherwise("work")
    return replace(s, runs=s.runs.with_columns(work))


@dataclass(frozen=True)
class Planted:
    rule: str
    what: str
    policy: str
    change: Change


DISPATCHED, ALLOCATED = VERB == "dispatch", VERB == "allocate"


ANY = pl.lit(value=True)


SHIFTED = pl.col("value") * 1.001


PAUSED = (VERB != "allocate").all().over("job", "time")


AT_EDGE = pl.col("server").cast(pl.String) != "cloud"


PLANTED = [
    Planted(
        "M6", "a first dispatch that says redispatch", "aonline", first("decisions", DISPATCHED, verb="redispatch")
    ),
    Planted("M11", "a chunk that nothing displaces", "aonline", in_two),
    Planted("M11", "a gang that no decision displaces", "srtf", in_two),
    Planted("M11", "a run's end without its suspension", "srtf", drop("decisions", (VERB == "suspend") & PAUSED)),
    Planted(
        "M2",
        "a suspension of what does not run",
        "srtf",
        first("decisions", VERB == "suspend", time=pl.col("time") - 1),
    ),
    Planted("M2", "an allocation without a run", "srtf", drop("runs", ~pl.col("preempted"))),
    Planted(
        "M2", "an allocation of more workers", "srtf", first("decisions", ALLOCATED, workers=pl.col("workers") + 1)
    ),
    Planted("M2", "admitted later", "aonline", first("jobs", ANY, admitted=pl.col("admitted") + 1)),
    Planted("M2", "decisions out of order", "srtf", first("decisions", pl.col("time") > 0, time=10**12)),
    Planted("M2", "PSs that no decision gives", "dorm", first("ps", ANY, count=pl.col("count") + 1)),
    Planted("M14", "PSs longer than their workers", "dorm", first("ps", ANY, end=pl.col("end") + 1)),
    Planted("M16", "an upload of a dispatch, twice", "aonline", again("uploads", ANY)),
    Planted("M16", "an upload of a gang, twice", "srtf", again("uploads", ANY)),
    Planted("M16", "a gang's upload that is missing", "srtf", drop("uploads", ANY)),
    Planted(
        "M16",
        "a gang's upload with another share",
        "srtf",
        first("uploads", pl.col("chunks") > 1, chunks=pl.col("chunks") - 1, mb=pl.col("mb") - 10.0),
    ),
    Planted("M16", "copies ahead of a batch that are missing", "batch", drop("uploads", ANY)),
    Planted("M1", "an upload of no chunk", "srtf", first("uploads", ANY, chunks=0, mb=0.0)),
    Planted("M1", "an upload from a site where there is none", "srtf", first("uploads", ANY, from_site="e0")),
    Planted("M34", "another alpha", "aonline", first("decisions", DISPATCHED, value=SHIFTED)),
    Planted("M34", "another alpha as printed", "aonline:q_mode=eq5", first("decisions", DISPATCHED, value=SHIFTED)),
    Planted(
        "M34", "another fractional alpha", "aonline:q_mode=fractional", first("decisions", DISPATCHED, value=SHIFTED)
    ),
    Planted(
        "M34",
        "alpha of a cloud chunk",
        "aonline",
        first("decisions", DISPATCHED & pl.col("lane").is_null(), value=SHIFTED),
    ),
    Planted(
        "M34", "a chunk more postponed", "aonline", first("decisions", DISPATCHED, postponed=pl.col("postponed") + 1)
    ),
    Planted("M34", "a sum of alpha that is not that of beta", "aonline", first("decisions", DISPATCHED, value=None)),
    Planted("M8", "work of one chunk done on another", "aonline", exchanged),
    Planted("M25", "an outage in a simulation", "aonline", outage(server="e0", start=1, end=2, reason="lost")),
    Planted(
        "M1", "an outage that ends before it starts", "aonline", outage(server="e0", start=2, end=1, reason="lost")
    ),
    Planted("M1", "an outage of no server", "aonline", outage(server=None, start=1, end=2, reason="lost")),
    Planted("M18", "a job left out as rejected", "srtf", first("jobs", ANY, state="rejected", reason="never_fits")),
    Planted("M18", "failed in a simulation", "srtf", first("jobs", ANY, state="failed", reason="x")),
    Planted("M36", "a price that is not the load's", "batch", first("prices", ANY, price=pl.col("price") * 1.01)),
    Planted("M36", "a price left out", "batchsche", drop("prices", ANY)),
    Planted("M36", "another utility", "batch", first("decisions", ALLOCATED, value=pl.col("value") * 1.01)),
    Planted("M36", "a job that a batch passes over", "batchsche", drop("decisions", VERB == "postpone")),
    Planted(
        "M36",
        "a plan that ends earlier, so that prices fall",
        "batchsche",
        first("plans", AT_EDGE, to=pl.col("to") - 10_000_000),
    ),
    Planted("M19", "a plan that is not broken, marked so", "batch", first("plans", ANY, broken_at=pl.col("to"))),
    Planted("M19", "a plan removed", "batch", drop("plans", ANY)),
    Planted("M19", "a reservation removed", "pdors", drop("decisions", VERB == "reserve")),
    Planted("M29", "a price said to change to what it is", "pdors", again("prices", ANY)),
    Planted("M31", "a transfer without its decision", "okita", drop("decisions", VERB == "transfer")),
    Planted("M1", "a job's value", "aonline", first("jobs", ANY, value=1.0)),
    Planted("M1", "no verb", "aonline", first("decisions", ANY, verb=None)),
    Planted("M1", "a lane of -1 instead of none", "aonline", first("runs", pl.col("lane").is_null(), lane=-1)),
    Planted("M1", "work that is no number", "srtf", first("runs", ANY, work=float("nan"))),
    Planted("M1", "neither preempted nor not", "srtf", first("runs", ANY, preempted=None)),
]
