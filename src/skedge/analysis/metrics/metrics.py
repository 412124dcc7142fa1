"""The metrics of a run: those of JSAC'22 Sec. V and the standard ones of the field.

Metrics are computed from the scenario and the record; each function states its formula. Times are in seconds, sizes in
MB. If there is nothing to average (no job finished, no chunk dispatched) the value is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.analysis.columns import Columns, columns, first_of_job, gang_intervals, ready_times
from skedge.analysis.supplies import supplies
from skedge.analysis.sweeps import bounds, in_groups, merged
from skedge.core.job_fields import Kind
from skedge.core.model import Ints
from skedge.core.scenario import Scenario
from skedge.core.schedule import Schedule
from skedge.core.time import SECOND

from .costs import costs
from .dual import sum_alpha_s, sum_beta_s
from .worth import holdings, use_by_resource, worth

Metrics = dict[str, float | int | None]


def metrics(scenario: Scenario, schedule: Schedule, meta: Mapping[str, Any]) -> Metrics:
    """All metrics of a run by name; the name ends in the unit, and shares are from 0 to 1.

    `meta` is that of the run; the policy's parameter ``completion`` gives the time at which a job's utility is taken.
    """
    c = columns(scenario, schedule)
    intervals = gang_intervals(c)
    return {
        **_counts(c),
        **_jct(c),
        **_waiting(c, intervals),
        **_interruptions(c, intervals),
        **_workers(c),
        **_communication(c),
        "sum_alpha_s": sum_alpha_s(c),
        "sum_beta_s": sum_beta_s(c),
        **worth(c, completion_of(meta)),
        **_of_kind(c).costs(c),
    }


def completion_of(meta: Mapping[str, Any]) -> str:
    """The time at which the policy of a run takes a job's utility: ``end``, or ``index`` of the last slot."""
    params = meta.get("params", {})
    return "index" if params.get("completion") == "index" else "end"


def jct_rate(metrics_by_policy: Mapping[str, Metrics], reference: str = "srtf") -> dict[str, float | None]:
    """JCT rate (JSAC'22 Sec. V-A): ratio of each policy's total JCT to that of `reference`.

    None if the policy or the reference has no total JCT, or if they finish different numbers of jobs: totals over
    different jobs are not comparable.
    """
    base = metrics_by_policy.get(reference, {})
    return {name: _rate(one, base) for name, one in metrics_by_policy.items()}


def _rate(one: Metrics, base: Metrics) -> float | None:
    total, reference = one.get("jct_total_s"), base.get("jct_total_s")
    if total is None or not reference or one.get("finished") != base.get("finished"):
        return None
    return total / reference


def _counts(c: Columns) -> Metrics:
    """Numbers of jobs: announced, finished, finished after the horizon, rejected, and run wholly in the cloud.

    A horizon ends the window of prices and plans, not the run, so jobs that complete later are counted separately.
    """
    horizon = c.scenario.physics.horizon
    state = c.jobs.frame["state"].cast(pl.String)
    total = np.bincount(c.runs["job"], minlength=len(c.scenario.jobs))
    cloud = np.bincount(c.runs["job"][c.runs["server"] == _cloud(c)], minlength=len(c.scenario.jobs))
    return {
        "jobs": len(c.scenario.jobs),
        "finished": int((state == "finished").sum()),
        "finished_after_horizon": None if horizon is None else int((c.jobs["completion"] > horizon).sum()),
        "rejected": int((state == "rejected").sum()),
        "failed": int(state.is_in(["failed", "cancelled"]).sum()),
        "jobs_in_cloud": int(((total > 0) & (cloud == total)).sum()),
    }


def _cloud(c: Columns) -> int:
    return -2 if c.scenario.cluster.cloud is None else c.scenario.cluster.cloud


def _finished(c: Columns) -> NDArray[np.bool_]:
    done: NDArray[np.bool_] = c.jobs["completion"] >= 0  # null for failed jobs
    return done


def _jct(c: Columns) -> Metrics:
    """JCT c_j - r_j of the finished jobs, slowdown, makespan.

    The slowdown is the ratio of the JCT to the job's solo time, D_j p_j / k_j: k_j workers train without upload, at
    zeta = 0, not rounded to slots. The makespan is the time from the first arrival to the last completion.
    """
    t, done = c.jobs, _finished(c)
    job = t["job"][done]
    jct = (t["completion"][done] - t["arrival"][done]) / SECOND
    solo = c.scenario.true_work[job, 0] / c.scenario.jobs.workers[job] / SECOND
    names = ("mean", "p50", "p90", "p99")
    numbers: Metrics = {"jct_total_s": float(jct.sum()) if len(jct) else None}
    numbers |= {f"jct_{name}_s": value for name, value in zip(names, _summary(jct), strict=True)}
    numbers |= {f"slowdown_{name}": value for name, value in zip(names, _summary(jct / solo), strict=True)}
    first, last = _window(c)
    return numbers | {"makespan_s": (last - first) / SECOND if len(jct) else None}


