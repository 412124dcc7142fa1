"""Rule M16 for gangs: their uploads are exactly those required by allocations and ``upload`` orders."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.analysis.columns import Columns, gang_intervals
from skedge.analysis.supplies import supplies
from skedge.analysis.sweeps import in_groups
from skedge.core.model import Ints

from .rules import Findings


def check_supplies(c: Columns, found: Findings) -> None:
    """Compare the uploads of jobs that are not dispatched with those that their orders require; they must be equal."""
    sent = np.zeros(len(c.scenario.jobs), bool)
    sent[c.dispatches["job"]] = True
    u, given = c.uploads, supplies(c)
    brought = _by_job(sent, u["job"], u["to_server"], u["chunks"], u["start"])
    needed = _by_job(sent, *(given[name].to_numpy() for name in ("job", "server", "chunks", "time")))
    unequal = np.flatnonzero(_unequal(brought, needed))
    both = pl.concat([_table(brought, unequal).with_columns(n=1), _table(needed, unequal).with_columns(n=-1)])
    differ = both.group_by("job", "server", "chunks", "time").agg(pl.col("n").sum()).filter(pl.col("n") != 0)
    for job, server, chunks, time, n in differ.sort("job", "time", "server", "chunks").head(found.limit).iter_rows():
        what = "are uploaded, but no order needs them" if n > 0 else "are needed by an order, but are not uploaded"
        found.add("M16", job, time, f"{chunks} chunks for server {server} {what}")


class _Uploads(NamedTuple):
    """Uploads by job and time; `first` is the first one of each job, shape ``(jobs + 1,)``."""

    first: Ints
    server: Ints
    chunks: Ints
    time: Ints


def _by_job(sent: NDArray[np.bool_], job: Ints, server: Ints, chunks: Ints, time: Ints) -> _Uploads:
    """The uploads of jobs that are not `sent`, dispatched."""
    rows, first = in_groups(np.where(sent[job] | (chunks == 0), -1, job).astype(np.int32), time, len(sent))
    return _Uploads(first, server[rows], chunks[rows], time[rows])


def _unequal(one: _Uploads, other: _Uploads) -> NDArray[np.bool_]:
    """Jobs whose uploads are not the same, row by row; they may be the same in another order."""
    count = np.diff(one.first)
    unequal = count != np.diff(other.first)
    equal = np.flatnonzero(~unequal)
    job = np.repeat(equal, count[equal])
    within = np.arange(len(job)) - np.repeat(np.cumsum(count[equal]) - count[equal], count[equal])
    a, b = one.first[job] + within, other.first[job] + within
    differ = (one.server[a] != other.server[b]) | (one.chunks[a] != other.chunks[b]) | (one.time[a] != other.time[b])
    unequal[job[differ]] = True
    return unequal


def _table(of: _Uploads, jobs: Ints) -> pl.DataFrame:
    """The uploads of `jobs`."""
    counts = of.first[jobs + 1] - of.first[jobs]
    rows = np.concatenate([np.empty(0, np.int64), *(np.arange(of.first[job], of.first[job + 1]) for job in jobs)])
    columns = {"server": of.server[rows], "chunks": of.chunks[rows], "time": of.time[rows]}
    return pl.DataFrame({"job": np.repeat(jobs, counts), **columns}).cast(pl.Int64)


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
        found.rows(
            "M16", every, job, time, lambda _: "an upload is ordered ahead of the allocation; the policy promises none"
        )
    most = most[job]
    say = "an upload for {} workers is ordered to server {}; the job can have {}"
    found.rows(rule, n > most, job, time, lambda i: say.format(n[i], d["server"][rows[i]], most[i]))
    sent = np.zeros(len(jobs), bool)
    sent[c.dispatches["job"]] = True
    say = "an upload is ordered at {} µs for a job that is dispatched or holds workers"
    found.rows("M6", sent[job] | _held(c, job, time, slack), job, time, lambda i: say.format(time[i]))


def _held(c: Columns, job: Ints, time: Ints, slack: int) -> NDArray[np.bool_]:
    """Whether each job holds workers at each time, both before and after it."""
    held = gang_intervals(c).select(pl.col("job").cast(pl.Int64), "end", since=pl.col("start") + slack + 1)
    asked = pl.DataFrame({"job": job, "time": time}).cast(pl.Int64).with_row_index("row").sort("time")
    both = asked.join_asof(held.sort("since"), left_on="time", right_on="since", by="job", check_sortedness=False)
    return (both.sort("row")["end"].fill_null(-1) - slack).to_numpy() > time
