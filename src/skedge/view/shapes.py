"""Answers computed from a scenario and the tables of its record, complete or so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.scenario import Scenario
from skedge.core.record.schedule import Schedule
from skedge.report.build import ReportRun, run_views

BARS = 200_000
"""Most bars of a run that the page gets; the rest are left out as the report says (:mod:`skedge.report.bars`)."""


def lanes(runs: Sequence[tuple[str, Scenario, Schedule]]) -> dict[str, Any]:
    """The bars of the runs (label, scenario, schedule), with the names of all jobs."""
    return run_views(
        [ReportRun(label, scenario, schedule, {}, pl.DataFrame()) for label, scenario, schedule in runs], BARS
    )


def site_map(scenario: Scenario, schedule: Schedule, states: Sequence[str] = ()) -> dict[str, Any]:
    """Servers with their load, and the data moved to them; `states` of the servers, all up if there are none."""
    cluster = scenario.cluster
    workers = np.bincount(cluster.lane_server, minlength=len(cluster.servers))
    busy = _busy(schedule.runs, cluster.server_ids, workers)
    rows = [
        {
            "server": server.id,
            "kind": server.kind,
            "state": states[i] if states else "up",
            "workers": int(workers[i]),
            # No share where the number of workers is not fixed: in the cloud, and on servers with resources.
            "busy": float(busy[i]) if workers[i] else None,
        }
        for i, server in enumerate(cluster.servers)
    ]
    return {"servers": rows, "links": _links(schedule.uploads)}


def _busy(runs: pl.DataFrame, names: list[str], workers: Ints) -> Floats:
    """Share of the time from the first to the last run in which the workers of each server are held."""
    busy = np.zeros(len(names))
    if not runs.height:
        return busy
    worker_us = (pl.col("workers") * (pl.col("end") - pl.col("start"))).sum()
    sums = dict(runs.group_by(pl.col("server").cast(pl.String)).agg(worker_us).iter_rows())
    span = int(runs["end"].max()) - int(runs["start"].min())  # type: ignore[arg-type]
    for i, name in enumerate(names):
        # At least 1: a server may have no workers, and a record no duration.
        busy[i] = sums.get(name, 0) / max(int(workers[i]) * span, 1)
    return busy


def _links(uploads: pl.DataFrame) -> list[dict[str, Any]]:
    """Chunks and MB by pair; `from` is None for data from where they arise."""
    sums = uploads.group_by(pl.col("from_site").alias("from"), pl.col("to_server").cast(pl.String).alias("to")).agg(
        pl.col("chunks").sum(), pl.col("mb").sum()
    )
    return sums.sort("mb", "from", "to", descending=[True, False, False]).to_dicts()
