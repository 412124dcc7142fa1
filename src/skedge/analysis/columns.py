"""A schedule's tables as arrays: jobs, servers, verbs and states by number, null as -1 (a float: NaN), time in µs.

The arrays are read-only, so that compiled passes see one type for all tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.core.events import VERBS
from skedge.core.model.cluster import Cluster, Ints
from skedge.core.model.network import upload_delays
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import NEVER, ticks
from skedge.core.record.schedule import STATES, Schedule

from .row_groups import in_groups, read_only

Array = NDArray[Any]
T = TypeVar("T")

_ENUMERATED = {"verb": VERBS, "state": STATES}
"""Columns of which the values have these numbers, by order."""

ROWS = 2**18
"""Rows that are looked at together."""

_Rows = slice | Ints


class Table:
    """Columns of one table by name, converted when first accessed: ``table["start"]``."""

    def __init__(self, frame: pl.DataFrame, cluster: Cluster) -> None:
        self._ids, self._length = cluster.server_ids, len(frame)
        self._arrays: dict[str, Array] = {}
        self._frame: pl.DataFrame | None = frame
        self._parent: tuple[Table, _Rows] | None = None

    @property
    def frame(self) -> pl.DataFrame:
        """The rows as a data frame."""
        if self._frame is None and self._parent is not None:
            parent, rows = self._parent
            self._frame = parent.frame[rows]
        assert self._frame is not None  # noqa: S101 - else it is a part of a table
        return self._frame

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> Array:
        if name not in self._arrays:
            parent = self._parent
            self._arrays[name] = (
                read_only(_select_rows(*parent, name)) if parent else _array(self.frame[name], self._ids)
            )
        return self._arrays[name]

    def has(self, name: str, *values: str) -> NDArray[np.bool_]:
        """True for the rows with one of `values`, which are verbs or states, in the column `name`."""
        column, has = self[name], np.zeros(len(self), bool)
        for value in values:
            has |= column == _ENUMERATED[name].index(value)
        return has

    def slice(self, first: int, end: int) -> Table:
        """A table of the rows from `first` to before `end`, of which nothing is copied."""
        return self._part(min(end, len(self)) - first, rows=slice(first, end))

    def take(self, rows: Ints) -> Table:
        """A table of these rows; a column is copied when first accessed."""
        return self._part(len(rows), rows=rows)

    def _part(self, length: int, frame: pl.DataFrame | None = None, rows: _Rows | None = None) -> Table:
        # Not by __init__, which takes a frame: a part reads a column from its parent when it is asked for it.
        part = object.__new__(Table)
        part._ids, part._length, part._arrays, part._frame = self._ids, length, {}, frame
        part._parent = None if rows is None else (self, rows)
        return part

    def parts(self) -> Iterator[tuple[int, Table]]:
        """Parts of :data:`ROWS` rows, each with the number of its first row: passes over parts need little memory."""
        for first in range(0, len(self), ROWS):
            yield first, self.slice(first, first + ROWS)

    def only(self, mask: Array) -> Table:
        """A table of the rows where `mask` is true; the same one if that is everywhere."""
        if mask.all():
            return self
        frame = self.frame.filter(pl.Series(mask))
        return self._part(len(frame), frame)


def _select_rows(parent: Table, rows: _Rows, name: str) -> Array:
    """Some rows of a column."""
    return parent[name][rows] if isinstance(rows, slice) else parent[name].take(rows)


def _array(column: pl.Series, ids: list[str]) -> Array:
    if column.name in _ENUMERATED:
        # Not strict: a word of a damaged record that is no verb or state becomes null, and below -1.
        column = column.cast(pl.Enum(_ENUMERATED[column.name]), strict=False).to_physical().cast(pl.Int8)
    elif column.dtype in (pl.String, pl.Categorical, pl.Enum):
        column = column.cast(pl.Enum(ids), strict=False).to_physical().cast(pl.Int32)
    # to_numpy() of integers with nulls would give floats, which cannot hold every time in µs.
    if column.null_count():
        kind = column.dtype
        column = column.fill_null(value=np.nan if kind.is_float() else -1 if kind.is_numeric() else False)
    return read_only(column.to_numpy())


@dataclass
class Columns:
    """All tables of a schedule.

    `dispatches` are the dispatch and re-dispatch rows of the decisions; `chunks` and `gangs` are the two kinds of runs.
    `late` is the excess of each job's training time over the announced time [µs], as measured in a live run. `derived`
    has what was computed of the tables, by name (:func:`once`).
    """

    scenario: Scenario
    late: NDArray[np.int64]
    runs: Table
    ps: Table
    uploads: Table
    plans: Table
    prices: Table
    decisions: Table
    jobs: Table
    outages: Table
    dispatches: Table
    chunks: Table
    gangs: Table
    derived: dict[str, Any] = field(default_factory=dict, init=False)

    @property
    def first_chunk(self) -> NDArray[np.int64]:
        """Number of each job's first chunk when chunks are numbered through all jobs, shape ``(jobs + 1,)``."""
        return np.concatenate([[0], np.cumsum(self.scenario.jobs.chunks)])


