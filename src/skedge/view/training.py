"""How a job was trained: its workers, its progress and its pauses over time; of live runs its loss and accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from skedge.core.errors import InputError
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.core.model.wording import did_you_mean
from skedge.core.record.schedule import Schedule

MOST = 500
"""Most points of a curve."""

Points = list[tuple[float, float]]


def training(scenario: Scenario, schedule: Schedule, job: str, measured: Mapping[str, Any]) -> dict[str, Any]:
    """The curves of a job.

    Parameters
    ----------
    scenario, schedule
        The jobs, and the record of the run, whole or so far.
    job
        Its id.
    measured
        Of a live run ``losses``, pairs (update, mean loss), ``accuracy``, ``metric`` and ``accuracies``, pairs (epoch,
        accuracy), as far as they are known; empty for a simulation.

    Returns
    -------
    ``workers``, steps (time [s], workers held from then on); ``done``, (time [s], share of the work done); ``pauses``,
    (from, to) [s] without workers between its first and its last run; ``preempted``, the number of runs that were
    displaced; and what was measured, the losses in at most :data:`MOST` points.

    Raises
    ------
    InputError
        If there is no job of that name.
    """
    if job not in scenario.jobs.ids:
        raise InputError(f"job {job!r}: there is no such job{did_you_mean(job, scenario.jobs.ids)}")
    number = scenario.jobs.ids.index(job)
    runs = schedule.runs.filter(pl.col("job") == number)
    workers = _workers(runs)
    return {
        "job": job,
        "workers": _thin(workers),
        "done": _thin(_progress(runs, float(scenario.jobs.chunks[number] * scenario.jobs.minibatches[number]))),
        # By pairs, so that the zero after the last run, which nothing follows, is no pause.
        "pauses": [(t, end) for (t, n), (end, _) in pairwise(workers) if n == 0],
        "preempted": int(runs["preempted"].sum()),
        "losses": block_means(measured.get("losses", ()), MOST),
        **{name: measured.get(name) for name in ("accuracy", "metric", "accuracies", "unmeasured")},
    }


def _workers(runs: pl.DataFrame) -> Points:
    """(time [s], workers held from then on), where their number changes."""
    change = pl.col("workers").cast(pl.Int64)
    begins, ends = runs.select("start", change), runs.select(pl.col("end").alias("start"), -change)
    # Changes of one instant are added up: a run that follows another at once is no pause, and of equal size no step.
    steps = pl.concat([begins, ends]).group_by("start").agg(pl.col("workers").sum()).sort("start")
    steps = steps.filter(pl.col("workers") != 0)
    table = steps.select(pl.col("start") / SECOND, pl.col("workers").cum_sum().cast(pl.Float64))
    return table.rows()


def _progress(runs: pl.DataFrame, total_work: float) -> Points:
    """(time [s], share of the work done by then), at the ends of the runs."""
    by_end = runs.group_by("end").agg(pl.col("work").sum()).sort("end")
    return by_end.select(pl.col("end") / SECOND, pl.col("work").cum_sum() / total_work).rows()


def _thin(points: Points) -> Points:
    """At most :data:`MOST` of the points, the first and the last among them."""
    if len(points) <= MOST:
        return points
    # By position, not by averages: a step keeps its exact time.
    return [points[i] for i in np.linspace(0, len(points) - 1, MOST).round().astype(int)]


def block_means(pairs: Sequence[Sequence[float]], max_points: int) -> Points:
    """(last update, mean loss) of at most `max_points` parts of equal length."""
    if not pairs:
        return []
    parts = np.array_split(np.asarray(pairs, float), min(max_points, len(pairs)))
    return [(float(part[-1, 0]), float(part[:, 1].mean())) for part in parts]
