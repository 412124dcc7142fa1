"""A run in bounded memory: its jobs are read as they arrive, and its tables are written as they grow.

What is in memory is a part of the jobs, those that are at work, and rows that wait for others before them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from skedge.core.engine.ledger import no_rows
from skedge.core.events import Event, Reject
from skedge.core.kernel.plans import Plans
from skedge.core.kernel.time_limits import MAX_RUN_TIME, MAX_WAIT
from skedge.core.model.cluster import Bools, Ints
from skedge.core.model.scenario import Scenario
from skedge.core.model.size import UNLIMITED
from skedge.core.model.time import NEVER
from skedge.core.policy import Policy
from skedge.core.record.record import Record
from skedge.core.record.rows import CollectedRows
from skedge.core.record.schedule import schema
from skedge.policies.aonline.policy import NO_WORKER, AOnline
from skedge.runs.writing import GrowingTable, growing, write_table
from skedge.sim.lanes import RUN_END, RUN_JOB, RUN_START, RUNS, SWITCHES
from skedge.sim.runs import RunLog

from . import simulate as whole
from .loop import ANSWERED, FULL, OVER, advance
from .state import (
    ARRIVAL,
    ARRIVED,
    BASE,
    CHUNKS,
    CLOUD_ROWS,
    DONE,
    FIRST,
    MORE,
    NO_PS,
    NOW,
    PS,
    PS_ROWS,
    PS_SINCE,
    SENT,
    LaneBooks,
    make_books,
    make_case,
    with_room,
)
from .windows import with_next

ROWS = 2**19
"""Dispatched chunks, and runs on lanes, that are kept before they are written."""

GROWING = ("runs", "decisions", "uploads", "ps", "jobs")
"""The tables with rows."""


def covers(scenario: Scenario, policy: Policy) -> bool:
    """Whether :func:`stream` can run `policy` on `scenario`: the work of a run must not depend on later ones."""
    physics, cluster = scenario.physics, scenario.cluster
    if not whole.takes(policy) or physics.checkpoint_overhead or cluster.sharing is not None:
        return False
    if physics.mtbf is not None:  # chunks of a failed server run again, which no compiled loop does
        return False
    limited = bool((cluster.storage_bytes != UNLIMITED).any())
    return not any(map(scenario.any, (MAX_WAIT, MAX_RUN_TIME, "max_lag", *["chunk_mb"] * limited)))


def stream(scenario: Scenario, policy: Policy, folder: Path, progress: Callable[[Event], None] | None = None) -> None:
    """Write the tables of the record of `policy` on `scenario` into `folder`.

    Parameters
    ----------
    progress
        As :func:`~skedge.quick.chunks.simulate.simulate` has it.

    Raises
    ------
    PolicyError
        If a job begins to run and there is no PS for it.
    ScenarioError
        If a job is wrong.
    """
    assert isinstance(policy, AOnline)  # noqa: S101 - it is covered
    schemas = schema(scenario.cluster.server_ids)
    for name in set(schemas) - set(GROWING):
        write_table(folder, name, pl.DataFrame(schema=schemas[name]))
    with (
        growing(folder, {name: schemas[name] for name in GROWING}) as tables,
        TemporaryDirectory(prefix="jobs-", dir=folder) as aside,
    ):
        closed = _Closed(Path(aside), [first for first, _ in scenario.ranges])
        window = _Window(scenario.without_jobs(), policy, tables, closed)
        for first, part in scenario.parts():
            window.take_in(part, first, more=first + part.count < scenario.count)
            window.run(progress)
        window.close()
        for table in closed.in_order():
            tables["jobs"].add(table)


class _Window:
    """The jobs at work and those that come next, and the rows that are not written yet.

    Attributes
    ----------
    scenario, case, books
        Of these jobs alone, at first none.
    number
        Number of each job among all; everything else numbers those of the window.
    log
        The runs not yet written.
    answered, in_cloud
        Jobs whose decisions, and rows of the cloud's runs that have been taken.
    first, last
        First start and last end of each job's runs so far [µs]; NEVER and -1 if it has none.
    """

    def __init__(self, base: Scenario, policy: AOnline, tables: dict[str, GrowingTable], closed: _Closed) -> None:
        self.scenario, self.policy, self.tables, self.closed = base, policy, tables, closed
        case, preemptive = make_case(base, policy), policy.lanes.preemptive
        self.case, self.books = case, make_books(base, case, preemptive=preemptive, most_rows=ROWS)
        self.number, self.log = np.zeros(0, np.int32), RunLog(base)
        self.answered = self.in_cloud = 0
        self.first, self.last = _no_runs(0)

    def take_in(self, part: Scenario, first: int, *, more: bool) -> None:
        """Go on with those at work and the jobs of `part`, numbered from `first` on; `more`: others follow."""
        self._write()
        stays = self._at_work()
        self._leave(~stays)
        keep, none = np.flatnonzero(stays), _no_runs(part.count)
        self.scenario = self.scenario.only(keep).concat_unchecked(part)
        self.case = make_case(self.scenario, self.policy)
        self.books = with_room(with_next(self.books, self.scenario, self.case, keep))
        self.books.counters[MORE] = more
        self.number = np.append(self.number[keep], np.arange(first, first + part.count, dtype=np.int32))
        self.log, self.answered, self.in_cloud = _moved(self.log, self.scenario, keep), len(keep), 0
        self.first, self.last = (
            np.append(of[keep], new) for of, new in zip((self.first, self.last), none, strict=True)
        )

    def run(self, progress: Callable[[Event], None] | None) -> None:
        """Go on until all jobs are answered, or to the end if no more follow."""
        reported = 0
        while True:
            why = advance(self.case, self.books, whole.EVENTS)
            if why == FULL:
                self._make_room()
            done, counters = self.books.completed, self.books.counters
            if progress is not None and counters[DONE] > reported:
                progress(
                    Event(int(counters[NOW]), finished=tuple(self.number[done[reported : counters[DONE]]].tolist()))
                )
                reported = int(counters[DONE])
            if why in (OVER, ANSWERED):
                return whole.must_be_over(self.scenario, self.books)

    def close(self) -> None:
        """Write all that is left."""
        self._drain()
        self._decided(len(self.books.jobs))
        self._ran(NEVER)
        self._served(NEVER)
        self._leave(np.ones(len(self.books.jobs), bool))

    def _make_room(self) -> None:
        """Write what can be, and make room for the next dispatch."""
        self._drain()
        if self.log.lane_rows >= ROWS:
            self._ran(self._running_since())
        books, job = self.books, int(self.books.counters[ARRIVED])
        if job < len(books.jobs) and _end(books, job) > len(books.lane):
            # of one instant dispatches come before rejections: its jobs are written together
            before = int(np.searchsorted(books.jobs[:job, ARRIVAL], books.counters[NOW]))
            self._decided(max(before, self.answered))
            books = _grown(books, _end(books, job))
        self.books = with_room(books)

    def _write(self) -> None:
        """Write what can be when all jobs are answered."""
        self._drain()
        self._decided(len(self.books.jobs))
        self._ran(self._running_since())
        serving = self.books.jobs[self.books.jobs[:, PS] != NO_PS, PS_SINCE]
        self._served(int(min(serving.min(initial=NEVER), self.books.counters[NOW])))

    def _running_since(self) -> int:
        """The start of the oldest run that goes on, or the present [µs]."""
        truth = self.books.truth
        return int(min(truth.open_start[truth.open_chunk >= 0].min(initial=NEVER), self.books.counters[NOW]))

    def _drain(self) -> None:
        """Take the finished runs, and those in the cloud, out of their buffers."""
        books = self.books
        runs = books.truth.runs[: books.truth.size[RUNS]]
        self._bound(runs[:, RUN_JOB], runs[:, RUN_START], runs[:, RUN_END])
        whole.drain(books, self.log)
        away = books.cloud_runs[self.in_cloud : books.counters[CLOUD_ROWS]]
        self._bound(away[:, 0], away[:, 2], away[:, 3])
        whole.in_cloud(books, self.log, self.in_cloud)
        self.in_cloud = int(books.counters[CLOUD_ROWS])

    def _bound(self, job: Ints, start: Ints, end: Ints) -> None:
        np.minimum.at(self.first, job, start)
        np.maximum.at(self.last, job, end)

    def _ran(self, until: int) -> None:
        """Write the runs that started before `until`, when all of them are over."""
        self._add("runs", self.log.taken_until(until))

    def _decided(self, end: int) -> None:
        """Write the decisions on the jobs up to `end`, and move those of the others to the front of the columns."""
        books = self.books
        source = CollectedRows(books.jobs[:, SENT])
        record, sent = Record(self.scenario, Plans(), source), whole.dispatches(books, self.answered, end)
        for job in (self.answered + np.flatnonzero(books.jobs[self.answered : end, SENT] < 0)).tolist():
            source.now = int(books.jobs[job, ARRIVAL])
            record.reject(Reject(job, NO_WORKER))
        self._add("decisions", record.decisions.table(source.rows(), sent))
        self._add("uploads", record.uploads_table(sent))
        base = int(books.jobs[end, FIRST]) if end < len(books.jobs) else int(self.scenario.jobs.chunks.sum())
        for column in (books.lane, books.postponed, books.alpha):
            left = column[base - books.counters[BASE] :].copy()
            column[: len(left)] = left
        books.counters[BASE], self.answered = base, end

    def _served(self, until: int) -> None:
        """Write the PSs that began to serve before `until`, when all of them are released."""
        books = self.books
        rows = books.ps[: books.counters[PS_ROWS]]
        before = rows[:, 3] < until
        source = CollectedRows(books.jobs[:, SENT], no_rows()._replace(ps=rows[before]))
        self._add("ps", Record(self.scenario, Plans(), source).ps_table())
        later = rows[~before]
        rows[: len(later)] = later
        books.counters[PS_ROWS] = len(later)

    def _add(self, name: str, rows: pl.DataFrame) -> None:
        """Add rows of a table; their jobs get their numbers among all."""
        self.tables[name].add(rows.with_columns(job=self.number[rows["job"].to_numpy()]))

    def _at_work(self) -> Bools:
        """Whether each job may have further rows, or others refer to it."""
        books, truth = self.books, self.books.truth
        stays: Bools = (books.jobs[:, SENT] >= 0) & (truth.left > 0)
        stays[books.ps[: books.counters[PS_ROWS], 0]] = True
        stays[truth.switches[: truth.size[SWITCHES], 0]] = True
        for runs in self.log.lane_parts:
            stays[runs["job"].to_numpy()] = True
        return stays

    def _leave(self, leaves: Bools) -> None:
        """Make the rows of the jobs table of those that leave."""
        jobs = np.flatnonzero(leaves)
        source = CollectedRows(self.books.jobs[jobs, SENT])
        record = Record(self.scenario.only(jobs), Plans(), source)
        for job in np.flatnonzero(source.admitted < 0).tolist():
            record.reject(Reject(job, NO_WORKER))
        self.closed.add(record.jobs_table(self.first[jobs], self.last[jobs]).with_columns(job=self.number[jobs]))


class _Closed:
    """The rows of the jobs table as jobs complete, in files by part of the jobs; at the end they are in order."""

    def __init__(self, folder: Path, edges: list[int]) -> None:
        self.folder, self.edges, self.added = folder, edges, 0
        self.files: dict[int, list[Path]] = defaultdict(list)

    def add(self, rows: pl.DataFrame) -> None:
        """Keep some rows."""
        part = np.searchsorted(self.edges, rows["job"].to_numpy(), side="right")
        for one in np.unique(part).tolist():
            file = self.folder / f"{one}-{self.added}.arrow"
            rows.filter(pl.Series(part == one)).write_ipc(file)
            self.files[one].append(file)
        self.added += 1

    def in_order(self) -> Iterator[pl.DataFrame]:
        """All rows, part by part."""
        for one in sorted(self.files):
            yield pl.concat([pl.read_ipc(file) for file in self.files[one]]).sort("job")


def _no_runs(jobs: int) -> tuple[Ints, Ints]:
    """First start and last end of jobs without runs."""
    return np.full(jobs, NEVER, np.int64), np.full(jobs, -1, np.int64)


def _moved(log: RunLog, scenario: Scenario, keep: Ints) -> RunLog:
    """The runs not yet written, whose jobs are among those that are kept; they are now the first ones of `scenario`."""
    moved = RunLog(scenario)
    moved.colocated[: len(keep)] = log.colocated[keep]
    moved.lane_parts = [
        runs.with_columns(job=np.searchsorted(keep, runs["job"].to_numpy()).astype(np.int32)) for runs in log.lane_parts
    ]
    return moved


def _end(books: LaneBooks, job: int) -> int:
    """End of the rows of `job` in the columns of the dispatches."""
    return int(books.jobs[job, FIRST] + books.jobs[job, CHUNKS] - books.counters[BASE])


def _grown(books: LaneBooks, rows: int) -> LaneBooks:
    """The books with columns of the dispatches of at least this number of rows."""
    if rows <= len(books.lane):
        return books
    more = np.zeros(max(rows, 2 * len(books.lane)) - len(books.lane), np.int32)
    lane, postponed = (np.concatenate([column, more]) for column in (books.lane, books.postponed))
    return books._replace(lane=lane, postponed=postponed, alpha=np.concatenate([books.alpha, np.zeros(len(more))]))
