"""Whole runs, compiled: Alg. 1 and Alg. 5 on the engine's ledger and on both instances of the lanes.

A_greedy, the projection of a lane, the choice of a PS and the transitions are the functions that ``policy.py``, the
kernel and the simulated world call; the loop carries facts and orders between them. If every chunk takes as long as
announced, belief and truth are equal whenever a job arrives, and one instance of the lanes serves as both.
"""

from __future__ import annotations

from skedge.core.engine import truth as truth_of
from skedge.core.engine.agenda import CLOUD_ENDS, CLOUD_STARTS, put
from skedge.core.engine.ahead import has_lookahead, look_ahead
from skedge.core.engine.allocations import reject, release_ps, take_ps
from skedge.core.engine.lanes import EACH, LEFT, believe_finished, bring_to, send_chunks
from skedge.core.engine.ledger import (
    ADMITTED,
    ARRIVED,
    CHUNKS,
    COLOCATED,
    NO_PS,
    NO_VALUE,
    NOW,
    PS_TYPE,
    TYPE,
    Case,
    Ledger,
)
from skedge.core.engine.projection import common_scale, fill_weights
from skedge.core.engine.step import n_arrivals, next_time, take_all_due
from skedge.core.model.network import upload_delay
from skedge.core.model.time import NEVER
from skedge.platform.jit import inlined, lean

from .a_greedy import CLOUD, JobChunks, count_postponed, fill_group, greedy
from .a_ps import choose_ps
from .state import (
    ANSWERED,
    BASE,
    COMPLETED,
    DISPATCHES,
    IMPOSSIBLE,
    MORE,
    STUCK,
    UNSETTLED,
    LaneBooks,
    LaneCase,
    can_send,
    has_rows,
)

OVER, FULL, PAUSED, ALL_ANSWERED = range(4)
"""Why :func:`advance` returns: the run is over, or cannot go on; the arrays need room; it has done its events; all jobs
of the ledger are answered, and more follow."""


@lean
def advance(case: LaneCase, books: LaneBooks, events: int) -> int:
    """Go on for at most this number of events; stops before one, or a dispatch, for which an array may lack room."""
    why = PAUSED
    while events > 0 and why == PAUSED:
        events -= 1
        if not _answer(case, books):
            why = FULL
        elif books.counters[MORE] == 1 and books.counters[ANSWERED] == len(books.ledger.jobs):
            _learn(case, books)
            why = ALL_ANSWERED
        else:
            why = _next_event(case, books) if has_rows(books) else FULL
    return why


@inlined
def _answer(case: LaneCase, books: LaneBooks) -> bool:
    """Dispatch or reject the jobs that have arrived; returns whether there was room for all."""
    counters = books.counters
    while counters[ANSWERED] < books.ledger.counters[ARRIVED]:
        job = counters[ANSWERED]
        if not can_send(books, job):
            return False
        if _place(case, books, job):
            _send(case, books, job)
        else:
            reject(books.ledger, job, 0, NO_VALUE)
        counters[ANSWERED] += 1
    return True


@inlined
def _next_event(case: LaneCase, books: LaneBooks) -> int:
    """Run the lanes up to the next event and carry it out; PAUSED if the run may go on."""
    counters, times, why = books.counters, books.ledger.counters, truth_of.QUIET
    now = next_time(books.ledger, len(books.ledger.jobs))
    if counters[DISPATCHES] > 0:
        why, now = truth_of.run(books.truth, times[NOW] if counters[UNSETTLED] else -1, now)
    counters[UNSETTLED] = 0
    if why == truth_of.FULL:
        _learn(case, books)
        return FULL
    if why == truth_of.QUIET and now == NEVER:
        return OVER
    times[NOW] = now
    if why == truth_of.SETTLED:
        _give_ps(case.engine, books)
    else:
        counters[UNSETTLED] = 1
        _happening(books)
    return PAUSED if counters[STUCK] == 0 else OVER


@lean
def _happening(books: LaneBooks) -> None:
    """Completions, arrivals, and what happens in the cloud now."""
    ledger, truth, due, n_due = books.ledger, books.truth, books.due, len(books.due)
    while n_due == len(due):
        n_due = take_all_due(ledger.agenda, ledger.counters, ledger.jobs, due)
        for i in range(n_due):
            if truth_of.change_in_cloud(truth, due[i, 0], due[i, 1], due[i, 2]):
                _finish(books, due[i, 1])
    for i in range(truth.size[truth_of.DONE]):
        _finish(books, truth.done[i])
    truth.size[truth_of.DONE] = 0
    ledger.counters[ARRIVED] += n_arrivals(ledger, len(ledger.jobs))


@inlined
def _finish(books: LaneBooks, job: int) -> None:
    """`job` completes."""
    release_ps(books.ledger, job)
    books.completed[books.counters[COMPLETED]] = job
    books.counters[COMPLETED] += 1


@lean
def _give_ps(case: Case, books: LaneBooks) -> None:
    """Take the PS from the jobs that have paused, then give one to those that have started, in order: Alg. 5."""
    ledger, switches, n_started = books.ledger, books.truth.switches, 0
    for i in range(books.truth.size[truth_of.SWITCHES]):
        job, running, k = switches[i, 0], switches[i, 1], n_started
        if running == 0:
            release_ps(ledger, job)
            continue
        while k > 0 and switches[k - 1, 0] > job:
            switches[k, 0] = switches[k - 1, 0]
            k -= 1
        switches[k, 0] = job
        n_started += 1
    books.truth.size[truth_of.SWITCHES] = 0
    for i in range(n_started):
        ps = _ps_for(case, ledger, switches[i, 0])
        if ps == NO_PS and books.counters[STUCK] == 0:
            books.counters[STUCK] = switches[i, 0] + 1
        take_ps(ledger, switches[i, 0], ps)


