"""The metrics of a run: those of JSAC'22 Sec. V and the standard ones of the field.

Metrics are computed from the scenario and the record; each function states its formula. Times are in seconds, sizes in
MB. If there is nothing to average (no job finished, no chunk dispatched) the value is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.analysis.columns import Columns, columns, end_times
from skedge.analysis.parts import Steps, counting, parts_of
from skedge.analysis.row_groups import merged
from skedge.core.model.cluster import Ints
from skedge.core.model.job_fields import Kind
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.core.record.schedule import Schedule

from .costs import costs
from .sums import Sums, add_sums, cloud_of, is_finished, sums
from .utility import holdings, training_times, use_by_resource, utility_metrics, utility_of

Metrics = dict[str, float | int | None]


def metrics(scenario: Scenario, schedule: Schedule, meta: Mapping[str, Any], steps: Steps | None = None) -> Metrics:
    """All metrics of a run by name; the name ends in the unit, and shares are from 0 to 1.

    Parameters
    ----------
    scenario, schedule
        The run, of which the jobs are looked at part by part. Besides a part, 24 bytes a job are in memory.
    meta
        That of the run; the policy's parameter ``completion`` gives the time at which a job's utility is taken.
    steps
        Called after each part.
    """
    measures, completion = _kind_metrics(scenario), completion_of(meta)
    ranges = [(0, scenario.count)] if measures.use else scenario.ranges
    done = counting(steps, "measuring parts", len(ranges))
    parts = parts_of(scenario, schedule, ranges, done)
    numbers = _combined([_part_numbers(columns(part, rows), completion) for _, part, rows in parts])
    if not measures.use:
        return _metrics_of_numbers(scenario, numbers, {})
    c = columns(scenario, schedule)
    use = measures.use(c, *numbers.window.of_runs)
    return _metrics_of_numbers(scenario, numbers, use) | measures.costs(c)


class _Window(NamedTuple):
    """First arrival, last completion and last end of a run [µs]; -1 if there is none."""

    arrival: int
    completion: int
    end: int

    @property
    def of_jobs(self) -> tuple[int, int]:
        """First arrival and last completion [µs]; the first arrival twice if no job finished."""
        return self.arrival, max(self.arrival, self.completion)

    @property
    def of_runs(self) -> tuple[int, int]:
        """First arrival and last end of a run [µs], which a failed job may have after the last completion."""
        return self.arrival, max(self)


def _window(c: Columns) -> _Window:
    arrival = int(c.scenario.jobs.arrival.min()) if len(c.scenario.jobs) else 0
    return _Window(arrival, int(c.jobs["completion"].max(initial=-1)), int(c.runs["end"].max(initial=-1)))


class _PartNumbers(NamedTuple):
    """What metrics need of a part of the jobs.

    Attributes
    ----------
    sums, window
        Sums over its rows; its first and last times.
    times
        JCTs and slowdowns of the finished jobs, and training times (:func:`.utility.training_times`).
    utility
        Total utility; None unless all jobs have one.
    """

    sums: Sums
    window: _Window
    times: Sequence[NDArray[np.float64]]
    utility: float | None


def _part_numbers(c: Columns, completion: str) -> _PartNumbers:
    return _PartNumbers(sums(c), _window(c), [*job_times(c), training_times(c)], utility_of(c, completion))


def _combined(parts: Sequence[_PartNumbers]) -> _PartNumbers:
    """The numbers of all parts together."""
    sums_of_parts, windows, times, utilities = zip(*parts, strict=True)
    arrivals, completions, ends = zip(*windows, strict=True)
    # quantiles need all times at once
    all_times = [np.concatenate(values) for values in zip(*times, strict=True)]
    utility = None if None in utilities else sum(utilities)
    window = _Window(min(arrivals), max(completions), max(ends))
    return _PartNumbers(reduce(add_sums, sums_of_parts), window, all_times, utility)


def _metrics_of_numbers(scenario: Scenario, numbers: _PartNumbers, use: Metrics) -> Metrics:
    """All metrics of a record except costs; `use` is that by resource, and the jobs of `scenario` are not looked at."""
    (jct, slowdown, training), s = numbers.times, numbers.sums
    return {
        **_counts(s),
        **_jct(jct, slowdown, numbers.window.of_jobs),
        **_waiting(s, float(jct.sum())),
        "preemptions": s.preemptions,
        "postponed_chunks": s.postponed_chunks,
        "migrations": s.migrations,
        **_workers(scenario, s, numbers.window.of_runs, use),
        **_communication(s),
        "sum_alpha_s": s.alpha_s,
        "sum_beta_s": s.beta_s,
        **utility_metrics(numbers.utility, training, s),
    }


def completion_of(meta: Mapping[str, Any]) -> str:
    """The time at which the policy of a run takes a job's utility: ``end``, or ``index`` of the last slot."""
    params = meta.get("params", {})
    return "index" if params.get("completion") == "index" else "end"


