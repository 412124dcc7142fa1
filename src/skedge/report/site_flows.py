"""Work at each site, and data moved between sites, from the record of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from skedge.core.model.cluster import Floats
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.core.record.schedule import Schedule

_HOUR = 3600 * SECOND


@dataclass(frozen=True)
class Flows:
    """Data moved, and work, by site.

    Attributes
    ----------
    names
        Names of the sites.
    cost
        Cost of a MB from the row's site to the column's, shape ``(sites, sites)``.
    moved_mb
        MB from the row's site to the column's, shape ``(sites, sites)``.
    stored_mb
        MB of all jobs' data at each site before any move, shape ``(sites,)``.
    worker_hours, ps_hours
        Worker hours, and PS hours, held at each site, shape ``(sites,)``.
    """

    names: list[str]
    cost: Floats
    moved_mb: Floats
    stored_mb: Floats
    worker_hours: Floats
    ps_hours: Floats

    @property
    def total_cost(self) -> float:
        """Cost of all data moved."""
        return float((self.moved_mb * self.cost).sum())

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs (from, to) between which data moved, the most MB first, equal ones in the order of the sites."""
        source, target = np.nonzero(self.moved_mb)
        # The last key counts most: by MB, then by site, so that equal flows have one order on all machines.
        order = np.lexsort((target, source, -self.moved_mb[source, target]))
        return list(zip(source[order].tolist(), target[order].tolist(), strict=True))

    def share(self, pairs: list[tuple[int, int]]) -> float:
        """Share of `pairs` in all MB moved; 1 if nothing moved."""
        total_mb = float(self.moved_mb.sum())
        return sum(float(self.moved_mb[pair]) for pair in pairs) / total_mb if total_mb else 1.0


def flows(scenario: Scenario, schedule: Schedule) -> Flows | None:
    """Aggregate a record by site; None if the cluster has no sites."""
    cluster, jobs = scenario.cluster, scenario.jobs
    if cluster.transfer_cost is None:
        return None
    names = cluster.server_ids
    transfers = schedule.uploads.filter(pl.col("from_site").is_not_null()).group_by("from_site", "to_server")
    # MB are added by pair in the table's own engine; a record may have millions of transfers.
    moved_mb, sums = np.zeros((len(names), len(names))), transfers.agg(pl.col("mb").sum())
    moved_mb[_numbers(sums["from_site"], names), _numbers(sums["to_server"], names)] = sums["mb"].to_numpy()
    # (jobs,) @ (jobs, sites): chunks of each job at each site, times their size.
    stored_mb = jobs.chunk_mb @ jobs.data
    worker_hours = _hours(schedule.runs, "workers", names)
    return Flows(names, cluster.transfer_cost, moved_mb, stored_mb, worker_hours, _hours(schedule.ps, "count", names))


def _hours(frame: pl.DataFrame, count: str, names: list[str]) -> Floats:
    hours_held = (pl.col(count) * (pl.col("end") - pl.col("start"))).sum() / _HOUR
    sums = frame.group_by("server").agg(hours_held.alias("hours"))
    hours = np.zeros(len(names))
    hours[_numbers(sums["server"], names)] = sums["hours"].to_numpy()
    return hours


def _numbers(column: pl.Series, names: list[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return column.cast(pl.String).cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
