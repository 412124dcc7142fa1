"""Rule M16 for gangs: their uploads are exactly those required by allocations and ``upload`` orders."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.analysis.columns import Columns, gang_intervals
from skedge.analysis.supplies import needed_uploads
from skedge.core.model import Ints

from .rules import Findings


def check_supplies(c: Columns, found: Findings) -> None:
    """Compare the uploads of jobs that are not dispatched with those that their orders require; they must be equal."""
    sent = np.zeros(len(c.scenario.jobs), bool)
    sent[c.dispatches["job"]] = True
    u = c.uploads
    rows = np.flatnonzero(~sent[u["job"]])
    brought = pl.DataFrame(
        {"job": u["job"][rows], "server": u["to_server"][rows], "chunks": u["chunks"][rows], "time": u["start"][rows]}
    )
    needed = needed_uploads(c)
    needed = needed.filter(~pl.Series(sent[needed["job"].to_numpy()]))
    both = pl.concat([brought.cast(pl.Int64).with_columns(n=1), needed.cast(pl.Int64).with_columns(n=-1)])
    differ = both.group_by("job", "server", "chunks", "time").agg(pl.col("n").sum()).filter(pl.col("n") != 0)
    for job, server, chunks, time, n in differ.sort("job", "time", "server", "chunks").head(found.limit).iter_rows():
        what = "are brought, and no order needs them" if n > 0 else "are needed by an order, and are not brought"
        found.add("M16", job, time, f"{chunks} chunks for server {server} {what}")


def check_ahead(c: Columns, found: Findings, slack: int, rule: str, most: Ints, *, promised: bool) -> None:
    """M5 or M27, M6, M16: number of workers, time and permission of uploads ahead of an allocation.

    `rule` limits the workers of a job to `most`. `promised`: the policy promises to order no such uploads.
    """
    d, jobs = c.decisions, c.scenario.jobs
    rows = np.flatnonzero((d.frame["verb"] == "upload").to_numpy())
    if not len(rows):
        return
    job, time, n = d["job"][rows], d["time"][rows], d["workers"][rows]
    if promised:
        every = np.ones(len(rows), bool)
        found.rows("M16", every, job, time, lambda _: "data are ordered ahead; the policy promises that it does not")
    most = most[job]
    say = "data of {} workers are ordered for server {}; it can have {}"
    found.rows(rule, n > most, job, time, lambda i: say.format(n[i], d["server"][rows[i]], most[i]))
    sent = np.zeros(len(jobs), bool)
    sent[c.dispatches["job"]] = True
    say = "data are ordered at {} µs for a job that is dispatched, or holds workers"
    found.rows("M6", sent[job] | _held(c, job, time, slack), job, time, lambda i: say.format(time[i]))


def _held(c: Columns, job: Ints, time: Ints, slack: int) -> NDArray[np.bool_]:
    """Whether each job holds workers at each time, both before and after it."""
    held = gang_intervals(c).select(pl.col("job").cast(pl.Int64), "end", since=pl.col("start") + slack + 1)
    asked = pl.DataFrame({"job": job, "time": time}).cast(pl.Int64).with_row_index("row").sort("time")
    both = asked.join_asof(held.sort("since"), left_on="time", right_on="since", by="job", check_sortedness=False)
    return (both.sort("row")["end"].fill_null(-1) - slack).to_numpy() > time
