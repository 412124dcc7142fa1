"""The trace frame: the table that all readers produce and all makers of jobs use.

A *trace frame* is a polars DataFrame with the columns :data:`TRACE_SCHEMA`, one row per job, in order of submission.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl

from skedge.core.errors import TraceError

from .table import drop_rows

TRACE_SCHEMA: dict[str, Any] = {
    "id": pl.String,
    "submit_s": pl.Float64,
    "duration_s": pl.Float64,
    "gpus": pl.Int64,
    "status": pl.String,
    "group": pl.String,
}
"""Columns of a trace frame: `submit_s` time since the trace's first submission [s], `duration_s` running time [s],
`gpus` number of GPUs requested, or of what else the trace has (:class:`Unit`), `status` one of :data:`STATUSES`,
`group` the virtual cluster, the user or the scheduling class."""

LABELS: dict[str, Any] = {"user": pl.String, "gpu_type": pl.String, "tenant": pl.String, "priority": pl.Int64}
"""Optional columns, which the jobs made of a trace keep: there if some job has a value; null where one has none."""

OPTIONAL: dict[str, Any] = LABELS | {"data_mb": pl.Float64}
"""All optional columns: also the size of a job's data [MB], of which its chunks are made."""

STATUSES = ("passed", "failed", "killed")
"""Final states of a job."""

LONGEST_TRACED_S = 1e9
"""Longest time accepted [s]: about thirty years; more indicates a wrong unit."""


Fractional = Literal["skip", "ceil"]
"""Treatment of jobs that request a fraction of a GPU: omit them, or round up to a whole number."""


@dataclass(frozen=True)
class Unit:
    """Unit of the column `gpus` of a trace.

    Attributes
    ----------
    name
        Name of one.
    about
        Explanation, if it needs one.
    """

    name: str = "GPU"
    about: str = ""

    @property
    def several(self) -> str:
        """The plural."""
        return f"{self.name}s"

    @property
    def key(self) -> str:
        """The name as a part of keys."""
        return self.name.lower().replace(" ", "_")


GPU = Unit()


@dataclass(frozen=True)
class Trace:
    """A trace: its frame, and counts of the rows omitted, merged and changed.

    Attributes
    ----------
    frame
        A checked trace frame (:func:`check_frame`).
    source
        Name of the file, or of the generator.
    skipped
        Number of rows or jobs omitted, by reason.
    changed
        Number of jobs with a value that differs from the file's, by kind of change.
    merged
        Number of rows that belong to a job with another row, its first.
    unit
        What the column `gpus` counts.
    note
        A sentence where the file may have been misread; empty if there is no doubt.
    """

    frame: pl.DataFrame
    source: str
    skipped: dict[str, int] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    merged: int = 0
    unit: Unit = GPU
    note: str = ""

    @property
    def rows(self) -> int:
        """Number of rows of the file: taken, omitted and merged."""
        return len(self.frame) + sum(self.skipped.values()) + self.merged


def check_frame(frame: pl.DataFrame, source: str) -> pl.DataFrame:
    """Check `frame` and return it with exactly the columns of a trace frame, and those of :data:`OPTIONAL` that it has.

    Raises
    ------
    TraceError
        Names `source`, the first wrong row (from 0), the column and the value: a missing column, a value that is
        missing, NaN, infinite or negative, fewer than 1 GPU, an unknown status, an id used twice, or rows out of order.
    """
    missing = [c for c in TRACE_SCHEMA if c not in frame.columns]
    if missing:
        raise TraceError(f"{source}: column {missing[0]!r} is missing; a trace has {', '.join(TRACE_SCHEMA)}")
    try:
        kinds = TRACE_SCHEMA | {name: kind for name, kind in OPTIONAL.items() if name in frame.columns}
        frame = frame.select(pl.col(c).cast(t) for c, t in kinds.items())
    except pl.exceptions.PolarsError as error:
        raise TraceError(f"{source}: a column has values of the wrong type: {error}") from error
    for column in TRACE_SCHEMA:
        _refuse(frame, pl.col(column).is_null(), column, source, "a value; it is missing")
    for column in ("submit_s", "duration_s"):
        _refuse(frame, ~_time(column), column, source, f"a number from 0 to {LONGEST_TRACED_S:g} seconds")
    if "data_mb" in frame.columns:
        size = pl.col("data_mb")
        wrong = ~(size.is_finite() & (size > 0)).fill_null(value=True)
        _refuse(frame, wrong, "data_mb", source, "above 0; no value where it is not known")
    _refuse(frame, pl.col("gpus") < 1, "gpus", source, "at least 1")
    _refuse(frame, ~pl.col("status").is_in(STATUSES), "status", source, f"one of {', '.join(STATUSES)}")
    _refuse(frame, pl.col("id").is_duplicated(), "id", source, "unique; it is used twice")
    _refuse(frame, pl.col("submit_s").diff().fill_null(0) < 0, "submit_s", source, "at least the row before's")
    return frame


