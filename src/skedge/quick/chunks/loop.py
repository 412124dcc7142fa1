"""The events of a run and the decisions on them, compiled."""

from __future__ import annotations

from skedge.core.engine.agenda import (
    CLOUD_ENDS,
    CLOUD_STARTS,
    ENTRY_JOB,
    ENTRY_KIND,
    ENTRY_NUMBER,
    ENTRY_TIME,
    drop,
    put,
)
from skedge.core.engine.ahead import has_lookahead, look_ahead
from skedge.core.engine.lanes import CHUNKS as OF_CHUNKS
from skedge.core.engine.lanes import EACH as OF_EACH
from skedge.core.engine.lanes import JOB, LEFT, RANK, SEQ, believe_finished, bring_to, send_chunks
from skedge.core.engine.projection import fill_weights
from skedge.core.model.network import upload_delay
from skedge.core.model.time import NEVER
from skedge.platform.jit import compiled, inlined, lean
from skedge.policies.aonline.a_greedy import CLOUD, JobChunks, count_postponed, greedy
from skedge.policies.aonline.a_ps import first_free
from skedge.sim.lanes import DONE as COMPLETED
from skedge.sim.lanes import FACT_JOB, FACT_LANE, FACT_TIME, FACTS, QUIET, SETTLED, SWITCHES, arrive_now, run
from skedge.sim.lanes import FULL as NO_BUFFER

from .state import (
    AGENDA,
    ARRIVAL,
    ARRIVED,
    BASE,
    BYTES,
    CHUNKS,
    CLOUD_ROWS,
    COMING,
    DISPATCHES,
    DONE,
    EACH,
    EACH_IN_CLOUD,
    FIRST,
    IMPOSSIBLE,
    IN_CLOUD,
    KIND,
    MORE,
    NO_PS,
    NOW,
    PLACED,
    PS,
    PS_KIND,
    PS_ROWS,
    PS_SINCE,
    RELEASE,
    SCALE,
    SENT,
    STUCK,
    TRUE_EACH,
    UNSETTLED,
    LaneBooks,
    LaneCase,
    can_send,
    has_room,
    has_rows,
)

OVER, FULL, PAUSED, ANSWERED, UNCOUNTED = range(5)
"""Why :func:`advance` returns: the run is over, or cannot go on; the arrays need room; it has done its events; all jobs
of the books are answered, and more follow. Within it: the chunks that the dispatch at hand postpones are to be
counted."""


@compiled
def advance(case: LaneCase, books: LaneBooks, events: int) -> int:
    """Go on for at most this number of events; stops before a dispatch for which an array may lack room."""
    while True:
        why, events = _go_on(case, books, events)
        if why != UNCOUNTED:
            return why
        # it allocates, so it is not called within the loop, where references to arrays are not counted
        c = _chunks(case, books, books.counters[ARRIVED], books.counters[NOW])
        lane, postponed = books.order[0, : c.chunks], books.order[1, : c.chunks]
        count_postponed(
            books.belief, c, case.lane_server, case.delays, books.weights, books.costs.scratch, lane, postponed
        )


@lean
def _go_on(case: LaneCase, books: LaneBooks, events: int) -> tuple[int, int]:
    """:func:`advance` until chunks are to be counted; returns why it stops, and the number of events left."""
    why = PAUSED
    while events > 0 and why == PAUSED:
        why = _answer(case, books)
        if why == PAUSED and books.counters[MORE] == 1 and books.counters[ARRIVED] == len(books.jobs):
            _learn(case, books)
            why = ANSWERED
        elif why == PAUSED and not has_rows(books):
            why = FULL
        elif why == PAUSED:
            events -= 1
            why = _next_event(case, books)
    return why, events


@inlined
def _answer(case: LaneCase, books: LaneBooks) -> int:
    """Dispatch or reject the jobs that have arrived; PAUSED if all are answered."""
    counters = books.counters
    while counters[ARRIVED] < counters[COMING]:
        if counters[PLACED] == 0:
            if not (has_room(books.belief) and has_room(books.truth.lanes) and can_send(books, counters[ARRIVED])):
                return FULL
            counters[PLACED] = _place(case, books, counters[ARRIVED], counters[NOW])
            if counters[PLACED] == LACKING:
                return UNCOUNTED
        if counters[PLACED] != REJECTED:
            _send(case, books, counters[ARRIVED], counters[NOW])
        counters[PLACED] = 0
        counters[ARRIVED] += 1
    return PAUSED


