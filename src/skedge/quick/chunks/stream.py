"""A run whose tables are written as they grow: the rows of decisions, uploads and runs are not held in memory.

What stays in memory is by job, and the link of each chunk to the next on its lane.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from skedge.core.events import Event, Reject
from skedge.core.model import Ints
from skedge.core.plans import Plans
from skedge.core.policy import Policy
from skedge.core.record import Record, run_bounds
from skedge.core.scenario import Scenario
from skedge.core.schedule import schema
from skedge.core.time import NEVER
from skedge.policies.aonline.policy import NO_WORKER, AOnline
from skedge.runs.writing import GrowingTable, growing, write_table
from skedge.sim.runs import RunLog

from . import simulate as whole
from .loop import FULL, OVER, advance
from .state import (
    ARRIVAL,
    ARRIVED,
    BASE,
    CHUNKS,
    CLOUD_ROWS,
    DONE,
    FIRST,
    NOW,
    PS_ROWS,
    SENT,
    LaneBooks,
    make_books,
    make_case,
    with_room,
)

ROWS = 2**19
"""Dispatched chunks, and runs on lanes, that are kept before they are written."""

GROWING = ("runs", "decisions", "uploads")
"""The tables with rows for chunks."""


def covers(scenario: Scenario, policy: Policy) -> bool:
    """Whether :func:`stream` can run `policy` on `scenario`: the work of a run must not depend on later ones."""
    return whole.covers(scenario, policy) and scenario.physics.checkpoint_overhead == 0


def stream(
    scenario: Scenario, policy: Policy, folder: Path, progress: Callable[[Event], None] | None = None
) -> pl.DataFrame:
    """Write the tables of the record of `policy` on `scenario` into `folder`; returns the jobs table.

    Parameters
    ----------
    progress
        As :func:`~skedge.quick.chunks.simulate.simulate` has it.

    Raises
    ------
    PolicyError
        If a job begins to run and there is no PS for it.
    """
    assert isinstance(policy, AOnline)  # noqa: S101 - it is covered
    schemas = schema(scenario.cluster.server_ids)
    with growing(folder, {name: schemas[name] for name in GROWING}) as tables:
        case, rows, reported = make_case(scenario, policy), _Rows(scenario, tables), 0
        books = with_room(make_books(scenario, case, preemptive=policy.lanes.preemptive, most_rows=ROWS))
        while (why := advance(case, books, whole.EVENTS)) != OVER:
            if why == FULL:
                books = with_room(rows.written(books))
            elif progress is not None:
                done = books.completed[reported : books.at[DONE]].tolist()
                reported += len(done)
                progress(Event(int(books.at[NOW]), finished=tuple(done)))
        whole.drain(books, rows.log)
        whole.must_be_over(scenario, books)
        rows.decided(books, len(books.jobs))
        rows.ran(books, NEVER)
    jobs, ps = books.jobs, books.ps[: books.at[PS_ROWS]]
    del books  # the links of all chunks are large
    return _by_job(scenario, jobs, ps, rows, folder)


class _Rows:
    """The rows that are not written yet, and what is kept of those that are.

    Attributes
    ----------
    log
        The runs not yet written.
    answered, in_cloud
        Jobs whose decisions, and rows of the cloud's runs that have been taken.
    first, last
        First start and last end of each job's runs [µs]; NEVER and -1 if it has none.
    """

    def __init__(self, scenario: Scenario, tables: dict[str, GrowingTable]) -> None:
        self.scenario, self.tables, self.log = scenario, tables, RunLog(scenario)
        self.answered = self.in_cloud = 0
        self.first = np.full(len(scenario.jobs), NEVER, np.int64)
        self.last = np.full(len(scenario.jobs), -1, np.int64)

    def written(self, books: LaneBooks) -> LaneBooks:
        """Write what can be, and return books with room for the next dispatch."""
        whole.drain(books, self.log)
        if self.log.lane_rows >= ROWS:
            running = books.truth.open_start[books.truth.open_chunk >= 0]
            self.ran(books, int(min(running.min(initial=NEVER), books.at[NOW])))
        job = int(books.at[ARRIVED])
        if job == len(books.jobs) or _end(books, job) <= len(books.lane):
            return books
        # of one instant dispatches come before rejections: its jobs are written together
        self.decided(books, int(np.searchsorted(books.jobs[:job, ARRIVAL], books.at[NOW])))
        return _grown(books, _end(books, job))

    def ran(self, books: LaneBooks, until: int) -> None:
        """Write the runs that started before `until`, when all of them are over."""
        whole.in_cloud(books, self.log, self.in_cloud)
        self.in_cloud = int(books.at[CLOUD_ROWS])
        runs = self.log.taken_until(until)
        first, last = run_bounds(runs, len(self.first))
        np.minimum(self.first, first, out=self.first)
        np.maximum(self.last, last, out=self.last)
        self.tables["runs"].add(runs)

    def decided(self, books: LaneBooks, end: int) -> None:
        """Write the decisions on the jobs up to `end`, and move those of the others to the front of the columns."""
        record, sent = Record(self.scenario, Plans()), whole.dispatches(books, self.answered, end)
        for job in (self.answered + np.flatnonzero(books.jobs[self.answered : end, SENT] < 0)).tolist():
            record.reject(int(books.jobs[job, ARRIVAL]), Reject(job, NO_WORKER))
        self.tables["decisions"].add(record.decisions.table(sent))
        self.tables["uploads"].add(record.uploads_table(sent))
        base = int(books.jobs[end, FIRST]) if end < len(books.jobs) else int(books.at[BASE])
        for column in (books.lane, books.postponed, books.alpha):
            left = column[base - books.at[BASE] :].copy()
            column[: len(left)] = left
        books.at[BASE], self.answered = base, end


def _end(books: LaneBooks, job: int) -> int:
    """End of the rows of `job` in the columns of the dispatches."""
    return int(books.jobs[job, FIRST] + books.jobs[job, CHUNKS] - books.at[BASE])


def _grown(books: LaneBooks, rows: int) -> LaneBooks:
    """The books with columns of the dispatches of at least this number of rows."""
    if rows <= len(books.lane):
        return books
    more = np.zeros(max(rows, 2 * len(books.lane)) - len(books.lane), np.int32)
    lane, postponed = (np.concatenate([column, more]) for column in (books.lane, books.postponed))
    return books._replace(lane=lane, postponed=postponed, alpha=np.concatenate([books.alpha, np.zeros(len(more))]))


def _by_job(scenario: Scenario, of_jobs: Ints, ps: Ints, rows: _Rows, folder: Path) -> pl.DataFrame:
    """Write the tables without rows for chunks, given two of the books' tables; returns the jobs table."""
    record, sent = Record(scenario, Plans()), of_jobs[:, SENT]
    for job in np.flatnonzero(sent < 0).tolist():
        record.reject(int(of_jobs[job, ARRIVAL]), Reject(job, NO_WORKER))
    record.ps.frombytes(ps.tobytes())
    record.admitted = {int(job): int(sent[job]) for job in np.flatnonzero(sent >= 0)}
    jobs = record.jobs_table(rows.first, rows.last)
    none = {name: pl.DataFrame(schema=record.schema[name]) for name in ("plans", "prices", "outages")}
    for name, table in {**none, "ps": record.ps_table(), "jobs": jobs}.items():
        write_table(folder, name, table)
    return jobs
