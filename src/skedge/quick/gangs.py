"""An allocation of a gang begins and ends: the books, its progress, and the rows of the record, compiled.

As the kernel and the simulated world do it together (:mod:`skedge.core.kernel`, :mod:`skedge.core.books`,
:mod:`skedge.sim.holding`). The placement is that of ``state.gang``, by server.
"""

from __future__ import annotations

import numpy as np

from skedge.core.jit import compiled, inlined, lean
from skedge.core.model import Ints
from skedge.core.network import upload_delay
from skedge.core.schedule import VERBS

from .state import AGENDA, DECISIONS, NO_PS, PS, RUNS, STALE, UPLOADS, Case, Jobs, State

ALLOCATE, SUSPEND, REJECT = (VERBS.index(verb) for verb in ("allocate", "suspend", "reject"))


@compiled
def begin(case: Case, state: State, job: int, ps: int, now: int, reason: int) -> None:
    """Allocate its placement and the PS `ps` to `job`: :class:`~skedge.core.events.Allocate`."""
    jobs, gang = state.jobs, state.gang
    _sort_placement(gang.servers[job], gang.counts[job], gang.used[job])
    _take(case, state, job, ps, now)
    ready = _supply(case, state, job, now, reason)
    jobs.compute_from[job] = ready + (case.overhead if jobs.started[job] else 0)
    jobs.held[job], jobs.since[job], jobs.started[job] = case.workers[job], now, 1
    if jobs.admitted[job] < 0:
        jobs.admitted[job] = now
    _set_zeta(case, state, job, _colocated(case, state, job, ps))
    end = jobs.compute_from[job] - (-jobs.true_left[job] // jobs.held[job])
    put(state, -(-end // case.step) * case.step, job, jobs.version[job])


@lean
def _sort_placement(servers: Ints, counts: Ints, used: int) -> None:
    """Sort a placement by server."""
    for i in range(1, used):
        server, count, k = servers[i], counts[i], i
        while k > 0 and servers[k - 1] > server:
            servers[k], counts[k] = servers[k - 1], counts[k - 1]
            k -= 1
        servers[k], counts[k] = server, count


@lean
def _take(case: Case, state: State, job: int, ps: int, now: int) -> None:
    """Take the workers and the PS from what is free."""
    jobs, gang, kind = state.jobs, state.gang, case.kind[job]
    for i in range(gang.used[job]):
        if gang.servers[job, i] != case.cloud:
            state.free[gang.servers[job, i], kind] -= gang.counts[job, i]
    if ps >= 0:
        state.ps_job[ps] = job
    jobs.ps[job], jobs.ps_since[job] = ps, now


@lean
def _supply(case: Case, state: State, job: int, now: int, reason: int) -> int:
    """Bring the data of its workers to the servers; a decision and an upload for each. Returns when all are there."""
    gang, data, rows, ready, given = state.gang, state.data, state.rows, now, 0
    for i in range(gang.used[job]):
        server, n = gang.servers[job, i], gang.counts[job, i]
        _note_decision(state, now, job, ALLOCATE, server, n, reason)
        entry = data.first[job]
        while entry >= 0 and data.server[entry] != server:
            entry = data.following[entry]
        if entry < 0:
            entry = data.size[0]
            data.size[0] += 1
            data.server[entry], data.workers[entry], data.following[entry] = server, 0, data.first[job]
            data.first[job] = entry
        before = data.workers[entry]
        if before < n:
            data.workers[entry], data.ready[entry] = n, now + upload_delay(case.delays, job, server)
        ready = max(ready, data.ready[entry])
        chunks, workers = case.chunks[job], case.workers[job]
        lacking = chunks * (given + n) // workers - chunks * (given + min(n, before)) // workers
        given += n
        if lacking > 0:
            row = rows.count[UPLOADS]
            rows.uploads[row, 0], rows.uploads[row, 1] = job, server
            rows.uploads[row, 2], rows.uploads[row, 3] = lacking, now
            rows.count[UPLOADS] += 1
    return ready


@inlined
def _colocated(case: Case, state: State, job: int, ps: int) -> int:
    """Zeta of an allocation, as :func:`skedge.core.colocation.colocated`."""
    server = state.gang.servers[job, 0]
    if state.gang.used[job] > 1 or (server != case.cloud and case.one_server == 0):
        return 0
    return 1 if case.ps_places[ps] == server else 0


@lean
def _set_zeta(case: Case, state: State, job: int, zeta: int) -> None:
    """Convert the remaining work to another zeta."""
    jobs, old = state.jobs, state.jobs.zeta[job]
    if zeta != old:
        jobs.left[job] = max(1, times(jobs.left[job], case.announced[job, zeta], case.announced[job, old]))
        jobs.true_left[job] = max(1, times(jobs.true_left[job], case.work[job, zeta], case.work[job, old]))
        jobs.zeta[job] = zeta


@lean
def times(left: int, new: int, old: int) -> int:
    """``left * new // old`` without overflow, digit by digit; 0 <= left <= old < 2**62."""
    whole = rest = np.int64(0)
    for bit in range(62, -1, -1):
        whole, rest = 2 * whole, 2 * rest
        if rest >= old:
            whole, rest = whole + 1, rest - old
        if (new >> bit) & 1:
            rest += left
            if rest >= old:
                whole, rest = whole + 1, rest - old
    return whole


@lean
def suspend(case: Case, state: State, job: int, now: int, reason: int) -> None:
    """Take the workers and the PS from `job`: :class:`~skedge.core.events.Suspend`."""
    jobs = state.jobs
    _release(case, state, job, now)
    _note_decision(state, now, job, SUSPEND, -1, -1, reason)
    so_far = max(now - jobs.compute_from[job], 0) * jobs.held[job]
    left = max(jobs.true_left[job] - so_far, 1)
    _note_run(state, job, now, jobs.true_left[job] - left, 1)
    jobs.left[job], jobs.true_left[job] = max(jobs.left[job] - so_far, 1), left
    jobs.held[job] = 0
    jobs.version[job] += 1
    state.at[STALE] += 1


@lean
def finish(case: Case, state: State, job: int, now: int) -> None:
    """`job` completes."""
    _note_run(state, job, now, state.jobs.true_left[job], 0)
    _release(case, state, job, now)
    state.jobs.held[job] = 0


@lean
def _release(case: Case, state: State, job: int, now: int) -> None:
    """Give the workers and the PS back; a PS that has served for some time is noted."""
    jobs, gang, rows, kind, ps = state.jobs, state.gang, state.rows, case.kind[job], state.jobs.ps[job]
    for i in range(gang.used[job]):
        if gang.servers[job, i] != case.cloud:
            state.free[gang.servers[job, i], kind] += gang.counts[job, i]
    if ps >= 0:
        state.ps_job[ps] = -1
    if jobs.ps_since[job] < now:
        row = rows.count[PS]
        rows.ps[row, 0], rows.ps[row, 1], rows.ps[row, 2] = job, ps, 1
        rows.ps[row, 3], rows.ps[row, 4] = jobs.ps_since[job], now
        rows.count[PS] += 1
    jobs.ps[job] = NO_PS


@inlined
def _note_decision(state: State, now: int, job: int, verb: int, server: int, workers: int, reason: int) -> None:
    rows, row = state.rows.decisions, state.rows.count[DECISIONS]
    rows[row, 0], rows[row, 1], rows[row, 2] = now, job, verb
    rows[row, 3], rows[row, 4], rows[row, 5] = server, workers, reason
    state.rows.count[DECISIONS] += 1


@lean
def reject(state: State, job: int, now: int, reason: int) -> None:
    """Reject `job`."""
    _note_decision(state, now, job, REJECT, -1, -1, reason)


@lean
def _note_run(state: State, job: int, end: int, done: int, preempted: int) -> None:
    """The rows of an allocation that has done this work [worker-µs]; one of length 0 has none."""
    jobs, gang, rows = state.jobs, state.gang, state.rows.runs
    if jobs.since[job] == end:
        return
    for i in range(gang.used[job]):
        row = state.rows.count[RUNS]
        rows[row, 0], rows[row, 1], rows[row, 2] = job, gang.servers[job, i], gang.counts[job, i]
        rows[row, 3], rows[row, 4], rows[row, 5] = jobs.since[job], min(jobs.compute_from[job], end), end
        rows[row, 6], rows[row, 7], rows[row, 8], rows[row, 9] = done, jobs.held[job], jobs.zeta[job], preempted
        state.rows.count[RUNS] += 1


# -- the agenda ------------------------------------------------------------------------------------------------------


@lean
def put(state: State, time: int, job: int, version: int) -> None:
    """Put the end of an allocation, or a wake-up (job -1), on the agenda."""
    heap, i = state.agenda, state.at[AGENDA]
    state.at[AGENDA] += 1
    while i > 0 and heap[(i - 1) // 2, 0] > time:
        _move(heap, (i - 1) // 2, i)
        i = (i - 1) // 2
    heap[i, 0], heap[i, 1], heap[i, 2] = time, job, version


@lean
def drop(state: State) -> None:
    """Remove the first entry of the agenda."""
    state.at[AGENDA] -= 1
    heap, size = state.agenda, state.at[AGENDA]
    _sift(heap, size, 0, heap[size, 0], heap[size, 1], heap[size, 2])


@inlined
def _sift(heap: Ints, size: int, hole: int, time: int, job: int, version: int) -> None:
    """Put an entry into the hole, or below it."""
    i = hole
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and heap[child + 1, 0] < heap[child, 0]:
            child += 1
        if heap[child, 0] >= time:
            break
        _move(heap, child, i)
        i = child
    heap[i, 0], heap[i, 1], heap[i, 2] = time, job, version


@inlined
def _move(heap: Ints, source: int, target: int) -> None:
    heap[target, 0], heap[target, 1], heap[target, 2] = heap[source, 0], heap[source, 1], heap[source, 2]


@lean
def tidy(jobs: Jobs, state: State) -> None:
    """Remove obsolete entries once they are the majority: they can far outnumber the others."""
    heap, size = state.agenda, state.at[AGENDA]
    if 2 * state.at[STALE] <= size:
        return
    kept = 0
    for i in range(size):
        if heap[i, 1] < 0 or heap[i, 2] == jobs.version[heap[i, 1]]:
            _move(heap, i, kept)
            kept += 1
    state.at[AGENDA], state.at[STALE] = kept, 0
    for i in range(kept // 2 - 1, -1, -1):
        _sift(heap, kept, i, heap[i, 0], heap[i, 1], heap[i, 2])
