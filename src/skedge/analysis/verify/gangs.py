"""Rules on gangs: M2 to M5, M7, M8, M10 and M24; training at sites is checked in another module."""

from __future__ import annotations

import numpy as np
import polars as pl

from skedge.analysis.columns import (
    Columns,
    failure_times,
    first_of_job,
    gang_holdings,
    gang_intervals,
    gang_orders,
    not_gangs,
)
from skedge.analysis.supplies import supplies
from skedge.analysis.sweeps import Small, in_groups, in_order
from skedge.core.model.cluster import Bools, Ints
from skedge.core.model.network import upload_delays
from skedge.core.model.time import NEVER
from skedge.platform.jit import lean

from .each import check_begins
from .followed import followed
from .rules import Findings
from .same import carried_out_exactly
from .supplies import unequal_uploads

_MAX_WORK = 2.0**62
"""Worker time beyond which sums need unbounded integers [worker-µs]."""


def check_gangs(c: Columns, findings: Findings, slack: int) -> None:
    """Check the rules on gangs for all kinds of cluster."""
    if not len(c.gangs):
        return
    if slack > 0 or not carried_out_exactly(c):
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
    if slack > 0 or not all(followed(c)):
        _compute_starts(c, findings, data_orders, slack)
    check_begins(c, findings, data_orders, slack)
    _work(c, findings, intervals, slack)


def _ordered_starts(c: Columns, findings: Findings, slack: int) -> None:
    """M2: each allocation on a server begins with a decision for that server and number of workers."""
    t, d = c.gangs, c.decisions
    rows = np.flatnonzero(d.has("verb", "allocate", "allocate_each"))
    orders = pl.DataFrame({name: d[name][rows] for name in ("job", "server", "time", "workers")})
    holdings = pl.DataFrame({"job": t["job"], "server": t["server"], "time": t["start"], "n": t["workers"]})
    holdings = holdings.with_columns(pl.col("n").sum().over("job", "server", "time")).with_row_index("row").sort("time")
    matched = holdings.join_asof(
        orders.unique(["job", "server", "time"], keep="last", maintain_order=True).sort("time"),
        on="time",
        by=["job", "server"],
        strategy="nearest",
        tolerance=slack,
        coalesce=False,
        check_sortedness=False,
    )
    unordered = np.zeros(len(t), bool)
    agree = pl.col("workers").eq_missing(pl.col("n"))
    unordered[matched.filter(~agree)["row"].to_numpy()] = True
    template = "holds workers on server {} from {} µs; no decision at that time allocates exactly these"
    findings.add_rows("M2", unordered, t["job"], t["start"], lambda i: template.format(t["server"][i], t["start"][i]))


def _row_agreement(c: Columns, findings: Findings) -> None:
    """M24: the rows of an allocation agree: one row per server or, without a gang, per group that begins together."""
    unclear = _unclear_rows(c)
    if unclear.any():
        elastic_jobs = pl.Series(not_gangs(c), dtype=pl.Int32).implode()
        frame = c.gangs.frame.filter(pl.Series(unclear))
        gangs = frame.filter(~pl.col("job").is_in(elastic_jobs))
        _compare_rows(findings, gangs, ("compute_from", "end", "colocated", "preempted"), "server")
        elastic_rows = frame.filter(pl.col("job").is_in(elastic_jobs)).with_columns(
            server=pl.struct("server", "compute_from")
        )
        _compare_rows(findings, elastic_rows, ("end", "colocated", "preempted"), "server")
    rows = np.flatnonzero(c.decisions.has("verb", "allocate"))
    rows = rows[np.isin(c.decisions["job"][rows], not_gangs(c))]
    jobs, first = np.unique(c.decisions["job"][rows], return_index=True)
    for job, row in zip(jobs[: findings.limit].tolist(), rows[first], strict=False):
        findings.add("M24", job, int(c.decisions["time"][row]), "is a gang in some allocations and not in others")


