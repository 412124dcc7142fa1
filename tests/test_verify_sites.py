"""Every rule on sites finds what breaks it, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import polars as pl
import pytest

from skedge.core.schedule import Schedule
from skedge.run import Run, run
from skedge.testing import site_scenario

SLOT = 10_000_000
Change = Callable[[Schedule], Schedule]


@cache
def done() -> Run:
    return run(site_scenario(1, jobs=40), "okita")


def edit(table: str, where: pl.Expr, **columns: Any) -> Change:
    """The first row that satisfies `where`, with these columns set."""

    def change(s: Schedule) -> Schedule:
        frame: pl.DataFrame = getattr(s, table)
        row = frame.with_row_index("_row").filter(where)["_row"][0]
        at = pl.int_range(pl.len()) == row
        new = frame.with_columns(
            pl.when(at).then(value if isinstance(value, pl.Expr) else pl.lit(value)).otherwise(pl.col(name))
            .cast(frame.schema[name]).alias(name)
            for name, value in columns.items()
        )  # fmt: skip
        return replace(s, **{table: new})

    return change


def drop(table: str, where: pl.Expr) -> Change:
    """Without the first row that satisfies `where`."""

    def change(s: Schedule) -> Schedule:
        frame: pl.DataFrame = getattr(s, table)
        row = frame.with_row_index("_row").filter(where)["_row"][0]
        return replace(s, **{table: frame.filter(pl.int_range(pl.len()) != row)})

    return change


def both(*changes: Change) -> Change:
    def change(s: Schedule) -> Schedule:
        for one in changes:
            s = one(s)
        return s

    return change


@dataclass(frozen=True)
class Planted:
    rule: str
    what: str
    change: Change


ANY = pl.lit(value=True)
MOVED = pl.col("from_site").is_not_null()
TRANSFER = pl.col("verb") == "transfer"
LAST = pl.col("end") == pl.col("end").max().over("job")
PLANTED = [
    Planted("M31", "more chunks than lie there", edit("uploads", MOVED, chunks=999, mb=pl.col("mb") * 999)),
    Planted("M31", "chunks that weigh nothing", edit("uploads", MOVED, mb=0.0)),
    Planted("M31", "chunks from a site to itself", edit("uploads", MOVED, from_site=pl.col("to_server"))),
    Planted("M31", "chunks from a site that there is not", edit("uploads", MOVED, from_site="m99")),
    Planted("M31", "a cost that is not booked as it is", edit("decisions", TRANSFER, value=1e6)),
    Planted("M31", "a booking without a transfer", drop("uploads", MOVED)),
    Planted("M32", "two PSs", edit("ps", ANY, count=2)),
    Planted("M32", "no PS", drop("ps", ANY)),
    Planted("M32", "a PS that goes before its workers", edit("ps", LAST, end=pl.col("end") - SLOT // 2)),
    Planted("M33", "work that its workers cannot do", edit("runs", pl.col("work") > 0, work=pl.col("work") + 10)),
    Planted("M33", "work that is not there", edit("runs", pl.col("work") > 0, work=0.0)),
    Planted("M33", "workers that are not needed any more", edit("runs", LAST, end=pl.col("end") + SLOT)),
    Planted("M33", "a finished job with chunks left", drop("runs", LAST & (pl.col("work") > 0))),
    Planted("M26", "more workers than the site holds", edit("runs", ANY, workers=1000)),
    Planted(
        "M23", "a transfer within a slot", edit("uploads", MOVED, start=pl.col("start") + 1, end=pl.col("end") + 1)
    ),
]


def test_the_run_that_is_broken_below_keeps_every_rule() -> None:
    assert done().verify() == []
    assert done().schedule.uploads["from_site"].is_not_null().any(), "data have moved"
    assert done().schedule.runs["preempted"].any(), "a job was delayed after it had begun, or moved"


@pytest.mark.parametrize("planted", PLANTED, ids=lambda p: f"{p.rule}-{p.what}")
def test_what_breaks_a_rule_is_found(planted: Planted) -> None:
    run_ = done()
    broken = replace(run_, schedule=planted.change(run_.schedule))
    assert planted.rule in {violation.rule for violation in broken.verify()}


def test_transfers_of_a_job_between_the_right_sites_are_recorded_in_their_order() -> None:
    moved = done().schedule.uploads.filter(MOVED)
    assert (moved["start"] == moved["end"]).all(), "at once"
    assert (moved["start"] % SLOT == 0).all()
    assert (moved["from_site"] != moved["to_server"].cast(pl.String)).all()
