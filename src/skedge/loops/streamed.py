"""A run in bounded memory: its jobs are read as they arrive, and its tables are written as they grow.

What is in memory is a part of the jobs, those that are at work, and rows that wait for others before them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from skedge.core.engine.ledger import ADMITTED, ARRIVAL, DECISIONS, NO_PS, NOW, PS, PS_ROWS, PS_SINCE, longer, no_rows
from skedge.core.engine.truth import RUN_END, RUN_JOB, RUN_START, RUNS, SWITCHES
from skedge.core.events import Event
from skedge.core.model.cluster import Bools, Ints
from skedge.core.model.scenario import Scenario
from skedge.core.model.size import UNLIMITED
from skedge.core.model.time import NEVER
from skedge.core.model.time_limits import MAX_RUN_TIME, MAX_WAIT
from skedge.core.policy import Policy
from skedge.core.record.schedule import schema
from skedge.policies.aonline.loop import ALL_ANSWERED, FULL, OVER, advance
from skedge.policies.aonline.policy import AOnline
from skedge.policies.aonline.state import ANSWERED, BASE, MORE, LaneBooks, make_books, make_case, with_room
from skedge.runs.writing import GrowingTable, growing, write_table
from skedge.sim.runs import RunLog

from . import aonline as whole
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
    scenario, policy
        A run that :func:`covers` allows; the scenario's jobs may still be in their file.
    folder
        The folder of the tables, which is there and empty.
    progress
        As :func:`~skedge.loops.aonline.simulate` has it.

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
        TemporaryDirectory(prefix="jobs-", dir=folder) as closed_jobs,
    ):
        closed = _Closed(Path(closed_jobs), [first for first, _ in scenario.ranges])
        window = _Window(scenario.without_jobs(), policy, tables, closed)
        for first, part in scenario.parts():
            window.take_in(part, first, is_last=first + part.count == scenario.count)
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
        Jobs whose decisions, and jobs whose runs in the cloud, have been taken.
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

    def take_in(self, part: Scenario, first: int, *, is_last: bool) -> None:
        """Go on with those at work and the jobs of `part`, numbered from `first` on; `is_last`: none follow."""
        self._write()
        stays = self._at_work()
        self._leave(~stays)
        keep, no_runs = np.flatnonzero(stays), _no_runs(part.count)
        self.scenario = self.scenario.only(keep).concat_unchecked(part)
        self.case = make_case(self.scenario, self.policy)
        self.books = with_room(with_next(self.books, self.scenario, keep))
        self.books.counters[MORE] = not is_last
        self.number = np.append(self.number[keep], np.arange(first, first + part.count, dtype=np.int32))
        self.log, self.answered, self.in_cloud = _moved(self.log, self.scenario, keep), len(keep), len(keep)
        self.first, self.last = (
            np.append(times[keep], new) for times, new in zip((self.first, self.last), no_runs, strict=True)
        )

    def run(self, progress: Callable[[Event], None] | None) -> None:
        """Go on until all jobs are answered, or to the end if no more follow."""
        reported = 0
        while True:
            outcome = advance(self.case, self.books, whole.EVENTS)
            if outcome == FULL:
                self._make_room()
            completed = whole.completed_since(self.books, reported)
            if progress is not None and completed:
                finished = tuple(self.number[completed].tolist())
                progress(Event(int(self.books.ledger.counters[NOW]), finished=finished))
                reported += len(completed)
            if outcome in (OVER, ALL_ANSWERED):
                return whole.must_be_over(self.scenario, self.books)

    def close(self) -> None:
        """Write all that is left."""
        self._drain()
        self._decided(len(self.number))
        self._ran(NEVER)
        self._served(NEVER)
        self._leave(np.ones(len(self.number), bool))

    def _make_room(self) -> None:
        """Write what can be, and make room for the next dispatch."""
        self._drain()
        if self.log.lane_rows >= ROWS:
            self._ran(self._running_since())
        jobs, job = self.books.ledger.jobs, int(self.books.counters[ANSWERED])
        if job < len(jobs) and _end(self.books, job) > len(self.books.lane):
            # of one instant dispatches come before rejections: its jobs are written together
            before = int(np.searchsorted(jobs[:job, ARRIVAL], self.books.ledger.counters[NOW]))
            self._decided(max(before, self.answered))
            self.books = _grown(self.books, _end(self.books, job))
        self.books = with_room(self.books)

    def _write(self) -> None:
        """Write what can be when all jobs are answered."""
        self._drain()
        self._decided(len(self.number))
        self._ran(self._running_since())
        jobs = self.books.ledger.jobs
        serving = jobs[jobs[:, PS] != NO_PS, PS_SINCE]
        self._served(int(min(serving.min(initial=NEVER), self.books.ledger.counters[NOW])))

    def _running_since(self) -> int:
        """The start of the oldest run that goes on, or the present [µs]."""
        truth = self.books.truth
        return int(min(truth.open_start[truth.open_chunk >= 0].min(initial=NEVER), self.books.ledger.counters[NOW]))

    def _drain(self) -> None:
        """Take the finished runs out of their buffer, and log those in the cloud."""
        books, answered = self.books, int(self.books.counters[ANSWERED])
        self._bound(books.truth.runs[: books.truth.size[RUNS]])
        whole.drain(books, self.log)
        in_cloud = whole.cloud_runs(self.scenario, books, self.in_cloud, answered)
        self._bound(in_cloud)
        self.log.lane_runs(in_cloud)
        self.in_cloud = answered

    def _bound(self, runs: Ints) -> None:
        np.minimum.at(self.first, runs[:, RUN_JOB], runs[:, RUN_START])
        np.maximum.at(self.last, runs[:, RUN_JOB], runs[:, RUN_END])

    def _ran(self, until: int) -> None:
        """Write the runs that started before `until`, when all of them are over."""
        self._add("runs", self.log.taken_until(until))

    def _decided(self, end: int) -> None:
        """Write the decisions on the jobs up to `end`, and move those of the others to the front of the columns."""
        books, ledger = self.books, self.books.ledger
        dispatches = whole.dispatches(self.scenario, books, self.answered, end)
        rejections = _take_rows(ledger.rows.decisions, ledger.counters, DECISIONS, 1, end)
        rows = no_rows()._replace(decisions=rejections, values=np.full(len(rejections), np.nan))
        record = whole.record_of(self.scenario, ledger.jobs[:, ADMITTED], rows)
        self._add("decisions", record.decisions.table(rows, dispatches))
        self._add("uploads", record.uploads_table(dispatches))
        base = books.truth.first[end]
        for column in (books.lane, books.postponed, books.alpha):
            left = column[base - books.counters[BASE] :].copy()
            column[: len(left)] = left
        books.counters[BASE], self.answered = base, end

    def _served(self, until: int) -> None:
        """Write the PSs that began to serve before `until`, when all of them are released."""
        ledger = self.books.ledger
        rows = no_rows()._replace(ps=_take_rows(ledger.rows.ps, ledger.counters, PS_ROWS, 3, until))
        self._add("ps", whole.record_of(self.scenario, ledger.jobs[:, ADMITTED], rows).ps_table())

    def _add(self, name: str, rows: pl.DataFrame) -> None:
        """Add rows of a table; their jobs get their numbers among all."""
        self.tables[name].add(rows.with_columns(job=self.number[rows["job"].to_numpy()]))

    def _at_work(self) -> Bools:
        """Whether each job may have further rows, or others refer to it."""
        ledger, truth = self.books.ledger, self.books.truth
        stays: Bools = (ledger.jobs[:, ADMITTED] >= 0) & (truth.left > 0)
        stays[ledger.rows.ps[: ledger.counters[PS_ROWS], 0]] = True
        stays[truth.switches[: truth.size[SWITCHES], 0]] = True
        for runs in self.log.lane_parts:
            stays[runs["job"].to_numpy()] = True
        return stays

    def _leave(self, leaves: Bools) -> None:
        """Make the rows of the jobs table of those that leave."""
        jobs = np.flatnonzero(leaves)
        record = whole.record_of(self.scenario.only(jobs), self.books.ledger.jobs[jobs, ADMITTED], no_rows())
        self.closed.add(record.jobs_table(self.first[jobs], self.last[jobs]).with_columns(job=self.number[jobs]))


class _Closed:
    """The rows of the jobs table as jobs complete, in files by part of the jobs; at the end they are in order."""

    def __init__(self, folder: Path, edges: list[int]) -> None:
        self.folder, self.edges, self.added = folder, edges, 0
        self.files: dict[int, list[Path]] = defaultdict(list)

    def add(self, rows: pl.DataFrame) -> None:
        """Keep some rows."""
        parts = np.searchsorted(self.edges, rows["job"].to_numpy(), side="right")
        for part in np.unique(parts).tolist():
            file = self.folder / f"{part}-{self.added}.arrow"
            rows.filter(pl.Series(parts == part)).write_ipc(file)
            self.files[part].append(file)
        self.added += 1

    def in_order(self) -> Iterator[pl.DataFrame]:
        """All rows, part by part."""
        for part in sorted(self.files):
            yield pl.concat([pl.read_ipc(file) for file in self.files[part]]).sort("job")


def _no_runs(jobs: int) -> tuple[Ints, Ints]:
    """First start and last end of jobs without runs."""
    return np.full(jobs, NEVER, np.int64), np.full(jobs, -1, np.int64)


def _moved(log: RunLog, scenario: Scenario, keep: Ints) -> RunLog:
    """The runs not yet written, whose jobs are among those that are kept; they are now the first ones of `scenario`."""
    moved = RunLog(scenario)
    moved.lane_parts = [
        runs.with_columns(job=np.searchsorted(keep, runs["job"].to_numpy()).astype(np.int32)) for runs in log.lane_parts
    ]
    return moved


def _take_rows(rows: Ints, counters: Ints, counter: int, column: int, end: int) -> Ints:
    """The rows of a table whose `column` is below `end`; the others move to its front."""
    table = rows[: counters[counter]]
    is_before = table[:, column] < end
    closed, left = table[is_before], table[~is_before]
    rows[: len(left)], counters[counter] = left, len(left)
    return closed


def _end(books: LaneBooks, job: int) -> int:
    """End of the rows of `job` in the columns of the dispatches."""
    return int(books.truth.first[job + 1] - books.counters[BASE])


def _grown(books: LaneBooks, rows: int) -> LaneBooks:
    """The books with columns of the dispatches of at least this number of rows."""
    columns: tuple[Any, ...] = (books.lane, books.postponed, books.alpha)
    lane, postponed, alpha = (longer(column, rows) for column in columns)
    return books._replace(lane=lane, postponed=postponed, alpha=alpha)