def once(function: Callable[[Columns], T]) -> Callable[[Columns], T]:
    """Let `function` be computed once for the same :class:`Columns`; its callers must not change the result."""

    @wraps(function)
    def memoized(c: Columns) -> T:
        if function.__name__ not in c.derived:
            c.derived[function.__name__] = function(c)
        value: T = c.derived[function.__name__]
        return value

    return memoized


def columns(scenario: Scenario, schedule: Schedule, late_s: Mapping[str, float] | None = None) -> Columns:
    """The tables as arrays, copied only where necessary; `late_s` is by job id.

    They are kept with the schedule, so that verification and metrics share what they derive from it.
    """
    overrun = np.zeros(len(scenario.jobs), np.int64)
    if late_s:
        overrun = ticks(np.array([late_s.get(name, 0.0) for name in scenario.jobs.ids], np.float64))
    shared: Columns | None = schedule.kept.get("columns")
    # A schedule may be read again with another scenario, or with the overruns of a live run: then nothing is shared.
    if shared is None or shared.scenario is not scenario or not np.array_equal(shared.late, overrun):
        schedule.kept["columns"] = shared = _columns(scenario, schedule, overrun)
    return shared


def columns_of_part(scenario: Scenario, schedule: Schedule, jobs: int) -> Columns:
    """The tables of a record with `jobs` jobs, none of which is in `scenario`; no job is late."""
    return _columns(scenario, schedule, np.broadcast_to(np.int64(0), jobs))


def _columns(scenario: Scenario, schedule: Schedule, overrun: NDArray[np.int64]) -> Columns:
    cluster = scenario.cluster
    tables = {name: Table(frame, cluster) for name, frame in schedule.tables().items()}
    # A run of a gang has no chunk of its own: its workers train all chunks of the job together.
    is_gang = schedule.runs["chunk"].is_null().to_numpy()
    return Columns(
        scenario,
        late=overrun,
        **tables,
        dispatches=tables["decisions"].only(tables["decisions"].has("verb", "dispatch", "redispatch")),
        chunks=tables["runs"].only(~is_gang),
        gangs=tables["runs"].only(is_gang),
    )


@once
def failure_times(c: Columns) -> NDArray[np.int64]:
    """Time of failure of each job [µs], NEVER for jobs that did not fail, shape ``(jobs,)``."""
    rows = np.flatnonzero(c.decisions.has("verb", "fail"))
    if not len(rows):
        # A view of one number: mostly no job fails, and there may be millions.
        return np.broadcast_to(np.int64(NEVER), len(c.late))
    times = np.full(len(c.late), NEVER, np.int64)
    times[c.decisions["job"][rows]] = c.decisions["time"][rows]
    return times


def end_times(c: Columns) -> NDArray[np.int64]:
    """Time at which each job completed or failed [µs], NEVER for other jobs, shape ``(jobs,)``."""
    times = failure_times(c).copy()
    is_complete = c.jobs["completion"] >= 0
    times[c.jobs["job"][is_complete]] = c.jobs["completion"][is_complete]
    return times


def outage_spans(c: Columns) -> list[tuple[int, int, int]]:
    """Server, start and end of each outage [µs]; NEVER: it has no end on record."""
    server, start, end = (c.outages[name] for name in ("server", "start", "end"))
    return list(zip(server.tolist(), start.tolist(), np.where(end < 0, NEVER, end).tolist(), strict=True))


def next_outage(c: Columns, server: Array, time: Array) -> NDArray[np.int64]:
    """First time at or after `time` at which each server goes out of service [µs]; NEVER if it does not."""
    outage = np.full(len(server), NEVER, np.int64)
    # Outages are few, rows may be millions: one vectorised pass an outage.
    for server_out, start, _ in outage_spans(c):
        outage = np.where((server == server_out) & (start >= time), np.minimum(outage, start), outage)
    return outage


@once
def outage_suspensions(c: Columns) -> dict[int, list[int]]:
    """When each job was suspended because a server went out of service [µs]."""
    d, lost = c.decisions, dict[int, list[int]]()
    rows = np.flatnonzero(d.has("verb", "suspend") & (d["server"] >= 0))
    for job, time in zip(d["job"][rows].tolist(), d["time"][rows].tolist(), strict=True):
        lost.setdefault(job, []).append(time)
    return lost


def ready_times(c: Columns) -> NDArray[np.int64]:
    """Arrival of each dispatched chunk at its server [µs]: decision + Delta_js, by row of `dispatches`."""
    d = c.dispatches
    arrival: NDArray[np.int64] = d["time"] + upload_delays(c.scenario.delays, d["job"], d["server"])
    return arrival


