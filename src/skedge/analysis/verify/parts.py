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
from .lanes import check_lanes, sort_by_lane
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
    is_known = pl.col("verb").is_in(["dispatch", "reject"]).fill_null(value=False)
    other_rows = tables.scan("decisions").select((~is_known).sum())
    undividable = any(query.collect(engine="streaming").item() for query in (gangs, other_rows))
    return not undividable and _in_time_order(tables, scenario.part_chunks)


def _in_time_order(tables: StoredTables, max_rows: int) -> bool:
    """Whether PSs are in order of their starts."""
    last = 0
    for _, rows in tables.slices("ps", ["start"], max_rows):
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
    """As :func:`.verify.verify`, for a record that has parts (:func:`has_parts`).

    Of two runs that begin together on a lane (M4), or of chunks of one job that wait (M21), it may name another one. Of
    more than `limit` violations of a rule it names the first ones by job.

    Parameters
    ----------
    meta
        Metadata of the run, as for :func:`.verify.verify`.
    limit
        Maximum number of violations reported per rule, >= 1.
    steps
        Called after each part with what is done and how many parts there are.
    """
    findings = Findings(scenario, limit)
    mode, preemptive = _mode(meta), bool((meta.get("lanes") or {}).get("preemptive", True))
    with TemporaryDirectory(prefix="skedge-lanes-", dir=tables.scratch_folder) as folder:
        base = columns_of_part(scenario.base, tables.empty(), scenario.count)
        edges = lane_edges(_runs_by_lane(scenario, tables), 2 * scenario.part_chunks)
        lanes = LaneParts(Path(folder), base, edges)
        job_rules, parts = _JobRules(meta, findings, lanes, scenario.count), len(scenario.ranges) + len(edges) - 1
        n_done = count(1)
        for (first, part), rows in zip(scenario.parts(), tables.by_job(scenario), strict=True):
            job_rules.check(part, rows, first)
            _report(steps, next(n_done), parts)
        for lane_part in lanes:
            lane_rows = sort_by_lane(lane_part)
            check_lane_alpha(lane_rows, findings, mode, preemptive=preemptive)
            check_lanes(lane_rows, None, findings, 0, preemptive=preemptive)
            _report(steps, next(n_done), parts)
    check_lemma_4(scenario.base, findings, mode, *job_rules.sums)
    _check_ps(scenario, tables, meta, findings, job_rules)
    _check_order(scenario, tables, findings, job_rules)
    return findings.all()


def _report(steps: Steps | None, n_done: int, parts: int) -> None:
    if steps is not None:
        steps("verifying parts", n_done, parts)


def _runs_by_lane(scenario: StoredScenario, tables: StoredTables) -> Ints:
    """Number of runs on each lane."""
    n_runs, lanes = np.zeros(scenario.base.cluster.lanes, np.int64), scenario.base.cluster.lanes
    for _, rows in tables.slices("runs", ["lane"], 4 * scenario.part_chunks):
        # lanes that do not exist violate M1
        lane = rows["lane"].drop_nulls().to_numpy()
        n_runs += np.bincount(lane[(lane >= 0) & (lane < lanes)], minlength=lanes)
    return n_runs


def _mode(meta: Mapping[str, Any]) -> str:
    """The promised reading of Q."""
    return str((meta.get("promises") or {}).get("alpha"))