@inlined
def _next_event(case: LaneCase, books: LaneBooks) -> int:
    """Run the lanes up to the next event and carry it out; PAUSED if the run may go on."""
    counters, truth, why, now = books.counters, books.truth, QUIET, _next(books)
    if counters[DISPATCHES] > 0:
        why, now = run(truth, counters[NOW] if counters[UNSETTLED] else -1, now)
    counters[UNSETTLED] = 0
    if why == NO_BUFFER:
        _learn(case, books)
        return FULL
    if why == QUIET and now == NEVER:
        return OVER
    counters[NOW] = now
    if why == SETTLED:
        _give_ps(case, books, now)
    else:
        counters[UNSETTLED] = 1
        _happening(books, now)
    return PAUSED if counters[STUCK] == 0 else OVER


@inlined
def _next(books: LaneBooks) -> int:
    """The time of the next arrival or entry of the agenda; NEVER at the end."""
    now, counters = NEVER, books.counters
    if counters[ARRIVED] < len(books.jobs):
        now = books.jobs[counters[ARRIVED], ARRIVAL]
    return min(now, books.agenda[0, ENTRY_TIME]) if counters[AGENDA] > 0 else now


@lean
def _happening(books: LaneBooks, now: int) -> None:
    """Completions, arrivals, and what happens in the cloud now."""
    counters, truth = books.counters, books.truth
    while counters[AGENDA] > 0 and books.agenda[0, ENTRY_TIME] <= now:
        job, chunks = books.agenda[0, ENTRY_JOB], books.agenda[0, ENTRY_NUMBER]
        change = chunks if books.agenda[0, ENTRY_KIND] == CLOUD_STARTS else -chunks
        drop(books.agenda, counters)
        _in_cloud(books, job, change, now)
    for i in range(truth.size[COMPLETED]):
        _finish(books, truth.done[i], now)
    truth.size[COMPLETED] = 0
    while counters[COMING] < len(books.jobs) and books.jobs[counters[COMING], ARRIVAL] <= now:
        counters[COMING] += 1


@inlined
def _in_cloud(books: LaneBooks, job: int, chunks: int, now: int) -> None:
    """Start this number of chunks of `job` in the cloud, or end them if it is negative."""
    truth = books.truth
    truth.in_service[job] += chunks
    truth.switches[truth.size[SWITCHES], 0] = job
    truth.size[SWITCHES] += 1
    if chunks < 0:
        truth.left[job] += chunks
        if truth.left[job] == 0:
            _finish(books, job, now)


@inlined
def _finish(books: LaneBooks, job: int, now: int) -> None:
    """`job` completes."""
    _release_ps(books, job, now)
    books.completed[books.counters[DONE]] = job
    books.counters[DONE] += 1


# -- Alg. 5, A_ps ----------------------------------------------------------------------------------------------------


@lean
def _give_ps(case: LaneCase, books: LaneBooks, now: int) -> None:
    """Take the PS from the jobs that have paused, then give one to those that have started, in order."""
    switches, started = books.truth.switches, 0
    for i in range(books.truth.size[SWITCHES]):
        job, running, k = switches[i, 0], switches[i, 1], started
        if running == 0:
            _release_ps(books, job, now)
            continue
        while k > 0 and switches[k - 1, 0] > job:
            switches[k, 0] = switches[k - 1, 0]
            k -= 1
        switches[k, 0] = job
        started += 1
    books.truth.size[SWITCHES] = 0
    for i in range(started):
        job = switches[i, 0]
        _assign_ps(case, books, job)
        books.jobs[job, PS_SINCE] = now


@inlined
def _assign_ps(case: LaneCase, books: LaneBooks, job: int) -> None:
    """The PS of a job that begins to run: in the cloud if the job is, else the first free slot of its type."""
    mine, ps = books.jobs[job], CLOUD
    kind = mine[PS_KIND]
    if mine[IN_CLOUD] == 0:
        if kind >= 0:
            ps = first_free(case.slots[case.slots_first[kind] : case.slots_first[kind + 1]], books.ps_job)
        if ps == CLOUD and case.cloud_ps == 0 and books.counters[STUCK] == 0:
            books.counters[STUCK] = job + 1
    mine[PS] = ps
    if ps != CLOUD:
        books.ps_job[ps] = job


@inlined
def _release_ps(books: LaneBooks, job: int, now: int) -> None:
    """Take the PS from `job`, if it has one; a PS that has served for some time is noted."""
    mine = books.jobs[job]
    if mine[PS] == NO_PS:
        return
    if mine[PS_SINCE] < now:
        row = books.ps[books.counters[PS_ROWS]]
        row[0], row[1], row[2], row[3], row[4] = job, mine[PS], 1, mine[PS_SINCE], now
        books.counters[PS_ROWS] += 1
    if mine[PS] != CLOUD:
        books.ps_job[mine[PS]] = -1
    mine[PS] = NO_PS


# -- Alg. 1 ----------------------------------------------------------------------------------------------------------


