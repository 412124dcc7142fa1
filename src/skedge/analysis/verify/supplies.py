"""Rule M16 for gangs: their uploads are exactly those required by allocations and ``upload`` orders."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns, gang_intervals, once
from skedge.analysis.supplies import supplies
from skedge.analysis.sweeps import Small, in_groups, plain
from skedge.core.model.cluster import Bools, Ints
from skedge.platform.jit import compiled

from .rules import Findings


def check_supplies(c: Columns, found: Findings) -> None:
    """Compare the uploads of jobs that are not dispatched with those that their orders require; they must be equal."""
    unequal = np.flatnonzero(unequal_uploads(c) & ~_sent(c))
    if not len(unequal):
        return
    both = pl.concat([_table(_brought(c), unequal).with_columns(n=1), _table(_needed(c), unequal).with_columns(n=-1)])
    differ = both.group_by("job", "server", "chunks", "time").agg(pl.col("n").sum()).filter(pl.col("n") != 0)
    for job, server, chunks, time, n in differ.sort("job", "time", "server", "chunks").head(found.limit).iter_rows():
        what = "are uploaded, but no order needs them" if n > 0 else "are needed by an order, but are not uploaded"
        found.add("M16", job, time, f"{chunks} chunks for server {server} {what}")


@once
def unequal_uploads(c: Columns) -> Bools:
    """Jobs that are dispatched, or whose uploads are not those required, row by row; their order may differ."""
    sent, one, other = _sent(c), _brought(c), _needed(c)
    unequal: Bools = _unequal(_by_job(sent, one), one, _by_job(sent, other), other) | sent
    return unequal


class _Uploads(NamedTuple):
    """Uploads, by row."""

    job: Small
    server: Small
    chunks: Ints
    time: Ints


def _brought(c: Columns) -> _Uploads:
    return _Uploads(*(c.uploads[name] for name in ("job", "to_server", "chunks", "start")))


def _needed(c: Columns) -> _Uploads:
    given = supplies(c)
    columns = (given[name].to_numpy() for name in ("job", "server", "chunks", "time"))
    return _Uploads(*(plain(column, column.dtype) for column in columns))


@once
def _sent(c: Columns) -> Bools:
    """Whether each job is dispatched."""
    sent = np.zeros(len(c.scenario.jobs), bool)
    sent[c.dispatches["job"]] = True
    return sent


def _by_job(sent: Bools, of: _Uploads) -> tuple[Ints, Ints]:
    """The rows of jobs that are not `sent` by job and time, as :func:`in_groups` gives them."""
    none = of.chunks == 0
    if sent.any():
        none |= sent[of.job]
    return in_groups(np.where(none, np.int32(-1), of.job), of.time, len(sent))


@compiled
def _unequal(rows: tuple[Ints, Ints], one: _Uploads, others: tuple[Ints, Ints], other: _Uploads) -> Bools:
    """Jobs of which the two tables do not have the same rows in the same order."""
    (these, first), (those, second) = rows, others
    unequal = np.zeros(len(first) - 1, np.bool_)
    for job in range(len(unequal)):
        a, b = first[job], second[job]
        unequal[job] = first[job + 1] - a != second[job + 1] - b
        for n in range(0 if unequal[job] else first[job + 1] - a):
            i, k = these[a + n], those[b + n]
            if one.server[i] != other.server[k] or one.chunks[i] != other.chunks[k] or one.time[i] != other.time[k]:
                unequal[job] = True
    return unequal


def _table(of: _Uploads, jobs: Ints) -> pl.DataFrame:
    """The uploads of `jobs`."""
    rows = np.flatnonzero(np.isin(of.job, jobs) & (of.chunks != 0))
    return pl.DataFrame({name: getattr(of, name)[rows] for name in of._fields}).cast(pl.Int64)


def check_ahead(c: Columns, found: Findings, slack: int, rule: str, most: Ints, *, promised: bool) -> None:
    """M5 or M27, M6, M16: number of workers, time and permission of uploads ahead of an allocation.

    `rule` limits the workers of a job to `most`. `promised`: the policy promises to order no such uploads.
    """
    d = c.decisions
    rows = np.flatnonzero(d.has("verb", "upload"))
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
    sent = _sent(c)
    say = "an upload is ordered at {} µs for a job that is dispatched or holds workers"
    first = np.concatenate([[True], (job[1:] != job[:-1]) | (time[1:] != time[:-1])])  # of those of an order
    held = _held(c, job[first], time[first], slack)[np.cumsum(first, dtype=np.int32) - 1]
    found.rows("M6", sent[job] | held, job, time, lambda i: say.format(time[i]))


def _held(c: Columns, job: Ints, time: Ints, slack: int) -> Bools:
    """Whether each job holds workers at each time, both before and after it."""
    held = gang_intervals(c).select(pl.col("job").cast(pl.Int64), "end", since=pl.col("start") + slack + 1)
    asked = pl.DataFrame({"job": job, "time": time}).cast(pl.Int64).with_row_index("row").sort("time")
    both = asked.join_asof(held.sort("since"), left_on="time", right_on="since", by="job", check_sortedness=False)
    return (both.sort("row")["end"].fill_null(-1) - slack).to_numpy() > time
