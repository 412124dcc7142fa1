"""Rule M16 for gangs: their uploads are exactly those required by allocations and ``upload`` orders."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns, once
from skedge.analysis.row_groups import Small, in_groups, plain
from skedge.analysis.supplies import supplies
from skedge.core.model.cluster import Bools, Ints
from skedge.platform.jit import compiled

from .orders import holds_workers
from .ps import dispatched_jobs
from .rules import Findings


def check_gang_uploads(c: Columns, findings: Findings) -> None:
    """Compare the uploads of jobs that are not dispatched with those that their orders require; they must be equal."""
    unequal = np.flatnonzero(unequal_uploads(c) & ~dispatched_jobs(c))
    if not len(unequal):
        return
    balance = pl.concat(
        [
            _upload_table(_actual_uploads(c), unequal).with_columns(n=1),
            _upload_table(_required_uploads(c), unequal).with_columns(n=-1),
        ]
    )
    differ = balance.group_by("job", "server", "chunks", "time").agg(pl.col("n").sum()).filter(pl.col("n") != 0)
    for job, server, chunks, time, n in differ.sort("job", "time", "server", "chunks").head(findings.limit).iter_rows():
        problem = "are uploaded, but no order needs them" if n > 0 else "are needed by an order, but are not uploaded"
        findings.add("M16", job, time, f"{chunks} chunks for server {server} {problem}")


@once
def unequal_uploads(c: Columns) -> Bools:
    """Jobs that are dispatched, or whose uploads are not those required, row by row; their order may differ."""
    is_dispatched, actual, required = dispatched_jobs(c), _actual_uploads(c), _required_uploads(c)
    unequal: Bools = (
        _unequal(_by_job(is_dispatched, actual), actual, _by_job(is_dispatched, required), required) | is_dispatched
    )
    return unequal


class _UploadRows(NamedTuple):
    """Uploads, by row."""

    job: Small
    server: Small
    chunks: Ints
    time: Ints


def _actual_uploads(c: Columns) -> _UploadRows:
    return _UploadRows(*(c.uploads[name] for name in ("job", "to_server", "chunks", "start")))


def _required_uploads(c: Columns) -> _UploadRows:
    orders = supplies(c)
    columns = (orders[name].to_numpy() for name in ("job", "server", "chunks", "time"))
    return _UploadRows(*(plain(column, column.dtype) for column in columns))


def _by_job(is_dispatched: Bools, uploads: _UploadRows) -> tuple[Ints, Ints]:
    """The rows of jobs that are not `is_dispatched` by job and time, as :func:`in_groups` gives them."""
    skipped = uploads.chunks == 0
    if is_dispatched.any():
        # uploads of dispatched jobs are compared with their dispatches
        skipped |= is_dispatched[uploads.job]
    return in_groups(np.where(skipped, np.int32(-1), uploads.job), uploads.time, len(is_dispatched))


@compiled
def _unequal(
    actual_rows: tuple[Ints, Ints], actual: _UploadRows, required_rows: tuple[Ints, Ints], required: _UploadRows
) -> Bools:
    """Jobs of which the two tables do not have the same rows in the same order."""
    (rows_a, first_a), (rows_b, first_b) = actual_rows, required_rows
    unequal = np.zeros(len(first_a) - 1, np.bool_)
    for job in range(len(unequal)):
        a, b = first_a[job], first_b[job]
        unequal[job] = first_a[job + 1] - a != first_b[job + 1] - b
        for n in range(0 if unequal[job] else first_a[job + 1] - a):
            i, k = rows_a[a + n], rows_b[b + n]
            if (
                actual.server[i] != required.server[k]
                or actual.chunks[i] != required.chunks[k]
                or actual.time[i] != required.time[k]
            ):
                unequal[job] = True
    return unequal


def _upload_table(uploads: _UploadRows, jobs: Ints) -> pl.DataFrame:
    """The uploads of `jobs`."""
    rows = np.flatnonzero(np.isin(uploads.job, jobs) & (uploads.chunks != 0))
    return pl.DataFrame({name: getattr(uploads, name)[rows] for name in uploads._fields}).cast(pl.Int64)


def check_early_uploads(
    c: Columns, findings: Findings, slack: int, rule: str, max_workers: Ints, *, promised: bool
) -> None:
    """M5 or M27, M6, M16: number of workers, time and permission of uploads ahead of an allocation.

    Parameters
    ----------
    c
        Columns of the record.
    findings
        Receives the violations.
    slack
        Tolerance in comparisons of times [µs], >= 0.
    rule, max_workers
        The rule that limits the workers of a job, and its limit by job.
    promised
        Whether the policy promises to order no such uploads.
    """
    d = c.decisions
    rows = np.flatnonzero(d.has("verb", "upload"))
    if not len(rows):
        return
    job, time, n = d["job"][rows], d["time"][rows], d["workers"][rows]
    if promised:
        all_rows = np.ones(len(rows), bool)
        findings.add_rows(
            "M16", all_rows, job, time, "an upload is ordered ahead of the allocation; the policy promises none"
        )
    max_workers = max_workers[job]
    template = "an upload for {} workers is ordered to server {}; the job can have {}"
    findings.add_rows(
        rule, n > max_workers, job, time, lambda i: template.format(n[i], d["server"][rows[i]], max_workers[i])
    )
    is_dispatched = dispatched_jobs(c)
    template = "an upload is ordered at {} µs for a job that is dispatched or holds workers"
    first = np.concatenate([[True], (job[1:] != job[:-1]) | (time[1:] != time[:-1])])  # of those of an order
    holds = holds_workers(c, job[first], time[first], slack)[np.cumsum(first, dtype=np.int32) - 1]
    findings.add_rows("M6", is_dispatched[job] | holds, job, time, template, time)
