"""An allocation begins and ends: workers held, data brought, work done, and rows of the record; compiled.

A gang's workers all begin when the slowest upload has ended. Each worker of an elastic allocation
(``Allocate(gang=False)``) begins when its own data arrive, and the present workers continue while others join or leave.
At sites nothing is uploaded, and what is trained is counted slot by slot by the world.

Each transition assumes that the order has been checked, and that the arrays have room.
"""

from __future__ import annotations

from skedge.core.model.cluster import Ints
from skedge.core.model.network import upload_delay
from skedge.core.model.time import NEVER
from skedge.platform.jit import inlined, lean

from .agenda import GANG_ENDS, put
from .data import forget, keep_only, new_entry, on_server, workers_on
from .ledger import (
    ADMITTED,
    ALLOCATIONS,
    AT_SITES,
    BLOCK,
    CHUNKS,
    COLOCATED,
    COMPUTE_FROM,
    DEPARTED,
    ELASTIC,
    EMPTY,
    FINISHED,
    FIRST,
    GANG,
    HELD,
    LEFT,
    NO_PS,
    NO_VALUE,
    NOW,
    NUMBER,
    PS,
    PS_ROWS,
    PS_SINCE,
    REJECTED,
    ROOM,
    RUNS,
    SINCE,
    SIZE,
    STALE,
    STATUS,
    STOPPED,
    STYLE,
    TRAINED,
    TRAININGS,
    TRUE_LEFT,
    TYPE,
    UPLOADS,
    VERSION,
    WORKER_ROWS,
    Case,
    Ledger,
    note_decision,
)
from .orders import ALLOCATE, ALLOCATE_EACH, REJECT, SUSPEND, UPLOAD

# -- an allocation begins --------------------------------------------------------------------------------------------


