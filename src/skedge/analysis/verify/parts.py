"""Verification of a record in its files, in bounded memory: the same rules as :mod:`.verify`, part by part.

Rules on single jobs are checked on parts of the jobs, rules on lanes on parts of the lanes, and those on PS slots and
on the order of decisions along their tables. Only records of dispatched chunks without outages can be divided like
this. Besides a part, three bytes a job are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from skedge.analysis.columns import columns_of_part
from skedge.analysis.metrics.dual import sum_alpha_s, sum_beta_s
from skedge.core.model.cluster import Ints
from skedge.core.model.scenario import Scenario
from skedge.core.model.size import UNLIMITED
from skedge.core.record.schedule import Schedule
from skedge.core.record.stored import NUMBER, Steps, StoredScenario, StoredTables

from .alpha import check_cloud_alpha, check_lane_alpha, check_lemma_4
from .lane_parts import LaneParts, lane_edges
from .lanes import by_lane, check_lanes
from .names import known_rows
from .orders import check_order
from .ps import check_edge_first, check_slot_use, dispatched_jobs
from .rules import Findings, Violation
from .verify import check_jobs, check_slot_jobs


def has_parts(scenario: StoredScenario, tables: StoredTables, meta: Mapping[str, Any]) -> bool:
    """Whether :func:`verify_parts` checks every rule on the record.

    It does on a simulation of dispatched chunks whose jobs share nothing but lanes and PS slots, with its PSs in order.
    """
    cluster, promises = scenario.base.cluster, meta.get("promises") or {}
    if meta.get("world") is not None or isinstance(promises.get("batches"), dict):
        return False
    if scenario.base.physics.mtbf is not None:  # its outages are checked along the whole record
        return False
    if not cluster.lanes or scenario.any("max_lag"):
        return False
    if (cluster.storage_bytes != UNLIMITED).any() and scenario.any("chunk_mb"):
        return False
    if any(tables.height(name) for name in ("plans", "prices", "outages")):
        return False
    gangs = tables.scan("runs").select(pl.col("chunk").null_count())
    known = pl.col("verb").is_in(["dispatch", "reject"]).fill_null(value=False)
    others = tables.scan("decisions").select((~known).sum())
    whole = any(found.collect(engine="streaming").item() for found in (gangs, others))
    return not whole and _by_time(tables, scenario.part_chunks)


def _by_time(tables: StoredTables, most: int) -> bool:
    """Whether PSs are in order of their starts."""
    last = 0
    for _, rows in tables.slices("ps", ["start"], most):
        start = rows["start"]
        if start.null_count() or not start.is_sorted() or start[0] < last:
            return False
        last = start[-1]
    return True


def verify_parts(
    scenario: StoredScenario,
    tables: StoredTables,
    meta: Mapping[str, Any],
    *,
    limit: int = 20,
    steps: Steps | None = None,
) -> list[Violation]:
    """As :func:`.verify.verify`, for a record that has parts (:func:`has_parts`); `steps` is called after each of them.

    Of two runs that begin together on a lane (M4), or of chunks of one job that wait (M21), it may name another one. Of
    more than `limit` violations of a rule it names the first ones by job.
    """
    found = Findings(scenario, limit)
    mode, preemptive = _mode(meta), bool((meta.get("lanes") or {}).get("preemptive", True))
    with TemporaryDirectory(prefix="skedge-lanes-", dir=tables.scratch_folder) as folder:
        whole = columns_of_part(scenario.base, tables.empty(), scenario.count)
        edges = lane_edges(_runs_by_lane(scenario, tables), 2 * scenario.part_chunks)
        lanes = LaneParts(Path(folder), whole, edges)
        of_jobs, parts = _OfJobs(meta, found, lanes, scenario.count), len(scenario.ranges) + len(edges) - 1
        done = count(1)
        for (first, part), rows in zip(scenario.parts(), tables.by_job(scenario), strict=True):
            of_jobs.check(part, rows, first)
            _tell(steps, next(done), parts)
        for some in lanes:
            on_lanes = by_lane(some)
            check_lane_alpha(on_lanes, found, mode, preemptive=preemptive)
            check_lanes(on_lanes, None, found, 0, preemptive=preemptive)
            _tell(steps, next(done), parts)
    check_lemma_4(scenario.base, found, mode, *of_jobs.sums)
    _check_ps(scenario, tables, meta, found, of_jobs)
    _check_order(scenario, tables, found, of_jobs)
    return found.all()


def _tell(steps: Steps | None, done: int, parts: int) -> None:
    if steps is not None:
        steps("verifying parts", done, parts)


def _runs_by_lane(scenario: StoredScenario, tables: StoredTables) -> Ints:
    """Number of runs on each lane."""
    found, lanes = np.zeros(scenario.base.cluster.lanes, np.int64), scenario.base.cluster.lanes
    for _, rows in tables.slices("runs", ["lane"], 4 * scenario.part_chunks):
        lane = rows["lane"].drop_nulls().to_numpy()
        found += np.bincount(lane[(lane >= 0) & (lane < lanes)], minlength=lanes)
    return found


def _mode(meta: Mapping[str, Any]) -> str:
    """The promised reading of Q."""
    return str((meta.get("promises") or {}).get("alpha"))


class _OfJobs:
    """The rules on single jobs, and what the others need of each job.

    Attributes
    ----------
    kind, on_edge
        By job: its PS type; whether it is dispatched, and not wholly to the cloud.
    unknown
        By table: numbers of the rows that violate M1.
    sums
        Sums of alpha and of beta so far [s]; None if there are none.
    """

    def __init__(self, meta: Mapping[str, Any], found: Findings, lanes: LaneParts, jobs: int) -> None:
        self.meta, self.found, self.lanes = meta, found, lanes
        self.kind, self.on_edge = np.full(jobs, -1, np.int16), np.zeros(jobs, bool)
        self.unknown = {name: np.zeros(0, np.int64) for name in ("ps", "decisions")}
        self.sums: tuple[float | None, float | None] = (None, None)

    def check(self, part: Scenario, rows: Schedule, first: int) -> None:
        """Check the jobs of `part`, numbered from `first` on."""
        found = Findings(part, self.found.limit)
        c = known_rows(part, rows, found, first_job=first)
        for name in self.unknown:
            given, known = getattr(rows, name)[NUMBER].to_numpy(), getattr(c, name).frame[NUMBER].to_numpy()
            if len(known) < len(given):
                self.unknown[name] = np.append(self.unknown[name], np.setdiff1d(given, known))
        zeta, lanes, _ = check_jobs(c, found, self.meta, 0)
        check_slot_jobs(c, zeta, found, 0)
        check_cloud_alpha(c, zeta, found, _mode(self.meta))
        self.found.extend(found)
        these = slice(first, first + len(part.jobs))
        self.kind[these], self.on_edge[these] = part.jobs.ps_type, dispatched_jobs(c) & (zeta.last == 0)
        self.sums = _sum(self.sums[0], sum_alpha_s(c)), _sum(self.sums[1], sum_beta_s(c))
        self.lanes.add(lanes, first)

    def known(self, tables: StoredTables, name: str, columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        """Some columns of a table, in order and about `rows` rows at a time, without those that violate M1."""
        for first, some in tables.slices(name, columns, rows):
            unknown = self.unknown[name]
            here = unknown[(unknown >= first) & (unknown < first + len(some))] - first
            yield some.filter(~pl.Series(np.isin(np.arange(len(some)), here))) if len(here) else some


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one + (other or 0.0)


def _check_ps(
    scenario: StoredScenario, tables: StoredTables, meta: Mapping[str, Any], found: Findings, jobs: _OfJobs
) -> None:  # fmt: skip
    """M13 and M35 on all PSs in order of their starts.

    Each time with those that still serve when the first one starts, and with the last one of each slot.
    """
    promised, empty = (meta.get("promises") or {}).get("ps") == "edge_first", tables.empty()
    serving = empty.ps
    for rows in _by_start(jobs.known(tables, "ps", empty.ps.columns, scenario.part_chunks)):
        last = pl.struct("server", "slot").is_last_distinct()
        serving = serving.filter((pl.col("end") > rows["start"][0]) | last, pl.col("slot").is_not_null())
        both = pl.concat([serving, rows])
        c = columns_of_part(scenario.base, replace(empty, ps=both), scenario.count)
        check_slot_use(c, found, 0, len(serving))
        if promised:
            job, new = c.ps["job"], np.arange(len(both)) >= len(serving)
            check_edge_first(c, found, jobs.kind[job].astype(np.int64), new & jobs.on_edge[job] & (c.ps["slot"] < 0))
        serving = both


def _by_start(parts: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Rows in order of their starts, cut so that those that start together stay together; none is empty."""
    left = None
    for part in parts:
        rows = part if left is None else pl.concat([left, part])
        ready = rows.filter(pl.col("start") < pl.col("start").last())
        left = rows[len(ready) :]
        if len(ready):
            yield ready
    if left is not None and len(left):
        yield left


def _check_order(scenario: StoredScenario, tables: StoredTables, found: Findings, jobs: _OfJobs) -> None:
    """M2 on the order of decisions, of which those that violate M1 are omitted."""
    names = ["job", "time"]
    before = tables.empty().decisions.select(names)
    for rows in jobs.known(tables, "decisions", names, 4 * scenario.part_chunks):
        both = pl.concat([before, rows])
        check_order({name: both[name].to_numpy() for name in names}, found)
        before = both.tail(1)
