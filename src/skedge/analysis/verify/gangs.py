"""Rules on gangs: M2 to M5, M7, M8, M10 and M24; training at sites is checked in another module."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from skedge.analysis.columns import (
    Columns,
    dispatched_jobs,
    elastic_jobs,
    failure_times,
    first_of_job,
    gang_intervals,
    gang_rows,
)
from skedge.analysis.row_groups import Small, in_groups, in_order, plain
from skedge.analysis.supplies import supplies
from skedge.core.model.cluster import Bools, Ints
from skedge.core.model.network import upload_delays
from skedge.core.model.time import NEVER
from skedge.platform.jit import lean

from .elastic import check_begins
from .gang_uploads import upload_surplus
from .matching import Events, events, nearest
from .orders import ALLOCATE, ALLOCATE_ELASTIC, gang_order_rows, worker_holdings
from .rules import Findings

_MAX_WORK = 2.0**62
"""Worker time beyond which sums need unbounded integers [worker-µs]."""


def check_gangs(c: Columns, findings: Findings, slack: int) -> None:
    """Check the rules on gangs for all kinds of cluster."""
    if not len(c.gangs):
        return
    _ordered_starts(c, findings, slack)
    _row_agreement(c, findings)
    _one_at_a_time(findings, gang_intervals(c), slack)


def check_gang_slots(c: Columns, findings: Findings, slack: int) -> None:
    """Check the rules on slots held by gangs."""
    if not len(c.gangs):
        return
    intervals = gang_intervals(c)
    _types(c, findings)
    _capacity(c, findings, slack)
    _at_most_chunks(c, findings, intervals)
    _colocated(c, findings, intervals)


def check_gang_starts(c: Columns, findings: Findings, slack: int) -> None:
    """Check the rules on data and work of gangs; at sites M31 to M33 replace them."""
    if not len(c.gangs):
        return
    intervals, data_orders = gang_intervals(c), supplies(c)
    _upload_starts(c, findings, data_orders, slack)
    _compute_starts(c, findings, data_orders, slack)
    check_begins(c, findings, data_orders, slack)
    _work(c, findings, intervals, slack)


def _ordered_starts(c: Columns, findings: Findings, slack: int) -> None:
    """M2: each allocation on a server begins with a decision for that server and number of workers."""
    t, holdings, row_order = c.gangs, worker_holdings(c), gang_rows(c)
    orders = gang_order_rows(c).with_verbs(ALLOCATE, ALLOCATE_ELASTIC)
    order = nearest(holdings.begin, events(orders.job, orders.time, orders.server), slack)
    wrong = (order < 0) | (np.append(orders.n, 0)[order] != holdings.n)
    # an elastic allocation has a row for each time at which workers begin; all are reported
    of_row = np.empty(len(t), bool)
    of_row[row_order.rows] = np.repeat(wrong, np.diff(row_order.first_on_server, append=len(t)))
    template = "holds workers on server {} from {} µs; no decision at that time allocates exactly these"
    findings.add_rows("M2", of_row, t["job"], t["start"], template, t["server"], t["start"])


def _row_agreement(c: Columns, findings: Findings) -> None:
    """M24: the rows of an allocation agree: one row per server or, without a gang, per group that begins together."""
    unclear = _unclear_rows(c)
    if unclear.any():
        # only the allocations that do not agree at first sight become data frames
        elastic = elastic_jobs(c)[c.gangs["job"]]
        gangs, elastic_rows = (c.gangs.frame.filter(pl.Series(unclear & kind)) for kind in (~elastic, elastic))
        _compare_rows(findings, gangs, ("compute_from", "end", "colocated", "preempted"))
        elastic_rows = elastic_rows.with_columns(server=pl.struct("server", "compute_from"))
        _compare_rows(findings, elastic_rows, ("end", "colocated", "preempted"))
    rows = np.flatnonzero(c.decisions.has("verb", "allocate") & elastic_jobs(c)[c.decisions["job"]])
    jobs, first = np.unique(c.decisions["job"][rows], return_index=True)
    for job, row in zip(jobs[: findings.limit].tolist(), rows[first], strict=False):
        findings.add("M24", job, int(c.decisions["time"][row]), "is a gang in some allocations and not in others")


def _compare_rows(findings: Findings, frame: pl.DataFrame, columns: tuple[str, ...]) -> None:
    allocations = frame.group_by("job", "start", maintain_order=True).agg(
        *(pl.col(name).n_unique() for name in columns), twice=pl.col("server").is_duplicated().any()
    )
    wrong = allocations.filter(pl.any_horizontal(pl.col(columns) > 1) | pl.col("twice"))
    for row in wrong.head(findings.limit).iter_rows(named=True):
        differ = [name for name in columns if row[name] > 1] or ["server (used twice)"]
        text = f"the servers of the gang from {row['start']} µs differ in {', '.join(differ)}"
        findings.add("M24", row["job"], row["start"], text)


def _unclear_rows(c: Columns) -> Bools:
    """The rows of allocations that are not seen at once to agree: one pass in the order of a record, by (start, job).

    All rows if they are in another order.
    """
    t = c.gangs
    start, job, server, begin = (t[name] for name in ("start", "job", "server", "compute_from"))
    later = (start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (job[1:] > job[:-1]))
    same_allocation = (start[1:] == start[:-1]) & (job[1:] == job[:-1])
    agrees = np.where(
        elastic_jobs(c)[job[1:]],
        (server[1:] > server[:-1]) | ((server[1:] == server[:-1]) & (begin[1:] > begin[:-1])),
        (server[1:] > server[:-1]) & (begin[1:] == begin[:-1]),
    )
    for name in ("end", "colocated", "preempted"):
        agrees &= t[name][1:] == t[name][:-1]
    if not (later | same_allocation).all():
        return np.ones(len(t), bool)
    # a row that disagrees with its neighbour makes its whole allocation unclear
    allocation = np.append(0, np.cumsum(later))[: len(t)]
    return np.isin(allocation, allocation[1:][same_allocation & ~agrees])


def _types(c: Columns, findings: Findings) -> None:
    t, cluster, kind = c.gangs, c.scenario.cluster, c.scenario.jobs.worker_type[c.gangs["job"]]
    available = np.zeros(len(t), bool) | (t["server"] == cluster.cloud)
    if cluster.worker_types:
        available |= (kind >= 0) & (cluster.workers[t["server"], kind] > 0)
    template = "server {} has no worker of the job's type"
    findings.add_rows("M3", ~available, t["job"], t["start"], template, t["server"])


def _capacity(c: Columns, findings: Findings, slack: int) -> None:
    """M4: on each server and type used by a gang, gangs and lanes together hold at most the workers there are."""
    t, cluster = c.runs, c.scenario.cluster
    if not cluster.worker_types:
        return
    kind, types = c.scenario.jobs.worker_type[t["job"]], len(cluster.worker_types)
    # one number per server and type; -1 for the cloud, which is without limit
    pool = np.where((kind >= 0) & (t["server"] != cluster.cloud), t["server"] * types + kind, -1).astype(np.int32)
    # where there are lanes only, the sweep over lanes checks M4
    has_gang = np.zeros(cluster.workers.size + 1, bool)
    has_gang[pool[t["chunk"] < 0]] = True
    rows = np.flatnonzero(has_gang[pool] & (pool >= 0))
    by_start = in_order(t["start"][rows])
    rows = rows[by_start]
    start, end, n, place = t["start"][rows], t["end"][rows], t["workers"][rows], pool[rows]
    if slack:
        end = np.maximum(end - slack, start)
    # of ends at one time, that of the first row comes first
    by_end = np.argsort(end, kind="stable") if isinstance(by_start, slice) else np.lexsort((rows, end))
    limit = cluster.workers.ravel()
    left = np.empty((2, len(rows)), np.int64)
    _follow_pools(start, end, by_end, place, n, limit.copy(), left)
    if not (left < 0).any():
        return
    # by pool and time; at one time, workers are given back before others are taken
    time, place, job = np.concatenate([end, start]), np.tile(place, 2), np.tile(t["job"][rows], 2)
    load = limit[place] - left.ravel()
    template = "{} workers are held at {} µs on server {}; it has {} of the type"
    events = np.flatnonzero(left.ravel() < 0)
    events = events[np.lexsort((rows[events % len(rows)], events >= len(rows), time[events], place[events]))]
    for i in events[: findings.limit]:
        text = template.format(load[i], time[i], place[i] // types, limit[place[i]])
        findings.add("M4", int(job[i]), int(time[i]), text)


@lean
def _follow_pools(start: Ints, end: Ints, by_end: Ints, pool: Small, n: Small, free: Ints, left: Ints) -> None:
    """Note what is left of a row's pool after its end, in ``left[0]``, and after its start, in ``left[1]``.

    Rows are by start, `by_end` are those by end; `free` is what is left of each pool, at first its workers.
    """
    k = 0
    for i in range(len(start) + 1):
        while k < len(by_end) and (i == len(start) or end[by_end[k]] <= start[i]):
            row = by_end[k]
            free[pool[row]] += n[row]
            left[0, row] = free[pool[row]]
            k += 1
        if i < len(start):
            free[pool[i]] -= n[i]
            left[1, i] = free[pool[i]]


def _at_most_chunks(c: Columns, findings: Findings, intervals: pl.DataFrame) -> None:
    job, workers = intervals["job"].to_numpy(), intervals["workers"].to_numpy()
    limit = c.scenario.jobs.chunks[job]
    template = "holds {} workers; it has {} chunks"
    findings.add_rows("M5", workers > limit, job, intervals["start"].to_numpy(), template, workers, limit)


def _colocated(c: Columns, findings: Findings, intervals: pl.DataFrame) -> None:
    """M10: zeta = 1 if workers and PS are in the cloud or, if the physics allows it, on one server."""
    cluster = c.scenario.cluster
    edge_too = c.scenario.physics.colocation == "one_server"
    single, server = intervals["servers"].to_numpy() == 1, intervals["server"].to_numpy()
    actual, eligible = intervals["colocated"].to_numpy(), single & ((server == cluster.cloud) | edge_too)
    if not (actual | eligible).any():
        return
    ps = _ps_server(c, intervals["job"].to_numpy(), intervals["start"].to_numpy())
    expected = eligible & (ps == server)
    template = "colocated is {}; the workers are on {} and the PS on server {} (-1: none)"
    findings.add_rows(
        "M10", actual != expected, intervals["job"].to_numpy(), intervals["start"].to_numpy(),
        lambda i: template.format(bool(actual[i]), f"server {server[i]}" if single[i] else "several servers", ps[i]),
    )  # fmt: skip


def _ps_server(c: Columns, job: Ints, time: Ints) -> Ints:
    """Server of the PS held by each job at each time; -1 for none."""
    instants = pl.DataFrame({"job": job, "time": time}).with_row_index("row").sort("time")
    ps = pl.DataFrame({k: c.ps[k] for k in ("job", "server", "start", "end")}).sort("start")
    matched = instants.with_columns(pl.col("job").cast(pl.Int32)).join_asof(
        ps, left_on="time", right_on="start", by="job", check_sortedness=False
    )
    ps_server = pl.when(pl.col("end") > pl.col("time")).then("server").fill_null(-1)
    return matched.sort("row").select(ps_server)["server"].to_numpy()


def _one_at_a_time(findings: Findings, intervals: pl.DataFrame, slack: int) -> None:
    """M24: a job holds one allocation at a time."""
    job, start, end = (intervals[name].to_numpy() for name in ("job", "start", "end"))
    last = np.concatenate([[0], end[:-1]])
    # rows are by job and start, so `last` is the end of the same job's row before
    wrong = ~first_of_job(job) & (start < last - slack)
    template = "an allocation begins at {} µs, before the last one ends at {} µs"
    findings.add_rows("M24", wrong, job, start, template, start, last)


def _upload_starts(c: Columns, findings: Findings, data_orders: pl.DataFrame, slack: int) -> None:
    """M7: if a server lacks the data of some workers of an order, an upload begins with the order.

    So it is for jobs whose uploads are exactly those required.
    """
    jobs = np.union1d(upload_surplus(c)["job"].to_numpy(), np.flatnonzero(dispatched_jobs(c)))
    if not len(jobs):
        return
    u, unequal = c.uploads, pl.Series(jobs, dtype=pl.Int32).implode()
    table = pl.DataFrame({"job": u["job"], "server": u["to_server"], "begun": u["start"]})
    table = table.filter(pl.col("job").is_in(unequal)).sort("begun")
    matched = data_orders.filter(pl.col("chunks") > 0, pl.col("job").is_in(unequal)).sort("time").join_asof(
        table, left_on="time", right_on="begun", by=["job", "server"], strategy="nearest", tolerance=slack,
        check_sortedness=False,
    )  # fmt: skip
    absent = matched.filter(pl.col("begun").is_null())
    text = "{n} workers on server {server} need data, {before} have them; no upload starts at {time} µs"
    for row in absent.sort("time", "job", "server").head(findings.limit).iter_rows(named=True):
        findings.add("M7", row["job"], row["time"], text.format_map(row))


def _compute_starts(c: Columns, findings: Findings, data_orders: pl.DataFrame, slack: int) -> None:
    """M7: a gang begins computing exactly when its last data are there; a resumed one pays the checkpoint overhead."""
    intervals, rows = gang_intervals(c), gang_rows(c)
    job, start, end, computes = (intervals[name].to_numpy() for name in ("job", "start", "end", "compute_from"))
    first = first_of_job(job)
    first_holding = np.searchsorted(rows.first_on_server, rows.first)
    data_ready = np.maximum(start, np.maximum.reduceat(_data_ready(c, data_orders, slack), first_holding))
    overhead = c.scenario.physics.checkpoint_overhead
    restored = ~first
    if overhead and (first & (computes > data_ready + slack)).any():
        # a gang that was replaced in the instant of its allocation may pay for restoring, too
        restored |= _second_orders(c)[job] <= start + slack
    # an allocation that ends before its data arrive computes from its end on
    earliest = np.minimum(data_ready + np.where(first, 0, overhead), end)
    latest = data_ready + np.where(restored, overhead, 0)
    is_gang = ~elastic_jobs(c)[job]
    too_early = is_gang & (computes < earliest - slack)
    too_late = is_gang & (computes > latest + slack + c.late[job])
    say_early = "computes from {} µs; its upload and restore end at {} µs"
    findings.add_rows("M7", too_early, job, computes, say_early, computes, earliest)
    say_late = "computes from {} µs; it could from {} µs"
    findings.add_rows("M7", too_late, job, computes, say_late, computes, latest)


def _data_ready(c: Columns, data_orders: pl.DataFrame, slack: int) -> Ints:
    """When the data ordered last, by each holding's start, arrive at its server [µs]; 0 if none were ordered."""
    brings = np.flatnonzero(data_orders["n"].to_numpy() > data_orders["before"].to_numpy())
    job, server, time = (data_orders[name].to_numpy()[brings] for name in ("job", "server", "time"))
    rows, _ = in_groups(job, time, len(c.scenario.jobs))
    arrival = time + upload_delays(c.scenario.delays, job, server)
    uploads = _DataArrivals(*(plain(column[rows], np.int64) for column in (job, server, time, arrival)))
    begin = worker_holdings(c).begin
    arrivals, newest = np.zeros(len(begin.job), np.int64), np.full(len(c.scenario.cluster.servers), -1, np.int64)
    _latest_arrivals(uploads, begin, newest, slack, arrivals)
    return arrivals