def _counts(s: Sums) -> Metrics:
    """Numbers of jobs: announced, finished, finished after the horizon, rejected, and run wholly in the cloud."""
    names = ("jobs", "finished", "finished_after_horizon", "rejected", "failed", "jobs_in_cloud")
    return {name: getattr(s, name) for name in names}


def job_times(c: Columns) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """JCT c_j - r_j [s] and slowdown of the finished jobs.

    The slowdown is the ratio of the JCT to the job's solo time, D_j p_j / k_j: k_j workers train without upload, at
    zeta = 0, not rounded to slots.
    """
    t, is_complete = c.jobs, is_finished(c)
    job = t["job"][is_complete]
    jct = (t["completion"][is_complete] - t["arrival"][is_complete]) / SECOND
    # By true durations, not announced ones: the slowdown is a property of the run, whatever policies were told.
    solo = c.scenario.true_work[job, 0] / c.scenario.jobs.workers[job] / SECOND
    return jct, jct / solo


def _jct(jct: NDArray[np.float64], slowdown: NDArray[np.float64], window: tuple[int, int]) -> Metrics:
    """JCT and slowdown of the finished jobs, and makespan: the time from the first arrival to the last completion."""
    names = ("mean", "p50", "p90", "p99")
    numbers: Metrics = {"jct_total_s": float(jct.sum()) if len(jct) else None}
    numbers |= {f"jct_{name}_s": value for name, value in zip(names, _summary(jct), strict=True)}
    numbers |= {f"slowdown_{name}": value for name, value in zip(names, _summary(slowdown), strict=True)}
    return numbers | {"makespan_s": (window[1] - window[0]) / SECOND if len(jct) else None}


def _summary(values: NDArray[np.float64]) -> tuple[float | None, ...]:
    """Mean and quantiles 0.5, 0.9 and 0.99, interpolated linearly; changes the order of `values`."""
    if not len(values):
        return (None,) * 4
    mean = float(values.mean())
    return mean, *(float(q) for q in np.quantile(values, (0.5, 0.9, 0.99), overwrite_input=True))


def _waiting(s: Sums, jct_s: float) -> Metrics:
    """Mean time that a job waits for data, and for workers, before it first computes; `jct_s` is the total JCT.

    The upload time of a job is Delta_js of the chunk that starts first (the largest if several do), or the time for
    which its gang holds its first workers before it computes. Queueing time is first computation - arrival - upload
    time. Means are over the jobs that ran. The share of uploads is the time for which jobs wait for data - their upload
    time, and that of each later allocation of a gang - over the total JCT.
    """
    return {
        "queueing_mean_s": s.queueing_us / s.jobs_run / SECOND if s.jobs_run else None,
        "upload_time_mean_s": s.upload_us / s.jobs_run / SECOND if s.jobs_run else None,
        "upload_jct_share": s.data_wait_us / SECOND / jct_s if jct_s else None,
    }


