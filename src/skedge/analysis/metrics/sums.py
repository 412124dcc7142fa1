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
    jobs_in_cloud, jobs_run
        Jobs with any work in the cloud; jobs that ran.
    queueing_us, upload_us
        Their queueing time and upload time [µs].
    data_wait_us
        Time for which jobs wait for data [µs]: their upload time, and that of each later allocation of a gang.
    preemptions, postponed_chunks, migrations
        A preemption is a running chunk displaced before it is finished, or a gang that loses all its workers before its
        job is finished. A migration is an allocation of a gang, after its first, that requires data to be brought to
        some server (M7). A postponed chunk completes strictly later because of a dispatch (|A_2|).
    worker_us, edge_worker_us, rounding_us
        Worker time held, on the edge alone, and due to rounding to slots [worker-µs].
    edge_worker_us_to_horizon
        Worker time held on the edge up to the horizon [worker-µs]; None without one.
    communication_s, upload_chunk_us, uploaded_mb
        Communication time [worker-seconds], upload delays of all chunks [µs], and data uploaded.
    work, work_in_cloud
        Mini-batches trained, and in the cloud (:func:`_in_cloud`).
    alpha_s, beta_s
        The sums of Lemma 4 [s]; None if there are none.
    jobs, finished, finished_after_horizon, rejected, failed
        Numbers of jobs: announced, finished, finished after the horizon, rejected, and failed or cancelled.
    """

    jobs_in_cloud: int
    jobs_run: int
    queueing_us: float
    upload_us: float
    data_wait_us: float
    preemptions: int
    postponed_chunks: int
    migrations: int
    worker_us: float
    edge_worker_us: float
    edge_worker_us_to_horizon: float | None
    rounding_us: float
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


def add_sums(a: Sums, b: Sums) -> Sums:
    """The sums over the rows of two parts of a record."""
    return Sums(*(_add(x, y) for x, y in zip(a, b, strict=True)))  # type: ignore[arg-type]


def _add(x: float | None, y: float | None) -> float | None:
    return y if x is None else x if y is None else x + y


def sums(c: Columns) -> Sums:
    """The sums over the rows of `c`."""
    start, upload = _first_starts(c)
    has_run = start >= 0
    queueing_us = (start - c.scenario.jobs.arrival - upload)[has_run]
    preemptions, migrations = _interruptions(c)
    worker_us, edge_worker_us = _worker_time(c)
    communication, work, in_cloud = _work_done(c)
    return Sums(
        jobs_in_cloud=_jobs_in_cloud(c),
        jobs_run=int(has_run.sum()),
        queueing_us=float(queueing_us.sum(dtype=np.float64)),
        upload_us=float(upload[has_run].sum(dtype=np.float64)),
        data_wait_us=float(upload[has_run].sum(dtype=np.float64)) + _later_data_waits(c),
        preemptions=preemptions,
        postponed_chunks=int(np.maximum(c.dispatches["postponed"], 0).sum(dtype=np.int64)),
        migrations=migrations,
        worker_us=worker_us,
        edge_worker_us=edge_worker_us,
        edge_worker_us_to_horizon=_edge_worker_time_to_horizon(c),
        rounding_us=_rounding(c),
        communication_s=communication,
        upload_chunk_us=float((c.uploads["end"] - c.uploads["start"]) @ c.uploads["chunks"]),
        uploaded_mb=float(c.uploads["mb"].sum()),
        work=work,
        work_in_cloud=in_cloud,
        alpha_s=sum_alpha_s(c),
        beta_s=sum_beta_s(c),
        jobs=len(c.scenario.jobs),
        finished=int(c.jobs.has("state", "finished").sum()),
        finished_after_horizon=_finished_after_horizon(c),
        rejected=int(c.jobs.has("state", "rejected").sum()),
        failed=int(c.jobs.has("state", "failed", "cancelled").sum()),
    )


def cloud_of(c: Columns) -> int:
    """Number of the cloud; -2 if there is none."""
    return -2 if c.scenario.cluster.cloud is None else c.scenario.cluster.cloud


def is_finished(c: Columns) -> NDArray[np.bool_]:
    """True for the rows of the jobs table whose job finished."""
    is_complete: NDArray[np.bool_] = c.jobs["completion"] >= 0  # null for failed jobs
    return is_complete


def _finished_after_horizon(c: Columns) -> int | None:
    """Number of jobs finished after the horizon, which ends prices and plans but not the run; None without one."""
    horizon = c.scenario.physics.horizon
    return None if horizon is None else int((c.jobs["completion"] > horizon).sum())


def _jobs_in_cloud(c: Columns) -> int:
    """Number of jobs that trained at least a part of a mini-batch in the cloud."""
    return len(np.unique(c.runs["job"][_in_cloud(c) & (c.runs["work"] > 0)]))


def _in_cloud(c: Columns) -> NDArray[np.bool_]:
    """True for the runs in the cloud, or on a server as far away, which is a cloud of limited size."""
    is_far = np.array([server.far for server in c.scenario.cluster.servers], np.bool_)
    return np.asarray(is_far[c.runs["server"]])


def _first_starts(c: Columns) -> tuple[Ints, Ints]:
    """First time at which each job computes [µs], -1 if it never does, and its upload time [µs]."""
    size = len(c.scenario.jobs)
    start, upload = np.full(size, -1, np.int64), np.zeros(size, np.int64)
    _first_chunks(c, start, upload)
    gang = gang_intervals(c).unique("job", keep="first", maintain_order=True)
    # An allocation that ends before its data arrive has compute_from = end (M7): it counts as the start all the same.
    job = gang["job"].to_numpy()
    start[job] = gang["compute_from"].to_numpy()
    upload[job] = start[job] - gang["start"].to_numpy()
    return start, upload


def _later_data_waits(c: Columns) -> float:
    """Time for which gangs hold workers and wait for data in allocations after their first [µs]."""
    later = gang_intervals(c).select("job", "start", "compute_from").filter(~pl.col("job").is_first_distinct())
    # An allocation that brings data begins its uploads when it begins. A restart that loads a checkpoint computes later
    # than its data arrive: only the wait for data is counted, hence the earlier of the two.
    data = c.uploads.frame.group_by("job", "start").agg(pl.col("end").max())
    waits = later.join(data, on=["job", "start"]).select(pl.min_horizontal("end", "compute_from") - pl.col("start"))
    return float(waits.to_series().sum())


def _first_chunks(c: Columns, start: Ints, upload: Ints) -> None:
    """Fill in the first start of each dispatched job, and the upload time of the chunk that started then."""
    t, d = c.chunks, c.dispatches
    if not len(t):
        return
    first, _, _ = bounds(t["job"], t["start"], t["end"], len(start))
    rows = np.flatnonzero(t["start"] == first[t["job"]])
    dispatch_of_chunk = np.full(int(c.first_chunk[-1]), -1, np.int64)
    # Assigned in reverse, so that of a chunk dispatched several times the first dispatch remains.
    dispatch_of_chunk[(c.first_chunk[d["job"]] + d["chunk"])[::-1]] = np.arange(len(d))[::-1]
    dispatch = dispatch_of_chunk[c.first_chunk[t["job"][rows]] + t["chunk"][rows]]
    # Chunks without a dispatch are in damaged records only; the verifier reports them.
    rows, dispatch = rows[dispatch >= 0], dispatch[dispatch >= 0]
    delay = (ready_times(c) - d["time"])[dispatch]
    # Several chunks of a job may start first: the longest upload of theirs counts.
    np.maximum.at(upload, t["job"][rows], delay)
    start[t["job"][rows]] = t["start"][rows]


def _interruptions(c: Columns) -> tuple[int, int]:
    """Numbers of preemptions and migrations."""
    intervals = gang_intervals(c)
    start, end = intervals["start"].to_numpy(), intervals["end"].to_numpy()
    same_job = ~first_of_job(intervals["job"].to_numpy())[1:]
    # A gap between two allocations means that all workers were lost; adjacent ones are a change of their number.
    suspended = int((same_job & (start[1:] > end[:-1])).sum())
    # An allocation requires data where a server lacks those of some of its workers. Orders to upload, which come before
    # an allocation, are no migration by themselves.
    deliveries = supplies(c).filter(pl.col("n") > pl.col("before"), pl.col("verb") != "upload")
    migrated = intervals[1:].filter(pl.Series(same_job))
    migrated = migrated.join(deliveries, left_on=["job", "start"], right_on=["job", "time"], how="semi")
    return int(c.chunks["preempted"].sum()) + suspended, len(migrated)


def _worker_time(c: Columns) -> tuple[float, float]:
    """Worker time held in all, and on the edge [worker-µs]."""
    t = c.runs
    worker_us = (t["end"] - t["start"]) * t["workers"]
    return float(worker_us.sum(dtype=np.float64)), float(worker_us[t["server"] != cloud_of(c)].sum(dtype=np.float64))


def _edge_worker_time_to_horizon(c: Columns) -> float | None:
    """Worker time held on the edge up to the horizon [worker-µs]; None without one."""
    t, horizon = c.runs, c.scenario.physics.horizon
    if horizon is None:
        return None
    worker_us = (np.minimum(t["end"], horizon) - np.minimum(t["start"], horizon)) * t["workers"]
    return float(worker_us[t["server"] != cloud_of(c)].sum(dtype=np.float64))


def _rounding(c: Columns) -> float:
    scenario, t, g = c.scenario, c.chunks, c.gangs
    if not scenario.physics.slotted:
        return 0.0
    completed = ~t["preempted"]
    zeta = t["colocated"][completed].astype(np.int64)
    # true_chunk_time is in whole slots; a chunk that was displaced has not used its last slot, and wastes none.
    spare = (scenario.true_chunk_time - scenario.exact_chunk_time)[t["job"][completed], zeta]
    job = c.jobs["job"][is_finished(c)]
    share_of_row = (
        (g["end"] - g["compute_from"]) * g["workers"] / scenario.true_work[g["job"], g["colocated"].astype(np.int64)]
    )
    # By job, as a gang's work may be spread over many allocations at different zeta: its shares add up to 1 if nothing
    # is lost to rounding.
    share = np.bincount(g["job"], weights=share_of_row, minlength=len(scenario.jobs))
    excess = np.maximum(share - 1, 0) * scenario.true_work[:, 0]
    return float(spare.sum(dtype=np.float64) + excess[job].sum())


def _work_done(c: Columns) -> tuple[float, float, float]:
    """Communication time [worker-seconds]; mini-batches trained, and in the cloud."""
    t, jobs = c.runs, c.scenario.jobs
    # What a mini-batch takes longer at zeta = 0: the way of its gradients, 2 q_j / b_j in JSAC'22.
    comm_s = jobs.minibatch_seconds(colocated=False) - jobs.minibatch_seconds(colocated=True)
    work_apart = np.bincount(t["job"][~t["colocated"]], weights=t["work"][~t["colocated"]], minlength=len(jobs))
    total, cloud = float(t["work"].sum()), float(t["work"][_in_cloud(c)].sum())
    return float(work_apart @ comm_s), total, cloud