def _compare_rows(findings: Findings, frame: pl.DataFrame, columns: tuple[str, ...], place: str) -> None:
    allocations = frame.group_by("job", "start", maintain_order=True).agg(
        *(pl.col(name).n_unique().alias(name) for name in columns), pl.col(place).is_duplicated().any().alias("twice")
    )
    for row in (
        allocations.filter(pl.any_horizontal(pl.col(columns) > 1) | pl.col("twice"))
        .head(findings.limit)
        .iter_rows(named=True)
    ):
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
    is_elastic = np.zeros(len(c.scenario.jobs), bool)
    is_elastic[not_gangs(c)] = True
    agrees = np.where(
        is_elastic[job[1:]],
        (server[1:] > server[:-1]) | ((server[1:] == server[:-1]) & (begin[1:] > begin[:-1])),
        (server[1:] > server[:-1]) & (begin[1:] == begin[:-1]),
    )
    for name in ("end", "colocated", "preempted"):
        agrees &= t[name][1:] == t[name][:-1]
    if not (later | same_allocation).all():
        return np.ones(len(t), bool)
    allocation = np.append(0, np.cumsum(later))[: len(t)]
    return np.isin(allocation, allocation[1:][same_allocation & ~agrees])


def _types(c: Columns, findings: Findings) -> None:
    t, cluster, kind = c.gangs, c.scenario.cluster, c.scenario.jobs.worker_type[c.gangs["job"]]
    available = np.zeros(len(t), bool) | (t["server"] == cluster.cloud)
    if cluster.worker_types:
        available |= (kind >= 0) & (cluster.workers[t["server"], kind] > 0)
    template = "server {} has no worker of the job's type"
    findings.add_rows("M3", ~available, t["job"], t["start"], lambda i: template.format(t["server"][i]))