def _summary(values: NDArray[np.float64]) -> tuple[float | None, ...]:
    """Mean and quantiles 0.5, 0.9 and 0.99, interpolated linearly."""
    if not len(values):
        return (None,) * 4
    return float(values.mean()), *(float(q) for q in np.quantile(values, (0.5, 0.9, 0.99)))


def _window(c: Columns) -> tuple[int, int]:
    """First arrival and last completion [µs]; the first arrival twice if no job finished."""
    first = int(c.scenario.jobs.arrival.min()) if len(c.scenario.jobs) else 0
    return first, max(int(c.jobs["completion"].max(initial=-1)), first)


def _waiting(c: Columns, intervals: pl.DataFrame) -> Metrics:
    """Mean time that a job waits for data, and for workers, before it first computes.

    The upload time of a job is Delta_js of the chunk that starts first (the largest if several do), or the time for
    which its gang holds its first workers before it computes. Queueing time is first computation - arrival - upload
    time. Means are over the jobs that ran.
    """
    size = len(c.scenario.jobs)
    start, upload = np.full(size, -1, np.int64), np.zeros(size, np.int64)
    _first_chunks(c, start, upload)
    gang = intervals.unique("job", keep="first", maintain_order=True)
    who = gang["job"].to_numpy()
    start[who] = gang["compute_from"].to_numpy()
    upload[who] = start[who] - gang["start"].to_numpy()
    ran = start >= 0
    waited = (start - c.scenario.jobs.arrival - upload)[ran]
    return {
        "queueing_mean_s": float(waited.mean()) / SECOND if ran.any() else None,
        "upload_time_mean_s": float(upload[ran].mean()) / SECOND if ran.any() else None,
    }


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


def _interruptions(c: Columns, intervals: pl.DataFrame) -> Metrics:
    """Numbers of preemptions, postponed chunks and migrations.

    A preemption is a running chunk displaced before it is finished, or a gang that loses all its workers before its
    job is finished. A migration is an allocation of a gang, after its first, that requires data to be brought to some
    server (M7). A postponed chunk completes strictly later because of a dispatch (|A_2|).
    """
    start, end = intervals["start"].to_numpy(), intervals["end"].to_numpy()
    again = ~first_of_job(intervals["job"].to_numpy())[1:]
    suspended = int((again & (start[1:] > end[:-1])).sum())
    brought = supplies(c).filter(pl.col("n") > pl.col("before"), pl.col("verb") != "upload")
    moved = intervals[1:].filter(pl.Series(again))
    moved = moved.join(brought, left_on=["job", "start"], right_on=["job", "time"], how="semi")
    return {
        "preemptions": int(c.chunks["preempted"].sum()) + suspended,
        "postponed_chunks": int(np.maximum(c.dispatches["postponed"], 0).sum(dtype=np.int64)),
        "migrations": len(moved),
    }


def _workers(c: Columns) -> Metrics:
    """Use of the edge workers.

    Utilisation: edge worker time held, including uploads of gangs, over workers x makespan; on servers with resources,
    the mean over the resources of :func:`.worth.use_by_resource`, which are reported too. Waste: the fraction of all
    worker time held, including the cloud's, that is due to rounding to slots: for a chunk its slots less its exact
    time, for a gang its computing time less its work; 0 in continuous time.
    """
    t, workers = c.runs, int(c.scenario.cluster.workers.sum())
    held = (t["end"] - t["start"]) * t["workers"]
    first, last = _window(c)
    use = use_by_resource(c, first, last)
    edge, room = float(held[t["server"] != _cloud(c)].sum(dtype=np.float64)), float(workers * (last - first))
    total = float(held.sum(dtype=np.float64))
    mean = edge / room if room else None
    return {
        "utilisation_mean": float(np.mean([share or 0.0 for share in use.values()])) if use else mean,
        "lane_waste_share": _waste(c) / total if total else None,
        **use,
    }


def _waste(c: Columns) -> float:
    scenario, t, g = c.scenario, c.chunks, c.gangs
    if not scenario.physics.slotted:
        return 0.0
    done = ~t["preempted"]
    zeta = t["colocated"][done].astype(np.int64)
    spare = (scenario.true_chunk_time - scenario.exact_chunk_time)[t["job"][done], zeta]
    last = c.jobs["job"][_finished(c)]
    spent = (
        (g["end"] - g["compute_from"]) * g["workers"] / scenario.true_work[g["job"], g["colocated"].astype(np.int64)]
    )
    share = np.bincount(g["job"], weights=spent, minlength=len(scenario.jobs))
    over = np.maximum(share - 1, 0) * scenario.true_work[:, 0]
    return float(spare.sum(dtype=np.float64) + over[last].sum())


