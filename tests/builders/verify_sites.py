"""Planted violations at sites."""

from __future__ import annotations

import polars as pl

from builders.verify_resources import Planted, drop, edit

SLOT = 10_000_000


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
