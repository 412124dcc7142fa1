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
    moved
        MB from the row's site to the column's, shape ``(sites, sites)``.
    stored
        MB of all jobs' data at each site before any move, shape ``(sites,)``.
    work, ps
        Worker hours, and PS hours, held at each site, shape ``(sites,)``.
    """

    names: list[str]
    cost: Floats
    moved: Floats
    stored: Floats
    work: Floats
    ps: Floats

    @property
    def total_cost(self) -> float:
        """Cost of all data moved."""
        return float((self.moved * self.cost).sum())

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs (from, to) between which data moved, the most MB first, equal ones in the order of the sites."""
        source, target = np.nonzero(self.moved)
        order = np.lexsort((target, source, -self.moved[source, target]))
        return list(zip(source[order].tolist(), target[order].tolist(), strict=True))

    def share(self, pairs: list[tuple[int, int]]) -> float:
        """Share of `pairs` in all MB moved; 1 if nothing moved."""
        moved = float(self.moved.sum())
        return sum(float(self.moved[pair]) for pair in pairs) / moved if moved else 1.0


def flows(scenario: Scenario, schedule: Schedule) -> Flows | None:
    """Aggregate a record by site; None if the cluster has no sites."""
    cluster, jobs = scenario.cluster, scenario.jobs
    if cluster.transfer_cost is None:
        return None
    names = cluster.server_ids
    moved = schedule.uploads.filter(pl.col("from_site").is_not_null()).group_by("from_site", "to_server")
    table, sums = np.zeros((len(names), len(names))), moved.agg(pl.col("mb").sum())
    table[_numbers(sums["from_site"], names), _numbers(sums["to_server"], names)] = sums["mb"].to_numpy()
    stored = jobs.chunk_mb @ jobs.data
    work = _hours(schedule.runs, "workers", names)
    return Flows(names, cluster.transfer_cost, table, stored, work, _hours(schedule.ps, "count", names))


def _hours(frame: pl.DataFrame, count: str, names: list[str]) -> Floats:
    held = (pl.col(count) * (pl.col("end") - pl.col("start"))).sum() / _HOUR
    sums = frame.group_by("server").agg(held.alias("hours"))
    hours = np.zeros(len(names))
    hours[_numbers(sums["server"], names)] = sums["hours"].to_numpy()
    return hours


def _numbers(column: pl.Series, names: list[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return column.cast(pl.String).cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
