"""The books of a run whose jobs are read as they arrive: those of the jobs at work, and of the next ones."""

from __future__ import annotations

import numpy as np

from skedge.core.engine.agenda import ENTRY_JOB
from skedge.core.engine.lanes import JOB, Lanes
from skedge.core.model.cluster import Ints
from skedge.core.model.scenario import Scenario
from skedge.sim.lag import make_lag
from skedge.sim.lanes import SWITCHES, Truth

from .state import (
    AGENDA,
    ARRIVED,
    BASE,
    CLOUD_ROWS,
    COMING,
    DONE,
    FIRST,
    PS_ROWS,
    SCALE,
    LaneBooks,
    LaneCase,
    job_rows,
)


def with_next(books: LaneBooks, scenario: Scenario, case: LaneCase, keep: Ints) -> LaneBooks:
    """The books for `scenario`, which has the jobs `keep` of those so far, in order, and then the next ones.

    All jobs so far are answered, and nothing refers to those that are left out; the runs and the dispatches have been
    taken out. Arrays by lane are changed in place.
    """
    jobs, count = scenario.jobs, len(keep)
    place = np.full(len(books.jobs) + 1, -1)  # the last one stands for none
    place[keep] = np.arange(count)
    table, counters, most = (
        _job_rows(books, scenario, case, keep),
        books.counters.copy(),
        int(jobs.chunks.max(initial=0)),
    )
    counters[ARRIVED] = counters[COMING] = count
    counters[DONE] = counters[CLOUD_ROWS] = 0
    counters[BASE] = jobs.chunks[:count].sum()
    ps = books.ps[: counters[PS_ROWS]]
    ps[:, 0] = place[ps[:, 0]]
    agenda = np.zeros((2 * len(jobs), 5), np.int64)
    agenda[: counters[AGENDA]] = books.agenda[: counters[AGENDA]]
    agenda[: counters[AGENDA], ENTRY_JOB] = place[agenda[: counters[AGENDA], ENTRY_JOB]]
    for lanes in [books.truth.lanes] + [books.belief] * (books.belief is not books.truth.lanes):
        _renumber(lanes, place)
    return books._replace(
        jobs=table,
        truth=_with_next(books.truth, jobs.chunks, keep, place),
        weights=np.zeros(most + 1, np.int64),
        ps_job=place[books.ps_job],
        agenda=agenda,
        order=np.zeros((2, most), np.int64),
        cloud_runs=np.zeros((len(jobs), 5), np.int64),
        completed=np.zeros(len(jobs), np.int64),
        counters=counters,
    )


def _job_rows(books: LaneBooks, scenario: Scenario, case: LaneCase, keep: Ints) -> Ints:
    """The rows of the jobs; only the numbers of their chunks change."""
    table = job_rows(scenario, case, int(books.jobs[-1, SCALE]) if len(books.jobs) else 1)
    first = table[: len(keep), FIRST].copy()
    table[: len(keep)] = books.jobs[keep]
    table[: len(keep), FIRST] = first
    return table


def _renumber(lanes: Lanes, place: Ints) -> None:
    """Give the groups the new numbers of their jobs."""
    for groups in (lanes.rows, lanes.transit):
        groups[:, :, JOB] = place[groups[:, :, JOB]]


def _with_next(truth: Truth, chunks: Ints, keep: Ints, place: Ints) -> Truth:
    """The true lanes, without their queues, for jobs with these numbers of chunks."""
    lanes, count, pending = len(truth.next_event), len(keep), int(truth.size[SWITCHES])
    first, none = np.concatenate([[0], np.cumsum(chunks)]), np.zeros(len(chunks), np.int64)
    in_service, was_running, left = none.copy(), none.copy(), chunks.copy()
    for new, old in ((in_service, truth.in_service), (was_running, truth.was_running), (left, truth.left)):
        new[:count] = old[keep]
    links = np.full(int(first[-1]), -1, np.int32)
    of_kept = np.arange(first[count]) + np.repeat(truth.first[keep] - first[:count], chunks[:count])
    links[: first[count]] = truth.links[of_kept]
    switches = np.zeros((4 * lanes + 2 * len(chunks) + 4 + pending, 2), np.int64)
    switches[:pending] = truth.switches[:pending]
    switches[:pending, 0] = place[switches[:pending, 0]]
    truth.open_job[:] = place[truth.open_job]
    return truth._replace(
        links=links, first=first, in_service=in_service, was_running=was_running, left=left, switches=switches,
        lag=make_lag(lanes, none, none, chunks),
    )  # fmt: skip