def _communication(c: Columns) -> Metrics:
    """Communication time, uploads, and the share of the work done in the cloud.

    Communication time: 2 q_j / b_j for each mini-batch trained at zeta = 0, in worker-seconds at speed 1. Upload
    chunk-seconds: the sum of the upload delays of all chunks. Cloud share: the fraction of all mini-batches trained in
    the cloud.
    """
    t, jobs = c.runs, c.scenario.jobs
    each = jobs.minibatch_seconds(colocated=False) - jobs.minibatch_seconds(colocated=True)
    apart = np.bincount(t["job"][~t["colocated"]], weights=t["work"][~t["colocated"]], minlength=len(jobs))
    total, cloud = float(t["work"].sum()), float(t["work"][t["server"] == _cloud(c)].sum())
    return {
        "communication_time_s": float(apart @ each),
        "upload_chunk_s": float((c.uploads["end"] - c.uploads["start"]) @ c.uploads["chunks"]) / SECOND,
        "uploaded_mb": float(c.uploads["mb"].sum()),
        "cloud_share": cloud / total if total else None,
    }


def utilisation(scenario: Scenario, schedule: Schedule, points: int = 200) -> pl.DataFrame:
    """Sample the run at `points` >= 2 equidistant times from the first arrival to the last completion.

    Columns: time_s: time (s); busy_share: fraction of the edge workers held, or, on servers with resources, the mean
    fraction held over the resources; waiting_jobs: jobs that have arrived and are neither running nor done;
    running_jobs: jobs that hold workers; submitted: jobs that arrive from this time until the next row's. Runs are
    half-open intervals [start, end).
    """
    c = columns(scenario, schedule)
    t, jobs = c.runs, scenario.jobs
    grid = np.linspace(*_window(c), points)
    rows, first = in_groups(t["job"], t["start"], len(jobs))
    _, start, end = merged(rows, first, t["start"], t["end"])
    running = _present(grid, start, end)
    left = np.where(c.jobs["completion"] >= 0, c.jobs["completion"], c.jobs["arrival"])
    inside = _present(grid, c.jobs["arrival"], left)
    return pl.DataFrame(
        {
            "time_s": grid / SECOND,
            "busy_share": _of_kind(c).busy(c, grid),
            "waiting_jobs": (inside - running).astype(np.int64),
            "running_jobs": running.astype(np.int64),
            "submitted": np.bincount(np.searchsorted(grid, c.jobs["arrival"], "right") - 1, minlength=points),
        }
    )


def _busy_workers(c: Columns, grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fraction of the edge workers held at each time of `grid`."""
    t = c.runs
    edge = t["server"] != _cloud(c)
    held = _present(grid, t["start"][edge], t["end"][edge], t["workers"][edge])
    return held / max(int(c.scenario.cluster.workers.sum()), 1)


def _busy_resources(c: Columns, grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean fraction of the resources held at each time of `grid`."""
    cluster = c.scenario.cluster
    room = np.maximum(cluster.amounts.sum(axis=0), np.finfo(float).tiny) * len(cluster.resources)
    parts = [_present(grid, start, end, (amount / room).sum(axis=1)) for start, end, amount in holdings(c)]
    return np.add(*parts)


class _OfKind(NamedTuple):
    """What is measured in another way on each kind of cluster."""

    busy: Callable[[Columns, NDArray[np.float64]], NDArray[np.float64]]
    costs: Callable[[Columns], Metrics]


_OF_KIND: dict[Kind, _OfKind] = {
    "slots": _OfKind(_busy_workers, lambda _: {}),
    "resources": _OfKind(_busy_resources, lambda _: {}),
    "sites": _OfKind(_busy_resources, costs),
}


def _of_kind(c: Columns) -> _OfKind:
    return _OF_KIND[c.scenario.cluster.kind]


def _present(
    grid: NDArray[np.float64], start: Ints, end: Ints, weight: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    """Total weight of the intervals [start, end) that contain each time of `grid`."""
    return _reached(grid, start, weight) - _reached(grid, end, weight)


def _reached(grid: NDArray[np.float64], time: Ints, weight: NDArray[Any] | None = None) -> NDArray[np.float64]:
    """Total weight of the entries of `time` at or before each time of `grid`."""
    place = np.searchsorted(grid, time)
    return np.cumsum(np.bincount(place, weights=weight, minlength=len(grid) + 1))[: len(grid)].astype(np.float64)