def _time(column: str) -> pl.Expr:
    return pl.col(column).is_finite() & pl.col(column).is_between(0, LONGEST_TRACED_S)


def _refuse(frame: pl.DataFrame, wrong: pl.Expr, column: str, source: str, right: str) -> None:
    bad = frame.with_row_index("row").filter(wrong).head(1)
    if len(bad):
        row, value = bad["row"][0], bad[column][0]
        raise TraceError(f"{source}: row {row}, column {column}: {value!r}; it must be {right}")


def from_first_submit(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` in order of submission (file order for equal times), with `submit_s` counted from the first one."""
    return frame.sort("submit_s", maintain_order=True).with_columns(pl.col("submit_s") - pl.col("submit_s").min())


def with_status(frame: pl.DataFrame, statuses: Collection[str]) -> pl.DataFrame:
    """The rows whose status is one of `statuses`.

    Raises
    ------
    TraceError
        If a status is unknown.
    """
    unknown = sorted(set(statuses) - set(STATUSES))
    if unknown:
        raise TraceError(f"statuses: {unknown[0]!r} is not a status; there are {', '.join(STATUSES)}")
    return frame.filter(pl.col("status").is_in(list(statuses)))


def make_trace(
    frame: pl.DataFrame,
    source: Path | str,
    statuses: Collection[str],
    skipped: dict[str, int],
    fractional: Fractional = "skip",
    changed: dict[str, int] | None = None,
    **about: Any,
) -> Trace:
    """Make a checked trace of `frame`, with only `statuses` and times from its first submission; count rows omitted.

    Jobs without an id, a running time or a GPU, and jobs that end before they start, are always omitted.

    Parameters
    ----------
    frame
        The columns of a trace frame; `gpus` may be fractions.
    source
        Name of the file.
    statuses
        Statuses of the jobs to take.
    skipped, changed
        Rows that the reader has omitted and changed so far.
    fractional
        Treatment of fractions of a GPU.
    about
        The other attributes of the :class:`Trace`: `merged`, `unit` and `note`.
    """
    unit = about.get("unit", GPU)
    usable, unusable = drop_rows(frame, _unusable_rows(fractional, unit))
    jobs = with_status(usable, statuses)
    added = {reason: n + skipped.get(reason, 0) for reason, n in unusable.items()}
    out = {**skipped, **added, "other status": len(usable) - len(jobs)}
    if not len(jobs):
        counted = ", ".join(f"{n} {reason}" for reason, n in out.items() if n) or "it is empty"
        raise TraceError(f"{source}: no job is left ({counted}); statuses taken: {', '.join(statuses)}")
    rounded = len(jobs.filter(pl.col("gpus") != pl.col("gpus").ceil()))
    labelled = _clean_labels(jobs.with_columns(pl.col("gpus").ceil()))
    checked = check_frame(from_first_submit(labelled), str(source))
    changes = {**(changed or {}), f"fraction of a {unit.name} rounded up": rounded}
    return Trace(checked, str(source), _nonzero(out), _nonzero(changes), **about)


def _unusable_rows(fractional: Fractional, unit: Unit) -> dict[str, pl.Expr]:
    # what is missing counts as 0, so that its row is omitted and counted instead of refused
    gpus = pl.col("gpus").fill_null(0)
    reasons = {
        NO_ID: pl.col("id").is_null() | (pl.col("id") == ""),
        "ends before it starts": pl.col("duration_s") < 0,
        "no run time": ~(pl.col("duration_s").fill_null(0) > 0),
        f"no {unit.name}": ~(gpus > 0),
    }
    return reasons if fractional == "ceil" else reasons | {f"fraction of a {unit.name}": gpus != gpus.ceil()}


NO_ID = "no id"
"""Reason for omitting rows that name no job."""


def _clean_labels(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with null for empty labels, and without those that no job has."""
    present = [name for name in OPTIONAL if name in frame.columns]
    # an empty user is no user: jobs without one must not count as those of one and the same
    frame = frame.with_columns(pl.when(pl.col(name).cast(pl.String) != "").then(pl.col(name)) for name in present)
    return frame.drop(name for name in present if frame[name].null_count() == len(frame))


def _nonzero(counts: dict[str, int]) -> dict[str, int]:
    return {reason: n for reason, n in counts.items() if n}


def stretched(frame: pl.DataFrame, span_s: float) -> pl.DataFrame:
    """`frame` with its submissions scaled in time so that the last one is at `span_s` [s]."""
    if not 0 < span_s <= LONGEST_TRACED_S:
        raise TraceError(f"span_s: {span_s}; it must be above 0 and at most {LONGEST_TRACED_S:g} seconds")
    last = float(frame["submit_s"].to_numpy().max())
    # all submitted at one instant: there is nothing to stretch
    scale = span_s / last if last > 0 else 0.0
    # clipped, as rounding may put the last one beyond the span
    return frame.with_columns((pl.col("submit_s") * scale).clip(0, span_s))
