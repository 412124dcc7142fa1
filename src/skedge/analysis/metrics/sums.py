"""The sums over the rows of a record from which metrics follow; those of parts of the jobs add up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.analysis.columns import Columns, first_of_job, gang_intervals, ready_times
from skedge.analysis.row_groups import bounds
from skedge.analysis.supplies import supplies
from skedge.core.model.cluster import Ints

from .dual import sum_alpha_s, sum_beta_s


class Sums(NamedTuple):
    """Sums over jobs and rows.

    Attributes
    ----------
    jobs_in_cloud, ran
        Jobs with any work in the cloud; jobs that ran.
    waited, uploading
        Their queueing time and upload time [µs].
    awaiting_data
        Time for which jobs wait for data [µs]: their upload time, and that of each later allocation of a gang.
    preemptions, postponed_chunks, migrations
        A preemption is a running chunk displaced before it is finished, or a gang that loses all its workers before its
        job is finished. A migration is an allocation of a gang, after its first, that requires data to be brought to
        some server (M7). A postponed chunk completes strictly later because of a dispatch (|A_2|).
    held, held_at_edge, waste
        Worker time held, on the edge alone, and due to rounding to slots [worker-µs].
    communication_s, upload_chunk_us, uploaded_mb
        Communication time [worker-seconds], upload delays of all chunks [µs], and data uploaded.
    work, work_in_cloud
        Mini-batches trained, and in the cloud (:func:`_far`).
    alpha_s, beta_s
        The sums of Lemma 4 [s]; None if there are none.
    jobs, finished, finished_after_horizon, rejected, failed
        Numbers of jobs: announced, finished, finished after the horizon, rejected, and failed or cancelled.
    """

    jobs_in_cloud: int
    ran: int
    waited: float
    uploading: float
    awaiting_data: float
    preemptions: int
    postponed_chunks: int
    migrations: int
    held: float
    held_at_edge: float
    waste: float
    communication_s: float
    upload_chunk_us: float
    uploaded_mb: float
    work: float
    work_in_cloud: float
    alpha_s: float | None
    beta_s: float | None
    jobs: int
    finished: int
    finished_after_horizon: int | None
    rejected: int
    failed: int


def added(one: Sums, other: Sums) -> Sums:
    """The sums over the rows of both."""
    return Sums(*(_sum(a, b) for a, b in zip(one, other, strict=True)))  # type: ignore[arg-type]


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other


def sums(c: Columns) -> Sums:
    """The sums over the rows of `c`."""
    start, upload = _begun(c)
    ran = start >= 0
    waited = (start - c.scenario.jobs.arrival - upload)[ran]
    preemptions, migrations = _interruptions(c)
    held, at_edge = _held(c)
    communication, work, in_cloud = _worked(c)
    return Sums(
        jobs_in_cloud=_jobs_in_cloud(c),
        ran=int(ran.sum()),
        waited=float(waited.sum(dtype=np.float64)),
        uploading=float(upload[ran].sum(dtype=np.float64)),
        awaiting_data=float(upload[ran].sum(dtype=np.float64)) + _awaited_again(c),
        preemptions=preemptions,
        postponed_chunks=int(np.maximum(c.dispatches["postponed"], 0).sum(dtype=np.int64)),
        migrations=migrations,
        held=held,
        held_at_edge=at_edge,
        waste=_waste(c),
        communication_s=communication,
        upload_chunk_us=float((c.uploads["end"] - c.uploads["start"]) @ c.uploads["chunks"]),
        uploaded_mb=float(c.uploads["mb"].sum()),
        work=work,
        work_in_cloud=in_cloud,
        alpha_s=sum_alpha_s(c),
        beta_s=sum_beta_s(c),
        jobs=len(c.scenario.jobs),
        finished=int(c.jobs.has("state", "finished").sum()),
        finished_after_horizon=_finished_late(c),
        rejected=int(c.jobs.has("state", "rejected").sum()),
        failed=int(c.jobs.has("state", "failed", "cancelled").sum()),
    )


def cloud_of(c: Columns) -> int:
    """Number of the cloud; -2 if there is none."""
    return -2 if c.scenario.cluster.cloud is None else c.scenario.cluster.cloud


def finished(c: Columns) -> NDArray[np.bool_]:
    """Whether the job of each row of the jobs table finished."""
    done: NDArray[np.bool_] = c.jobs["completion"] >= 0  # null for failed jobs
    return done


def _finished_late(c: Columns) -> int | None:
    """Jobs finished after the horizon, which ends the window of prices and plans, not the run; None without one."""
    horizon = c.scenario.physics.horizon
    return None if horizon is None else int((c.jobs["completion"] > horizon).sum())


def _jobs_in_cloud(c: Columns) -> int:
    """Jobs that trained at least a part of a mini-batch in the cloud."""
    return len(np.unique(c.runs["job"][_far(c) & (c.runs["work"] > 0)]))


def _far(c: Columns) -> NDArray[np.bool_]:
    """Whether each row of the runs is on the cloud, or on a server as far away, which is a cloud of limited size."""
    far = np.array([server.far for server in c.scenario.cluster.servers], np.bool_)
    return np.asarray(far[c.runs["server"]])


def _begun(c: Columns) -> tuple[Ints, Ints]:
    """When each job first computes [µs], -1 if it does not, and its upload time [µs]."""
    size = len(c.scenario.jobs)
    start, upload = np.full(size, -1, np.int64), np.zeros(size, np.int64)
    _first_chunks(c, start, upload)
    gang = gang_intervals(c).unique("job", keep="first", maintain_order=True)
    who = gang["job"].to_numpy()
    start[who] = gang["compute_from"].to_numpy()
    upload[who] = start[who] - gang["start"].to_numpy()
    return start, upload


def _awaited_again(c: Columns) -> float:
    """Time for which gangs hold workers and wait for data in allocations after their first [µs]."""
    again = gang_intervals(c).select("job", "start", "compute_from").filter(~pl.col("job").is_first_distinct())
    there = c.uploads.frame.group_by("job", "start").agg(pl.col("end").max())
    waits = again.join(there, on=["job", "start"]).select(pl.min_horizontal("end", "compute_from") - pl.col("start"))
    return float(waits.to_series().sum())


def _first_chunks(c: Columns, start: Ints, upload: Ints) -> None:
    """Fill in the first start of each dispatched job, and the upload time of the chunk that started then."""
    t, d = c.chunks, c.dispatches
    if not len(t):
        return
    first, _, _ = bounds(t["job"], t["start"], t["end"], len(start))
    rows = np.flatnonzero(t["start"] == first[t["job"]])
    row = np.full(int(c.first_chunk[-1]), -1, np.int64)
    row[(c.first_chunk[d["job"]] + d["chunk"])[::-1]] = np.arange(len(d))[::-1]
    sent = row[c.first_chunk[t["job"][rows]] + t["chunk"][rows]]
    rows, sent = rows[sent >= 0], sent[sent >= 0]
    delay = (ready_times(c) - d["time"])[sent]
    np.maximum.at(upload, t["job"][rows], delay)
    start[t["job"][rows]] = t["start"][rows]


def _interruptions(c: Columns) -> tuple[int, int]:
    """Numbers of preemptions and migrations."""
    intervals = gang_intervals(c)
    start, end = intervals["start"].to_numpy(), intervals["end"].to_numpy()
    again = ~first_of_job(intervals["job"].to_numpy())[1:]
    suspended = int((again & (start[1:] > end[:-1])).sum())
    brought = supplies(c).filter(pl.col("n") > pl.col("before"), pl.col("verb") != "upload")
    moved = intervals[1:].filter(pl.Series(again))
    moved = moved.join(brought, left_on=["job", "start"], right_on=["job", "time"], how="semi")
    return int(c.chunks["preempted"].sum()) + suspended, len(moved)


def _held(c: Columns) -> tuple[float, float]:
    """Worker time held in all, and on the edge [worker-µs]."""
    t = c.runs
    held = (t["end"] - t["start"]) * t["workers"]
    return float(held.sum(dtype=np.float64)), float(held[t["server"] != cloud_of(c)].sum(dtype=np.float64))


def _waste(c: Columns) -> float:
    scenario, t, g = c.scenario, c.chunks, c.gangs
    if not scenario.physics.slotted:
        return 0.0
    done = ~t["preempted"]
    zeta = t["colocated"][done].astype(np.int64)
    spare = (scenario.true_chunk_time - scenario.exact_chunk_time)[t["job"][done], zeta]
    last = c.jobs["job"][finished(c)]
    spent = (
        (g["end"] - g["compute_from"]) * g["workers"] / scenario.true_work[g["job"], g["colocated"].astype(np.int64)]
    )
    share = np.bincount(g["job"], weights=spent, minlength=len(scenario.jobs))
    over = np.maximum(share - 1, 0) * scenario.true_work[:, 0]
    return float(spare.sum(dtype=np.float64) + over[last].sum())


def _worked(c: Columns) -> tuple[float, float, float]:
    """Communication time [worker-seconds]; mini-batches trained, and in the cloud."""
    t, jobs = c.runs, c.scenario.jobs
    each = jobs.minibatch_seconds(colocated=False) - jobs.minibatch_seconds(colocated=True)
    apart = np.bincount(t["job"][~t["colocated"]], weights=t["work"][~t["colocated"]], minlength=len(jobs))
    total, cloud = float(t["work"].sum()), float(t["work"][_far(c)].sum())
    return float(apart @ each), total, cloud
