"""Merging of rows of one job: its parts, which run at the same time, or its attempts, one after the other (ADR 37)."""

from __future__ import annotations

import polars as pl

from skedge.traces.frame import OPTIONAL

from .values import NO_STATUS, SKIP

_WORST = {SKIP: 4, NO_STATUS: 3, "failed": 2, "killed": 1, "passed": 0}
"""Order of the states of parts: a job of which a part still runs still runs itself."""

_PART, _ATTEMPT = "part without GPUs not counted", "attempt without a run time not counted"
CHANGES = (_PART, _ATTEMPT)
"""Columns of merged jobs: whether some row does not count, for this reason."""

_HAS_GPUS = (pl.col("gpus") > 0).fill_null(value=False)
_COUNTS = _HAS_GPUS | ~_HAS_GPUS.any()
"""The rows that count: those with GPUs, or all if none has any."""


def with_duration(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with `duration_s`: where it is not known, the time from start to end."""
    span = pl.col("end_s") - pl.col("start_s") if "start_s" in rows.columns else pl.lit(None, pl.Float64)
    return rows.with_columns(duration_s=pl.coalesce("duration_s", span) if "duration_s" in rows.columns else span)


def merge_parts(rows: pl.DataFrame) -> pl.DataFrame:
    """Parts as jobs: GPUs added up, from the first submission and start to the last end, the worst status.

    Parts without GPUs take no part in a job's time, as long as others have some. If the duration, start or end of a
    part that counts is missing, so is the job's duration.
    """
    spans = "start_s" in rows.columns
    rows = rows if spans else rows.with_columns(start_s=pl.lit(0.0), end_s=pl.col("duration_s"))
    worst = pl.col("status").sort_by(pl.col("status").replace_strict(_WORST), descending=True).first()
    begin, end = pl.col("start_s"), pl.col("end_s")
    # parts without GPUs that would have made the job longer, if they counted
    odd = ~_HAS_GPUS & (
        (begin < begin.filter(_HAS_GPUS).min()) | (end > end.filter(_HAS_GPUS).max()) | pl.col("gpus").is_null()
    )
    jobs = rows.group_by("id", maintain_order=True).agg(
        pl.col("_line").first(),
        pl.col("submit_s").min(),
        begin.filter(_COUNTS).min(),
        # max skips nulls, but a job with a part whose end is not known has no known end
        pl.when(end.filter(_COUNTS).is_not_null().all()).then(end.filter(_COUNTS).max()),
        pl.col("gpus").filter(_HAS_GPUS).sum(),
        worst,
        *_labels(rows),
        *(pl.col(name).any() for name in CHANGES if name in rows.columns and name != _PART),
        (_HAS_GPUS.any() & odd.fill_null(value=False).any()).alias(_PART),
    )
    return jobs.with_columns(duration_s=pl.col("end_s") - pl.col("start_s"))


def merge_attempts(rows: pl.DataFrame) -> pl.DataFrame:
    """Attempts as jobs: run times added up, the GPUs of the largest, the first submission, the status of the last.

    An attempt that started, and whose running time is missing, is not counted.
    """
    rows = with_duration(rows).sort("submit_s", maintain_order=True)
    started = pl.col("start_s").is_not_null() if "start_s" in rows.columns else pl.lit(value=True)
    ran = pl.col("duration_s").is_not_null()
    jobs = rows.group_by("id", maintain_order=True).agg(
        pl.col("_line").first(),
        pl.col("submit_s").min(),
        # the sum of no value is 0, which would be a job that ran for no time
        pl.when(ran.any()).then(pl.col("duration_s").filter(_COUNTS).sum()),
        pl.col("gpus").max(),
        pl.col("status").last(),
        *_labels(rows),
        ((pl.len() > 1) & (_HAS_GPUS & started & ~ran).any()).alias(_ATTEMPT),
    )
    # they were sorted by time, to know the last attempt; this is the order of the file again
    return jobs.sort("_line")


def _labels(rows: pl.DataFrame) -> list[pl.Expr]:
    """The labels of a job: of its first row that has them."""
    names = [n for n in ("group", *OPTIONAL) if n in rows.columns]
    return [pl.col(n).filter(pl.col(n).cast(pl.String) != "").first() for n in names]
