"""Microsoft Philly's traces (``github.com/msr-fiddle/philly-traces``): job log, CSVs derived from it, machine lists.

Times are local times of the cluster without a time zone; only their differences are used.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationError

from skedge.core.errors import TraceError
from skedge.traces.frame import Fractional, Trace, make_trace
from skedge.traces.table import (
    STAMP,
    check_columns,
    drop_blank_lines,
    drop_rows,
    is_blank,
    numbers,
    read_bytes,
    read_table,
    refuse,
    stamps,
    words,
)

_STATUS = {"Pass": "passed", "Failed": "failed", "Killed": "killed"}

_PASS_ONLY = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
"""Columns of the CSV of passed jobs that the benchmark of Pollux derived from the log."""

_ALL_STATUSES = ("u_id", "submit_time", "user", "gpu_num", "node_num", "run_time", "new_status")
"""Columns of the CSV of all jobs, a cleaned form of the log."""


def _none_if_empty(value: object) -> object:
    return None if value in ("None", "") else value


_Stamp = Annotated[str | None, BeforeValidator(_none_if_empty)]


def _list_or_empty(value: object) -> object:
    return [] if value is None else value


class _Machine(BaseModel):
    gpus: Annotated[list[str], BeforeValidator(_list_or_empty)] = []


class _Attempt(BaseModel):
    start_time: _Stamp = None
    end_time: _Stamp = None
    detail: Annotated[list[_Machine], BeforeValidator(_list_or_empty)] = []


class _LoggedJob(BaseModel):
    status: Literal["Pass", "Failed", "Killed"]
    vc: str | None
    jobid: str
    submitted_time: _Stamp
    user: _Stamp = None
    attempts: Annotated[list[_Attempt], BeforeValidator(_list_or_empty)]


_LOG = TypeAdapter(list[_LoggedJob])


def read_philly(path: Path | str, statuses: Collection[str] = ("passed",), fractional: Fractional = "skip") -> Trace:
    """Read a trace of Philly: the log, which is JSON, or one of the CSVs derived from it."""
    reader = read_philly_log if read_bytes(Path(path)).lstrip()[:1] in (b"[", b"{") else read_philly_csv
    return reader(path, statuses, fractional)


def read_philly_log(
    path: Path | str, statuses: Collection[str] = ("passed",), fractional: Fractional = "skip"
) -> Trace:
    """Read the original ``cluster_job_log`` (JSON; ``.gz`` too) as a trace.

    A job's `gpus` are those of its largest attempt, because the first one may have been a test on fewer. Its
    `duration_s` is the total running time of its attempts, each from its start to its end: the time for which the job
    held GPUs, without the waits between attempts. Time in which attempts overlap counts once. `group` is the virtual
    cluster.

    Omitted and counted: jobs without a submission time; jobs without an attempt that has a start, an end and a GPU
    (never ran); jobs whose last attempt has no end (still running when the log was taken); jobs with an attempt that
    ends before it starts, as when the clocks went back on 2017-11-05, whose running time is unknown.

    Counted as changed: jobs with `vc` null, whose group is empty; jobs with an attempt that names no machine, or has no
    start or no end, which is part of neither the running time nor the GPUs; and jobs whose attempts overlap.

    Raises
    ------
    TraceError
        Names file and position: JSON that is truncated or lacks a key, an invalid time, a job id used twice.
    """
    path = Path(path)
    jobs = _logged_jobs(path)
    reasons = {
        "no submission time": pl.col("submit_s").is_null(),
        "still running": pl.col("open"),
        "attempt ends before it starts": pl.col("backwards"),
        "never ran": ~(pl.col("duration_s") > 0),
    }
    usable, skipped = drop_rows(_attempts(jobs, path), reasons)
    of_status = usable.filter(pl.col("status").is_in(list(statuses)))
    changed = {
        "no virtual cluster": len(of_status.filter(group="")),
        "attempt without machines not counted": len(of_status.filter("unplaced")),
        "attempt without a start or an end not counted": len(of_status.filter("timeless")),
        "overlap of attempts counted once": len(of_status.filter("overlap")),
    }
    return make_trace(usable, path, statuses, skipped, fractional, changed)


def _logged_jobs(path: Path) -> list[_LoggedJob]:
    try:
        return _LOG.validate_json(read_bytes(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise TraceError(f"{path}: {f'jobs.{place}: ' if place else ''}{first['msg']}") from error


def _attempts(jobs: list[_LoggedJob], path: Path) -> pl.DataFrame:
    """Combine the attempts of each job into the trace frame's columns and flags for faulty attempts.

    `open`: the last one has no end; `backwards`: one ends before it starts; `unplaced`: one ran on no machine;
    `timeless`: one with machines has no start or no end; `overlap`: one starts before an earlier one ends.
    """
    rows = [row for number, job in enumerate(jobs) for row in _attempt_rows(number, job)]
    schema = {"job": pl.Int64, "start": pl.String, "end": pl.String, "gpus": pl.Int64}
    table = pl.DataFrame(rows, schema, orient="row")
    table = _parsed(table, ("start", "end"), path).with_columns(run_s=pl.col("end") - pl.col("start"))
    ran, placed = pl.col("run_s").is_not_null(), pl.col("gpus") > 0
    counts = pl.col("run_s").filter(ran & placed)
    by_attempt = table.group_by("job", maintain_order=True).agg(
        gpus=pl.col("gpus").filter(ran & placed).max(),
        open=pl.col("end").last().is_null(),
        backwards=(counts < 0).any(),
        unplaced=(ran & ~placed & (pl.col("run_s") > 0)).any(),
        timeless=(~ran & placed).any(),
    )
    by_attempt = by_attempt.join(_covered(table.filter(ran & placed)), on="job", how="left")
    flags = ("open", "backwards", "unplaced", "timeless", "overlap")
    defaults = {"duration_s": 0.0, **dict.fromkeys(flags, False)}
    # left: a job without an attempt stays, to be counted; a join need not keep the order
    jobs_table = _job_columns(jobs, path).join(by_attempt, on="job", how="left").sort("job")
    return jobs_table.with_columns(pl.col(name).fill_null(value) for name, value in defaults.items())


def _covered(attempts: pl.DataFrame) -> pl.DataFrame:
    """By job: `duration_s`, the time that its attempts cover [s], and `overlap`, whether some of it is of several."""
    # in order of start an attempt adds only what lies after the end of all earlier ones
    before = pl.col("end").cum_max().shift(1).over("job")
    begin = pl.max_horizontal("start", before)
    return (
        attempts.sort("job", "start", maintain_order=True)
        .with_columns(covered=pl.max_horizontal(pl.col("end") - begin, 0.0), overlap=before > pl.col("start"))
        .group_by("job")
        .agg(duration_s=pl.col("covered").sum(), overlap=pl.col("overlap").any())
    )


def _attempt_rows(number: int, job: _LoggedJob) -> list[tuple[Any, ...]]:
    return [(number, a.start_time, a.end_time, sum(len(m.gpus) for m in a.detail)) for a in job.attempts]


def _job_columns(jobs: list[_LoggedJob], path: Path) -> pl.DataFrame:
    columns = {
        "job": range(len(jobs)),
        "id": [job.jobid for job in jobs],
        "submit_s": [job.submitted_time for job in jobs],
        "status": [_STATUS[job.status] for job in jobs],
        "group": [job.vc or "" for job in jobs],
        "user": [job.user or "" for job in jobs],
    }
    schema = {"job": pl.Int64, **dict.fromkeys(("id", "submit_s", "status", "group", "user"), pl.String)}
    return _parsed(pl.DataFrame(columns, schema), ("submit_s",), path)


def _parsed(table: pl.DataFrame, columns: tuple[str, ...], path: Path) -> pl.DataFrame:
    """`table` with the text times of `columns` in seconds since 1970; null stays null."""
    for column in columns:
        value = pl.col(column).str.to_datetime(STAMP, strict=False)
        bad = table.filter(value.is_null() & pl.col(column).is_not_null()).head(1)
        if len(bad):
            job, text = bad["job"][0], bad[column][0]
            raise TraceError(f"{path}: jobs.{job}: time {text!r}; it must be like 2017-10-07 01:11:39")
        table = table.with_columns(value.dt.epoch("s").cast(pl.Float64))
    return table


def read_philly_csv(
    path: Path | str, statuses: Collection[str] = ("passed",), fractional: Fractional = "skip"
) -> Trace:
    """Read one of the two CSVs derived from Philly's log (``.gz`` too), distinguished by their columns.

    - ``timestamp, duration, num_gpus, gpu_time, cluster``: passed jobs only; ids are the data rows' numbers from 0.
    - ``u_id, submit_time, user, gpu_num, node_num, run_time, new_status``: all jobs.

    Omitted and counted: blank lines; jobs without a running time or a GPU; jobs that end before they start.

    Raises
    ------
    TraceError
        Names file, line, column and value.
    """
    path = Path(path)
    table, blank = drop_blank_lines(read_table(path, ()))
    # by the columns that only one of them has, so that one that is missing is reported of the right file
    passed = not set(table.columns) & {"u_id", "new_status", "run_time"}
    check_columns(table.columns, path, _PASS_ONLY if passed else _ALL_STATUSES)
    frame = _pass_only(table, path) if passed else _all_statuses(table, path)
    return make_trace(frame, path, statuses, blank, fractional)


def _pass_only(table: pl.DataFrame, path: Path) -> pl.DataFrame:
    return pl.DataFrame(
        {
            # the file has no ids; its first row is in line 2
            "id": (table["_line"] - 2).cast(pl.String),
            "submit_s": stamps(table, path, "timestamp"),
            "duration_s": _duration(table, path, "duration"),
            "gpus": numbers(table, path, "num_gpus", unknown=is_blank("num_gpus")),
            "status": pl.repeat("passed", len(table), dtype=pl.String, eager=True),
            "group": table["cluster"],
        },
    )


def _all_statuses(table: pl.DataFrame, path: Path) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "id": table["u_id"],
            "submit_s": stamps(table, path, "submit_time"),
            "duration_s": _duration(table, path, "run_time"),
            "gpus": numbers(table, path, "gpu_num", unknown=is_blank("gpu_num")),
            "status": words(table, path, "new_status", _STATUS),
            "group": table["user"],
            "user": table["user"],
        }
    )


def _duration(table: pl.DataFrame, path: Path, column: str) -> pl.Series:
    return numbers(table, path, column, -float("inf"), unknown=is_blank(column))


def read_machines(path: Path | str) -> pl.DataFrame:
    """Read ``cluster_machine_list`` or ``revised_machine_list.csv``: columns `id`, `gpus` (>= 0), in the file's order.

    Raises
    ------
    TraceError
        Names file, line, column and value; an id used twice; no machine with a GPU.
    """
    path = Path(path)
    table, _ = drop_blank_lines(read_table(path, ("machineId", "number of GPUs")))
    machines = pl.DataFrame({"id": table["machineId"], "gpus": numbers(table, path, "number of GPUs", integer=True)})
    refuse(table, pl.col("machineId").is_duplicated(), path, "machineId", "unique; it is used twice")
    if machines.filter(pl.col("gpus") > 0).is_empty():
        raise TraceError(f"{path}: no machine has a GPU")
    return machines
