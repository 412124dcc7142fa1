"""Rules on gangs: M2 to M5, M7, M8, M10 and M24."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import polars as pl

from skedge.core.model import Ints

from .columns import Columns, gang_intervals
from .rules import Findings

Interval = Mapping[str, Any]


def check_gangs(c: Columns, found: Findings, slack: int) -> None:
    """All rules on gangs; nothing is done where there are none."""
    if not len(c.gangs):
        return
    _decided(c, found, slack)
    _together(c, found)
    _types(c, found)
    _capacity(c, found, slack)
    intervals = gang_intervals(c)
    _at_most_chunks(c, found, intervals)
    _colocated(c, found, intervals)
    books = _Uploads(c)
    for job, of_job in _by_job(intervals):
        _apart(found, job, of_job, slack)
        _not_early(c, found, job, of_job, books, slack)
        _work(c, found, job, of_job, slack)


def _by_job(intervals: pl.DataFrame) -> Iterator[tuple[int, list[Interval]]]:
    rows = intervals.iter_rows(named=True)
    return ((job, list(group)) for job, group in groupby(rows, key=lambda row: row["job"]))


def _decided(c: Columns, found: Findings, slack: int) -> None:
    """M2: every allocation on a server begins with a decision for it."""
    t, d = c.gangs, c.decisions
    rows = np.flatnonzero((d.frame["verb"] == "allocate").to_numpy())
    decided = pl.DataFrame({"job": d["job"][rows], "server": d["server"][rows], "time": d["time"][rows]})
    held = pl.DataFrame({"job": t["job"], "server": t["server"], "time": t["start"]}).with_row_index("row").sort("time")
    near = held.join_asof(
        decided.sort("time"),
        on="time",
        by=["job", "server"],
        strategy="nearest",
        tolerance=slack,
        coalesce=False,
        check_sortedness=False,
    )
    none = np.zeros(len(t), bool)
    none[near.filter(pl.col("time_right").is_null())["row"].to_numpy()] = True
    say = "holds workers on server {} from {} µs; no decision then allocates them"
    found.rows("M2", none, t["job"], t["start"], lambda i: say.format(t["server"][i], t["start"][i]))


def _together(c: Columns, found: Findings) -> None:
    """M24: the rows of one allocation agree, one a server."""
    agree = ("compute_from", "end", "colocated", "preempted")
    by = c.gangs.frame.group_by("job", "start", maintain_order=True).agg(
        *(pl.col(name).n_unique().alias(name) for name in agree), pl.col("server").is_duplicated().any().alias("twice")
    )
    for row in (
        by.filter(pl.any_horizontal(pl.col(agree) > 1) | pl.col("twice")).head(found.limit).iter_rows(named=True)
    ):
        differ = [name for name in agree if row[name] > 1] or ["server (used twice)"]
        text = f"the servers of the gang from {row['start']} µs do not agree on {', '.join(differ)}"
        found.add("M24", row["job"], row["start"], text)


def _types(c: Columns, found: Findings) -> None:
    t, cluster, kind = c.gangs, c.scenario.cluster, c.scenario.jobs.worker_type[c.gangs["job"]]
    has = np.zeros(len(t), bool) | (t["server"] == cluster.cloud)
    if cluster.worker_types:
        has |= (kind >= 0) & (cluster.workers[t["server"], kind] > 0)
    say = "server {} has no worker of the job's type"
    found.rows("M3", ~has, t["job"], t["start"], lambda i: say.format(t["server"][i]))


def _capacity(c: Columns, found: Findings, slack: int) -> None:
    """M4: on each server and type that a gang uses, workers held by gangs and lanes are at most those there are."""
    t, cluster = c.runs, c.scenario.cluster
    kind, types = c.scenario.jobs.worker_type[t["job"]], max(len(cluster.worker_types), 1)
    pool = np.where((kind >= 0) & (t["server"] != cluster.cloud), t["server"] * types + kind, -1)
    used = np.unique(pool[t["chunk"] < 0])
    rows = np.flatnonzero(np.isin(pool, used[used >= 0]))
    end = np.maximum(t["end"][rows] - slack, t["start"][rows])
    time, where = np.concatenate([t["start"][rows], end]), np.tile(pool[rows], 2)
    change = np.concatenate([t["workers"][rows], -t["workers"][rows]]).astype(np.int64)
    order = np.lexsort((change, time, where))
    held = np.cumsum(change[order])
    limit = cluster.workers.ravel()[where[order]] if cluster.worker_types else held
    job = np.tile(t["job"][rows], 2)[order]
    say = "{} workers are held at {} µs on server {}; it has {} of the type"
    found.rows(
        "M4", held > limit, job, time[order],
        lambda i: say.format(held[i], time[order][i], where[order][i] // types, limit[i]),
    )  # fmt: skip


def _at_most_chunks(c: Columns, found: Findings, intervals: pl.DataFrame) -> None:
    job, workers = intervals["job"].to_numpy(), intervals["workers"].to_numpy()
    limit = c.scenario.jobs.chunks[job]
    say = "holds {} workers; it has {} chunks"
    found.rows("M5", workers > limit, job, intervals["start"].to_numpy(), lambda i: say.format(workers[i], limit[i]))


def _colocated(c: Columns, found: Findings, intervals: pl.DataFrame) -> None:
    """M10: zeta = 1 in the cloud with the PS there, or wherever the physics says that one server is enough."""
    cluster = c.scenario.cluster
    edge_too = c.scenario.physics.colocation == "one_server"
    one = intervals["where"].list.len().to_numpy() == 1
    server = intervals["where"].list.first().struct.field("server").to_numpy()
    ps = _ps_server(c, intervals["job"].to_numpy(), intervals["start"].to_numpy())
    zeta = one & (ps == server) & ((server == cluster.cloud) | edge_too)
    got = intervals["colocated"].to_numpy()
    say = "colocated is {}; the workers are on {} and the PS on server {} (-1: none)"
    found.rows(
        "M10", got != zeta, intervals["job"].to_numpy(), intervals["start"].to_numpy(),
        lambda i: say.format(bool(got[i]), f"server {server[i]}" if one[i] else "several servers", ps[i]),
    )  # fmt: skip


def _ps_server(c: Columns, job: Ints, time: Ints) -> Ints:
    """Server of the PS that each job holds at each time; -1 for none."""
    at = pl.DataFrame({"job": job, "time": time}).with_row_index("row").sort("time")
    ps = pl.DataFrame({k: c.ps[k] for k in ("job", "server", "start", "end")}).sort("start")
    both = at.with_columns(pl.col("job").cast(pl.Int32)).join_asof(
        ps, left_on="time", right_on="start", by="job", check_sortedness=False
    )
    held = pl.when(pl.col("end") > pl.col("time")).then("server").fill_null(-1)
    return both.sort("row").select(held)["server"].to_numpy()


def _apart(found: Findings, job: int, intervals: list[Interval], slack: int) -> None:
    """M24: a job holds one allocation at a time."""
    for before, after in pairwise(intervals):
        if after["start"] < before["end"] - slack:
            text = f"an allocation begins at {after['start']} µs, before the last one ends at {before['end']} µs"
            found.add("M24", job, after["start"], text)


class _Uploads:
    """Uploads of gangs by (job, server), in order of start."""

    def __init__(self, c: Columns) -> None:
        self.of: dict[tuple[int, int], list[tuple[int, int]]] = {}
        u = c.uploads
        rows = np.flatnonzero(np.isin(u["job"], c.gangs["job"]))
        for i in rows[np.argsort(u["start"][rows], kind="stable")].tolist():
            key = int(u["job"][i]), int(u["to_server"][i])
            self.of.setdefault(key, []).append((int(u["start"][i]), int(u["end"][i])))

    def last(self, job: int, server: int, by: int) -> tuple[int, int] | None:
        """(start, end) of the last upload that starts at `by` or before."""
        all_ = self.of.get((job, server), [])
        begun = bisect_right(all_, by, key=itemgetter(0))
        return all_[begun - 1] if begun else None


def _not_early(c: Columns, found: Findings, job: int, intervals: list[Interval], uploads: _Uploads, slack: int) -> None:
    """M7: a gang computes when its last upload has ended, and at once; a resumed one pays the checkpoint overhead.

    A server that holds more of the job's workers than in the last allocation needs an upload that starts between the
    two; an upload under way goes on while the job is suspended.
    """
    overhead, free = c.scenario.physics.checkpoint_overhead, 0
    before: dict[int, int] = {}
    for now in intervals:
        start, ready = now["start"], now["start"]
        where = {place["server"]: place["n"] for place in now["where"]}
        for server, n in where.items():
            last = uploads.last(job, server, start + slack)
            if n > before.get(server, 0) and (last is None or last[0] < free - slack):
                text = f"holds {n} workers on server {server}, {before.get(server, 0)} before; nothing was uploaded"
                found.add("M7", job, start, text)
            ready = max(ready, last[1] if last else 0)
        _begin(found, job, now, (ready, ready), (overhead if before else 0, overhead), slack)
        before, free = where, now["end"]


def _begin(
    found: Findings, job: int, now: Interval, ready: tuple[int, int], overhead: tuple[int, int], slack: int
) -> None:
    """Compare when an allocation computes from with the least and most that uploads and overhead allow."""
    least, most = min(ready[0] + overhead[0], now["end"]), ready[1] + overhead[1]
    if now["compute_from"] < least - slack:
        text = f"computes from {now['compute_from']} µs; its data are there, and it is restored, at {least} µs"
        found.add("M7", job, now["compute_from"], text)
    if now["compute_from"] > most + slack:
        found.add(
            "M7", job, now["compute_from"], f"computes from {now['compute_from']} µs only; it could from {most} µs"
        )


def _work(c: Columns, found: Findings, job: int, intervals: list[Interval], slack: int) -> None:
    """M8: worker time spent computing is the work, with less than one step of the last workers to spare.

    Work done at another zeta counts in proportion of the whole work at each. Each change rounds up by a worker-µs,
    which a later change may stretch by the ratio of the two works.
    """
    work, zeta, last = c.scenario.true_work[job], int(intervals[-1]["colocated"]), intervals[-1]["workers"]
    spent = [(now["end"] - now["compute_from"]) * now["workers"] for now in intervals]
    other = [int(now["colocated"]) for now in intervals]
    done = sum(s if z == zeta else s * int(work[zeta]) // int(work[z]) for s, z in zip(spent, other, strict=True))
    changes = len(intervals) if len(set(other)) > 1 else 0
    rounding = 2 * changes * -(-int(work.max()) // int(work.min())) + slack * sum(now["workers"] for now in intervals)
    room = c.scenario.physics.step * last
    if not -rounding <= done - int(work[zeta]) < room + rounding:
        text = f"spends {done} worker-µs; it needs {work[zeta]} and less than {room} more"
        found.add("M8", job, intervals[-1]["end"], text)