class _DataArrivals(NamedTuple):
    """Orders that bring data, by job and time: when they are made and when the data arrive [µs]."""

    job: Ints
    server: Ints
    time: Ints
    arrival: Ints


@lean
def _latest_arrivals(uploads: _DataArrivals, holdings: Events, newest: Ints, slack: int, arrivals: Ints) -> None:
    """Follow each job from holding to holding; `newest` is the last upload to each server, of any job (-1: none)."""
    k = 0
    for i in range(len(holdings.job)):
        job, until = holdings.job[i], holdings.time[i] + slack
        while k < len(uploads.job) and (uploads.job[k] < job or (uploads.job[k] == job and uploads.time[k] <= until)):
            newest[uploads.server[k]] = k
            k += 1
        last = newest[holdings.server[i]]
        if last >= 0 and uploads.job[last] == job:
            arrivals[i] = uploads.arrival[last]


def _second_orders(c: Columns) -> Ints:
    """When each job is allocated a gang for the second time [µs]; NEVER if it is not."""
    orders = gang_order_rows(c).with_verbs(ALLOCATE).leads()
    rows, first = in_groups(plain(orders.job, np.int32), orders.time, len(c.scenario.jobs))
    times = np.full(len(c.scenario.jobs), NEVER, np.int64)
    several = np.diff(first) > 1
    times[several] = orders.time[rows[first[:-1][several] + 1]]
    return times


