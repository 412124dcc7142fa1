"""Any table of jobs as a trace: a mapping names the columns that hold what a trace needs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

from skedge.core.errors import TraceError
from skedge.traces.frame import LONGEST_TRACED_S, Fractional, Trace, finished
from skedge.traces.table import column_named, filled, left_out, numbers, read_table, refuse

Column = Annotated[str, Field(min_length=1)]

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
"""Units of times that are numbers [s]."""

MISSING = ("", "-", "nan", "none", "null", "n/a", "na", "nat", "unknown")
"""Texts, in lower case, of a value that is not known."""

MEANING: Mapping[str, str] = {
    **dict.fromkeys(("completed", "pass", "passed", "succeeded", "success", "terminated", "finished"), "passed"),
    **dict.fromkeys(("failed", "fail", "error", "timeout", "node_fail", "out_of_memory", "boot_fail"), "failed"),
    **dict.fromkeys(("cancelled", "canceled", "killed", "preempted", "deadline", "stopped"), "killed"),
    **dict.fromkeys(("running", "pending", "waiting", "queued", "suspended", "requeued"), "skip"),
}
"""Final state of a job by the first word of its status, in lower case; a mapping's `statuses` come first."""

_ISO = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%d %H:%M", "%Y-%m-%d")
_WORST = {"failed": 2, "killed": 1, "passed": 0}


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


class JoinedTable(_Form):
    """A second table, whose columns are named ``table.column`` in the mapping."""

    path: str = Field(description="path from the trace's folder")
    by: list[Column] = Field(min_length=1, description="columns that are equal in both tables")
    columns: list[Column] | None = Field(None, description="names of the columns of a file without a header")


class TraceMapping(_Form):
    """The columns of a table of jobs, comma-separated or the like, that hold what a trace needs.

    `gpus` and `duration` may be products of columns and numbers, such as ``plan_gpu / 100`` or ``run_ms / 1000``.
    """

    arrival: Column = Field(description="time of submission")
    duration: Column | None = Field(None, description="running time [s]; or start and end")
    start: Column | None = None
    end: Column | None = None
    gpus: Column = Field(description="GPUs of the job; jobs with 0 are left out and counted")
    gpus_pattern: str | None = Field(None, description="regular expression whose first group is the number of GPUs")
    id: Column | None = Field(None, description="name of the job, unique; default: the line")
    user: Column | None = Field(None, description="user, virtual cluster or class")
    status: Column | None = Field(None, description="final state; default: all jobs passed")
    statuses: dict[str, Literal["passed", "failed", "killed", "skip"]] = Field(
        {}, description="meaning of a status; '*': of all others"
    )
    time: str = Field("auto", description="s, ms, us, ns, min, h, d, iso, or a format such as %d/%m/%Y %H:%M")
    where: dict[str, str | list[str]] = Field({}, description="rows to take: value or values by column")
    parts: Column | None = Field(None, description="rows with one value here are parts of one job, named by it")
    separator: str = Field(",", min_length=1, max_length=1)
    columns: list[Column] | None = Field(None, description="names of the columns of a file without a header")
    join: dict[str, JoinedTable] = {}

    @model_validator(mode="after")
    def _is_whole(self) -> TraceMapping:
        if (self.duration is None) == (self.start is None and self.end is None):
            raise ValueError("it must have either duration, or start and end")
        if self.duration is None and (self.start is None or self.end is None):
            raise ValueError("start and end go together")
        if self.id is not None and self.parts is not None:
            raise ValueError("id does not go with parts, which names the jobs")
        if self.statuses and self.status is None:
            raise ValueError("statuses goes with status, the column that has them")
        _check_pattern(self.gpus_pattern)
        return self


def _check_pattern(pattern: str | None) -> None:
    try:
        groups = 1 if pattern is None else re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"gpus_pattern {pattern!r} is not a regular expression: {error}") from None
    if groups < 1:
        raise ValueError(f"gpus_pattern {pattern!r} has no group in brackets for the number of GPUs")


def read_mapped(
    path: Path | str,
    mapping: TraceMapping,
    statuses: Collection[str] = ("passed",),
    fractional: Fractional = "skip",
) -> Trace:
    """Read a table of jobs with a header, such as a CSV file (``.gz`` too), as a trace.

    Omitted and counted, besides what every reader omits: rows that `where` does not take, jobs without a submission
    time, and jobs whose status means ``skip``.

    Raises
    ------
    TraceError
        Names a column that is missing, with the nearest one that is there; or line, column and value.
    """
    path = Path(path)
    table, skipped = _taken(_joined(path, mapping), path, mapping)
    jobs = pl.DataFrame(dict(_columns(table, path, mapping)))
    jobs, unknown = left_out(jobs, {"status to skip": pl.col("status") == "skip"})
    jobs = jobs if mapping.parts is None else _merged(jobs)
    jobs = _with_duration(jobs)
    jobs, unsubmitted = left_out(jobs, {"no submission time": pl.col("submit_s").is_null()})
    _check_spans(jobs, path, mapping)
    refuse(jobs, pl.col("id").is_duplicated(), path, "id", _UNIQUE)
    return finished(jobs, path, statuses, skipped | unknown | unsubmitted, fractional)


