"""Which runs take the compiled path, and the record made of its arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from skedge.core.engine.ledger import ADMITTED, CHUNKS, COLOCATED, NOW, RecordRows, trimmed
from skedge.core.engine.truth import RUN_CHUNK, RUN_END, RUN_JOB, RUN_LANE, RUN_START, RUNS
from skedge.core.errors import StateError
from skedge.core.events import CLOUD, Event
from skedge.core.model.cluster import Ints
from skedge.core.model.network import upload_delays
from skedge.core.model.scenario import Scenario
from skedge.core.model.size import UNLIMITED
from skedge.core.model.time import SECOND
from skedge.core.policy import Policy
from skedge.core.record.decisions import Dispatches
from skedge.core.record.plans import Plans
from skedge.core.record.record import Record
from skedge.core.record.rows import CollectedRows
from skedge.core.record.schedule import Schedule
from skedge.platform.jit import CompiledFunction
from skedge.policies.aonline.loop import FULL, OVER, advance
from skedge.policies.aonline.policy import NO_WORKER, AOnline, no_ps_left
from skedge.policies.aonline.state import (
    BASE,
    COMPLETED,
    IMPOSSIBLE,
    STUCK,
    LaneBooks,
    make_books,
    make_case,
    with_room,
)
from skedge.sim.runs import RunLog

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
    scenario, policy
        A run that :func:`covers` allows.
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
    while (outcome := advance(case, books, EVENTS)) != OVER:
        if outcome == FULL:
            drain(books, log)
            books = with_room(books)
        elif progress is not None:
            completed = completed_since(books, reported)
            reported += len(completed)
            progress(Event(int(books.ledger.counters[NOW]), finished=tuple(completed)))
    drain(books, log)
    must_be_over(scenario, books)
    log.lane_runs(cloud_runs(scenario, books, 0, len(scenario.jobs)))
    runs = log.table()
    del log  # it takes as much memory as the table
    record = record_of(scenario, books.ledger.jobs[:, ADMITTED].copy(), trimmed(books.ledger))
    return record.schedule(runs, dispatches(scenario, books, 0, len(scenario.jobs)))


def completed_since(books: LaneBooks, reported: int) -> list[int]:
    """The jobs completed after the first `reported` ones, in order."""
    jobs: list[int] = books.completed[reported : books.counters[COMPLETED]].tolist()
    return jobs


def must_be_over(scenario: Scenario, books: LaneBooks) -> None:
    """Raise the error that has ended the run, if one has."""
    if books.counters[STUCK]:
        raise no_ps_left(scenario.jobs.ids[books.counters[STUCK] - 1], int(books.ledger.counters[NOW]))
    if books.counters[IMPOSSIBLE]:
        raise StateError("a lane is reported to have finished a chunk that it did not have")


def drain(books: LaneBooks, log: RunLog) -> None:
    """Take the finished runs out of their buffer."""
    size = books.truth.size
    log.lane_runs(books.truth.runs[: size[RUNS]])
    log.colocated = books.ledger.jobs[:, COLOCATED]
    size[RUNS] = 0


def cloud_runs(scenario: Scenario, books: LaneBooks, first: int, end: int) -> Ints:
    """The runs in the cloud of the jobs from `first` to before `end`, as rows on the lane after the last.

    Parameters
    ----------
    scenario, books
        The run.
    first, end
        Jobs whose dispatches the books have.
    """
    dispatched, begins = books.ledger.jobs[:, ADMITTED], books.truth.first - books.counters[BASE]
    row = begins[first] + np.flatnonzero(books.lane[begins[first] : begins[end]] == CLOUD)
    job = begins.searchsorted(row, side="right") - 1
    # nothing is written for a job that is rejected: there are rows of other jobs still
    is_sent = dispatched[job] >= 0
    row, job = row[is_sent], job[is_sent]
    start = dispatched[job] + upload_delays(scenario.delays, job, np.full(len(job), scenario.cluster.cloud or 0))
    runs = np.zeros((len(job), 6), np.int64)
    runs[:, RUN_JOB], runs[:, RUN_CHUNK], runs[:, RUN_LANE] = job, row - begins[job], scenario.cluster.lanes
    runs[:, RUN_START] = start
    runs[:, RUN_END] = start + scenario.true_chunk_time[job, books.ledger.jobs[job, COLOCATED]]
    return runs


def record_of(scenario: Scenario, admitted: Ints, rows: RecordRows) -> Record:
    """The record of a run with these times of dispatch; jobs without one are rejected."""
    record, rejected = Record(scenario, Plans(), CollectedRows(admitted, rows)), np.flatnonzero(admitted < 0).tolist()
    if rejected:
        record.reason(NO_WORKER)  # the only reason in the rows, number 0
    record.rejected = dict.fromkeys(rejected, NO_WORKER)
    return record


def dispatches(scenario: Scenario, books: LaneBooks, first: int, end: int) -> Dispatches:
    """The dispatches of the jobs from `first` to before `end`, in order.

    Parameters
    ----------
    scenario, books
        The run.
    first, end
        Jobs; the columns of the books begin with `first`.
    """
    jobs, begins = books.ledger.jobs[first:end], books.truth.first[first:end] - books.counters[BASE]
    sent_jobs = np.flatnonzero(jobs[:, ADMITTED] >= 0)
    is_sent, sizes = np.repeat(jobs[:, ADMITTED] >= 0, jobs[:, CHUNKS]), jobs[sent_jobs, CHUNKS]
    chunk = np.arange(len(is_sent), dtype=np.int32) - np.repeat(begins.astype(np.int32), jobs[:, CHUNKS])
    lane, postponed = (column[: len(is_sent)][is_sent] for column in (books.lane, books.postponed))
    return Dispatches(
        jobs[sent_jobs, ADMITTED], first + sent_jobs, sizes * scenario.chunk_time[first + sent_jobs, 0],
        np.zeros(len(sent_jobs), np.bool_), ["least_marginal_increase"] * len(sent_jobs), sizes,
        chunk[is_sent], lane, postponed, books.alpha[: len(is_sent)][is_sent] / SECOND,
    )  # fmt: skip
