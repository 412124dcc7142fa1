"""Rows that belong to one job: its parts, which run beside each other, or its attempts, one after the other."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from .values import NO_STATUS, SKIP

_WORST = {SKIP: 4, NO_STATUS: 3, "failed": 2, "killed": 1, "passed": 0}
"""Order of the states of parts: a job of which a part still runs still runs itself."""

_HELD = (pl.col("gpus") > 0).fill_null(value=False)
_COUNTS = _HELD | ~_HELD.any()
"""The rows that count: those with GPUs, or all if none has any."""


class Merged(NamedTuple):
    """A row for each job, and the number of jobs of which some row does not count, by reason."""

    table: pl.DataFrame
    changed: dict[str, int]


def one_job_each(rows: pl.DataFrame) -> Merged:
    """The rows, each a job; one without a duration runs from its start to its end."""
    return Merged(rows.with_columns(duration_s=_duration(rows)), {})


def _duration(rows: pl.DataFrame) -> pl.Expr:
    """The duration where it is known, else the time from start to end."""
    span = pl.col("end_s") - pl.col("start_s") if "start_s" in rows.columns else pl.lit(None, pl.Float64)
    return pl.coalesce("duration_s", span) if "duration_s" in rows.columns else span


def of_parts(rows: pl.DataFrame) -> Merged:
    """Parts as jobs: GPUs added up, from the first submission and start to the last end, the worst status.

    Parts without GPUs take no part in a job's time, as long as others have some. If the duration, start or end of a
    part that counts is missing, so is the job's duration.
    """
    spans = "start_s" in rows.columns
    rows = rows if spans else rows.with_columns(start_s=pl.lit(0.0), end_s=pl.col("duration_s"))
    worst = pl.col("status").sort_by(pl.col("status").replace_strict(_WORST), descending=True).first()
    begin, end = pl.col("start_s"), pl.col("end_s")
    late = ~_HELD & ((begin < begin.filter(_HELD).min()) | (end > end.filter(_HELD).max()) | pl.col("gpus").is_null())
    table = rows.group_by("id", maintain_order=True).agg(
        pl.col("_line").first(),
        pl.col("submit_s").min(),
        begin.filter(_COUNTS).min(),
        pl.when(end.filter(_COUNTS).is_not_null().all()).then(end.filter(_COUNTS).max()),
        pl.col("gpus").filter(_HELD).sum(),
        worst,
        *_labels(rows),
        unlike=_HELD.any() & late.fill_null(value=False).any(),
    )
    changed = {"part without GPUs not counted": int(table["unlike"].sum())}
    return Merged(table.with_columns(duration_s=pl.col("end_s") - pl.col("start_s")), changed)


def of_attempts(rows: pl.DataFrame) -> Merged:
    """Attempts as jobs: run times added up, the GPUs of the largest, the first submission, the status of the last.

    An attempt that started, and whose running time is missing, is not counted.
    """
    rows = one_job_each(rows).table.sort("submit_s", maintain_order=True)
    spans = ["start_s", "end_s"] if "start_s" in rows.columns else []
    started = pl.col("start_s").is_not_null() if spans else pl.lit(value=True)
    table = rows.group_by("id", maintain_order=True).agg(
        pl.col("_line").first(),
        pl.col("submit_s").min(),
        *(pl.col(name).filter(pl.col("duration_s").is_not_null()).last() for name in spans),
        pl.when(pl.col("duration_s").is_not_null().any()).then(pl.col("duration_s").filter(_COUNTS).sum()),
        pl.col("gpus").max(),
        pl.col("status").last(),
        *_labels(rows),
        unlike=(pl.len() > 1) & (_HELD & started & pl.col("duration_s").is_null()).any(),
    )
    return Merged(table.sort("_line"), {"attempt without a run time not counted": int(table["unlike"].sum())})


def _labels(rows: pl.DataFrame) -> list[pl.Expr]:
    """The labels of a job: of its first row that has them."""
    names = [n for n in ("group", "user", "gpu_type", "tenant", "priority") if n in rows.columns]
    return [pl.col(n).filter(pl.col(n).cast(pl.String) != "").first() for n in names]