@inlined
def _learn(case: LaneCase, books: LaneBooks) -> None:
    """Correct the belief by the chunks completed since the last time."""
    if case.as_announced == 0:
        facts = books.truth.facts[: books.truth.size[FACTS]]
        if believe_finished(books.belief, facts[:, FACT_TIME], facts[:, FACT_LANE], facts[:, FACT_JOB]) >= 0:
            books.counters[IMPOSSIBLE] = 1
    books.truth.size[FACTS] = 0


REJECTED, WHOLE, LACKING = range(1, 4)
"""What is known of the job at hand: no worker may ever take it; its places; these, but not all that it postpones."""


@lean
def _place(case: LaneCase, books: LaneBooks, job: int, now: int) -> int:
    """Find the places of a job that has arrived."""
    mine, kind = books.jobs[job], books.jobs[job, KIND]
    candidates = case.lanes[:0]
    if kind >= 0:
        candidates = case.lanes[case.lanes_first[kind] : case.lanes_first[kind + 1]]
    if len(candidates) == 0 and case.cloud < 0:
        return REJECTED
    _learn(case, books)
    if books.weights[0] != mine[SCALE]:
        fill_weights(books.weights, mine[SCALE])
    known = has_lookahead(books.belief, case.mode)
    # where the belief is the truth, this advances the true lanes: no event lies in between
    if case.as_announced == 0 or not known:
        bring_to(books.belief, candidates, now)
    if known:
        look_ahead(books.belief, candidates, now, books.weights)
    count, first = mine[CHUNKS], mine[FIRST] - books.counters[BASE]
    lane, postponed, alpha = books.order[0, :count], books.order[1, :count], books.alpha[first : first + count]
    greedy(
        books.belief, _chunks(case, books, job, now), candidates, case.lane_server, case.delays, books.weights,
        case.free_bytes, books.costs, lane, alpha, postponed,
    )  # fmt: skip
    lacks = False
    for d in range(count):
        lacks = lacks or postponed[d] < 0
    return LACKING if lacks else WHOLE


@inlined
def _chunks(case: LaneCase, books: LaneBooks, job: int, now: int) -> JobChunks:
    """The job as A_greedy sees it."""
    mine = books.jobs[job]
    delay = upload_delay(case.delays, job, case.cloud) if case.cloud >= 0 else -1
    return JobChunks(
        job, books.counters[DISPATCHES], mine[CHUNKS], mine[CHUNKS], now, mine[RELEASE], mine[EACH], mine[BYTES], delay,
        (mine[EACH], mine[EACH_IN_CLOUD]), case.mode,
    )  # fmt: skip


@lean
def _send(case: LaneCase, books: LaneBooks, job: int, now: int) -> None:
    """Send the chunks of `job` to their places, as believed and in truth, and to the cloud."""
    mine, group, truth = books.jobs[job], books.group, books.truth
    first, chunks = mine[FIRST], mine[CHUNKS]
    lane, row = books.order[0, :chunks], first - books.counters[BASE]
    for d in range(chunks):
        books.lane[row + d], books.postponed[row + d] = lane[d], books.order[1, d]
    group[JOB], group[RANK], group[SEQ], group[OF_CHUNKS] = job, chunks * mine[EACH], books.counters[DISPATCHES], chunks
    if case.as_announced == 0:
        group[OF_EACH] = group[LEFT] = mine[EACH]
        send_chunks(books.belief, group, lane, case.lane_server, case.delays, now, truth.links[:0])
    group[OF_EACH] = group[LEFT] = mine[TRUE_EACH]
    links = truth.links[first : first + chunks]
    send_chunks(truth.lanes, group, lane, case.lane_server, case.delays, now, links)
    arrive_now(truth, lane, now)
    mine[SENT] = now
    books.counters[DISPATCHES] += 1
    away = 0
    for d in range(chunks):
        away += lane[d] == CLOUD
    if away > 0:
        mine[IN_CLOUD] = away == chunks
        _send_to_cloud(case, books, job, away, now)


@inlined
def _send_to_cloud(case: LaneCase, books: LaneBooks, job: int, chunks: int, now: int) -> None:
    """Run the last `chunks` chunks of `job` in the cloud, each on a worker of its own."""
    mine, step, row = books.jobs[job], case.step, books.cloud_runs[books.counters[CLOUD_ROWS]]
    start = now + upload_delay(case.delays, job, case.cloud)
    end = start + mine[TRUE_EACH + mine[IN_CLOUD]]
    row[0], row[1], row[2], row[3], row[4] = job, chunks, start, end, mine[IN_CLOUD]
    books.counters[CLOUD_ROWS] += 1
    put(books.agenda, books.counters, -(-start // step) * step, CLOUD_STARTS, job, chunks)
    put(books.agenda, books.counters, -(-end // step) * step, CLOUD_ENDS, job, chunks)