@inlined
def _ps_for(case: Case, ledger: Ledger, job: int) -> int:
    """The PS for a job that begins to run."""
    job_row, slots = ledger.jobs[job], case.ps_list[:0]
    if job_row[PS_TYPE] >= 0:
        # the lists by type are behind those by server and type
        i = len(case.ps_first) - 1 - case.ps_types + job_row[PS_TYPE]
        slots = case.ps_list[case.ps_first[i] : case.ps_first[i + 1]]
    return choose_ps(slots, ledger.ps_job, job_row[COLOCATED] == 1, case.cloud >= 0)


# -- Alg. 1 ----------------------------------------------------------------------------------------------------------


@inlined
def _learn(case: LaneCase, books: LaneBooks) -> None:
    """Correct the belief by the chunks completed since the last time."""
    if case.as_announced == 0:
        facts = books.truth.facts[: books.truth.size[truth_of.FACTS]]
        times, lane, job = facts[:, truth_of.FACT_TIME], facts[:, truth_of.FACT_LANE], facts[:, truth_of.FACT_JOB]
        if believe_finished(books.belief, times, lane, job) >= 0:
            books.counters[IMPOSSIBLE] = 1
    books.truth.size[truth_of.FACTS] = 0


@lean
def _place(case: LaneCase, books: LaneBooks, job: int) -> bool:
    """Find the places of a job that has arrived; False if no worker may ever take it."""
    n, kind, now = books.ledger.jobs[job, CHUNKS], books.ledger.jobs[job, TYPE], books.ledger.counters[NOW]
    candidates = case.lanes[:0]
    if kind >= 0:
        candidates = case.lanes[case.lanes_first[kind] : case.lanes_first[kind + 1]]
    if len(candidates) == 0 and case.cloud < 0:
        return False
    _learn(case, books)
    scale = common_scale(books.weights[0], n)
    if scale != books.weights[0]:
        fill_weights(books.weights, scale)
    is_projected = has_lookahead(books.belief, case.mode)
    # where the belief is the truth, this advances the true lanes: no event lies in between
    if case.as_announced == 0 or not is_projected:
        bring_to(books.belief, candidates, now)
    if is_projected:
        look_ahead(books.belief, candidates, now, books.weights)
    c, first = _chunks(case, books, job), books.truth.first[job] - books.counters[BASE]
    lane, postponed, alpha = books.order[0, :n], books.order[1, :n], books.alpha[first : first + n]
    greedy(
        books.belief, c, candidates, case.lane_server, case.engine.delays, books.weights, case.free_bytes, books.costs,
        lane, alpha, postponed,
    )  # fmt: skip
    lacks = False
    for d in range(n):
        lacks |= postponed[d] < 0
    if lacks:
        count_postponed(
            books.belief, c, case.lane_server, case.engine.delays, books.weights, books.costs.scratch, lane, postponed
        )
    return True


@inlined
def _chunks(case: LaneCase, books: LaneBooks, job: int) -> JobChunks:
    """The job as A_greedy sees it."""
    n, p = books.ledger.jobs[job, CHUNKS], case.chunk_time[job]
    delay = upload_delay(case.engine.delays, job, case.cloud) if case.cloud >= 0 else -1
    return JobChunks(
        job, books.counters[DISPATCHES], n, n, books.ledger.counters[NOW], case.arrival[job], p[0],
        case.chunk_bytes[job], delay, (p[0], p[1]), case.mode,
    )  # fmt: skip


@lean
def _send(case: LaneCase, books: LaneBooks, job: int) -> None:
    """Send the chunks of `job` to their places, as believed and in truth, and to the cloud."""
    ledger, truth, group, delays = books.ledger, books.truth, books.costs.group, case.engine.delays
    job_row, now, first = ledger.jobs[job], ledger.counters[NOW], truth.first[job]
    lane, n_away = books.order[0, : job_row[CHUNKS]], 0
    for d in range(len(lane)):
        row = first - books.counters[BASE] + d
        books.lane[row], books.postponed[row] = lane[d], books.order[1, d]
        n_away += lane[d] == CLOUD
    fill_group(group, _chunks(case, books, job), now, 0)
    if case.as_announced == 0:
        send_chunks(books.belief, group, lane, case.lane_server, delays, now, truth.links[:0])
        group[EACH] = group[LEFT] = case.true_chunk_time[job, 0]
    send_chunks(truth.lanes, group, lane, case.lane_server, delays, now, truth.links[first : first + len(lane)])
    truth_of.arrive_now(truth, lane, now)
    job_row[ADMITTED] = now
    books.counters[DISPATCHES] += 1
    if n_away > 0:
        job_row[COLOCATED] = n_away == len(lane)
        start = now + upload_delay(delays, job, case.cloud)
        end, step = start + case.true_chunk_time[job, job_row[COLOCATED]], case.engine.step
        # each chunk has a worker of its own there, so that all start and end together
        put(ledger.agenda, ledger.counters, -(-start // step) * step, CLOUD_STARTS, job, n_away)
        put(ledger.agenda, ledger.counters, -(-end // step) * step, CLOUD_ENDS, job, n_away)
