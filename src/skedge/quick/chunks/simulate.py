"""Which runs take the compiled path, and the record made of its arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import polars as pl

from skedge.core.engine.ledger import no_rows
from skedge.core.errors import StateError
from skedge.core.events import Event, Reject
from skedge.core.kernel.plans import Plans
from skedge.core.model.scenario import Scenario
from skedge.core.model.size import UNLIMITED
from skedge.core.model.time import SECOND
from skedge.core.policy import Policy
from skedge.core.record.decisions import Dispatches
from skedge.core.record.record import Record
from skedge.core.record.rows import CollectedRows
from skedge.core.record.schedule import Schedule
from skedge.platform.jit import CompiledFunction
from skedge.policies.aonline.policy import NO_WORKER, AOnline, no_ps_left
from skedge.sim.lanes import RUNS
from skedge.sim.runs import RunLog

from .loop import FULL, OVER, advance
from .state import (
    ARRIVAL,
    BASE,
    CHUNKS,
    CLOUD_ROWS,
    DONE,
    EACH,
    FIRST,
    IMPOSSIBLE,
    NOW,
    PS_ROWS,
    SENT,
    STUCK,
    LaneBooks,
    make_books,
    make_case,
    with_room,
)

EVENTS = 20_000
"""Events between two reports of progress."""


def takes(policy: Policy) -> bool:
    """Whether :func:`simulate` can run `policy`, on some scenarios: A_online."""
    return type(policy) is AOnline and policy.params.ps_choice == "lowest"


def covers(scenario: Scenario, policy: Policy) -> bool:
    """Whether :func:`simulate` can run `policy` on `scenario`: A_online, where no job waits for storage."""
    jobs, limited = scenario.jobs, (scenario.cluster.storage_bytes != UNLIMITED).any()
    return takes(policy) and not jobs.max_lag.any() and not (limited and jobs.chunk_bytes.any())


def kernel_of(_: Policy) -> CompiledFunction:
    """The compiled loop that :func:`simulate` calls."""
    return cast("CompiledFunction", advance)


def simulate(scenario: Scenario, policy: Policy, progress: Callable[[Event], None] | None = None) -> Schedule:
    """The record of `policy` on `scenario`.

    Parameters
    ----------
    progress
        Called now and then with the present and the jobs that have completed since the last call.

    Raises
    ------
    PolicyError
        If a job begins to run and there is no PS for it.
    """
    assert isinstance(policy, AOnline)  # noqa: S101 - it is covered
    case, log, reported = make_case(scenario, policy), RunLog(scenario), 0
    books = with_room(make_books(scenario, case, preemptive=policy.lanes.preemptive))
    while (why := advance(case, books, EVENTS)) != OVER:
        if why == FULL:
            drain(books, log)
            books = with_room(books)
        elif progress is not None:
            done = books.completed[reported : books.counters[DONE]].tolist()
            reported += len(done)
            progress(Event(int(books.counters[NOW]), finished=tuple(done)))
    drain(books, log)
    must_be_over(scenario, books)
    in_cloud(books, log, 0)
    runs = log.table()
    del log  # it takes as much memory as the table
    return _record(scenario, books, runs)


def must_be_over(scenario: Scenario, books: LaneBooks) -> None:
    """Raise the error that has ended the run, if one has."""
    if books.counters[STUCK]:
        raise no_ps_left(scenario.jobs.ids[books.counters[STUCK] - 1], int(books.counters[NOW]))
    if books.counters[IMPOSSIBLE]:
        raise StateError("a lane is reported to have finished a chunk that it did not have")


def drain(books: LaneBooks, log: RunLog) -> None:
    """Take the finished runs out of their buffer."""
    size = books.truth.size
    log.lane_runs(books.truth.runs[: size[RUNS]])
    size[RUNS] = 0


def in_cloud(books: LaneBooks, log: RunLog, first: int) -> None:
    """Log the runs in the cloud, from the row `first` on."""
    chunks = books.jobs[:, CHUNKS]
    for job, n, start, end, zeta in books.cloud_runs[first : books.counters[CLOUD_ROWS]].tolist():
        log.cloud_runs(job, np.arange(chunks[job] - n, chunks[job]), start, end, zeta)


def _record(scenario: Scenario, books: LaneBooks, runs: pl.DataFrame) -> Schedule:
    """The tables, made of the rows as :class:`~skedge.core.record.record.Record` makes them."""
    sent = books.jobs[:, SENT]
    source = CollectedRows(sent.copy(), no_rows()._replace(ps=books.ps[: books.counters[PS_ROWS]]))
    record = Record(scenario, Plans(), source)
    for job in np.flatnonzero(sent < 0).tolist():
        source.now = int(books.jobs[job, ARRIVAL])
        record.reject(Reject(job, NO_WORKER))
    return record.schedule(runs, dispatches(books, 0, len(sent)))


def dispatches(books: LaneBooks, first: int, end: int) -> Dispatches:
    """The dispatches of the jobs from `first`, with which the columns of the books begin, to before `end`, in order."""
    jobs = books.jobs[first:end]
    of = np.flatnonzero(jobs[:, SENT] >= 0)
    sizes, answered = jobs[of, CHUNKS], np.repeat(jobs[:, SENT] >= 0, jobs[:, CHUNKS])
    begins = (jobs[:, FIRST] - books.counters[BASE]).astype(np.int32)
    number = np.arange(len(answered), dtype=np.int32) - np.repeat(begins, jobs[:, CHUNKS])
    lane, postponed = (column[: len(answered)][answered] for column in (books.lane, books.postponed))
    alpha = books.alpha[: len(answered)][answered]
    return Dispatches(
        jobs[of, SENT], first + of, sizes * jobs[of, EACH], np.zeros(len(of), np.bool_),
        ["least_marginal_increase"] * len(of), sizes, number[answered], lane, postponed, alpha / SECOND,
    )  # fmt: skip
