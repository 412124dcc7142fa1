"""The rows that jobs share, collected part by part of the jobs.

Rules on single jobs are checked on parts of the jobs, rules on lanes on parts of the lanes, and the order of decisions
along its table. Besides a part, the PSs are in memory. Only records of dispatched chunks without outages can be divided
like this; any other is one part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from skedge.analysis.colocation import Colocation
from skedge.analysis.columns import Columns, Table, columns_of_part
from skedge.analysis.metrics.dual import sum_alpha_s, sum_beta_s
from skedge.core.model.cluster import Ints
from skedge.core.model.jobs_file import slices
from skedge.core.model.scenario import Scenario
from skedge.core.model.size import UNLIMITED
from skedge.core.record.schedule import NUMBER, Schedule

from .lag import Lags
from .lane_parts import RUNS_PER_RANGE, LaneParts, lane_edges
from .lanes import LaneRows
from .ps import cloud_ps

ROWS = 2**20
"""Rows of a table that are looked at together."""

RUNS_PER_FILE = 2**21
"""Runs of a range of lanes whose rows are in files."""


def ranges_of(scenario: Scenario, schedule: Schedule, meta: Mapping[str, Any]) -> list[tuple[int, int]]:
    """The parts in which every rule can be checked: those of the scenario, or one of all jobs.

    A simulation of dispatched chunks has parts if its jobs share nothing but lanes and PS slots.
    """
    one = [(0, scenario.count)]
    return scenario.ranges if len(scenario.ranges) > 1 and _is_divisible(scenario, schedule, meta) else one


def _is_divisible(scenario: Scenario, schedule: Schedule, meta: Mapping[str, Any]) -> bool:
    cluster, promises = scenario.cluster, meta.get("promises") or {}
    if meta.get("world") is not None or isinstance(promises.get("batches"), dict):
        return False
    if scenario.physics.mtbf is not None:  # its outages are checked along the whole record
        return False
    if not cluster.lanes or cluster.sharing is not None or scenario.any("max_lag"):
        return False
    if (cluster.storage_bytes != UNLIMITED).any() and scenario.any("chunk_mb"):
        return False
    if any(schedule.height(name) for name in ("plans", "prices", "outages")):
        return False
    gangs = schedule.scan("runs").select(pl.col("chunk").null_count())
    is_known = pl.col("verb").is_in(["dispatch", "reject"]).fill_null(value=False)
    other_rows = schedule.scan("decisions").select((~is_known).sum())
    return not any(query.collect(engine="streaming").item() for query in (gangs, other_rows))


_Terms = tuple[float | None, float | None]
"""The terms of Lemma 4 of a part: sums of alpha and of beta [s]; None if there are none."""


@contextmanager
def shared_rows(scenario: Scenario, schedule: Schedule, *, several: bool) -> Iterator[SharedRows]:
    """Collect the rows that jobs share; those of a record in `several` parts are in files meanwhile."""
    if not several:
        yield SharedRows(scenario, schedule, None)
        return
    with TemporaryDirectory(prefix="skedge-lanes-", dir=schedule.scratch_folder) as folder:
        yield SharedRows(scenario, schedule, Path(folder))


class SharedRows:
    """The rows that jobs share, without those that violate M1.

    Parameters
    ----------
    scenario, schedule
        The run.
    folder
        Where rows are kept; None: there is one part, which is in memory.

    Attributes
    ----------
    base
        Columns of the record; of one in several parts without rows and jobs.
    lanes
        The rows by lane.
    lags
        None unless chunks bound each other's lag.
    """

    def __init__(self, scenario: Scenario, schedule: Schedule, folder: Path | None) -> None:
        self.schedule, self.in_memory = schedule, folder is None
        self.lanes = LaneParts(folder, _edges(scenario, schedule, RUNS_PER_RANGE if folder is None else RUNS_PER_FILE))
        self.lags: Lags | None = None
        self._ps, self._invalid, self._sums = list[pl.DataFrame](), list[Ints](), list[_Terms]()
        if not self.in_memory:
            self.base = columns_of_part(scenario.without_jobs(), schedule.empty(), scenario.count)

    def add(
        self, c: Columns, rows: Schedule, first: int, colocation: Colocation, lanes: LaneRows, lags: Lags | None
    ) -> None:  # fmt: skip
        """Add those of the jobs of `c`.

        Parameters
        ----------
        c, rows
            The valid rows of the part, and all.
        first
            Number of its first job.
        colocation, lanes, lags
            What :func:`.verify.check_jobs` returns.
        """
        self._sums.append((sum_alpha_s(c), sum_beta_s(c)))
        self.lanes.add(lanes, first)
        kind, in_cloud = c.scenario.jobs.ps_type[c.ps["job"]], cloud_ps(c, colocation)
        self._ps.append(c.ps.frame.with_columns(pl.col("job") + first, kind=kind, in_cloud=in_cloud))
        if self.in_memory:
            self.base, self.lags = c, lags
        elif len(c.decisions) < len(rows.decisions):
            self._invalid.append(np.setdiff1d(rows.decisions[NUMBER], c.decisions.frame[NUMBER]))

    def lemma_4_sums(self) -> _Terms:
        """The sums of alpha and of beta [s]; None if there are none."""
        alpha, beta = ([term for term in terms if term is not None] for terms in zip(*self._sums, strict=True))
        return sum(alpha) if alpha else None, sum(beta) if beta else None

    def decisions(self) -> Iterator[Table]:
        """The decisions in order, about :data:`ROWS` rows at a time and each time with the one before."""
        if self.in_memory:
            yield self.base.decisions
            return
        table, invalid = self.schedule.scan("decisions").select("job", "time"), np.concatenate([*self._invalid, []])
        before = table.head(0).collect()
        for first, rows in slices(table, ROWS):
            valid = ~pl.Series(np.isin(np.arange(first, first + len(rows)), invalid))
            joined = pl.concat([before, rows.filter(valid)])
            yield Table(joined, self.base.scenario.cluster)
            before = joined.tail(1)

    def ps(self) -> Columns:
        """All PSs, with the job's PS type as `kind`, and `in_cloud` where M35 is checked (:func:`.ps.cloud_ps`)."""
        rows = pl.concat(self._ps)
        return replace(self.base, ps=Table(rows if self.in_memory else rows.sort(NUMBER), self.base.scenario.cluster))


def _edges(scenario: Scenario, schedule: Schedule, max_runs: int) -> list[int]:
    """First lane of each range of about `max_runs` runs; and the number of lanes."""
    lanes = scenario.cluster.lanes
    if scenario.any("max_lag"):  # chunks that take turns are followed through all lanes
        return [0, lanes]
    n_runs = np.zeros(lanes, np.int64)
    for _, rows in slices(schedule.scan("runs").select("lane"), ROWS):
        # lanes that do not exist violate M1
        lane = rows["lane"].drop_nulls().to_numpy()
        n_runs += np.bincount(lane[(lane >= 0) & (lane < lanes)], minlength=lanes)
    return lane_edges(n_runs, max_runs)
