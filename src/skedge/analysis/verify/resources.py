"""Rules on servers with resources: M10 there, and M26 to M28, PD-ORS's (2), (4) and (5)."""

from __future__ import annotations

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns, gang_intervals
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.ties import FITS

from .rules import Findings


def check_counts(c: Columns, findings: Findings, *, by_ratio: bool) -> None:
    """Check M27, M28 and co-location; at sites M32 replaces them.

    `by_ratio`: the policy promises that no job holds more PSs than its ratio requires.
    """
    if not len(c.gangs):
        return
    intervals = gang_intervals(c)
    _worker_and_ps_counts(c, findings, intervals, by_ratio=by_ratio)
    _colocated(c, findings, intervals)


def check_resources(c: Columns, findings: Findings, slack: int) -> None:
    """M26: workers and PSs take at most the capacity of each resource of a server."""
    if not len(c.gangs):
        return
    jobs, cluster = c.scenario.jobs, c.scenario.cluster
    tables = ((c.gangs, "workers", jobs.worker_needs), (c.ps, "count", jobs.ps_needs))
    server = np.concatenate([t["server"] for t, _, _ in tables])
    job = np.concatenate([t["job"] for t, _, _ in tables])
    start = np.concatenate([t["start"] for t, _, _ in tables])
    end = np.maximum(np.concatenate([t["end"] for t, _, _ in tables]) - slack, start)
    amount = np.concatenate([t[count][:, None] * needs[t["job"]] for t, count, needs in tables])
    for number in np.unique(server):
        rows = np.flatnonzero(server == number)
        _excess(c, findings, int(number), job[rows], start[rows], end[rows], amount[rows], cluster.amounts[number])


def _excess(
    c: Columns, findings: Findings, server: int, job: Ints, start: Ints, end: Ints, amount: Floats, capacity: Floats
) -> None:
    """Follow the load of one server; at equal times, ends precede starts."""
    time, change = np.concatenate([end, start]), np.concatenate([-amount, amount])
    order = np.argsort(time, kind="stable")
    load = np.cumsum(change[order], axis=0)
    # loads are sums of floats
    overfull = load > capacity + FITS * np.maximum(capacity, 1.0)
    event_job, event_time, resources = np.tile(job, 2)[order], time[order], c.scenario.cluster.resources
    for row, r in zip(*np.nonzero(overfull), strict=True):
        text = f"{load[row, r]:g} of {resources[r]} are held on server {server}; it has {capacity[r]:g}"
        findings.add("M26", int(event_job[row]), int(event_time[row]), text)


def _worker_and_ps_counts(c: Columns, findings: Findings, intervals: pl.DataFrame, *, by_ratio: bool) -> None:
    """M27: at most F workers; M28: at least max(1, ceil(w / gamma)) PSs, or exactly as many if promised."""
    jobs = c.scenario.jobs
    job, start, workers = (intervals[name].to_numpy() for name in ("job", "start", "workers"))
    max_workers, ratio = jobs.batch[job], workers / jobs.ratio[job]
    # w / gamma may be above a whole number by rounding
    required = np.maximum(1, np.ceil(ratio - 1e-9 * np.maximum(ratio, 1.0))).astype(np.int64)
    n_ps = _count_ps(c, intervals.select("job", "start"), ["job"])
    findings.add_rows(
        "M27", workers > max_workers, job, start, "holds {} workers; its batch size allows {}", workers, max_workers
    )
    template = "holds {} PSs for {} workers; it needs {}"
    wrong = n_ps != required if by_ratio else n_ps < required
    findings.add_rows("M28", wrong, job, start, template, n_ps, workers, required)


def _colocated(c: Columns, findings: Findings, intervals: pl.DataFrame) -> None:
    """M10: zeta = 1 iff all workers and all PSs are on one server and the physics allows it."""
    job, start, actual = (intervals[name].to_numpy() for name in ("job", "start", "colocated"))
    single = intervals["servers"].to_numpy() == 1
    n_with_workers = _count_ps(c, intervals.select("job", "start", "server"), ["job", "server"])
    n_ps = _count_ps(c, intervals.select("job", "start"), ["job"])
    expected = (
        single & (n_with_workers == n_ps) & (n_with_workers > 0) & (c.scenario.physics.colocation == "one_server")
    )
    template = "colocated is {}; {} of its {} PSs are with its workers, which are on {}"
    findings.add_rows(
        "M10", actual != expected, job, start,
        lambda i: template.format(
            bool(actual[i]), n_with_workers[i], n_ps[i], "one server" if single[i] else "several servers"
        ),
    )  # fmt: skip


def _count_ps(c: Columns, instants: pl.DataFrame, keys: list[str]) -> Ints:
    """PSs held at each `start` of `instants`, by `keys`; also live, a job gets workers and PSs at one instant."""
    rows = pl.DataFrame({name: c.ps[name] for name in ("job", "server", "start", "end", "count")})
    starts, ends = rows.select(*keys, "start", "count"), rows.select(*keys, start="end", count=-pl.col("count"))
    events = pl.concat([starts, ends]).cast(dict.fromkeys(keys, pl.Int32)).sort("start", maintain_order=True)
    events = events.with_columns(held=pl.col("count").cast(pl.Int64).cum_sum().over(keys))
    queries = instants.cast(dict.fromkeys(keys, pl.Int32)).with_row_index("row").sort("start", maintain_order=True)
    matched = queries.join_asof(events, on="start", by=keys, check_sortedness=False).sort("row")
    return matched["held"].fill_null(0).to_numpy()