def _workers(scenario: Scenario, s: Sums, window: tuple[int, int], use: Metrics) -> Metrics:
    """Use of the edge workers.

    Utilisation: edge worker time held, including uploads of gangs, over workers x makespan (to the end of the last run
    if a failed job ran after the last completion); on servers with resources,
    the mean over the resources of :func:`.utility.use_by_resource`, which are reported too. With slots and a horizon
    also the same over workers x horizon, of what is held up to it. Waste: the fraction of all
    worker time held, including the cloud's, that is due to rounding to slots: for a chunk its slots less its exact
    time, for a gang its computing time less its work; 0 in continuous time.
    """
    n_workers, horizon = int(scenario.cluster.workers.sum()), scenario.physics.horizon
    room = float(n_workers * (window[1] - window[0]))
    mean = s.edge_worker_us / room if room else None
    to_horizon: Metrics = {}
    if n_workers and horizon is not None and s.edge_worker_us_to_horizon is not None:
        to_horizon = {"utilisation_to_horizon_share": s.edge_worker_us_to_horizon / (n_workers * horizon)}
    return {
        "utilisation_mean": float(np.mean([share or 0.0 for share in use.values()])) if use else mean,
        "lane_waste_share": s.rounding_us / s.worker_us if s.worker_us else None,
        **to_horizon,
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
    """Sample the run at `points` >= 2 equidistant times from the first arrival to the last end of a run.

    Columns: time_s: time (s); busy_share: fraction of the edge workers held, or, on servers with resources, the mean
    fraction held over the resources; waiting_jobs: jobs that have arrived and are neither running nor done;
    running_jobs: jobs that hold workers; submitted: jobs that arrive from this time until the next row's. Runs are
    half-open intervals [start, end).
    """
    c = columns(scenario, schedule)
    t, jobs = c.runs, scenario.jobs
    grid = np.linspace(*_window(c).of_runs, points)
    _, start, end = merged(t["job"], t["start"], t["end"], len(jobs))
    running = _weight_at(grid, start, end)
    # A rejected job is never in the system; a failed one is until it fails, and may run until then.
    departure = np.where(c.jobs.has("state", "rejected"), c.jobs["arrival"], end_times(c)[c.jobs["job"]])
    present = _weight_at(grid, c.jobs["arrival"], departure)
    return pl.DataFrame(
        {
            "time_s": grid / SECOND,
            "busy_share": _kind_metrics(scenario).busy(c, grid),
            "waiting_jobs": (present - running).astype(np.int64),
            "running_jobs": running.astype(np.int64),
            "submitted": np.bincount(np.searchsorted(grid, c.jobs["arrival"], "right") - 1, minlength=points),
        }
    )


def _busy_workers(c: Columns, grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fraction of the edge workers held at each time of `grid`."""
    t = c.runs
    # The cloud has no fixed number of workers, so that no share of it can be held.
    edge = t["server"] != cloud_of(c)
    workers = _weight_at(grid, t["start"][edge], t["end"][edge], t["workers"][edge])
    return workers / max(int(c.scenario.cluster.workers.sum()), 1)


def _busy_resources(c: Columns, grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean fraction of the resources held at each time of `grid`."""
    cluster = c.scenario.cluster
    # `tiny`: no server may have any of a resource; nobody holds it then, and 0 / tiny is 0. Divided by the number of
    # resources here, the sum over resources below is their mean.
    room = np.maximum(cluster.amounts.sum(axis=0), np.finfo(float).tiny) * len(cluster.resources)
    parts = [_weight_at(grid, start, end, (amount / room).sum(axis=1)) for start, end, amount in holdings(c)]
    return np.add(*parts)


class _KindMetrics(NamedTuple):
    """The measures that depend on the kind of cluster.

    Attributes
    ----------
    busy
        Fraction of the edge held at each time.
    use, costs
        Use by resource, from a time to another, and costs. They are no sums over parts: where use is measured the run
        is one part.
    """

    busy: Callable[[Columns, NDArray[np.float64]], NDArray[np.float64]]
    use: Callable[[Columns, int, int], Metrics] | None
    costs: Callable[[Columns], Metrics]


_KIND_METRICS: dict[Kind, _KindMetrics] = {
    "slots": _KindMetrics(_busy_workers, None, lambda _: {}),
    "resources": _KindMetrics(_busy_resources, use_by_resource, lambda _: {}),
    "sites": _KindMetrics(_busy_resources, use_by_resource, costs),
}


def _kind_metrics(scenario: Scenario) -> _KindMetrics:
    return _KIND_METRICS[scenario.cluster.kind]


def _weight_at(
    grid: NDArray[np.float64], start: Ints, end: Ints, weight: NDArray[Any] | None = None
) -> NDArray[np.float64]:
    """Total weight of the intervals [start, end) that contain each time of `grid`."""
    # Begun less ended. An interval that ends at a time of the grid does not contain it: both counts include that time.
    return _weight_up_to(grid, start, weight) - _weight_up_to(grid, end, weight)


def _weight_up_to(grid: NDArray[np.float64], time: Ints, weight: NDArray[Any] | None = None) -> NDArray[np.float64]:
    """Total weight of the entries of `time` at or before each time of `grid`."""
    # An event counts from the first time of the grid at or after it; those after the grid fall into an extra bin.
    place = np.searchsorted(grid, time)
    return np.cumsum(np.bincount(place, weights=weight, minlength=len(grid) + 1))[: len(grid)].astype(np.float64)
