"""Google's cluster trace of 2011 (``clusterdata-2011-2``, github.com/google/cluster-data): submissions and classes.

``job_events`` has no header; its columns, by Google's schema, are

    time [µs], missing info, job ID, event type, user, scheduling class, job name, logical job name

with event types 0 SUBMIT, 1 SCHEDULE, 2 EVICT, 3 FAIL, 4 FINISH, 5 KILL, 6 LOST, 7 and 8 UPDATE. The scheduling class,
0 to 3, gives a job's sensitivity to latency, 3 being the highest. Names and users are hashes. The trace begins at
600 s; time 0 stands for all earlier times.

In the trace frame `group` is the scheduling class, and `gpus` is 1, a slot: jobs consist of tasks on CPUs, whose number
the trace of jobs does not give.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import polars as pl

from skedge.core.errors import TraceError
from skedge.traces.frame import Fractional, Trace, Unit, make_trace
from skedge.traces.table import drop_blank_lines, drop_rows, is_blank, numbers, read_bytes, read_table

_EVENTS = ("time", "missing info", "job ID", "event type", "user", "scheduling class", "job name", "logical job name")
_SUBMIT, _SCHEDULE, _UPDATES = 0, 1, (7, 8)
_STATUS = {3: "failed", 4: "passed", 5: "killed"}
_CLASSES, _TYPES = 3, 8
_AFTER = 2**63 - 1
"""Time of all events after the trace's end."""

_JOBS = ("job_id", "submit_us", "sched_class", "schedule_us", "end_us", "end_event")
"""Columns of a table of jobs derived from the events, one row per job."""

_SECOND = 1e6

_SLOT = Unit("slot", "one for each job, which runs on CPUs whose number the trace does not have")


def read_google_events(
    path: Path | str, statuses: Collection[str] = ("passed",), fractional: Fractional = "skip"
) -> Trace:
    """Read ``job_events``: one part (``.csv``, ``.csv.gz``), or all ``part-*`` files of a folder.

    A job's submission is its first SUBMIT; `duration_s` runs from its first SCHEDULE to the last event that ends it,
    whose type is its status. Omitted and counted: jobs submitted before the trace begins or after it ends, or without
    a SUBMIT; jobs that never ran; jobs still running or waiting again; jobs evicted or lost in the end.

    Raises
    ------
    TraceError
        Names file, line, column and value; also if a folder has no parts.
    """
    path = Path(path)
    parts = sorted(path.glob("part-*")) if path.is_dir() else [path]
    if not parts:
        raise TraceError(f"{path}: has no file named part-*; job_events is a folder of such parts, or one of them")
    read = [_part(part) for part in parts]
    events = pl.concat([part for part, _ in read])
    time, kind = pl.col("time"), pl.col("type")
    # EVICT, FAIL, FINISH, KILL, LOST
    ends = (kind > _SCHEDULE) & ~kind.is_in(_UPDATES)
    jobs = (
        # stable: events of one microsecond keep the order of the file
        events.sort("time", maintain_order=True)
        .group_by("id", maintain_order=True)
        .agg(
            submit=time.filter(kind == _SUBMIT).first(),
            schedule=time.filter(kind == _SCHEDULE).first(),
            end=time.filter(ends).last(),
            event=kind.filter(ends).last(),
            group=pl.col("group").first(),
            user=pl.col("user").first(),
            last=kind.filter(~kind.is_in(_UPDATES)).last(),
        )
    )
    requeued = pl.col("last") <= _SCHEDULE  # submitted or scheduled again after an end
    jobs = jobs.with_columns(pl.when(requeued).then(None).otherwise(pl.col(c)).alias(c) for c in ("end", "event"))
    blank = {"blank line": sum(blank for _, blank in read)}
    return _trace(jobs, path, statuses, blank, fractional, merged=len(events) - len(jobs))


