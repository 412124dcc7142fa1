"""Rule M16 for gangs: their uploads are exactly those required by allocations and ``upload`` orders."""

from __future__ import annotations

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns, dispatched_jobs, once
from skedge.analysis.supplies import supplies
from skedge.core.model.cluster import Ints

from .matching import surplus
from .orders import holds_workers
from .rules import Findings


def check_gang_uploads(c: Columns, findings: Findings) -> None:
    """Compare the uploads of jobs that are not dispatched with those that their orders require; they must be equal."""
    for job, time, server, chunks, n in upload_surplus(c).head(findings.limit).iter_rows():
        problem = "are uploaded, but no order needs them" if n > 0 else "are needed by an order, but are not uploaded"
        findings.add("M16", job, time, f"{chunks} chunks for server {server} {problem}")


@once
def upload_surplus(c: Columns) -> pl.DataFrame:
    """Uploads of jobs that are not dispatched which no order requires, and (`n` < 0) those that are missing."""
    u, orders = c.uploads, supplies(c)
    actual = {"job": u["job"], "time": u["start"], "server": u["to_server"], "chunks": u["chunks"]}
    required = {name: orders[name].to_numpy() for name in actual}
    return surplus(*(_of_gangs(c, columns) for columns in (actual, required)))


def _of_gangs(c: Columns, uploads: dict[str, Ints]) -> pl.DataFrame:
    """The uploads of jobs that are not dispatched, one each; those of dispatched jobs are compared with dispatches."""
    rows = np.flatnonzero((uploads["chunks"] != 0) & ~dispatched_jobs(c)[uploads["job"]])
    return pl.DataFrame({name: column[rows] for name, column in uploads.items()}).with_columns(n=1)


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
