"""Rule M1: rows name existing objects and have possible counts and times. All other rules omit invalid rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.analysis.columns import Columns, Table, columns
from skedge.core.events import VERBS
from skedge.core.model.cluster import PS, WORKER
from skedge.core.model.scenario import Scenario
from skedge.core.record.schedule import NUMBER, Schedule

from .rules import Findings

Mask = NDArray[np.bool_]

_TIME_COLUMN = {"runs": "start", "ps": "start", "uploads": "start", "plans": "from", "prices": "made_at"}
_TIME_COLUMN |= {"decisions": "time", "jobs": "arrival", "outages": "start"}

_MAY_BE_NULL = {
    "runs": {"chunk", "lane"},
    "ps": {"slot"},
    "uploads": {"from_site"},
    "plans": {"broken_at"},
    "prices": set[str](),
    "decisions": {"chunk", "lane", "server", "rank", "postponed", "value", "reason", "workers"},
    "jobs": {"admitted", "first_start", "completion", "jct", "value", "state", "reason"},
    "outages": {"end", "reason"},
}
"""Columns that may be null; for decisions this depends on the verb."""

_MAY_BE_NAN = {("decisions", "value")}
"""A planned schedule has no alpha."""

_MAY_BE_NEGATIVE = {"rank", "postponed"}
"""Columns that may be negative: ranks are up to the policy, and -1 postponed chunks means that none are given."""

_MAX_TIME = 2**61
"""Upper limit of times [µs], so that the sum of two does not overflow."""


def known_rows(
    scenario: Scenario,
    schedule: Schedule,
    findings: Findings,
    late_s: Mapping[str, float] | None = None,
    first_job: int = 0,
) -> Columns:
    """The columns of `schedule`, without the rows that violate M1.

    Parameters
    ----------
    scenario, schedule
        The run.
    findings
        Receives the violations.
    late_s
        Live, by job id: training time beyond the announced time [s].
    first_job
        Number of the schedule's job 0 among all jobs, if the schedule is a part.
    """
    cleaned: dict[str, Any] = {}
    # nulls first: in the arrays they would be -1, which some columns may have
    complete = {name: _complete_rows(name, table, findings, first_job) for name, table in schedule.tables().items()}
    cleaned = {name: table for name, table in complete.items() if table is not getattr(schedule, name)}
    schedule = replace(schedule, **cleaned) if cleaned else schedule
    c = columns(scenario, schedule, late_s)
    cleaned = {}
    for name, check in _CHECKS.items():
        table: Table = getattr(c, name)
        if not len(table):
            continue
        # part by part, as the masks of a whole table need much memory
        wrong = np.concatenate([check(c, part) for _, part in table.parts()])
        if wrong.any():
            _report(findings, name, table.frame, wrong, first_job)
            cleaned[name] = table.frame.filter(~pl.Series(wrong))
    return columns(scenario, replace(schedule, **cleaned), late_s) if cleaned else c


def _complete_rows(name: str, frame: pl.DataFrame, findings: Findings, first_job: int) -> pl.DataFrame:
    """The rows with a value in each required column, and no NaN or impossible number."""
    if frame.is_empty():
        return frame
    parts = [
        frame[column].is_null()
        for column in frame.columns
        if frame[column].null_count() and column not in _MAY_BE_NULL[name]
    ]
    for column, kind in frame.schema.items():
        if kind.is_float():
            bad = frame[column].is_infinite() if (name, column) in _MAY_BE_NAN else ~frame[column].is_finite()
            parts += [bad.fill_null(value=False)] if bad.any() else []
        elif kind.is_integer() and column not in _MAY_BE_NEGATIVE:
            low, high = frame[column].min(), frame[column].max()
            if low is not None and (low < 0 or high >= _MAX_TIME):  # type: ignore[operator]
                parts.append(~frame[column].cast(pl.Int64).is_between(0, _MAX_TIME - 1).fill_null(value=True))
    if not parts:
        return frame
    wrong = np.logical_or.reduce([part.to_numpy() for part in parts])
    _report(findings, name, frame, wrong, first_job)
    return frame.filter(~pl.Series(wrong))


def _report(findings: Findings, name: str, frame: pl.DataFrame, wrong: Mask, first_job: int) -> None:
    for i in np.flatnonzero(wrong)[: findings.limit].tolist():
        row = frame.row(i, named=True)
        # NUMBER: the row among those of the whole record, of which this may be a part
        number, job = row.pop(NUMBER, i), row.get("job")
        if job is not None:
            row["job"] = job + first_job
        text = f"{name}[{number}] has an unknown name or number, or an impossible count, time or value: {row}"
        findings.add("M1", job, row[_TIME_COLUMN[name]], text)


def _unknown_job(c: Columns, t: Table) -> Mask:
    wrong: Mask = (t["job"] < 0) | (t["job"] >= len(c.scenario.jobs))
    return wrong


def _job_chunks(c: Columns, t: Table) -> NDArray[np.int64]:
    jobs = c.scenario.jobs
    chunks: NDArray[np.int64] = jobs.chunks[np.clip(t["job"], 0, len(jobs) - 1)]
    return chunks


def _wrong_lane(c: Columns, t: Table, *, is_chunk: Mask) -> Mask:
    """Whether lane and server do not belong together; `is_chunk` marks rows that concern a chunk."""
    cluster = c.scenario.cluster
    lane, server = t["lane"], t["server"]
    # -2 is the number of no server
    cloud = server == (-2 if cluster.cloud is None else cluster.cloud)
    no_lane: Mask = lane == -1
    unknown_lane = (lane < -1) | (lane >= cluster.lanes)
    # unknown lanes take the last entry, which is no server
    lane_server = np.append(cluster.lane_server, -1)[np.where(unknown_lane | no_lane, -1, lane)]
    wrong: Mask = (
        unknown_lane | (~no_lane & (lane_server != server)) | (is_chunk & no_lane & ~cloud) | (~is_chunk & ~no_lane)
    )
    return wrong


def _invalid_runs(c: Columns, t: Table) -> Mask:
    chunk, start, begin, end = t["chunk"], t["start"], t["compute_from"], t["end"]
    is_chunk = chunk != -1
    wrong = _unknown_job(c, t) | (t["server"] < 0) | (chunk < -1) | (chunk >= _job_chunks(c, t))
    wrong |= (start < 0) | (begin < start) | (end < begin) | (end <= start)
    # a chunk trains on one worker, and only once its upload has ended
    wrong |= (t["workers"] < 1) | (is_chunk & ((t["workers"] != 1) | (begin != start)))
    return wrong | _wrong_lane(c, t, is_chunk=is_chunk)


def _invalid_ps(c: Columns, t: Table) -> Mask:
    cluster, server, slot = c.scenario.cluster, t["server"], t["slot"]
    radix = len(cluster.ps_server) + 1
    # a server and a slot as one number; slot -1, which is in the cloud, becomes 0
    places = cluster.ps_places * radix + cluster.ps_numbers + 1
    exists = (slot < radix - 1) & np.isin(server * radix + slot + 1, places)
    wrong = _unknown_job(c, t) | (server < 0) | (t["count"] < 1) | (t["start"] < 0) | (t["end"] <= t["start"])
    return wrong | (slot < -1) | ~exists


def _invalid_uploads(c: Columns, t: Table) -> Mask:
    wrong = _unknown_job(c, t) | (t["to_server"] < 0) | (t["chunks"] < 1) | (t["chunks"] > _job_chunks(c, t))
    moved = t.frame["from_site"].is_not_null().to_numpy()
    at_sites = c.scenario.cluster.kind == "sites"
    return wrong | (moved != at_sites) | ~(t["mb"] >= 0) | (t["start"] < 0) | (t["end"] < t["start"])


def _invalid_plans(c: Columns, t: Table) -> Mask:
    wrong = _unknown_job(c, t) | (t["server"] < 0) | (t["workers"] < 0) | (t["ps"] < 0) | (t["workers"] + t["ps"] < 1)
    return wrong | (t["to"] <= t["from"]) | (t["made_at"] > t["from"])


def _invalid_prices(c: Columns, t: Table) -> Mask:
    cluster = c.scenario.cluster
    names = [WORKER + kind for kind in cluster.worker_types] + [PS + kind for kind in cluster.ps_types]
    names += cluster.resources
    wrong = _unknown_job(c, t) | (t["server"] < 0) | ~t.frame["resource"].is_in(names).to_numpy()
    wrong |= (t["to"] <= t["from"]) | (t["made_at"] > t["from"])
    return wrong | ~((t["price"] >= 0) & np.isfinite(t["price"]))


_REQUIRED = {
    "server": {"dispatch", "redispatch", "allocate", "allocate_each", "reserve", "transfer", "upload", "assign_ps"},
    "chunk": {"dispatch", "redispatch"},
    "rank": {"dispatch", "redispatch"},
    "postponed": {"dispatch", "redispatch"},
    "workers": {"allocate", "allocate_each", "upload", "assign_ps"},
}
"""Verbs whose decisions have a value in these columns; for other verbs they must be null."""

_OPTIONAL = {
    "server": {"suspend"},
    "lane": {"dispatch", "redispatch"},
    "value": set(VERBS) - {"suspend", "assign_ps", "fail", "upload"},
}
"""Verbs whose decisions may have a value in these columns."""


def _invalid_decisions(c: Columns, t: Table) -> Mask:
    wrong = _unknown_job(c, t) | (t["time"] < 0) | (t["workers"] == 0) | (t["workers"] < -1) | _mismatched_values(t)
    is_dispatch: Mask = t.has("verb", "dispatch", "redispatch")
    if not is_dispatch.any():
        return wrong
    if not is_dispatch.all():
        rows = np.flatnonzero(is_dispatch)
        # the columns of a dispatch are converted for dispatches only
        wrong[rows] |= _invalid_dispatch(c, t.only(is_dispatch))
        return wrong
    return wrong | _invalid_dispatch(c, t)


def _mismatched_values(t: Table) -> Mask:
    """Whether a decision lacks a value that its verb requires, or has one that it does not allow."""
    wrong, present = np.zeros(len(t), bool), np.bincount(t["verb"], minlength=len(VERBS)) > 0
    # a column is read only where a verb that occurs says something about it
    for column in {**_REQUIRED, **_OPTIONAL}:
        required, optional = (np.isin(VERBS, list(verbs.get(column, ()))) for verbs in (_REQUIRED, _OPTIONAL))
        values, nulls = t.frame[column], t.frame[column].null_count()
        if (required & present).any() and nulls:
            wrong |= required[t["verb"]] & values.is_null().to_numpy()
        if (present & ~(required | optional)).any() and nulls < len(t):
            wrong |= values.is_not_null().to_numpy() & ~(required | optional)[t["verb"]]
    return wrong


def _invalid_dispatch(c: Columns, t: Table) -> Mask:
    chunk = t["chunk"]
    wrong = (chunk < 0) | (chunk >= _job_chunks(c, t)) | (t["server"] < 0) | (t["postponed"] < -1)
    return wrong | _wrong_lane(c, t, is_chunk=np.ones(len(t), bool))


def _invalid_jobs(c: Columns, t: Table) -> Mask:
    wrong = _unknown_job(c, t)
    # rows of unknown jobs are invalid already, so any job serves for them
    place = np.clip(t["job"], 0, len(c.scenario.jobs) - 1)
    ids = t.frame["id"] != pl.Series(c.scenario.jobs.ids, dtype=pl.String).gather(pl.Series(place))
    wrong |= ids.fill_null(value=True).to_numpy() | (t["arrival"] != c.scenario.jobs.arrival[place])
    return (
        wrong
        | t.frame["value"].is_not_null().to_numpy()
        | ((t["admitted"] < 0) & (t.frame["admitted"].is_not_null()).to_numpy())
    )


def _invalid_outages(c: Columns, t: Table) -> Mask:  # noqa: ARG001 - same signature as the others
    end = t["end"]
    wrong: Mask = (t["server"] < 0) | (t["start"] < 0) | ((end <= t["start"]) & (end != -1))
    return wrong


_CHECKS = {
    "runs": _invalid_runs,
    "ps": _invalid_ps,
    "uploads": _invalid_uploads,
    "plans": _invalid_plans,
    "prices": _invalid_prices,
}
_CHECKS |= {"decisions": _invalid_decisions, "jobs": _invalid_jobs, "outages": _invalid_outages}
