"""The Standard Workload Format, version 2 (Parallel Workloads Archive): 18 fields per line, comments after ``;``."""

from __future__ import annotations

import io
from collections.abc import Collection
from pathlib import Path

import polars as pl

from skedge.core.errors import TraceError
from skedge.traces.frame import Fractional, Trace, Unit, make_trace
from skedge.traces.table import drop_rows, numbers, read_bytes

_FIELDS = 18
_INDEX = {"id": 0, "submit_s": 1, "run_s": 3, "allocated": 4, "requested": 7, "status": 10, "user": 11}
"""Indices of the fields used, from 0."""

_FRACTIONS = ("submit_s", "run_s", "allocated", "requested")
"""Fields that may be fractional."""

_MEANING = {-1: "passed", 0: "failed", 1: "passed", 5: "killed"}
"""Field 11. -1 (unknown) occurs in logs of models, where no job fails; 2, 3, 4 are parts of a job that has a line of
its own, and are omitted."""


def read_swf(path: Path | str, statuses: Collection[str] = ("passed",), fractional: Fractional = "skip") -> Trace:
    """Read a log in the Standard Workload Format (``.gz`` too) as a trace of processors.

    `gpus` is the number of processors requested or, if unknown, allocated; `group` is the user. Omitted and counted:
    jobs with an unknown submission, an unknown or zero running time, or an unknown number of processors, and partial
    executions.

    Raises
    ------
    TraceError
        Names file and line (a line without 18 fields) and the column (a value that is not a number or below -1).
    """
    path = Path(path)
    table = _table(path)
    columns = {name: numbers(table, path, name, -1, integer=name not in _FRACTIONS) for name in _INDEX}
    jobs = pl.DataFrame(columns).with_columns(
        gpus=pl.when(pl.col("requested") > 0).then("requested").otherwise("allocated"),
        status=pl.col("status").replace_strict(_MEANING, default=None, return_dtype=pl.String),
        group=pl.col("user").cast(pl.String),
        # -1 is unknown, in every field
        user=pl.when(pl.col("user") >= 0).then(pl.col("user").cast(pl.String)),
        id=pl.col("id").cast(pl.String),
    )
    reasons = {
        "partial execution": pl.col("status").is_null(),
        "no submission time": pl.col("submit_s") < 0,
        "no run time": pl.col("run_s") <= 0,
        "processors unknown": pl.col("gpus") <= 0,
    }
    jobs, skipped = drop_rows(jobs, reasons)
    return make_trace(jobs.rename({"run_s": "duration_s"}), path, statuses, skipped, fractional, unit=Unit("processor"))


def _table(path: Path) -> pl.DataFrame:
    """Read the fields used, as text, plus `_line`: the line in the file."""
    # some logs have comments behind the fields of a line
    rows = [(line, text.partition(";")[0].split()) for line, text in enumerate(_lines(path), start=1)]
    rows = [(line, fields) for line, fields in rows if fields]
    for line, fields in rows:
        if len(fields) != _FIELDS:
            count = f"{len(fields)} field{'s' if len(fields) > 1 else ''}"
            raise TraceError(f"{path}: line {line}: has {count}; a job has {_FIELDS}")
    columns = {name: [fields[place] for _, fields in rows] for name, place in _INDEX.items()}
    return pl.DataFrame({"_line": [line for line, _ in rows], **columns}, schema_overrides={"_line": pl.Int64})


def _lines(path: Path) -> io.StringIO:
    return io.StringIO(read_bytes(path).decode("utf-8", errors="replace"))
