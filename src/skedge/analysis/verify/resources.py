"""Rules on servers with resources: M10 there, and M26 to M28, PD-ORS's (2), (4) and (5)."""

from __future__ import annotations

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns, gang_intervals
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.ties import FITS

from .rules import Findings


def check_resources(c: Columns, found: Findings, slack: int) -> None:
    """M26: workers and PSs take at most the capacity of each resource of a server."""
    if len(c.gangs):
        _capacity(c, found, slack)


def check_counts(c: Columns, found: Findings, *, by_ratio: bool) -> None:
    """Check M27, M28 and co-location; at sites M32 replaces them.

    `by_ratio`: the policy promises that no job holds more PSs than its ratio requires.
    """
    if not len(c.gangs):
        return
    intervals = gang_intervals(c)
    _counts(c, found, intervals, by_ratio=by_ratio)
    _colocated(c, found, intervals)


def _capacity(c: Columns, found: Findings, slack: int) -> None:
    """M26: workers and PSs take at most the capacity of each resource of a server."""
    jobs, cluster = c.scenario.jobs, c.scenario.cluster
    tables = ((c.gangs, "workers", jobs.worker_needs), (c.ps, "count", jobs.ps_needs))
    server = np.concatenate([t["server"] for t, _, _ in tables])
    job = np.concatenate([t["job"] for t, _, _ in tables])
    start = np.concatenate([t["start"] for t, _, _ in tables])
    end = np.maximum(np.concatenate([t["end"] for t, _, _ in tables]) - slack, start)
    amount = np.concatenate([t[count][:, None] * needs[t["job"]] for t, count, needs in tables])
    for at in np.unique(server):
        mine = np.flatnonzero(server == at)
        _overfull(c, found, int(at), job[mine], start[mine], end[mine], amount[mine], cluster.amounts[at])


def _overfull(
    c: Columns, found: Findings, server: int, job: Ints, start: Ints, end: Ints, amount: Floats, capacity: Floats
) -> None:
    """Follow the load of one server; at equal times, ends precede starts."""
    time, change = np.concatenate([end, start]), np.concatenate([-amount, amount])
    order = np.argsort(time, kind="stable")
    load = np.cumsum(change[order], axis=0)
    over = load > capacity + FITS * np.maximum(capacity, 1.0)
    who, when, resources = np.tile(job, 2)[order], time[order], c.scenario.cluster.resources
    for row, r in zip(*np.nonzero(over), strict=True):
        text = f"{load[row, r]:g} of {resources[r]} are held on server {server}; it has {capacity[r]:g}"
        found.add("M26", int(who[row]), int(when[row]), text)


def _counts(c: Columns, found: Findings, intervals: pl.DataFrame, *, by_ratio: bool) -> None:
    """M27: at most F workers; M28: at least max(1, ceil(w / gamma)) PSs, or exactly as many if promised."""
    jobs = c.scenario.jobs
    job, start, workers = (intervals[name].to_numpy() for name in ("job", "start", "workers"))
    most, exact = jobs.batch[job], workers / jobs.ratio[job]
    least = np.maximum(1, np.ceil(exact - 1e-9 * np.maximum(exact, 1.0))).astype(np.int64)
    have = _ps_at(c, intervals.select("job", "start"), ["job"])
    found.rows(
        "M27", workers > most, job, start, lambda i: f"holds {workers[i]} workers; its batch size allows {most[i]}"
    )
    say = "holds {} PSs for {} workers; it needs {}"
    wrong = have != least if by_ratio else have < least
    found.rows("M28", wrong, job, start, lambda i: say.format(have[i], workers[i], least[i]))


def _colocated(c: Columns, found: Findings, intervals: pl.DataFrame) -> None:
    """M10: zeta = 1 iff all workers and all PSs are on one server and the physics allows it."""
    job, start, got = (intervals[name].to_numpy() for name in ("job", "start", "colocated"))
    one = intervals["servers"].to_numpy() == 1
    there = _ps_at(c, intervals.select("job", "start", "server"), ["job", "server"])
    everywhere = _ps_at(c, intervals.select("job", "start"), ["job"])
    zeta = one & (there == everywhere) & (there > 0) & (c.scenario.physics.colocation == "one_server")
    say = "colocated is {}; {} of its {} PSs are with its workers, which are on {}"
    found.rows(
        "M10", got != zeta, job, start,
        lambda i: say.format(bool(got[i]), there[i], everywhere[i], "one server" if one[i] else "several servers"),
    )  # fmt: skip


def _ps_at(c: Columns, at: pl.DataFrame, by: list[str]) -> Ints:
    """PSs held at each `start` of `at`, by `by`; 0 if none. A job gets workers and PSs at one instant, also live."""
    rows = pl.DataFrame({name: c.ps[name] for name in ("job", "server", "start", "end", "count")})
    starts, ends = rows.select(*by, "start", "count"), rows.select(*by, start="end", count=-pl.col("count"))
    events = pl.concat([starts, ends]).cast(dict.fromkeys(by, pl.Int32)).sort("start", maintain_order=True)
    events = events.with_columns(held=pl.col("count").cast(pl.Int64).cum_sum().over(by))
    asked = at.cast(dict.fromkeys(by, pl.Int32)).with_row_index("row").sort("start", maintain_order=True)
    found = asked.join_asof(events, on="start", by=by, check_sortedness=False).sort("row")
    return found["held"].fill_null(0).to_numpy()
