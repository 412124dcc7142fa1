"""The metrics of a run: those of JSAC'22 Sec. V and the standard ones of the field.

Metrics are computed from the scenario and the record; each function states its formula. Times are in seconds, sizes in
MB. If there is nothing to average (no job finished, no chunk dispatched) the value is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.analysis.columns import Columns, columns
from skedge.analysis.sweeps import merged
from skedge.core.job_fields import Kind
from skedge.core.model import Ints
from skedge.core.scenario import Scenario
from skedge.core.schedule import Schedule
from skedge.core.stored import StoredTables, job_ranges
from skedge.core.time import SECOND

from .costs import costs
from .sums import Sums, added, cloud_of, finished, no_sums, sums
from .worth import holdings, use_by_resource, worth

Metrics = dict[str, float | int | None]


def metrics(scenario: Scenario, schedule: Schedule, meta: Mapping[str, Any]) -> Metrics:
    """All metrics of a run by name; the name ends in the unit, and shares are from 0 to 1.

    `meta` is that of the run; the policy's parameter ``completion`` gives the time at which a job's utility is taken.
    """
    c = columns(scenario, schedule)
    return _of_sums(c, sums(c), meta)


def metrics_of_parts(scenario: Scenario, tables: StoredTables, meta: Mapping[str, Any], most: int = 2**20) -> Metrics:
    """As :func:`metrics`, for a record of dispatched chunks in its files; sums may differ in their last digits.

    It is read by parts of the jobs with about `most` chunks each.
    """
    found = no_sums()
    for first, end in job_ranges(scenario.jobs.chunks, most):
        part = scenario.part(first, len(scenario.jobs) if end is None else end)
        found = added(found, sums(columns(part, tables.of_jobs(first, end))))
    return _of_sums(columns(scenario, replace(tables.empty(), jobs=tables.scan("jobs").collect())), found, meta)


def _of_sums(c: Columns, s: Sums, meta: Mapping[str, Any]) -> Metrics:
    """All metrics: of the jobs, and of the sums over the rows of the other tables."""
    return {
        **_counts(c, s),
        **_jct(c),
        **_waiting(s),
        "preemptions": s.preemptions,
        "postponed_chunks": s.postponed_chunks,
        "migrations": s.migrations,
        **_workers(c, s),
        **_communication(s),
        "sum_alpha_s": s.alpha_s,
        "sum_beta_s": s.beta_s,
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


def _counts(c: Columns, s: Sums) -> Metrics:
    """Numbers of jobs: announced, finished, finished after the horizon, rejected, and run wholly in the cloud.

    A horizon ends the window of prices and plans, not the run, so jobs that complete later are counted separately.
    """
    horizon = c.scenario.physics.horizon
    t = c.jobs
    return {
        "jobs": len(c.scenario.jobs),
        "finished": int(t.has("state", "finished").sum()),
        "finished_after_horizon": None if horizon is None else int((t["completion"] > horizon).sum()),
        "rejected": int(t.has("state", "rejected").sum()),
        "failed": int(t.has("state", "failed", "cancelled").sum()),
        "jobs_in_cloud": s.jobs_in_cloud,
    }


def _jct(c: Columns) -> Metrics:
    """JCT c_j - r_j of the finished jobs, slowdown, makespan.

    The slowdown is the ratio of the JCT to the job's solo time, D_j p_j / k_j: k_j workers train without upload, at
    zeta = 0, not rounded to slots. The makespan is the time from the first arrival to the last completion.
    """
    t, done = c.jobs, finished(c)
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


def _waiting(s: Sums) -> Metrics:
    """Mean time that a job waits for data, and for workers, before it first computes.

    The upload time of a job is Delta_js of the chunk that starts first (the largest if several do), or the time for
    which its gang holds its first workers before it computes. Queueing time is first computation - arrival - upload
    time. Means are over the jobs that ran.
    """
    return {
        "queueing_mean_s": s.waited / s.ran / SECOND if s.ran else None,
        "upload_time_mean_s": s.uploading / s.ran / SECOND if s.ran else None,
    }


def _workers(c: Columns, s: Sums) -> Metrics:
    """Use of the edge workers.

    Utilisation: edge worker time held, including uploads of gangs, over workers x makespan; on servers with resources,
    the mean over the resources of :func:`.worth.use_by_resource`, which are reported too. Waste: the fraction of all
    worker time held, including the cloud's, that is due to rounding to slots: for a chunk its slots less its exact
    time, for a gang its computing time less its work; 0 in continuous time.
    """
    workers = int(c.scenario.cluster.workers.sum())
    first, last = _window(c)
    use = use_by_resource(c, first, last)
    room = float(workers * (last - first))
    mean = s.held_at_edge / room if room else None
    return {
        "utilisation_mean": float(np.mean([share or 0.0 for share in use.values()])) if use else mean,
        "lane_waste_share": s.waste / s.held if s.held else None,
        **use,
    }


def _communication(s: Sums) -> Metrics:
    """Communication time, uploads, and the share of the work done in the cloud.

    Communication time: 2 q_j / b_j for each mini-batch trained at zeta = 0, in worker-seconds at speed 1. Upload
    chunk-seconds: the sum of the upload delays of all chunks. Cloud share: the fraction of all mini-batches trained in
    the cloud.
    """
    return {
        "communication_time_s": s.communication_s,
        "upload_chunk_s": s.upload_chunk_us / SECOND,
        "uploaded_mb": s.uploaded_mb,
        "cloud_share": s.work_in_cloud / s.work if s.work else None,
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
    _, start, end = merged(t["job"], t["start"], t["end"], len(jobs))
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
    edge = t["server"] != cloud_of(c)
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