_UNIQUE = "unique; it is used twice (with `parts` rows of one name are one job)"


def used(mapping: TraceMapping) -> list[str]:
    """The names that a mapping uses as columns."""
    single = (mapping.arrival, mapping.start, mapping.end, mapping.id, mapping.user, mapping.status, mapping.parts)
    products = [factor for text in (mapping.gpus, mapping.duration) if text for _, factor in _factors(text)]
    names = [*(name for name in single if name), *mapping.where, *(name for name in products if not _NUMBER(name))]
    return list(dict.fromkeys(names))


_NUMBER = re.compile(r"[0-9.]+").fullmatch


def _joined(path: Path, mapping: TraceMapping) -> pl.DataFrame:
    """The table, joined with the other tables of the mapping; of a table alone only the columns used are read."""
    names, separator = used(mapping), mapping.separator
    if not mapping.join:
        return read_table(path, names, columns=mapping.columns, separator=separator, only=names)
    table = read_table(path, (), columns=mapping.columns, separator=separator)
    for name, other in mapping.join.items():
        for column in other.by:
            column_named(table, path, column)
        beside = path.parent / other.path
        second = read_table(beside, other.by, columns=other.columns, separator=separator)
        once = f"in one row only, as {', '.join(other.by)} name the rows"
        refuse(second, pl.struct(other.by).is_duplicated(), beside, other.by[0], once)
        second = second.select(pl.exclude("_line").name.prefix(f"{name}."))
        table = table.join(second, left_on=other.by, right_on=[f"{name}.{column}" for column in other.by], how="left")
    return table


def _taken(table: pl.DataFrame, path: Path, mapping: TraceMapping) -> tuple[pl.DataFrame, dict[str, int]]:
    """The rows that are filled and that `where` takes, and the number of the others by reason."""
    for name in used(mapping):
        column_named(table, path, name)
    table, blank = filled(table)
    reasons = {
        f"other {column}": ~pl.col(column).is_in([values] if isinstance(values, str) else values)
        for column, values in mapping.where.items()
    }
    table, others = left_out(table, reasons)
    return table, blank | others


def _columns(table: pl.DataFrame, path: Path, mapping: TraceMapping) -> Iterator[tuple[str, pl.Series]]:
    """The columns of the trace, before rows of one job are merged."""
    yield "_line", table["_line"]
    name = mapping.parts or mapping.id
    yield "id", table["_line"].cast(pl.String) if name is None else table[name]
    yield "submit_s", _times(table, path, mapping.arrival, mapping.time)
    for column, source in (("start_s", mapping.start), ("end_s", mapping.end)):
        if source is not None:
            yield column, _times(table, path, source, mapping.time)
    if mapping.duration is not None:
        yield "duration_s", _product(table, path, mapping.duration)
    yield "gpus", _gpus(table, path, mapping)
    yield "group", table[mapping.user] if mapping.user else pl.repeat("", len(table), dtype=pl.String, eager=True)
    yield "status", _statuses(table, path, mapping)


def _gpus(table: pl.DataFrame, path: Path, mapping: TraceMapping) -> pl.Series:
    if mapping.gpus_pattern is None:
        return _product(table, path, mapping.gpus)
    table = table.with_columns(pl.col(mapping.gpus).str.extract(mapping.gpus_pattern).fill_null(""))
    return _numbers(table, path, mapping.gpus)


def _product(table: pl.DataFrame, path: Path, text: str) -> pl.Series:
    """The value of a column, or of a product of columns and numbers."""
    value = pl.repeat(1.0, len(table), eager=True)
    for operator, factor in _factors(text):
        by: Any = float(factor) if _NUMBER(factor) else _numbers(table, path, factor)
        value = value / by if operator == "/" else value * by
    return value


def _factors(text: str) -> list[tuple[str, str]]:
    """The factors of a product, each with ``*`` or ``/`` before it."""
    return [(operator, factor.strip()) for operator, factor in re.findall(r"([*/])([^*/]+)", f"*{text}")]


def _missing(column: str) -> pl.Expr:
    return pl.col(column).is_null() | pl.col(column).str.to_lowercase().is_in(MISSING)


