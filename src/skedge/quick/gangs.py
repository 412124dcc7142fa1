"""An allocation of a gang begins and ends: the books, its progress, and the rows of the record, compiled.

As the kernel and the simulated world do it together (:mod:`skedge.core.kernel.kernel`, :mod:`skedge.core.engine.gangs`,
:mod:`skedge.sim.holding`).
"""

from __future__ import annotations

from skedge.core.engine.kept_data import Stored, entry
from skedge.core.model.cluster import Ints
from skedge.core.model.network import upload_delay
from skedge.core.record.schedule import VERBS
from skedge.platform.jit import inlined, lean

from .state import (
    ADMITTED,
    AGENDA,
    ANNOUNCED,
    CHUNKS,
    COMPUTE_FROM,
    DECISIONS,
    HELD,
    KIND,
    LEFT,
    NO_PS,
    PS,
    PS_ROWS,
    PS_SINCE,
    RUNS,
    SERVERS,
    SINCE,
    STALE,
    STARTED,
    TRUE_LEFT,
    UPLOADS,
    VERSION,
    WORK,
    WORKERS,
    ZETA,
    GangBooks,
    GangCase,
)

ALLOCATE, SUSPEND, REJECT = (VERBS.index(verb) for verb in ("allocate", "suspend", "reject"))


