"""The books of a run whose jobs are read as they arrive: those of the jobs at work, and of the next ones."""

from __future__ import annotations

import numpy as np

from skedge.core.engine.agenda import ENTRY_JOB
from skedge.core.engine.lanes import JOB, Lanes
from skedge.core.engine.ledger import AGENDA, ARRIVED, PS_ROWS, Ledger, make_ledger
from skedge.core.engine.projection import weight_table
from skedge.core.engine.truth import SWITCHES, Truth, make_truth
from skedge.core.model.cluster import Ints
from skedge.core.model.scenario import Scenario
from skedge.policies.aonline.state import ANSWERED, BASE, COMPLETED, LaneBooks


def with_next(books: LaneBooks, scenario: Scenario, keep: Ints) -> LaneBooks:
    """The books for `scenario`, which has the jobs `keep` of those so far, in order, and then the next ones.

    All jobs so far are answered, and nothing refers to those that are left out; the runs and the dispatches have been
    taken out. Arrays by lane, counters and tables are changed in place.
    """
    chunks, max_chunks = scenario.jobs.chunks, int(scenario.jobs.chunks.max(initial=0))
    place = np.full(len(books.ledger.jobs) + 1, -1)  # the last one stands for none
    place[keep] = np.arange(len(keep))
    for lanes in [books.truth.lanes] + [books.belief] * (books.belief is not books.truth.lanes):
        _renumber(lanes, place)
    books.counters[ANSWERED], books.counters[BASE] = len(keep), chunks[: len(keep)].sum()
    books.counters[COMPLETED] = 0
    return books._replace(
        ledger=_ledger_with_next(books.ledger, scenario, keep, place),
        truth=_truth_with_next(books.truth, chunks, keep, place),
        weights=weight_table(int(books.weights[0]), max_chunks),
        order=np.zeros((2, max_chunks), np.int64),
        completed=np.zeros(len(chunks), np.int64),
    )


def _ledger_with_next(ledger: Ledger, scenario: Scenario, keep: Ints, place: Ints) -> Ledger:
    """The ledger, with the jobs in their new places."""
    new, counters, agenda = make_ledger(scenario), ledger.counters, ledger.agenda
    new.jobs[: len(keep)] = ledger.jobs[keep]
    counters[ARRIVED] = len(keep)
    for jobs in (agenda[: counters[AGENDA], ENTRY_JOB], ledger.rows.ps[: counters[PS_ROWS], 0]):
        jobs[:] = place[jobs]
    return new._replace(ps_job=place[ledger.ps_job], agenda=agenda, rows=ledger.rows, counters=counters)


def _renumber(lanes: Lanes, place: Ints) -> None:
    """Give the groups the new numbers of their jobs."""
    for groups in (lanes.rows, lanes.transit):
        groups[:, :, JOB] = place[groups[:, :, JOB]]


def _truth_with_next(truth: Truth, chunks: Ints, keep: Ints, place: Ints) -> Truth:
    """The true lanes, without their queues, for jobs with these numbers of chunks."""
    lanes, count, n_pending = truth.lanes, len(keep), int(truth.size[SWITCHES])
    new = make_truth(len(lanes.clock), chunks, preemptive=bool(lanes.preemptive), overhead=lanes.overhead, buffer=0)
    for name in ("in_service", "was_running", "left"):
        getattr(new, name)[:count] = getattr(truth, name)[keep]
    row = np.arange(new.first[count]) + np.repeat(truth.first[keep] - new.first[:count], chunks[:count])
    new.links[: len(row)] = truth.links[row]
    switches = np.concatenate([truth.switches[:n_pending], new.switches])
    switches[:n_pending, 0] = place[switches[:n_pending, 0]]
    truth.open_job[:] = place[truth.open_job]
    return truth._replace(
        links=new.links, first=new.first, in_service=new.in_service, was_running=new.was_running, left=new.left,
        switches=switches, lag=new.lag,
    )  # fmt: skip
