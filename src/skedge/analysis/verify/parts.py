"""Verification of a record in its files, in bounded memory: the same rules as :mod:`.verify`, part by part.

Rules on single jobs are checked on parts of the jobs, rules on lanes on parts of the lanes, and those on PS slots and
on the order of decisions by themselves. Only records of dispatched chunks without outages can be divided like this.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from skedge.analysis.columns import columns
from skedge.analysis.metrics.dual import sum_alpha_s, sum_beta_s
from skedge.analysis.zeta import Zeta
from skedge.core.scenario import Scenario
from skedge.core.schedule import Schedule
from skedge.core.size import UNLIMITED
from skedge.core.stored import StoredTables, job_ranges

from .alpha import check_cloud_alpha, check_lane_alpha, check_lemma_4
from .lane_parts import LaneParts
from .lanes import check_lanes
from .names import known_rows
from .orders import check_order
from .ps import check_edge_first, check_slot_use, dispatched_jobs
from .rules import Findings, Violation
from .verify import check_jobs, check_slot_jobs

CHUNKS = 2**20
"""Chunks of a part of the jobs; a part of the lanes has three times as many."""


def has_parts(scenario: Scenario, tables: StoredTables, meta: Mapping[str, Any]) -> bool:
    """Whether :func:`verify_parts` checks every rule on the record.

    It does on a simulation of dispatched chunks whose jobs share nothing but lanes and PS slots.
    """
    jobs, cluster, promises = scenario.jobs, scenario.cluster, meta.get("promises") or {}
    if meta.get("world") is not None or not cluster.lanes or jobs.max_lag.any():
        return False
    if isinstance(promises.get("batches"), dict):
        return False
    if (cluster.storage_bytes != UNLIMITED).any() and jobs.chunk_bytes.any():
        return False
    if any(tables.height(name) for name in ("plans", "prices", "outages")):
        return False
    gangs = tables.scan("runs").select(pl.col("chunk").null_count())
    known = pl.col("verb").is_in(["dispatch", "reject"]).fill_null(value=False)
    others = tables.scan("decisions").select((~known).sum())
    return all(found.collect(engine="streaming").item() == 0 for found in (gangs, others))


def verify_parts(
    scenario: Scenario, tables: StoredTables, meta: Mapping[str, Any], *, limit: int = 20, most: int = CHUNKS
) -> list[Violation]:
    """As :func:`.verify.verify`, for a record that has parts (:func:`has_parts`) of about `most` chunks each.

    Of two runs that begin together on a lane (M4), it may name the other one.
    """
    found = Findings(scenario, limit)
    mode, preemptive = _mode(meta), bool((meta.get("lanes") or {}).get("preemptive", True))
    beside = tables.folder if os.access(tables.folder, os.W_OK) else None  # None: the system's folder for such files
    with TemporaryDirectory(prefix="skedge-lanes-", dir=beside) as folder:
        whole = columns(scenario, tables.empty())
        lanes = LaneParts(Path(folder), whole, -(-int(scenario.jobs.chunks.sum()) // (3 * most)))
        of_jobs = _OfJobs(scenario, tables, meta, found, lanes)
        for first, end in job_ranges(scenario.jobs.chunks, most):
            of_jobs.check(first, end)
        for part in lanes:
            check_lane_alpha(part, found, mode, preemptive=preemptive)
            check_lanes(part, None, found, 0, preemptive=preemptive)
    check_lemma_4(scenario, found, mode, *of_jobs.sums)
    _check_ps(scenario, tables, meta, found, of_jobs)
    if found.by_rule["M1"]:
        _number_rows(scenario, tables, found, most)
    _check_order(scenario, tables, found, most)
    return found.all()


def _mode(meta: Mapping[str, Any]) -> str:
    """The promised reading of Q."""
    return str((meta.get("promises") or {}).get("alpha"))


class _OfJobs:
    """The rules on single jobs, and what the others need of each job.

    Attributes
    ----------
    dispatched, zeta
        By job: whether it is dispatched; zeta.
    sums
        Sums of alpha and of beta so far [s]; None if there are none.
    """

    def __init__(
        self, scenario: Scenario, tables: StoredTables, meta: Mapping[str, Any], found: Findings, lanes: LaneParts
    ) -> None:
        self.scenario, self.tables, self.meta, self.found, self.lanes = scenario, tables, meta, found, lanes
        self.dispatched = np.zeros(len(scenario.jobs), bool)
        self.zeta = np.zeros(len(scenario.jobs), np.int64)
        self.sums: tuple[float | None, float | None] = (None, None)

    def check(self, first: int, end: int | None) -> None:
        """Check the jobs from `first` to before `end`."""
        part = self.scenario.part(first, len(self.scenario.jobs) if end is None else end)
        found = Findings(part, self.found.limit)
        c = known_rows(part, self.tables.of_jobs(first, end), found)
        zeta, lanes, _ = check_jobs(c, found, self.meta, 0)
        check_slot_jobs(c, zeta, found, 0)
        check_cloud_alpha(c, zeta, found, _mode(self.meta))
        self.found.extend(found)
        self.dispatched[first:end], self.zeta[first:end] = dispatched_jobs(c), zeta.last
        self.sums = _sum(self.sums[0], sum_alpha_s(c)), _sum(self.sums[1], sum_beta_s(c))
        self.lanes.add(lanes, first)


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one + (other or 0.0)


def _check_ps(
    scenario: Scenario, tables: StoredTables, meta: Mapping[str, Any], found: Findings, jobs: _OfJobs
) -> None:  # fmt: skip
    """M13 and M35, on all PSs."""
    alone = replace(tables.empty(), ps=tables.scan("ps").collect())
    c = known_rows(scenario, alone, Findings(scenario, 1))
    check_slot_use(c, found, 0)
    if (meta.get("promises") or {}).get("ps") == "edge_first":
        check_edge_first(c, found, jobs.dispatched, Zeta.constant(jobs.zeta))


def _check_order(scenario: Scenario, tables: StoredTables, found: Findings, most: int) -> None:
    """M2 on the order of decisions, of which those that violate M1 are omitted."""
    before, whole = pl.DataFrame(schema={"job": pl.Int32, "time": pl.Int64}), not found.by_rule["M1"]
    names = ["job", "time"] if whole else tables.scan("decisions").collect_schema().names()
    for _, rows in tables.slices("decisions", names, 4 * most):
        known = rows
        if not whole:
            c = known_rows(scenario, replace(tables.empty(), decisions=rows), Findings(scenario, 1))
            known = c.decisions.frame.select("job", "time")
        both = pl.concat([before, known])
        check_order({name: both[name].to_numpy() for name in ("job", "time")}, found)
        before = both.tail(1)


def _number_rows(scenario: Scenario, tables: StoredTables, found: Findings, most: int) -> None:
    """State M1 with the numbers that rows and jobs have in the whole record."""
    found.by_rule["M1"].clear()
    for name in Schedule.names():
        columns_of = tables.scan(name).collect_schema().names()
        for first, rows in tables.slices(name, columns_of, most):
            one = Findings(scenario, found.limit)
            known_rows(scenario, replace(tables.empty(), **{name: rows}), one, first_row=first)
            found.extend(one)
