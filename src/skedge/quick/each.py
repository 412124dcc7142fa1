"""Workers that begin one by one, each when its own data are there: an allocation begins and ends, compiled.

As :mod:`.gangs` for gangs, with the functions of :mod:`skedge.core.engine.shares` for the workers of a job.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.engine.shares import begin, done, end_of, joined_at, uploads
from skedge.core.model.cluster import Ints
from skedge.core.model.network import upload_delay
from skedge.core.record.schedule import VERBS
from skedge.platform.jit import compiled

from .gangs import note_decision, put, release, set_zeta, times
from .state import (
    ADMITTED,
    CHUNKS,
    DATA,
    ENTRIES,
    KIND,
    LEFT,
    PS,
    PS_SINCE,
    RUNS,
    SINCE,
    STALE,
    STARTED,
    TRUE_LEFT,
    UPLOADS,
    VERSION,
    ZETA,
    GangBooks,
    GangCase,
    longer,
)

ALLOCATE_EACH = VERBS.index("allocate_each")

FIRST, SIZE, STOPPED, ROOM = range(4)
"""Columns of ``Crews.of``: first row and number of rows of a job's workers, when they were last stopped [µs], and for
how many rows there is room."""


class Crews(NamedTuple):
    """Workers of the present or last allocation of each job, by when they begin computing.

    Attributes
    ----------
    rows
        (server, workers, begin [µs]), as :mod:`skedge.core.engine.shares` has them.
    size
        Number of rows, shape ``(1,)``.
    of
        Which rows are a job's; the columns are above.
    """

    rows: Ints
    size: Ints
    of: Ints


def no_crews(jobs: int) -> Crews:
    """Nobody works."""
    of = np.zeros((jobs, 4), np.int64)
    of[:, STOPPED] = -1
    return Crews(np.zeros((0, 3), np.int64), np.zeros(1, np.int64), of)


def crews_with_room(crews: Crews, more: int) -> Crews:
    """The same with room for `more` further rows."""
    return crews._replace(rows=longer(crews.rows, int(crews.size[0]) + more))


@compiled
def begin_each(
    case: GangCase, books: GangBooks, crews: Crews, job: int, where: Ints, ps: int, zeta: int, now: int, reason: int
) -> None:
    """Let `job` hold the workers of `where`, by server, and the PS `ps`: ``Allocate(gang=False)``.

    Workers that it was stopped from at this instant continue.
    """
    mine, held = books.jobs[job], crews.rows[:0]
    for w in range(len(where)):
        books.free[where[w, 0], mine[KIND]] -= where[w, 1]
        note_decision(books, now, job, ALLOCATE_EACH, where[w, 0], where[w, 1], reason)
    if crews.of[job, STOPPED] == now:
        held = _crew(crews, job)
    data, before = _supply(case, books, job, where, now)
    _set_crew(crews, job, begin(data, where, before, held, now, case.overhead if mine[STARTED] else 0))
    if ps >= 0:
        books.ps_job[ps] = job
    mine[PS], mine[PS_SINCE] = ps, now
    mine[SINCE], mine[STARTED] = now, 1
    if mine[ADMITTED] < 0:
        mine[ADMITTED] = now
    set_zeta(mine, zeta)
    end = end_of(_crew(crews, job), mine[TRUE_LEFT])
    put(books.agenda, books.at, -(-end // case.step) * case.step, job, mine[VERSION])


@compiled
def stop(case: GangCase, books: GangBooks, crews: Crews, job: int, now: int) -> None:
    """Take the workers and the PS from `job`."""
    mine = books.jobs[job]
    so_far = done(_crew(crews, job), now)
    # at least 1: a job that is stopped at its very end still has to complete
    left = max(mine[TRUE_LEFT] - so_far, 1)
    _note_runs(books, crews, job, now, mine[TRUE_LEFT] - left, 1)
    _release_each(case, books, crews, job, now)
    mine[LEFT], mine[TRUE_LEFT] = max(mine[LEFT] - so_far, 1), left
    mine[VERSION] += 1
    books.at[STALE] += 1
    crews.of[job, STOPPED] = now


@compiled
def finish_each(case: GangCase, books: GangBooks, crews: Crews, job: int, now: int) -> None:
    """`job` completes."""
    _note_runs(books, crews, job, now, books.jobs[job, TRUE_LEFT], 0)
    _release_each(case, books, crews, job, now)


@compiled
def _release_each(case: GangCase, books: GangBooks, crews: Crews, job: int, now: int) -> None:
    """Give the workers and the PS back."""
    for row in _crew(crews, job):
        books.free[row[0], books.jobs[job, KIND]] += row[1]
    release(case, books, job, now)


@compiled
def remaining(books: GangBooks, crews: Crews, job: int, now: int) -> int:
    """Announced remaining work of a job that holds workers [worker-µs], at least 1."""
    return max(books.jobs[job, LEFT] - done(_crew(crews, job), now), 1)


@compiled
def _crew(crews: Crews, job: int) -> Ints:
    first = crews.of[job, FIRST]
    return crews.rows[first : first + crews.of[job, SIZE]]


@compiled
def _set_crew(crews: Crews, job: int, workers: Ints) -> None:
    size = len(workers)
    if size > crews.of[job, ROOM]:
        crews.of[job, FIRST], crews.of[job, ROOM] = crews.size[0], size
        crews.size[0] += size
    first = crews.of[job, FIRST]
    crews.rows[first : first + size] = workers
    crews.of[job, SIZE] = size


@compiled
def _supply(case: GangCase, books: GangBooks, job: int, where: Ints, now: int) -> tuple[Ints, Ints]:
    """Bring the data of the workers of `where` to its servers, with a row for each upload.

    An entry of ``books.data`` has the data of the further workers that an upload brought.

    Returns
    -------
    The data then, those of a server in the order brought, and of how many workers each server of `where` had them.
    """
    mine, data, count = books.jobs[job], books.data, 0
    had, before = np.zeros(len(case.delays.cloud), np.int64), np.empty(len(where), np.int64)
    at = mine[DATA]
    while at >= 0:
        had[data[at, 0]] += data[at, 1]
        at, count = data[at, 3], count + 1
    for w in range(len(where)):
        server, n, entry = where[w, 0], where[w, 1], books.at[ENTRIES]
        before[w] = had[server]
        if n > before[w]:
            data[entry, 0], data[entry, 1], data[entry, 3] = server, n - before[w], mine[DATA]
            data[entry, 2] = now + upload_delay(case.delays, job, server)
            mine[DATA], books.at[ENTRIES], count = entry, entry + 1, count + 1
    for row in uploads(where, before, mine[CHUNKS], job, now):
        books.uploads[books.at[UPLOADS]] = row
        books.at[UPLOADS] += 1
    out, at = np.empty((count, 3), np.int64), mine[DATA]
    # the entries are linked from the newest back
    for i in range(count - 1, -1, -1):
        out[i], at = data[at, :3], data[at, 3]
    return out, before


@compiled
def _note_runs(books: GangBooks, crews: Crews, job: int, end: int, spent: int, preempted: int) -> None:
    """The rows of an allocation that has done the work `spent` [worker-µs]; one of length 0 has none.

    Workers that begin together share a row; the work is spread over the rows by their time, in whole worker-µs.
    """
    mine, total, so_far, given = books.jobs[job], 0, 0, 0
    if mine[SINCE] == end:
        return
    parts = joined_at(_crew(crews, job), end)
    for i in range(len(parts)):
        total += parts[i, 1] * (end - parts[i, 2])
    for i in range(len(parts)):
        so_far += parts[i, 1] * (end - parts[i, 2])
        until = so_far if spent == total else times(so_far, spent, total)
        row = books.runs[books.at[RUNS]]
        row[0], row[1], row[2] = job, parts[i, 0], parts[i, 1]
        row[3], row[4], row[5] = mine[SINCE], parts[i, 2], end
        row[6], row[7], row[8], row[9] = until - given, parts[i, 1], mine[ZETA], preempted
        books.at[RUNS] += 1
        given = until