def _part(path: Path) -> tuple[pl.DataFrame, int]:
    """The events of one file, columns id, time, type, group, user, and the number of its blank lines."""
    if not read_bytes(path).strip():
        kinds = {"id": pl.String, "time": pl.Int64, "type": pl.Int64, "group": pl.String, "user": pl.String}
        return pl.DataFrame(schema=kinds), 0
    table, blank = drop_blank_lines(read_table(path, (), _EVENTS))
    # 2**63 - 1 is no number of a float
    after = pl.col("time") == str(_AFTER)
    events = pl.DataFrame(
        {
            "id": numbers(table, path, "job ID", integer=True).cast(pl.String),
            "time": numbers(table, path, "time", integer=True, unknown=after).fill_null(_AFTER),
            "type": numbers(table, path, "event type", integer=True, high=_TYPES),
            "group": numbers(table, path, "scheduling class", integer=True, high=_CLASSES).cast(pl.String),
            "user": table["user"],
        }
    )
    return events, sum(blank.values())


def read_google_jobs(
    path: Path | str, statuses: Collection[str] = ("passed",), fractional: Fractional = "skip"
) -> Trace:
    """Read a table of jobs derived from the events, ``.parquet`` or CSV: columns :data:`_JOBS`, one row per job.

    `end_event` is the type of the last event that ended the job; it and `end_us` are missing if the job is still
    running. The same jobs are omitted as in :func:`read_google_events`.

    Raises
    ------
    TraceError
        Names file, line (for Parquet: the row's number plus 2, as if it were CSV), column and value.
    """
    path = Path(path)
    table, blank = drop_blank_lines(_parquet(path) if path.suffix == ".parquet" else read_table(path, _JOBS))
    open_ended = is_blank("end_event")
    jobs = pl.DataFrame(
        {
            "id": numbers(table, path, "job_id", integer=True).cast(pl.String),
            "submit": numbers(table, path, "submit_us", integer=True),
            "schedule": numbers(table, path, "schedule_us", integer=True, unknown=is_blank("schedule_us")),
            "end": numbers(table, path, "end_us", integer=True, unknown=open_ended),
            "event": numbers(table, path, "end_event", integer=True, high=_TYPES, unknown=open_ended),
            "group": numbers(table, path, "sched_class", integer=True, high=_CLASSES).cast(pl.String),
        }
    )
    return _trace(jobs, path, statuses, blank, fractional)


def _parquet(path: Path) -> pl.DataFrame:
    try:
        table = pl.read_parquet(path, glob=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise TraceError(f"{path}: cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    missing = [c for c in _JOBS if c not in table.columns]
    if missing:
        raise TraceError(f"{path}: column {missing[0]!r} is missing; the file has {', '.join(table.columns)}")
    return table.select(pl.col(_JOBS).cast(pl.String).fill_null("")).with_row_index("_line", offset=2)


def _trace(
    jobs: pl.DataFrame,
    path: Path,
    statuses: Collection[str],
    blank: dict[str, int],
    fractional: Fractional,
    merged: int = 0,
) -> Trace:
    """A trace from one row per job: id, submit, schedule, end [µs], event (type of its last end, or null), group."""
    reasons = {
        "no submission in the trace": pl.col("submit").is_null() | ~pl.col("submit").is_between(1, _AFTER - 1),
        "never ran": pl.col("schedule").is_null() | (pl.col("schedule") == _AFTER),
        "still running": pl.col("event").is_null() | (pl.col("end") == _AFTER),
        "evicted or lost": ~pl.col("event").is_in(list(_STATUS)),
        "ended before it ran": pl.col("end") <= pl.col("schedule"),
    }
    jobs, skipped = drop_rows(jobs, reasons)
    frame = pl.DataFrame(
        {
            "id": jobs["id"],
            "submit_s": jobs["submit"] / _SECOND,
            "duration_s": (jobs["end"] - jobs["schedule"]) / _SECOND,
            "gpus": pl.repeat(1, len(jobs), dtype=pl.Int64, eager=True),
            "status": jobs["event"].replace_strict(_STATUS, return_dtype=pl.String),
            "group": jobs["group"],
        }
    )
    frame = frame.with_columns(jobs["user"]) if "user" in jobs.columns else frame
    return make_trace(frame, path, statuses, {**blank, **skipped}, fractional, merged=merged, unit=_SLOT)
