"""The work of a jobs table, and its offered load: the workers that jobs would hold if each started when it arrives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from skedge.core.model.job_fields import Floats
from skedge.core.model.scenario import Scenario
from skedge.core.model.speed import minibatch_seconds

BUSY = (0.1, 0.9)
"""The busy window: the quantiles of the arrivals between which it lies; all arrivals if these are one instant."""


def work_s(jobs: pl.DataFrame) -> float:
    """Total work of a jobs table [worker-seconds]: D p without co-location, before rounding."""
    return float(_work(jobs).sum())


def latest_s(jobs: pl.DataFrame) -> float:
    """Latest arrival in a jobs table [s]; 0 if it is empty."""
    return float(_column(jobs, "arrival_s").max(initial=0.0))


def busy_workers(jobs: pl.DataFrame) -> float:
    """Mean number of workers wanted in the busy window; 0 if all jobs arrive at once.

    A job wants its workers from its arrival for as long as it takes on them, without upload. What a giant still does
    long after the last arrivals does not count, because it competes with no job then.
    """
    arrival, workers = _column(jobs, "arrival_s"), _column(jobs, "workers")
    if not len(arrival) or arrival.min() == arrival.max():
        return 0.0
    # the first jobs find an empty cluster, and after the last ones it drains: neither says how loaded it is
    first, last = (float(time) for time in np.quantile(arrival, BUSY))
    if last <= first:
        first, last = float(arrival.min()), float(arrival.max())
    # overlap of the window with the time that a job takes if it starts on arrival; below 0 if there is none
    inside = np.minimum(arrival + _work(jobs) / workers, last) - np.maximum(arrival, first)
    return float((workers * np.maximum(inside, 0.0)).sum() / (last - first))


@dataclass(frozen=True)
class OfferedLoad:
    """The offered load of a scenario on its edge servers.

    Attributes
    ----------
    busy
        Mean number of workers wanted in the busy window (:func:`busy_workers`) over the workers there; >= 0.
    span
        Work of all jobs over the workers there and the time until the last arrival; None if all arrive at once.
    workers, far
        Workers on edge servers; of these, on servers as far away as the cloud (a cloud of limited size).
    """

    busy: float
    span: float | None
    workers: int
    far: int

    @property
    def text(self) -> str:
        """The load as a sentence."""
        total = "" if self.span is None else f"; {self.span:.2f} is all work over the span of arrivals"
        workers = self.busy * self.workers
        cloud = f", {self.far} of them in the cloud" if self.far else ""
        return (
            f"offered load: {self.busy:.2f} over the middle 80 % of arrivals, in which jobs want {workers:.1f} workers "
            f"in the mean and {self.workers} are there{cloud}{total}"
        )


def offered_load(scenario: Scenario) -> OfferedLoad | None:
    """The offered load of a scenario; None on servers without worker slots."""
    by_server, jobs = scenario.cluster.workers.sum(axis=1), scenario.jobs.frame
    workers = int(by_server.sum())
    distant = int(by_server[[server.far for server in scenario.cluster.servers]].sum())
    if workers == 0:
        return None
    latest = latest_s(jobs)
    return OfferedLoad(
        busy_workers(jobs) / workers, work_s(jobs) / latest / workers if latest else None, workers, distant
    )


def _work(jobs: pl.DataFrame) -> Floats:
    """D p of each job [worker-seconds]."""
    columns = ("minibatch_s", "ps_update_s", "gradient_mb", "bandwidth_mbps")
    minibatch = minibatch_seconds(*(_column(jobs, c) for c in columns))
    return _column(jobs, "chunks") * _column(jobs, "epochs") * _column(jobs, "minibatches") * minibatch


def _column(jobs: pl.DataFrame, name: str) -> Floats:
    return jobs[name].cast(pl.Float64).to_numpy()