class AllocationRows(NamedTuple):
    """The rows of a table of holdings in order of (job, start, server).

    Attributes
    ----------
    rows
        Their numbers in the table.
    first
        First of these of each allocation.
    first_on_server
        Likewise, of each server of each allocation.
    """

    rows: Ints
    first: Ints
    first_on_server: Ints


@once
def gang_rows(c: Columns) -> AllocationRows:
    """The rows of gangs by allocation and server, one per group of workers that begins together."""
    return allocation_rows(c.gangs, len(c.scenario.jobs))


def allocation_rows(t: Table, jobs: int) -> AllocationRows:
    """The rows of holdings of `jobs` jobs by allocation and server."""
    rows, _ = in_groups(t["job"], t["start"], jobs)
    job, start, server = (t[name][rows] for name in ("job", "start", "server"))
    # `[: len(rows)]`: without rows there is no first one either.
    new_allocation = np.append(True, (job[1:] != job[:-1]) | (start[1:] != start[:-1]))[: len(rows)]
    # Policies list servers in order, so that this second sort is rarely needed.
    if (~new_allocation[1:] & (server[1:] < server[:-1])).any():
        rows = rows[np.lexsort((server, start, job))]
        server = t["server"][rows]
    new_server = np.append(True, server[1:] != server[:-1])[: len(rows)]
    return AllocationRows(rows, np.flatnonzero(new_allocation), np.flatnonzero(new_allocation | new_server))


@once
def ps_rows(c: Columns) -> tuple[Ints, Ints]:
    """Rows of the PSs by job and start, and the first one of each job."""
    return in_groups(c.ps["job"], c.ps["start"], len(c.scenario.jobs))


@once
def gang_intervals(c: Columns) -> pl.DataFrame:
    """One row per allocation of a gang, in order of (job, start).

    Columns: job, start, compute_from (of the first worker), end, workers, work, `spent` (worker time computing
    [worker-µs], in 128 bits), colocated, preempted, `server` (its first one) and `servers` (how many).
    """
    t, g = c.gangs, gang_rows(c)
    if not len(t):
        return pl.DataFrame(schema=_INTERVALS)
    first_rows, on_server = g.rows[g.first], np.searchsorted(g.first_on_server, g.first)
    columns = {
        **{name: t[name][first_rows] for name in ("job", "start", "colocated", "preempted", "server")},
        "compute_from": np.minimum.reduceat(t["compute_from"][g.rows], g.first),
        "end": np.maximum.reduceat(t["end"][g.rows], g.first),
        "workers": np.add.reduceat(t["workers"][g.rows].astype(np.int64), g.first),
        "work": np.add.reduceat(t["work"][g.rows], g.first),
        "spent": _compute_time(t, g),
        "servers": np.diff(on_server, append=len(g.first_on_server)),
    }
    return pl.DataFrame(columns).select(list(_INTERVALS)).cast(pl.Schema(_INTERVALS))


_INTERVALS: dict[str, Any] = {
    "job": pl.Int32, "start": pl.Int64, "compute_from": pl.Int64, "end": pl.Int64, "workers": pl.Int64,
    "work": pl.Float64, "spent": pl.Int128, "colocated": pl.Boolean, "preempted": pl.Boolean, "server": pl.Int32,
    "servers": pl.Int64,
}  # fmt: skip


def _compute_time(t: Table, g: AllocationRows) -> pl.Series:
    """Worker time computing of each allocation [worker-µs]."""
    workers, time = t["workers"][g.rows].astype(np.int64), (t["end"] - t["compute_from"])[g.rows]
    # int64 as long as no sum can reach 2**62; otherwise 128 bits, where sums by group are differences of a running sum.
    rows = np.diff(g.first, append=len(g.rows)).max()
    if float(workers.max()) * float(time.max()) * float(rows) < 2.0**62:
        return pl.Series(np.add.reduceat(workers * time, g.first)).cast(pl.Int128)
    total = pl.Series(workers).cast(pl.Int128) * pl.Series(time)
    total = total.cum_sum().gather(np.append(g.first[1:], len(g.rows)) - 1)
    return total - total.shift(fill_value=0)


def among(c: Columns, jobs: Array) -> NDArray[np.bool_]:
    """Whether each job is one of `jobs`, shape ``(jobs,)``."""
    is_among = np.zeros(len(c.scenario.jobs), bool)
    is_among[jobs] = True
    return is_among


def dispatched_jobs(c: Columns) -> NDArray[np.bool_]:
    """Whether each job is dispatched."""
    return among(c, c.dispatches["job"])


@once
def elastic_jobs(c: Columns) -> NDArray[np.bool_]:
    """Whether the workers of each job begin one by one, according to the decisions."""
    return among(c, c.decisions["job"][c.decisions.has("verb", "allocate_each")])


def first_of_job(job: Array) -> NDArray[np.bool_]:
    """True for the first row of each job, where rows are in order of job."""
    return np.concatenate([np.ones(min(1, len(job)), bool), job[1:] != job[:-1]])