def _work(c: Columns, findings: Findings, intervals: pl.DataFrame, slack: int) -> None:
    """M8: worker time spent computing equals the work, up to less than one step of the last workers.

    Work done at another zeta counts in proportion to the total work at each zeta. Each change rounds down by up to a
    worker-µs, which a later change may scale by the ratio of the two works.
    """
    job, end, workers = (intervals[name].to_numpy() for name in ("job", "end", "workers"))
    computed, spent = intervals["spent"], intervals["spent"].cast(pl.Int64, wrap_numerical=True).to_numpy()
    colocated = intervals["colocated"].to_numpy().astype(np.int64)
    first = np.flatnonzero(first_of_job(job))
    last = np.concatenate([first[1:], [len(job)]]) - 1
    need = c.scenario.true_work[job[last], colocated[last]]
    worker_time = np.add.reduceat(spent, first)
    sum_workers = np.add.reduceat(workers, first)
    lateness = c.late[job[last]] * np.maximum.reduceat(workers, first)
    rounding, room = slack * sum_workers, c.scenario.physics.step * workers[last] + lateness
    wrong = ~((-rounding <= worker_time - need) & (worker_time - need < room + rounding))
    # sums of 64 bits may have wrapped
    wrong |= np.add.reduceat(computed.cast(pl.Float64).to_numpy(), first) > _MAX_WORK
    changes = (np.minimum.reduceat(colocated, first) < colocated[last]) | (
        np.maximum.reduceat(colocated, first) > colocated[last]
    )
    # work at different zeta adds up only after a conversion, and only unbounded integers round it exactly
    for i in np.flatnonzero((wrong | changes) & (failure_times(c)[job[last]] == NEVER)).tolist():
        part = slice(first[i], last[i] + 1)
        _work_exactly(
            c,
            findings,
            int(job[last[i]]),
            computed[part].to_list(),
            workers[part],
            colocated[part],
            int(end[last[i]]),
            slack,
        )


def _work_exactly(
    c: Columns, findings: Findings, job: int, spent: list[int], workers: Ints, colocated: Ints, end: int, slack: int
) -> None:
    """Check M8 for one job, in unbounded integers."""
    work, last = c.scenario.true_work[job].tolist(), int(colocated[-1])
    worker_time = sum(
        time if value == last else time * work[last] // work[value]
        for time, value in zip(spent, colocated.tolist(), strict=True)
    )
    # rounded down at most twice for each allocation, then scaled by the ratio of the works
    changes = len(spent) if len(set(colocated.tolist())) > 1 else 0
    rounding = 2 * changes * -(-max(work) // min(work)) + slack * int(workers.sum())
    room = c.scenario.physics.step * int(workers[-1]) + int(c.late[job]) * int(workers.max())
    if not -rounding <= worker_time - work[last] < room + rounding:
        text = f"computes for {worker_time} worker-µs; it needs {work[last]}, and may take less than {room} more"
        findings.add("M8", job, end, text)
