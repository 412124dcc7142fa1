"""Microsoft Philly's traces (``github.com/msr-fiddle/philly-traces``): the job log, CSVs derived from it, machines.

Times are naive local times of the cluster; only their differences are used.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationError

from skedge.core.errors import TraceError

from .frame import Trace, finished
from .table import STAMP, numbers, read_bytes, read_table, stamps, words

_STATUS = {"Pass": "passed", "Failed": "failed", "Killed": "killed"}

_PASS_ONLY = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
"""Columns of the CSV of passed jobs that Pollux's benchmark derived from the log."""

_ALL_STATUSES = ("u_id", "submit_time", "user", "gpu_num", "node_num", "run_time", "new_status")
"""Columns of the CSV of all jobs that the log was cleaned into."""


def _none(value: object) -> object:
    return None if value in ("None", "") else value


_Stamp = Annotated[str | None, BeforeValidator(_none)]


class _Machine(BaseModel):
    gpus: list[str]


class _Attempt(BaseModel):
    start_time: _Stamp = None
    end_time: _Stamp = None
    detail: list[_Machine] = []


class _LoggedJob(BaseModel):
    status: Literal["Pass", "Failed", "Killed"]
    vc: str
    jobid: str
    submitted_time: _Stamp
    attempts: list[_Attempt]


_LOG = TypeAdapter(list[_LoggedJob])


def read_philly_log(path: Path | str, statuses: Collection[str] = ("passed",)) -> Trace:
    """Read the original ``cluster_job_log`` (JSON; ``.gz`` too) as a trace.

    A job's `gpus` are those of its largest attempt: the first one may have been a try on fewer. Its `duration_s` is
    the run time of its attempts added up, each from its own start to its own end: what the job held GPUs for, without
    the waits between attempts. `group` is the virtual cluster.

    Left out and counted: jobs without a submission time, jobs without an attempt that has a start, an end and a GPU
    (never ran), and jobs whose last attempt has no end (still running when the log was taken).

    Raises
    ------
    TraceError
        Naming file and position: JSON that breaks off or lacks a key, a time that is none, an attempt that ends before
        it starts, a job id used twice.
    """
    path = Path(path)
    jobs = _logged_jobs(path)
    attempts = _attempts(jobs, path)
    skipped: dict[str, int] = {}
    for reason, out in (
        ("no submission time", pl.col("submit_s").is_null()),
        ("still running", pl.col("open")),
        ("never ran", ~(pl.col("duration_s") > 0)),
    ):
        skipped[reason] = len(attempts.filter(out))
        attempts = attempts.filter(~out)
    return finished(attempts, path, statuses, skipped)