@lean
def allocate(
    case: Case,
    ledger: Ledger,
    job: int,
    placement: Ints,
    ps: int,
    colocated: int,
    style: int,
    reason: int,
    value: float,
) -> None:
    """Have `job` hold these workers and this PS from now on: :class:`~skedge.core.events.Allocate`.

    A job that holds workers is stopped first: then an elastic allocation continues with those that it keeps.

    Parameters
    ----------
    case, ledger
        The arrays of the run, with room for what it adds.
    job
        Its number.
    placement
        (server, workers) rows, ascending by server.
    ps
        PS slot, -1 in the cloud; NO_PS where PSs are no slots.
    colocated
        1 if communication between these workers and the PS is free.
    style
        GANG, ELASTIC or AT_SITES.
    reason, value
        Number of the reason, and the value; NaN for none.
    """
    job_row, counters, now = ledger.jobs[job], ledger.counters, ledger.counters[NOW]
    if job_row[HELD] > 0:
        stop(case, ledger, job)
    restore = case.overhead if job_row[STYLE] >= 0 else 0
    verb = ALLOCATE_EACH if style == ELASTIC else ALLOCATE
    for w in range(len(placement)):
        if case.on_slots and placement[w, 0] != case.cloud:
            ledger.free[placement[w, 0], job_row[TYPE]] -= placement[w, 1]
        note_decision(ledger, job, verb, placement[w, 0], placement[w, 1], reason, value)
    take_ps(ledger, job, ps)
    if style == ELASTIC:
        _begin_each(case, ledger, job, placement, restore)
    else:
        begin = NEVER if style == AT_SITES else _supply_gang(case, ledger, job, placement) + restore
        _begin_together(ledger, job, placement, begin)
    if case.kept == 0 and style != AT_SITES:
        keep_only(ledger.data, job, placement, style == GANG)
    job_row[STYLE], job_row[SINCE], job_row[NUMBER] = style, now, counters[ALLOCATIONS]
    counters[ALLOCATIONS] += 1
    if job_row[ADMITTED] < 0:
        job_row[ADMITTED] = now
    _convert(ledger, job, colocated)
    if case.simulated and style != AT_SITES:
        end = -(-finish_time(ledger, job) // case.step) * case.step
        put(ledger.agenda, counters, end, GANG_ENDS, job, job_row[VERSION])


@inlined
def is_colocated(case: Case, placement: Ints, ps: int) -> int:
    """1 if all workers are beside their PS where communication is free, as :func:`skedge.core.colocation.colocated`."""
    if len(placement) > 1 or (placement[0, 0] != case.cloud and case.one_server == 0):
        return 0
    return 1 if case.ps_places[ps] == placement[0, 0] else 0


@lean
def take_ps(ledger: Ledger, job: int, ps: int) -> None:
    """A PS begins to serve `job`."""
    job_row = ledger.jobs[job]
    if ps >= 0:
        ledger.ps_job[ps] = job
    job_row[PS], job_row[PS_SINCE] = ps, ledger.counters[NOW]


@inlined
def _begin_together(ledger: Ledger, job: int, placement: Ints, begin: int) -> None:
    """All workers of `placement` begin computing at this time."""
    job_row, n_workers = ledger.jobs[job], 0
    _make_rows(ledger, job, len(placement))
    for w in range(len(placement)):
        row = ledger.workers[job_row[FIRST] + w]
        row[0], row[1], row[2] = placement[w, 0], placement[w, 1], begin
        n_workers += placement[w, 1]
    job_row[HELD], job_row[COMPUTE_FROM] = n_workers, begin


@inlined
def _make_rows(ledger: Ledger, job: int, size: int) -> None:
    """Have `job` have `size` rows of workers, where it had them if there is room."""
    job_row = ledger.jobs[job]
    if size > job_row[ROOM]:
        job_row[FIRST], job_row[ROOM] = ledger.counters[WORKER_ROWS], size
        ledger.counters[WORKER_ROWS] += size
    job_row[SIZE] = size


@inlined
def _supply_gang(case: Case, ledger: Ledger, job: int, placement: Ints) -> int:
    """Bring the data of these workers to their servers; returns when all are there [µs].

    Uploads under way continue while a job is suspended: only the rest of their delay is waited for.
    """
    data, now, last_arrival, n_before, n_workers = ledger.data, ledger.counters[NOW], ledger.counters[NOW], 0, 0
    for w in range(len(placement)):
        n_workers += placement[w, 1]
    for w in range(len(placement)):
        server, n = placement[w, 0], placement[w, 1]
        i, present, arrives = on_server(data, job, server, now)
        if present < n:
            if i == EMPTY:
                i = new_entry(data, job, server)
            # one entry a server is enough for a gang, which waits for the last upload anyway
            arrives = now + upload_delay(case.delays, job, server)
            data.workers[i], data.ready[i] = data.workers[i] + n - present, arrives
        last_arrival = max(last_arrival, arrives)
        _note_upload(ledger, job, server, n, present, n_before, n_workers)
        n_before += n
    return last_arrival


@inlined
def _note_upload(
    ledger: Ledger, job: int, server: int, n: int, present: int, n_before: int, n_workers: int
) -> None:  # fmt: skip
    """A row for the chunks that the new ones of the `n` workers on a server lack; `n_before` are on those before it."""
    chunks = ledger.jobs[job, CHUNKS]
    # shares by cumulated counts, so that they add up to all chunks however they round
    lacking = chunks * (n_before + n) // n_workers - chunks * (n_before + min(n, present)) // n_workers
    if lacking > 0:
        _add_upload(ledger, job, server, lacking)


@inlined
def _add_upload(ledger: Ledger, job: int, server: int, chunks: int) -> None:
    row = ledger.rows.uploads[ledger.counters[UPLOADS]]
    row[0], row[1], row[2], row[3] = job, server, chunks, ledger.counters[NOW]
    ledger.counters[UPLOADS] += 1


@lean
def upload(case: Case, ledger: Ledger, job: int, placement: Ints, copies: int, reason: int) -> None:
    """Bring the data of these workers to their servers ahead of an allocation: :class:`~skedge.core.events.Upload`.

    Parameters
    ----------
    case, ledger
        The arrays of the run, with room for what it adds.
    job
        Its number.
    placement
        (server, workers) rows, ascending by server.
    copies
        1: each server that lacks data receives all chunks, as it is not known yet which of them will train the job; 0:
        those of its share of the workers.
    reason
        Number of the reason.
    """
    n_before = n_workers = 0
    for w in range(len(placement)):
        n_workers += placement[w, 1]
        note_decision(ledger, job, UPLOAD, placement[w, 0], placement[w, 1], reason, NO_VALUE)
    for w in range(len(placement)):
        server, n = placement[w, 0], placement[w, 1]
        present = workers_on(ledger.data, job, server)
        _bring(case, ledger, job, server, n - present)
        if copies and n > present:
            _add_upload(ledger, job, server, ledger.jobs[job, CHUNKS])
        elif not copies:
            _note_upload(ledger, job, server, n, present, n_before, n_workers)
        n_before += n
    if case.kept == 0:
        keep_only(ledger.data, job, placement, True)


@inlined
def _bring(case: Case, ledger: Ledger, job: int, server: int, n: int) -> None:
    """Upload the data of `n` further workers, if any, to a server: an entry of its own, as they come later."""
    if n > 0:
        i = new_entry(ledger.data, job, server)
        ledger.data.workers[i] = n
        ledger.data.ready[i] = ledger.counters[NOW] + upload_delay(case.delays, job, server)


@lean
def _begin_each(case: Case, ledger: Ledger, job: int, placement: Ints, restore: int) -> None:
    """Each worker of `placement` begins when its own data are there; those that it was stopped from just now continue.

    If there are to be fewer on a server, those continue that begin first. The others begin when their data arrive:
    first the workers whose data the server had or was receiving, in order of arrival, then the rest. They are restored
    first.
    """
    job_row, n_before, n_workers = ledger.jobs[job], 0, 0
    for w in range(len(placement)):
        n_workers += placement[w, 1]
    # the new rows are made behind all others, as the present ones are read meanwhile
    first = size = ledger.counters[WORKER_ROWS]
    for w in range(len(placement)):
        server, n = placement[w, 0], placement[w, 1]
        present = workers_on(ledger.data, job, server)
        _bring(case, ledger, job, server, n - present)
        _note_upload(ledger, job, server, n, present, n_before, n_workers)
        n_before += n
        n_continue = 0
        if present > 0 and job_row[STOPPED] == ledger.counters[NOW]:
            size, n_continue = _continue(ledger, job, server, n, size)
        size = _join(ledger, job, server, n, n_continue, restore, size)
    _move_rows(ledger, job, first, size - first)
    _summarise(ledger, job)


@inlined
def _continue(ledger: Ledger, job: int, server: int, n: int, size: int) -> tuple[int, int]:
    """Rows, from number `size` on, of at most `n` workers on a server that continue; returns `size` and how many."""
    job_row, rows, n_continue = ledger.jobs[job], ledger.workers, 0
    for i in range(job_row[FIRST], job_row[FIRST] + job_row[SIZE]):
        if rows[i, 0] == server and n_continue < n:
            rows[size, 0], rows[size, 1] = server, min(n - n_continue, rows[i, 1])
            rows[size, 2] = max(ledger.counters[NOW], rows[i, 2])
            n_continue += rows[size, 1]
            size += 1
    return size, n_continue


@inlined
def _join(ledger: Ledger, job: int, server: int, n: int, n_continue: int, restore: int, size: int) -> int:
    """Rows, from number `size` on, of the workers on a server that begin after the `n_continue` that continue."""
    data, rows, now = ledger.data, ledger.workers, ledger.counters[NOW]
    # the workers that continue use the first data: as many are passed over
    n_joined, n_passed, block = 0, n_continue, data.first[job]
    while block != EMPTY:
        for i in range(BLOCK * block, BLOCK * (block + 1)):
            if data.server[i] == server and n_joined < n - n_continue:
                k = min(data.workers[i] - min(n_passed, data.workers[i]), n - n_continue - n_joined)
                n_passed -= min(n_passed, data.workers[i])
                if k > 0:
                    rows[size, 0], rows[size, 1], rows[size, 2] = server, k, max(now, data.ready[i]) + restore
                    size, n_joined = size + 1, n_joined + k
        block = data.following[block]
    return size


@inlined
def _move_rows(ledger: Ledger, job: int, first: int, size: int) -> None:
    """Move the rows made behind all others to where the job has its rows, or leave them there if it has no room."""
    job_row, rows = ledger.jobs[job], ledger.workers
    _make_rows(ledger, job, size)
    for i in range(size):
        for column in range(3):
            rows[job_row[FIRST] + i, column] = rows[first + i, column]


@lean
def _summarise(ledger: Ledger, job: int) -> None:
    """Note how many workers `job` holds, and when the first begins computing."""
    job_row = ledger.jobs[job]
    job_row[HELD], job_row[COMPUTE_FROM] = 0, NEVER
    for i in range(job_row[FIRST], job_row[FIRST] + job_row[SIZE]):
        job_row[HELD] += ledger.workers[i, 1]
        job_row[COMPUTE_FROM] = min(job_row[COMPUTE_FROM], ledger.workers[i, 2])


# -- work ------------------------------------------------------------------------------------------------------------


@inlined
def work_done(ledger: Ledger, job: int, now: int) -> int:
    """Work that the present allocation has done by `now` [worker-µs]."""
    job_row = ledger.jobs[job]
    if job_row[STYLE] != ELASTIC or job_row[HELD] == 0:
        return max(now - job_row[COMPUTE_FROM], 0) * job_row[HELD]
    total = 0
    for i in range(job_row[FIRST], job_row[FIRST] + job_row[SIZE]):
        total += ledger.workers[i, 1] * max(now - ledger.workers[i, 2], 0)
    return total


@lean
def remaining(ledger: Ledger, jobs: Ints, now: int, left: Ints) -> None:
    """Fill `left`: announced remaining work of `jobs` at `now` [worker-µs], as they are co-located, at least 1.

    Parameters
    ----------
    ledger
        That of the run.
    jobs
        Their numbers, shape ``(n,)``.
    now
        The present [µs], not before the last change of these jobs.
    left
        Out: shape ``(n,)``.
    """
    for i in range(len(jobs)):
        left[i] = max(ledger.jobs[jobs[i], LEFT] - work_done(ledger, jobs[i], now), 1)


@lean
def finish_time(ledger: Ledger, job: int) -> int:
    """When the present allocation of `job` has done all of its true work [µs]."""
    job_row, rows = ledger.jobs[job], ledger.workers
    left = job_row[TRUE_LEFT]
    if job_row[STYLE] != ELASTIC:
        # x - (-a // b) is x plus a / b rounded up
        return job_row[COMPUTE_FROM] - (-left // job_row[HELD])
    # the rate rises whenever workers join: work off the pieces between two such times
    time, rate = job_row[COMPUTE_FROM], 0
    while True:
        joins = NEVER
        for i in range(job_row[FIRST], job_row[FIRST] + job_row[SIZE]):
            if rows[i, 2] == time:
                rate += rows[i, 1]
            elif rows[i, 2] > time:
                joins = min(joins, rows[i, 2])
        if joins == NEVER or left <= (joins - time) * rate:
            return time - (-left // rate)
        left -= (joins - time) * rate
        time = joins


@lean
def _convert(ledger: Ledger, job: int, colocated: int) -> None:
    """Convert the remaining work to another co-location, rounded down so that a plan without slack holds."""
    job_row = ledger.jobs[job]
    before = job_row[COLOCATED]
    if colocated != before:
        announced, work = ledger.announced[job], ledger.work[job]
        job_row[LEFT] = max(1, times(job_row[LEFT], announced[colocated], announced[before]))
        job_row[TRUE_LEFT] = max(1, times(job_row[TRUE_LEFT], work[colocated], work[before]))
        job_row[COLOCATED] = colocated


@lean
def times(left: int, new: int, old: int) -> int:
    """``left * new // old`` without overflow, digit by digit; 0 <= left < 2 * old < 2**63."""
    quotient = rest = 0
    for bit in range(62, -1, -1):
        quotient, rest = 2 * quotient, 2 * rest
        # quotient * old + rest is the product of the bits so far, with rest < old
        if rest >= old:
            quotient, rest = quotient + 1, rest - old
        if (new >> bit) & 1:
            rest += left
            while rest >= old:
                quotient, rest = quotient + 1, rest - old
    return quotient


# -- an allocation ends ----------------------------------------------------------------------------------------------


@lean
def suspend(case: Case, ledger: Ledger, job: int, reason: int) -> None:
    """Take the workers and the PS from `job`, which holds some: :class:`~skedge.core.events.Suspend`.

    Parameters
    ----------
    case, ledger
        The arrays of the run.
    job
        It holds workers.
    reason
        Number of the reason.
    """
    note_decision(ledger, job, SUSPEND, -1, -1, reason, NO_VALUE)
    stop(case, ledger, job)


@lean
def stop(case: Case, ledger: Ledger, job: int) -> None:
    """Take the workers and the PS from `job`, which is not finished; its data stay."""
    job_row, now = ledger.jobs[job], ledger.counters[NOW]
    done = work_done(ledger, job, now)
    # at least 1: a job that is stopped at its very end still has to complete
    true_left = max(job_row[TRUE_LEFT] - done, 1)
    job_row[TRAINED] = job_row[TRUE_LEFT] - true_left
    ledger.counters[TRAININGS] += job_row[TRAINED] > 0
    _note_runs(case, ledger, job, job_row[TRAINED], 1)
    job_row[LEFT], job_row[TRUE_LEFT] = max(job_row[LEFT] - done, 1), true_left
    job_row[STOPPED] = now
    _release(case, ledger, job)


@lean
def finish(case: Case, ledger: Ledger, job: int) -> None:
    """`job` has done its work, or has failed and holds no workers; what it holds is released, and it is forgotten."""
    job_row = ledger.jobs[job]
    if job_row[HELD] > 0:
        job_row[TRAINED] = job_row[TRUE_LEFT]
        _note_runs(case, ledger, job, job_row[TRAINED], 0)
        _release(case, ledger, job)
    else:
        release_ps(ledger, job)
    job_row[LEFT] = job_row[TRUE_LEFT] = job_row[SIZE] = 0
    job_row[STOPPED] = -1
    leave(ledger, job, FINISHED)
    forget(ledger.data, job)


@inlined
def leave(ledger: Ledger, job: int, status: int) -> None:
    """`job` leaves the system: FINISHED or REJECTED."""
    ledger.jobs[job, STATUS] = status
    ledger.counters[DEPARTED] += 1


@lean
def _release(case: Case, ledger: Ledger, job: int) -> None:
    """Release the workers and the PS; the end on the agenda is obsolete."""
    job_row = ledger.jobs[job]
    if case.on_slots:
        for i in range(job_row[FIRST], job_row[FIRST] + job_row[SIZE]):
            if ledger.workers[i, 0] != case.cloud:
                ledger.free[ledger.workers[i, 0], job_row[TYPE]] += ledger.workers[i, 1]
    release_ps(ledger, job)
    job_row[HELD] = 0
    job_row[VERSION] += 1
    ledger.counters[STALE] += case.simulated and job_row[STYLE] != AT_SITES


@lean
def release_ps(ledger: Ledger, job: int) -> None:
    """Release the PS slot of `job`, if it has one; a PS that has served for some time is noted."""
    job_row, counters = ledger.jobs[job], ledger.counters
    if job_row[PS] == NO_PS:
        return
    if job_row[PS] >= 0:
        ledger.ps_job[job_row[PS]] = -1
    if job_row[PS_SINCE] < counters[NOW]:
        row = ledger.rows.ps[counters[PS_ROWS]]
        row[0], row[1], row[2], row[3], row[4] = job, job_row[PS], 1, job_row[PS_SINCE], counters[NOW]
        counters[PS_ROWS] += 1
    job_row[PS] = NO_PS


@lean
def _note_runs(case: Case, ledger: Ledger, job: int, done: int, preempted: int) -> None:
    """The rows of an allocation that has done this work [worker-µs]; one of length 0 has none."""
    job_row = ledger.jobs[job]
    if case.simulated == 0 or job_row[SINCE] == ledger.counters[NOW] or job_row[STYLE] == AT_SITES:
        return
    if job_row[STYLE] == ELASTIC:
        _note_elastic_runs(ledger, job, done, preempted)
        return
    for i in range(job_row[FIRST], job_row[FIRST] + job_row[SIZE]):
        _note_run(ledger, job, ledger.workers[i, 0], ledger.workers[i, 1], job_row[COMPUTE_FROM])
        row = ledger.rows.runs[ledger.counters[RUNS] - 1]
        row[6], row[7], row[9] = done, job_row[HELD], preempted


@inlined
def _note_run(ledger: Ledger, job: int, server: int, n: int, begin: int) -> None:
    """A row of an allocation that ends now."""
    job_row, counters = ledger.jobs[job], ledger.counters
    row = ledger.rows.runs[counters[RUNS]]
    row[0], row[1], row[2], row[3], row[4], row[5] = (
        job,
        server,
        n,
        job_row[SINCE],
        min(begin, counters[NOW]),
        counters[NOW],
    )
    row[8] = job_row[COLOCATED]
    counters[RUNS] += 1


@lean
def _note_elastic_runs(ledger: Ledger, job: int, done: int, preempted: int) -> None:
    """One row for the workers that begin together on a server; the work is spread over the rows by their time."""
    job_row, counters, rows = ledger.jobs[job], ledger.counters, ledger.rows.runs
    first, total = counters[RUNS], 0
    for i in range(job_row[FIRST], job_row[FIRST] + job_row[SIZE]):
        server, n, begin = ledger.workers[i, 0], ledger.workers[i, 1], min(ledger.workers[i, 2], counters[NOW])
        total += n * (counters[NOW] - begin)
        k = counters[RUNS] - 1
        while k >= first and not (rows[k, 1] == server and rows[k, 4] == begin):
            k -= 1
        if k >= first:
            rows[k, 2] += n
        else:
            _note_run(ledger, job, server, n, begin)
    so_far = before = 0
    for k in range(first, counters[RUNS]):
        so_far += rows[k, 2] * (counters[NOW] - rows[k, 4])
        until = so_far if done == total else times(so_far, done, total)
        rows[k, 6], rows[k, 7], rows[k, 9] = until - before, rows[k, 2], preempted
        before = until


@lean
def reject(ledger: Ledger, job: int, reason: int, value: float) -> None:
    """Reject `job`: :class:`~skedge.core.events.Reject`.

    Parameters
    ----------
    ledger
        The ledger of the run.
    job
        It has never held anything.
    reason, value
        Number of the reason, and the value; NaN for none.
    """
    note_decision(ledger, job, REJECT, -1, -1, reason, value)
    leave(ledger, job, REJECTED)