class _JobRules:
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

    def __init__(self, meta: Mapping[str, Any], findings: Findings, lanes: LaneParts, jobs: int) -> None:
        self.meta, self.found, self.lanes = meta, findings, lanes
        self.kind, self.on_edge = np.full(jobs, -1, np.int16), np.zeros(jobs, bool)
        self.unknown = {name: np.zeros(0, np.int64) for name in ("ps", "decisions")}
        self.sums: tuple[float | None, float | None] = (None, None)

    def check(self, part: Scenario, rows: Schedule, first: int) -> None:
        """Check the jobs of `part`, numbered from `first` on."""
        findings = Findings(part, self.found.limit)
        c = known_rows(part, rows, findings, first_job=first)
        for name in self.unknown:
            numbers, valid_numbers = getattr(rows, name)[NUMBER].to_numpy(), getattr(c, name).frame[NUMBER].to_numpy()
            if len(valid_numbers) < len(numbers):
                self.unknown[name] = np.append(self.unknown[name], np.setdiff1d(numbers, valid_numbers))
        colocation, lanes, _ = check_jobs(c, findings, self.meta, 0)
        check_slot_jobs(c, colocation, findings, 0)
        check_cloud_alpha(c, colocation, findings, _mode(self.meta))
        self.found.extend(findings)
        job_range = slice(first, first + len(part.jobs))
        self.kind[job_range], self.on_edge[job_range] = part.jobs.ps_type, dispatched_jobs(c) & (colocation.last == 0)
        self.sums = _sum(self.sums[0], sum_alpha_s(c)), _sum(self.sums[1], sum_beta_s(c))
        self.lanes.add(lanes, first)

    def valid_rows(self, tables: StoredTables, name: str, columns: list[str], rows: int) -> Iterator[pl.DataFrame]:
        """Some columns of a table, in order and about `rows` rows at a time, without those that violate M1."""
        for first, part in tables.slices(name, columns, rows):
            unknown = self.unknown[name]
            invalid = unknown[(unknown >= first) & (unknown < first + len(part))] - first
            yield part.filter(~pl.Series(np.isin(np.arange(len(part)), invalid))) if len(invalid) else part


def _sum(total: float | None, term: float | None) -> float | None:
    return term if total is None else total + (term or 0.0)


def _check_ps(
    scenario: StoredScenario, tables: StoredTables, meta: Mapping[str, Any], findings: Findings, jobs: _JobRules
) -> None:  # fmt: skip
    """M13 and M35 on all PSs in order of their starts.

    Each time with those that still serve when the first one starts, and with the last one of each slot.
    """
    promised, empty = (meta.get("promises") or {}).get("ps") == "edge_first", tables.empty()
    serving = empty.ps
    for rows in _by_start(jobs.valid_rows(tables, "ps", empty.ps.columns, scenario.part_chunks)):
        # M13 compares neighbours on a slot, so the last row of each slot stays as well
        last = pl.struct("server", "slot").is_last_distinct()
        serving = serving.filter((pl.col("end") > rows["start"][0]) | last, pl.col("slot").is_not_null())
        combined = pl.concat([serving, rows])
        c = columns_of_part(scenario.base, replace(empty, ps=combined), scenario.count)
        check_slot_use(c, findings, 0, len(serving))
        if promised:
            job, new = c.ps["job"], np.arange(len(combined)) >= len(serving)
            check_edge_first(c, findings, jobs.kind[job].astype(np.int64), new & jobs.on_edge[job] & (c.ps["slot"] < 0))
        serving = combined


def _by_start(parts: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Rows in order of their starts, cut so that those that start together stay together; none is empty."""
    left = None
    for part in parts:
        rows = part if left is None else pl.concat([left, part])
        complete = rows.filter(pl.col("start") < pl.col("start").last())
        # the next part may have further rows of the last start
        left = rows[len(complete) :]
        if len(complete):
            yield complete
    if left is not None and len(left):
        yield left


def _check_order(scenario: StoredScenario, tables: StoredTables, findings: Findings, jobs: _JobRules) -> None:
    """M2 on the order of decisions, of which those that violate M1 are omitted."""
    names = ["job", "time"]
    before = tables.empty().decisions.select(names)
    for rows in jobs.valid_rows(tables, "decisions", names, 4 * scenario.part_chunks):
        combined = pl.concat([before, rows])
        check_order({name: combined[name].to_numpy() for name in names}, findings)
        before = combined.tail(1)