def _logged_jobs(path: Path) -> list[_LoggedJob]:
    try:
        return _LOG.validate_json(read_bytes(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise TraceError(f"{path}: {f'jobs.{place}: ' if place else ''}{first['msg']}") from error


def _attempts(jobs: list[_LoggedJob], path: Path) -> pl.DataFrame:
    """Add up the attempts by job: the trace frame's columns and `open`: the last attempt has no end."""
    rows = [row for number, job in enumerate(jobs) for row in _attempt_rows(number, job)]
    schema = {"job": pl.Int64, "start": pl.String, "end": pl.String, "gpus": pl.Int64}
    table = pl.DataFrame(rows, schema, orient="row")
    table = _parsed(table, ("start", "end"), path).with_columns(run_s=pl.col("end") - pl.col("start"))
    _refuse_backwards(table, path)
    ran = table.filter(pl.col("run_s").is_not_null() & (pl.col("gpus") > 0))
    summed = ran.group_by("job").agg(duration_s=pl.col("run_s").sum(), gpus=pl.col("gpus").max())
    last = table.group_by("job", maintain_order=True).agg(open=pl.col("end").last().is_null())
    by_job = _job_columns(jobs, path).join(summed, on="job", how="left").join(last, on="job", how="left")
    return by_job.sort("job").with_columns(pl.col("duration_s").fill_null(0.0), pl.col("open").fill_null(value=False))


def _attempt_rows(number: int, job: _LoggedJob) -> list[tuple[Any, ...]]:
    return [(number, a.start_time, a.end_time, sum(len(m.gpus) for m in a.detail)) for a in job.attempts]


def _job_columns(jobs: list[_LoggedJob], path: Path) -> pl.DataFrame:
    columns = {
        "job": range(len(jobs)),
        "id": [job.jobid for job in jobs],
        "submit_s": [job.submitted_time for job in jobs],
        "status": [_STATUS[job.status] for job in jobs],
        "group": [job.vc for job in jobs],
    }
    schema = {"job": pl.Int64, "id": pl.String, "submit_s": pl.String, "status": pl.String, "group": pl.String}
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


def _refuse_backwards(attempts: pl.DataFrame, path: Path) -> None:
    bad = attempts.filter(pl.col("run_s") < 0).head(1)
    if len(bad):
        job, run = bad["job"][0], bad["run_s"][0]
        raise TraceError(f"{path}: jobs.{job}.attempts: an attempt ends {-run:g} s before it starts")


def read_philly_csv(path: Path | str, statuses: Collection[str] = ("passed",)) -> Trace:
    """Read one of the two CSVs derived from Philly's log (``.gz`` too), told apart by their columns.

    - ``timestamp, duration, num_gpus, gpu_time, cluster``: passed jobs only; ids are the data rows' numbers from 0.
    - ``u_id, submit_time, user, gpu_num, node_num, run_time, new_status``: all jobs.

    Jobs of no duration are left out and counted.

    Raises
    ------
    TraceError
        Naming file, line, column and value.
    """
    path = Path(path)
    columns = set(read_table(path, ()).columns)
    frame = _all_statuses(path) if columns & {"u_id", "new_status", "run_time"} else _pass_only(path)
    ran = frame.filter(pl.col("duration_s") > 0)
    return finished(ran, path, statuses, {"no run time": len(frame) - len(ran)})


def _pass_only(path: Path) -> pl.DataFrame:
    table = read_table(path, _PASS_ONLY)
    return pl.DataFrame(
        {
            "id": (table["_line"] - 2).cast(pl.String),
            "submit_s": stamps(table, path, "timestamp"),
            "duration_s": numbers(table, path, "duration"),
            "gpus": numbers(table, path, "num_gpus", 1, whole=True),
            "status": ["passed"] * len(table),
            "group": table["cluster"],
        },
    )


def _all_statuses(path: Path) -> pl.DataFrame:
    table = read_table(path, _ALL_STATUSES)
    return pl.DataFrame(
        {
            "id": table["u_id"],
            "submit_s": stamps(table, path, "submit_time"),
            "duration_s": numbers(table, path, "run_time"),
            "gpus": numbers(table, path, "gpu_num", 1, whole=True),
            "status": words(table, path, "new_status", _STATUS),
            "group": table["user"],
        }
    )


def read_machines(path: Path | str) -> pl.DataFrame:
    """Read ``cluster_machine_list`` or ``revised_machine_list.csv``: columns `id`, `gpus` (>= 0), in the file's order.

    Raises
    ------
    TraceError
        Naming file, line, column and value; an id used twice; no machine with a GPU.
    """
    path = Path(path)
    table = read_table(path, ("machineId", "number of GPUs"))
    machines = pl.DataFrame({"id": table["machineId"], "gpus": numbers(table, path, "number of GPUs", whole=True)})
    twice = table.filter(pl.col("machineId").is_duplicated()).head(1)
    if len(twice):
        line, name = twice["_line"][0], twice["machineId"][0]
        raise TraceError(f"{path}: line {line}, column machineId: {name!r}; it must be unique; it is used twice")
    if machines.filter(pl.col("gpus") > 0).is_empty():
        raise TraceError(f"{path}: no machine has a GPU")
    return machines