def _numbers(table: pl.DataFrame, path: Path, column: str) -> pl.Series:
    """`column` as numbers; null where the value is missing."""
    missing = table.select(_missing(column)).to_series()
    zeroed = table.with_columns(pl.when(missing).then(pl.lit("0")).otherwise(pl.col(column)).alias(column))
    found = numbers(zeroed, path, column, -float("inf"))
    return pl.select(pl.when(~missing).then(found)).to_series()


def _times(table: pl.DataFrame, path: Path, column: str, form: str) -> pl.Series:
    """`column` as seconds since some instant; null where the value is missing."""
    if form in UNITS:
        return _numbers(table, path, column) * UNITS[form]
    if form == "auto" and table.select((_missing(column) | _is_number(column)).all()).item():
        return _numbers(table, path, column)
    iso = form in ("auto", "iso")
    missing = table.select(_missing(column)).to_series()
    found = _epochs(_as_iso(table[column]) if iso else table[column], _ISO if iso else (form,))
    shown = "a time like 2020-04-01 08:05:39" if iso else f"a time in the format {form}"
    right = f"{shown}; `time` states the format or the unit ({', '.join(UNITS)})"
    refuse(table, pl.lit(~missing & found.is_null()), path, column, right)
    return pl.select(pl.when(~missing).then(found)).to_series()


def _is_number(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Float64, strict=False).is_not_null()


def _as_iso(texts: pl.Series) -> pl.Series:
    return texts.str.replace("T", " ").str.replace("(Z| ?UTC)$", "+00:00")


def _epochs(texts: pl.Series, forms: Sequence[str]) -> pl.Series:
    """Seconds since 1970 by the first of `forms` that fits; null if none does."""
    found = pl.repeat(None, len(texts), dtype=pl.Float64, eager=True)
    for form in forms:
        stamp = texts.str.to_datetime(form, strict=False, time_unit="us")
        found = found.fill_null(stamp.dt.epoch("us") / 1e6)
        if not found.null_count():
            break
    return found


def _statuses(table: pl.DataFrame, path: Path, mapping: TraceMapping) -> pl.Series:
    """The final states; ``skip`` where a job has none yet."""
    if mapping.status is None:
        return pl.repeat("passed", len(table), dtype=pl.String, eager=True)
    column = mapping.status
    word = pl.col(column).str.to_lowercase().str.extract("^([^ +]*)")
    given = pl.col(column).replace_strict(mapping.statuses, default=None, return_dtype=pl.String)
    usual = word.replace_strict(MEANING, default=mapping.statuses.get("*"), return_dtype=pl.String)
    meant = pl.coalesce(given, usual)
    right = "a status that is known; `statuses` of the mapping says what it means: passed, failed, killed or skip"
    refuse(table, meant.is_null(), path, column, right)
    return table.select(meant).to_series()


def _merged(jobs: pl.DataFrame) -> pl.DataFrame:
    """A row for each job: GPUs added up, from the first submission and start to the last end, with the worst status."""
    worst = pl.col("status").sort_by(pl.col("status").replace_strict(_WORST), descending=True).first()
    firsts = [pl.col(c).first() for c in ("_line", "group")]
    lasts = [_last(c) for c in ("end_s", "duration_s") if c in jobs.columns]
    starts = [pl.col(c).min() for c in ("submit_s", "start_s") if c in jobs.columns]
    return jobs.group_by("id", maintain_order=True).agg(*firsts, *starts, *lasts, pl.col("gpus").sum(), worst)


def _last(column: str) -> pl.Expr:
    """The maximum; null if a value is missing, as then a part still runs."""
    return pl.when(pl.col(column).is_not_null().all()).then(pl.col(column).max())


def _with_duration(jobs: pl.DataFrame) -> pl.DataFrame:
    if "duration_s" in jobs.columns:
        return jobs
    return jobs.with_columns(duration_s=pl.col("end_s") - pl.col("start_s"))


def _check_spans(jobs: pl.DataFrame, path: Path, mapping: TraceMapping) -> None:
    """Refuse times that no trace spans: their unit is wrong."""
    span = float(np.ptp(jobs["submit_s"].to_numpy())) if len(jobs) else 0.0
    if span > LONGEST_TRACED_S:
        units = ", ".join(UNITS)
        raise TraceError(
            f"{path}: column {mapping.arrival}: the submissions span {span:.3g} s; `time` must be their unit ({units})"
        )
    longest = float(jobs["duration_s"].fill_null(0).to_numpy().max(initial=0))
    if longest > LONGEST_TRACED_S:
        column = mapping.duration or mapping.end
        raise TraceError(
            f"{path}: column {column}: a job of {longest:.3g} s; its unit must be stated, as in "
            f"`duration: {column} / 1000`"
        )