@lean
def begin(case: GangCase, books: GangBooks, stored: Stored, job: int, ps: int, now: int, reason: int) -> None:
    """Allocate its placement in ``books.placed`` and the PS `ps` to `job`: :class:`~skedge.core.events.Allocate`."""
    mine = books.jobs[job]
    for i in range(mine[SERVERS]):
        server, n = books.placed[job, i, 0], books.placed[job, i, 1]
        if server != case.cloud:
            books.free[server, mine[KIND]] -= n
        note_decision(books, now, job, ALLOCATE, server, n, reason)
    if ps >= 0:
        books.ps_job[ps] = job
    mine[PS], mine[PS_SINCE] = ps, now
    mine[COMPUTE_FROM] = _supply(case, books, stored, job, now) + (case.overhead if mine[STARTED] else 0)
    mine[HELD], mine[SINCE], mine[STARTED] = mine[WORKERS], now, 1
    if mine[ADMITTED] < 0:
        mine[ADMITTED] = now
    set_zeta(mine, _colocated(case, books, job, ps))
    end = mine[COMPUTE_FROM] - (-mine[TRUE_LEFT] // mine[HELD])
    put(books.agenda, books.at, -(-end // case.step) * case.step, job, mine[VERSION])


@inlined
def _supply(case: GangCase, books: GangBooks, stored: Stored, job: int, now: int) -> int:
    """Bring the data of its workers to the servers, with a row for each upload; returns when all are there."""
    mine, ready, given = books.jobs[job], now, 0
    chunks, workers = mine[CHUNKS], mine[WORKERS]
    for i in range(mine[SERVERS]):
        server, n = books.placed[job, i, 0], books.placed[job, i, 1]
        at = entry(stored, job, server)
        before = stored.workers[at]
        if before < n:
            stored.workers[at], stored.ready[at] = n, now + upload_delay(case.delays, job, server)
        ready = max(ready, stored.ready[at])
        # shares by cumulated counts, as in core/engine/shares.py, so that the rows are equal
        lacking = chunks * (given + n) // workers - chunks * (given + min(n, before)) // workers
        given += n
        if lacking > 0:
            row = books.uploads[books.at[UPLOADS]]
            row[0], row[1], row[2], row[3] = job, server, lacking, now
            books.at[UPLOADS] += 1
    return ready


@inlined
def _colocated(case: GangCase, books: GangBooks, job: int, ps: int) -> int:
    """Zeta of an allocation, as :func:`skedge.core.colocation.colocated`."""
    server = books.placed[job, 0, 0]
    if books.jobs[job, SERVERS] > 1 or (server != case.cloud and case.one_server == 0):
        return 0
    return 1 if case.ps_places[ps] == server else 0


@inlined
def set_zeta(mine: Ints, zeta: int) -> None:
    """Convert the remaining work of the job with this row to another zeta."""
    old = mine[ZETA]
    if zeta != old:
        mine[LEFT] = max(1, times(mine[LEFT], mine[ANNOUNCED + zeta], mine[ANNOUNCED + old]))
        mine[TRUE_LEFT] = max(1, times(mine[TRUE_LEFT], mine[WORK + zeta], mine[WORK + old]))
        mine[ZETA] = zeta


@lean
def times(left: int, new: int, old: int) -> int:
    """``left * new // old`` without overflow, digit by digit; 0 <= left <= old < 2**62."""
    whole = rest = 0
    for bit in range(62, -1, -1):
        whole, rest = 2 * whole, 2 * rest
        # whole * old + rest is the product of the bits so far, with rest < old
        if rest >= old:
            whole, rest = whole + 1, rest - old
        if (new >> bit) & 1:
            rest += left
            if rest >= old:
                whole, rest = whole + 1, rest - old
    return whole


@lean
def suspend(case: GangCase, books: GangBooks, job: int, now: int, reason: int) -> None:
    """Take the workers and the PS from `job`: :class:`~skedge.core.events.Suspend`."""
    mine = books.jobs[job]
    so_far = max(now - mine[COMPUTE_FROM], 0) * mine[HELD]
    left = max(mine[TRUE_LEFT] - so_far, 1)
    note_decision(books, now, job, SUSPEND, -1, -1, reason)
    _note_run(books, job, now, mine[TRUE_LEFT] - left, 1)
    release(case, books, job, now)
    mine[LEFT], mine[TRUE_LEFT] = max(mine[LEFT] - so_far, 1), left
    mine[VERSION] += 1
    books.at[STALE] += 1


@lean
def finish(case: GangCase, books: GangBooks, job: int, now: int) -> None:
    """`job` completes."""
    _note_run(books, job, now, books.jobs[job, TRUE_LEFT], 0)
    release(case, books, job, now)


@inlined
def release(case: GangCase, books: GangBooks, job: int, now: int) -> None:
    """Give the workers and the PS back; a PS that has served for some time is noted."""
    mine = books.jobs[job]
    for i in range(mine[SERVERS]):
        if books.placed[job, i, 0] != case.cloud:
            books.free[books.placed[job, i, 0], mine[KIND]] += books.placed[job, i, 1]
    if mine[PS] >= 0:
        books.ps_job[mine[PS]] = -1
    if mine[PS_SINCE] < now:
        row = books.ps[books.at[PS_ROWS]]
        row[0], row[1], row[2], row[3], row[4] = job, mine[PS], 1, mine[PS_SINCE], now
        books.at[PS_ROWS] += 1
    mine[PS], mine[HELD] = NO_PS, 0


@lean
def reject(books: GangBooks, job: int, now: int, reason: int) -> None:
    """Reject `job`."""
    note_decision(books, now, job, REJECT, -1, -1, reason)


@inlined
def note_decision(books: GangBooks, now: int, job: int, verb: int, server: int, workers: int, reason: int) -> None:
    """Add a row to the decisions."""
    row = books.decisions[books.at[DECISIONS]]
    row[0], row[1], row[2], row[3], row[4], row[5] = now, job, verb, server, workers, reason
    books.at[DECISIONS] += 1


@inlined
def _note_run(books: GangBooks, job: int, end: int, done: int, preempted: int) -> None:
    """The rows of an allocation that has done this work [worker-µs]; one of length 0 has none."""
    mine = books.jobs[job]
    if mine[SINCE] < end:
        for i in range(mine[SERVERS]):
            row = books.runs[books.at[RUNS]]
            row[0], row[1], row[2] = job, books.placed[job, i, 0], books.placed[job, i, 1]
            row[3], row[4], row[5] = mine[SINCE], min(mine[COMPUTE_FROM], end), end
            row[6], row[7], row[8], row[9] = done, mine[HELD], mine[ZETA], preempted
            books.at[RUNS] += 1


# -- the agenda ------------------------------------------------------------------------------------------------------


@lean
def put(agenda: Ints, at: Ints, time: int, job: int, version: int) -> None:
    """Put the end of an allocation, or a wake-up (job -1), on the agenda."""
    i = at[AGENDA]
    at[AGENDA] += 1
    while i > 0 and agenda[(i - 1) // 2, 0] > time:
        _set(agenda, i, agenda[(i - 1) // 2, 0], agenda[(i - 1) // 2, 1], agenda[(i - 1) // 2, 2])
        i = (i - 1) // 2
    _set(agenda, i, time, job, version)


@lean
def drop(agenda: Ints, at: Ints) -> None:
    """Remove the first entry of the agenda."""
    at[AGENDA] -= 1
    last = at[AGENDA]
    _sift(agenda, last, 0, agenda[last, 0], agenda[last, 1], agenda[last, 2])


@lean
def tidy(agenda: Ints, at: Ints, jobs: Ints) -> None:
    """Remove obsolete entries once they are the majority: they can far outnumber the others."""
    if 2 * at[STALE] <= at[AGENDA]:
        return
    kept = 0
    for i in range(at[AGENDA]):
        # a wake-up is always valid, an end only if the allocation has not been replaced since
        if agenda[i, 1] < 0 or agenda[i, 2] == jobs[agenda[i, 1], VERSION]:
            _set(agenda, kept, agenda[i, 0], agenda[i, 1], agenda[i, 2])
            kept += 1
    at[AGENDA], at[STALE] = kept, 0
    # the entries that are left are no heap any more
    for i in range(kept // 2 - 1, -1, -1):
        _sift(agenda, kept, i, agenda[i, 0], agenda[i, 1], agenda[i, 2])


@lean
def _sift(agenda: Ints, size: int, hole: int, time: int, job: int, version: int) -> None:
    """Put an entry into the hole, or below it."""
    i = hole
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and agenda[child + 1, 0] < agenda[child, 0]:
            child += 1
        if agenda[child, 0] >= time:
            break
        _set(agenda, i, agenda[child, 0], agenda[child, 1], agenda[child, 2])
        i = child
    _set(agenda, i, time, job, version)


@inlined
def _set(agenda: Ints, i: int, time: int, job: int, version: int) -> None:
    agenda[i, 0], agenda[i, 1], agenda[i, 2] = time, job, version