def _capacity(c: Columns, findings: Findings, slack: int) -> None:
    """M4: on each server and type used by a gang, gangs and lanes together hold at most the workers there are."""
    t, cluster = c.runs, c.scenario.cluster
    kind, types = c.scenario.jobs.worker_type[t["job"]], max(len(cluster.worker_types), 1)
    # one number per server and type; -1 for the cloud, which is without limit
    pool = np.where((kind >= 0) & (t["server"] != cluster.cloud), t["server"] * types + kind, -1).astype(np.int32)
    used = np.unique(pool[t["chunk"] < 0])
    rows = np.flatnonzero(np.isin(pool, used[used >= 0]))
    if slack == 0 and cluster.worker_types and _within_capacity(c, pool, rows):
        return
    end = np.maximum(t["end"][rows] - slack, t["start"][rows])
    time, place = np.concatenate([end, t["start"][rows]]), np.tile(pool[rows], 2)
    change = np.concatenate([-t["workers"][rows], t["workers"][rows]]).astype(np.int64)
    # at one time, workers are given back before others are taken
    order, _ = in_groups(place, time, int(place.max(initial=0)) + 1)
    load = np.cumsum(change[order])
    limit = cluster.workers.ravel()[place[order]] if cluster.worker_types else load
    job = np.tile(t["job"][rows], 2)[order]
    template = "{} workers are held at {} µs on server {}; it has {} of the type"
    findings.add_rows(
        "M4", load > limit, job, time[order],
        lambda i: template.format(load[i], time[order][i], place[order][i] // types, limit[i]),
    )  # fmt: skip


def _within_capacity(c: Columns, pool: Small, rows: Ints) -> bool:
    """Whether the `rows` of runs never hold more than there is of their `pool`, the number of a server and type."""
    rows = rows[in_order(c.runs["start"][rows])]
    start, end, n = (c.runs[name][rows] for name in ("start", "end", "workers"))
    return bool(_fits(start, end, end.argsort(), pool[rows], n, c.scenario.cluster.workers.flatten()))


@lean
def _fits(start: Ints, end: Ints, ends: Ints, pool: Small, n: Small, left: Ints) -> bool:
    """Sweep over time: whether what is `left` of each pool is enough; rows are by start, `ends` are those by end."""
    k = 0
    for i in range(len(start)):
        # at one time, workers are given back before others are taken
        while end[ends[k]] <= start[i]:
            left[pool[ends[k]]] += n[ends[k]]
            k += 1
        left[pool[i]] -= n[i]
        if left[pool[i]] < 0:
            return False
    return True


def _at_most_chunks(c: Columns, findings: Findings, intervals: pl.DataFrame) -> None:
    job, workers = intervals["job"].to_numpy(), intervals["workers"].to_numpy()
    limit = c.scenario.jobs.chunks[job]
    template = "holds {} workers; it has {} chunks"
    findings.add_rows(
        "M5", workers > limit, job, intervals["start"].to_numpy(), lambda i: template.format(workers[i], limit[i])
    )


def _colocated(c: Columns, findings: Findings, intervals: pl.DataFrame) -> None:
    """M10: zeta = 1 if workers and PS are in the cloud or, if the physics allows it, on one server."""
    cluster = c.scenario.cluster
    edge_too = c.scenario.physics.colocation == "one_server"
    single, server = intervals["servers"].to_numpy() == 1, intervals["server"].to_numpy()
    actual, eligible = intervals["colocated"].to_numpy(), single & ((server == cluster.cloud) | edge_too)
    if not (actual | eligible).any():
        return
    ps = _ps_server(c, intervals["job"].to_numpy(), intervals["start"].to_numpy())
    zeta = eligible & (ps == server)
    template = "colocated is {}; the workers are on {} and the PS on server {} (-1: none)"
    findings.add_rows(
        "M10", actual != zeta, intervals["job"].to_numpy(), intervals["start"].to_numpy(),
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
    findings.add_rows("M24", wrong, job, start, lambda i: template.format(start[i], last[i]))


def _upload_starts(c: Columns, findings: Findings, data_orders: pl.DataFrame, slack: int) -> None:
    """M7: if a server lacks the data of some workers of an order, an upload begins with the order.

    So it is for jobs whose uploads are exactly those required.
    """
    jobs = np.flatnonzero(unequal_uploads(c))
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
    in_gang = ~pl.col("job").is_in(pl.Series(not_gangs(c), dtype=pl.Int32).implode())
    intervals = gang_intervals(c).with_row_index("at").filter(in_gang)
    if not len(intervals):
        return
    holdings = gang_holdings(c).filter(in_gang).with_columns(by=pl.col("start") + slack).sort("by", maintain_order=True)
    uploads = data_orders.select("job", "server", "time").filter(data_orders["n"] > data_orders["before"])
    uploads = uploads.join(holdings.select("job", "server"), on=["job", "server"], how="semi", maintain_order="left")
    uploads = uploads.sort("time", maintain_order=True)
    uploads = uploads.select("job", "server", begun="time", ready=pl.col("time") + pl.Series(_delays(c, uploads)))
    holdings = holdings.join_asof(uploads, left_on="by", right_on="begun", by=["job", "server"], check_sortedness=False)
    job, start, end, computes = (intervals[name].to_numpy() for name in ("job", "start", "end", "compute_from"))
    first = first_of_job(job)
    data_ready = start.copy()
    index = intervals["at"].to_numpy().searchsorted(holdings["at"].to_numpy())
    np.maximum.at(data_ready, index, holdings["ready"].fill_null(0).to_numpy())
    overhead = c.scenario.physics.checkpoint_overhead
    restored = ~first | (_ordered_until(c, job, start + slack) > 1)  # also after one replaced in the same instant
    earliest, latest = (
        np.minimum(data_ready + np.where(first, 0, overhead), end),
        data_ready + np.where(restored, overhead, 0),
    )
    say_early = "computes from {} µs; its upload and restore end at {} µs"
    findings.add_rows(
        "M7", computes < earliest - slack, job, computes, lambda i: say_early.format(computes[i], earliest[i])
    )
    say_late = "computes from {} µs; it could from {} µs"
    findings.add_rows(
        "M7", computes > latest + slack + c.late[job], job, computes, lambda i: say_late.format(computes[i], latest[i])
    )


def _ordered_until(c: Columns, job: Ints, time: Ints) -> Ints:
    """Number of allocations of each job ordered up to each time."""
    orders = gang_orders(c).filter(pl.col("verb") == "allocate").unique("order", maintain_order=True).sort("time")
    orders = orders.select("job", "time", count=pl.col("job").cum_count().over("job"))
    queries = pl.DataFrame({"job": job, "time": time}).cast(pl.Int64).with_row_index("row").sort("time")
    return (
        queries.join_asof(orders, on="time", by="job", check_sortedness=False)
        .sort("row")["count"]
        .fill_null(0)
        .to_numpy()
    )


def _delays(c: Columns, orders: pl.DataFrame) -> Ints:
    """Upload delay of each row's job to its server [µs]."""
    return upload_delays(c.scenario.delays, orders["job"].to_numpy(), orders["server"].to_numpy())


def _work(c: Columns, findings: Findings, intervals: pl.DataFrame, slack: int) -> None:
    """M8: worker time spent computing equals the work, up to less than one step of the last workers.

    Work done at another zeta counts in proportion to the total work at each zeta. Each change rounds down by up to a
    worker-µs, which a later change may scale by the ratio of the two works.
    """
    job, end, workers = (intervals[name].to_numpy() for name in ("job", "end", "workers"))
    computed, spent = intervals["spent"], intervals["spent"].cast(pl.Int64, wrap_numerical=True).to_numpy()
    zeta = intervals["colocated"].to_numpy().astype(np.int64)
    first = np.flatnonzero(first_of_job(job))
    last = np.concatenate([first[1:], [len(job)]]) - 1
    need = c.scenario.true_work[job[last], zeta[last]]
    worker_time = np.add.reduceat(spent, first)
    sum_workers = np.add.reduceat(workers, first)
    lateness = c.late[job[last]] * np.maximum.reduceat(workers, first)
    rounding, room = slack * sum_workers, c.scenario.physics.step * workers[last] + lateness
    wrong = ~((-rounding <= worker_time - need) & (worker_time - need < room + rounding))
    wrong |= np.add.reduceat(computed.cast(pl.Float64).to_numpy(), first) > _MAX_WORK
    changes = (np.minimum.reduceat(zeta, first) < zeta[last]) | (np.maximum.reduceat(zeta, first) > zeta[last])
    for i in np.flatnonzero((wrong | changes) & (failure_times(c)[job[last]] == NEVER)).tolist():
        part = slice(first[i], last[i] + 1)
        _work_exactly(
            c,
            findings,
            int(job[last[i]]),
            computed[part].to_list(),
            workers[part],
            zeta[part],
            int(end[last[i]]),
            slack,
        )


def _work_exactly(
    c: Columns, findings: Findings, job: int, spent: list[int], workers: Ints, zeta: Ints, end: int, slack: int
) -> None:
    """Check M8 for one job, in unbounded integers."""
    work, last_zeta = c.scenario.true_work[job].tolist(), int(zeta[-1])
    worker_time = sum(
        s if z == last_zeta else s * work[last_zeta] // work[z] for s, z in zip(spent, zeta.tolist(), strict=True)
    )
    changes = len(spent) if len(set(zeta.tolist())) > 1 else 0
    rounding = 2 * changes * -(-max(work) // min(work)) + slack * int(workers.sum())
    room = c.scenario.physics.step * int(workers[-1]) + int(c.late[job]) * int(workers.max())
    if not -rounding <= worker_time - work[last_zeta] < room + rounding:
        text = f"computes for {worker_time} worker-µs; it needs {work[last_zeta]}, and may take less than {room} more"
        findings.add("M8", job, end, text)
