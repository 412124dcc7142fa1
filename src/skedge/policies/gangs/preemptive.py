"""Preemptive: the shortest job first takes the workers that let it end earliest, one by one."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from skedge.core.engine.allocations import remaining
from skedge.core.engine.apply import apply_all
from skedge.core.engine.ledger import (
    ARRIVED,
    CHUNKS,
    COLOCATED,
    FIRST,
    HELD,
    NOW,
    PS,
    PS_TYPE,
    SIZE,
    STYLE,
    TYPE,
    Case,
    Ledger,
)
from skedge.core.engine.orders import (
    FIRST_ARRIVED,
    MEASURED,
    N_INTERRUPTED,
    N_LEFT,
    EventFacts,
    OrderRows,
)
from skedge.core.engine.step import EVENT, PAUSED, QUIET, step
from skedge.core.model.cluster import Ints
from skedge.core.model.time import NEVER
from skedge.core.policy import View
from skedge.platform.jit import compiled, inlined, lean

from .edge import ACTIVE, FURTHER, MOVED, PREEMPTED, SPARE, EdgeState, admit, begin_orders, order_suspend
from .elastic import ElasticPolicy, ElasticState, Room, fill_room, look_at, look_up_own, order_plan
from .placement import forgive, sort_by

RANKED, OUTDATED, ESTIMATE, WORK, WORK_COLOCATED, CHANGES, PLACES, N_SERVERS, BESIDE, GROWS = range(
    FURTHER + 1, FURTHER + 11
)
"""Rows of ``EdgeState.lists``.

- RANKED: the jobs in the system, shortest first. CHANGES: those whose workers change, in that order.
- Columns by job: OUTDATED: 1 if the next three may have changed since they were worked out, or the job has left.
  ESTIMATE: what it is ranked by [µs]. WORK, WORK_COLOCATED: work left at zeta = 0 and 1 [worker-µs].
- Columns by job, of CHANGES: PLACES, N_SERVERS: where its new placement begins in the room, and on how many servers it
  is. BESIDE: 1 if it is beside its PS there. GROWS: 1 if it has workers there that it has not now.
"""


@lean
def decide(case: Case, ledger: Ledger, state: ElasticState, facts: EventFacts, orders: OrderRows) -> None:
    """Rank the jobs, let them take in turn, carry out what changes.

    Parameters
    ----------
    case, ledger, facts
        The run, and what has happened.
    state
        In and out: the jobs in the system.
    orders
        Out.
    """
    admit(case, ledger, state.edge, facts, orders)
    _note(ledger, state.edge, facts)
    _rank(case, ledger, state.edge)
    fill_room(case, ledger, state.room, ledger.capacity, False)
    if case.one_server:
        _count_free_ps(case, ledger, state.room.ps_free)
    take(case, ledger, state)
    _carry_out(case, ledger, state, orders)


# -- ranks -----------------------------------------------------------------------------------------------------------


@inlined
def _note(ledger: Ledger, edge: EdgeState, facts: EventFacts) -> None:
    """Mark the jobs that have left, lost their workers with a server, arrived, or changed their speed."""
    outdated, counters = edge.lists[OUTDATED], facts.counters
    for i in range(counters[N_LEFT]):
        outdated[facts.left[i]] = 1
    for i in range(counters[N_INTERRUPTED]):
        outdated[facts.interrupted[i]] = 1
    for job in range(counters[FIRST_ARRIVED], ledger.counters[ARRIVED]):
        outdated[job] = 1
    if counters[MEASURED]:
        for i in range(edge.lengths[ACTIVE]):
            outdated[edge.lists[ACTIVE, i]] = 1


@lean
def _rank(case: Case, ledger: Ledger, edge: EdgeState) -> None:
    """Rank the jobs in the system: the place of one that waits does not change, the others are ranked anew."""
    lists, lengths, n = edge.lists, edge.lengths, 0
    # work left shrinks only while a job runs, so the estimates of the others, and their order, stand
    for i in range(lengths[ACTIVE]):
        job = lists[ACTIVE, i]
        if ledger.jobs[job, HELD] > 0 or lists[OUTDATED, job]:
            lists[OUTDATED, job], lists[SPARE, n] = 1, job
            n += 1
    anew = lists[SPARE, :n]
    estimate(case, ledger, anew, lists)
    sort_by(lists[ESTIMATE], lists[SPARE : FURTHER + 1], n)
    n_ranked = merged(lists[RANKED, : lengths[RANKED]], anew, lists[ESTIMATE], lists[OUTDATED], lists[FURTHER])
    lengths[RANKED] = n_ranked
    for i in range(n_ranked):
        lists[RANKED, i] = lists[FURTHER, i]
    for job in anew:
        lists[OUTDATED, job] = 0


@lean
def estimate(case: Case, ledger: Ledger, jobs: Ints, lists: Ints) -> None:
    """Work out the columns WORK, WORK_COLOCATED and ESTIMATE of `jobs`.

    Parameters
    ----------
    case, ledger
        The run.
    jobs
        Jobs in the system.
    lists
        Out: ``EdgeState.lists``.
    """
    left = lists[FURTHER]
    remaining(ledger, jobs, ledger.counters[NOW], left)
    for n in range(len(jobs)):
        job, job_row, work = jobs[n], ledger.jobs[jobs[n]], ledger.announced[jobs[n]]
        # the same share of the work is left at either zeta, but it takes a different time
        zeta = job_row[COLOCATED]
        share, alternative = left[n] / work[zeta], 1 - zeta
        lists[WORK + zeta, job] = left[n]
        lists[WORK + alternative, job] = max(math.ceil(share * work[alternative]), 1)
        lists[ESTIMATE, job] = -(-lists[WORK, job] // min(job_row[CHUNKS], case.slots[job_row[TYPE]]))


@lean
def merged(ranked: Ints, anew: Ints, estimate: Ints, outdated: Ints, out: Ints) -> int:
    """Merge the jobs of `ranked` that are not outdated with those of `anew`; returns how many jobs these are.

    Parameters
    ----------
    ranked, anew
        Two lists of jobs, each in order of (estimate, job).
    estimate, outdated
        By job: rank [µs]; 1 for the jobs of `ranked` to drop.
    out
        Out: all in order of (estimate, job).
    """
    n = k = 0
    for job in ranked:
        if outdated[job]:
            continue
        while k < len(anew) and (estimate[anew[k]], anew[k]) < (estimate[job], job):
            out[n] = anew[k]
            n, k = n + 1, k + 1
        out[n] = job
        n += 1
    for i in range(k, len(anew)):
        out[n] = anew[i]
        n += 1
    return n


# -- what each job takes ---------------------------------------------------------------------------------------------


@lean
def _count_free_ps(case: Case, ledger: Ledger, ps_free: Ints) -> None:
    """Fill `ps_free`: PS slots that no job holds, by (server, type)."""
    for server in range(len(ps_free)):
        for kind in range(case.ps_types):
            number = server * case.ps_types + kind
            ps_free[server, kind] = 0
            for i in range(case.ps_first[number], case.ps_first[number + 1]):
                ps_free[server, kind] += ledger.ps_job[case.ps_list[i]] < 0


@lean
def take(case: Case, ledger: Ledger, state: ElasticState) -> None:
    """Let the jobs take workers in the order of RANKED; notes those whose workers change, with what they take.

    Parameters
    ----------
    case, ledger
        The run.
    state
        In and out; the room is used up.
    """
    lists, lengths, room, n_places = state.edge.lists, state.edge.lengths, state.room, 0
    lengths[CHANGES] = 0
    for job in lists[RANKED, : lengths[RANKED]]:
        job_row = ledger.jobs[job]
        has_free = room.total[job_row[TYPE]] > 0 and room.ps_left[max(job_row[PS_TYPE], 0)] > 0
        if has_free:
            if _stays(case, ledger, state, job):
                continue
            lists[BESIDE, job] = _take(case, ledger, state, job)
            if job_row[HELD] > 0 and _unchanged(room):
                continue
        elif job_row[HELD] == 0:
            # neither holds nor gets anything: nothing changes
            continue
        lists[CHANGES, lengths[CHANGES]], lists[PLACES, job] = job, n_places
        lengths[CHANGES] += 1
        for server in range(len(room.plan) if has_free else 0):
            if room.plan[server] > 0:
                room.servers[n_places], room.counts[n_places] = server, room.plan[server]
                n_places += 1
        lists[N_SERVERS, job] = n_places - lists[PLACES, job]


@inlined
def _stays(case: Case, ledger: Ledger, state: ElasticState, job: int) -> bool:
    """Whether :func:`_take` is known to leave a running job what it has; if so, that is taken of the room.

    So it is if the job holds all the workers that it can use, nothing is gained beside a PS, and neither the restore
    of a worker elsewhere nor the work left is so short that a plan that is slower ends in the same microsecond.
    """
    job_row, lists, room = ledger.jobs[job], state.edge.lists, state.room
    n, left = job_row[CHUNKS], lists[WORK + case.one_server, job]
    if job_row[HELD] < n or case.overhead < n or left <= n * (n - 1):
        return False
    rows, kind = ledger.workers[job_row[FIRST] : job_row[FIRST] + job_row[SIZE]], job_row[TYPE]
    if case.one_server:
        server = _ps_server(case, ledger, job)
        if rows[0, 0] != server or rows[len(rows) - 1, 0] != server or left > lists[WORK, job]:
            return False
    # the rows of a server are together
    n_here = 0
    for i in range(len(rows)):
        n_here = rows[i, 1] + (n_here if i > 0 and rows[i, 0] == rows[i - 1, 0] else 0)
        if n_here > room.workers[rows[i, 0], kind]:
            return False
    for i in range(len(rows)):
        room.workers[rows[i, 0], kind] -= rows[i, 1]
    room.total[kind] -= n
    room.ps_left[max(job_row[PS_TYPE], 0)] -= 1
    return True


@inlined
def _ps_server(case: Case, ledger: Ledger, job: int) -> int:
    """The server of the PS of `job`; -1 if it has none, or in the cloud."""
    return case.ps_places[ledger.jobs[job, PS]] if ledger.jobs[job, PS] >= 0 else -1


@inlined
def _unchanged(room: Room) -> bool:
    """Whether the plan is what the job has."""
    same = True
    for server in range(len(room.plan)):
        same = same and room.plan[server] == room.own[server]
    return same


@lean
def _take(case: Case, ledger: Ledger, state: ElasticState, job: int) -> int:
    """Let a job take of the room, which has workers for it; fills ``plan``, returns whether it is beside its PS."""
    job_row, room = ledger.jobs[job], state.room
    kind, ps_kind = job_row[TYPE], max(job_row[PS_TYPE], 0)
    restore = case.overhead if job_row[STYLE] >= 0 else 0
    own_start = 0 if job_row[HELD] > 0 else restore
    look_at(case, ledger, room, job)
    if case.kept:
        forgive(room.free, room.with_data, job_row[CHUNKS], room.delay)
    for s in range(len(room.delay)):
        # a server without free workers is never the earliest
        room.delay[s] += restore if room.delay[s] < NEVER else 0
    server, colocated, end = _best_server(case, ledger, state, job, own_start)
    # of equal ends one server: beside its PS, and with the fewest moves
    if _spread(room, state.edge.lists[WORK, job], job_row[CHUNKS], own_start) < end:
        colocated = 0
    else:
        for s in range(len(room.plan)):
            room.plan[s] = 0
        room.plan[server] = min(job_row[CHUNKS], room.free[server])
        if colocated and job_row[HELD] == 0:
            room.ps_free[server, ps_kind] -= 1
    for s in range(len(room.plan)):
        room.workers[s, kind] -= room.plan[s]
        room.total[kind] -= room.plan[s]
    room.ps_left[ps_kind] -= 1
    return colocated


@inlined
def _best_server(case: Case, ledger: Ledger, state: ElasticState, job: int, own_start: int) -> tuple[int, int, int]:
    """The one server on which `job` ends first, whether its PS can be there, and the time until then [µs].

    Parameters
    ----------
    case, ledger, state
        The run, and the room with the arrays of the job.
    job
        The job.
    own_start
        When the workers that it has, or had last, begin [µs from now].
    """
    job_row, lists, room = ledger.jobs[job], state.edge.lists, state.room
    best, best_colocated, best_end = -1, 0, NEVER
    runs, ps_server, ps_kind = job_row[HELD] > 0, _ps_server(case, ledger, job), max(job_row[PS_TYPE], 0)
    for s in range(len(room.delay)):
        n = min(job_row[CHUNKS], room.free[s])
        if n > 0:
            colocated = 0
            if case.one_server:
                colocated = 1 if (ps_server == s if runs else room.ps_free[s, ps_kind] > 0) else 0
            n_own = min(room.own[s], n)
            end = _end(lists[WORK + colocated, job], n_own, own_start, n - n_own, room.delay[s])
            if end < best_end:
                best, best_colocated, best_end = s, colocated, end
    return best, best_colocated, best_end


@inlined
def _end(left: int, n_own: int, own_start: int, n_new: int, new_start: int) -> int:
    """When `left` is done by `n_own` workers from `own_start` on and `n_new` ones from `new_start` on [µs]."""
    if n_own > 0 and (n_new == 0 or left <= n_own * (new_start - own_start)):
        return own_start - (-left // n_own)
    return new_start - (-(left - n_own * (new_start - own_start)) // (n_own + n_new))


@inlined
def _spread(room: Room, left: int, max_workers: int, own_start: int) -> int:
    """Let a job with so much work take of all servers; fills ``plan``, returns the time until it ends [µs].

    First what it has, then by (delay, server) while a worker still begins before the end.

    Parameters
    ----------
    room
        With the arrays of the job.
    left, max_workers
        Its work left [worker-µs], and its most workers.
    own_start
        When the workers that it has, or had last, begin [µs from now].
    """
    rate, time = 0, own_start
    for s in range(len(room.plan)):
        room.plan[s] = min(room.own[s], room.free[s])
        rate += room.plan[s]
    # water-filling: each new worker joins at its delay as long as the job would not have ended by then
    while rate < max_workers:
        nearest = _nearest(room)
        if nearest < 0 or (rate > 0 and time - (-left // rate) <= room.delay[nearest]):
            break
        left -= rate * (room.delay[nearest] - time)
        n_new = min(room.free[nearest] - room.plan[nearest], max_workers - rate)
        rate, time = rate + n_new, room.delay[nearest]
        room.plan[nearest] += n_new
    return time - (-left // rate)


@inlined
def _nearest(room: Room) -> int:
    """The first server of the least delay that has workers besides those of the plan; -1 if none has."""
    best = -1
    for s in range(len(room.delay)):
        if room.free[s] > room.plan[s] and (best < 0 or room.delay[s] < room.delay[best]):
            best = s
    return best


# -- orders ----------------------------------------------------------------------------------------------------------


@lean
def _carry_out(case: Case, ledger: Ledger, state: ElasticState, orders: OrderRows) -> None:
    """First what is taken from running jobs, then what they get, then those that begin: beside their PS first."""
    lists, jobs = state.edge.lists, state.edge.lists[CHANGES, : state.edge.lengths[CHANGES]]
    begin_orders(ledger, state.edge)
    # what is given up has to be free before others take it: suspend and shrink first, then grow and begin
    for job in jobs:
        if ledger.jobs[job, HELD] > 0:
            _shrink(case, ledger, state, job, orders)
    for job in jobs:
        if ledger.jobs[job, HELD] > 0 and lists[GROWS, job]:
            _order(case, ledger, state, job, orders)
    for colocated in (1, 0):
        for n in range(len(jobs) - 1, -1, -1):
            if ledger.jobs[jobs[n], HELD] == 0 and lists[BESIDE, jobs[n]] == colocated:
                _order(case, ledger, state, jobs[n], orders)


@lean
def _shrink(case: Case, ledger: Ledger, state: ElasticState, job: int, orders: OrderRows) -> None:
    """Take from a running job the workers that its new placement has not; notes whether that has others."""
    room, n_plan, n_remaining = state.room, 0, 0
    _load(state, job)
    look_up_own(ledger, job, room.own)
    for server in range(len(room.plan)):
        n_plan += room.plan[server]
        room.plan[server] = min(room.plan[server], room.own[server])
        n_remaining += room.plan[server]
    state.edge.lists[GROWS, job] = n_plan > n_remaining
    if n_remaining == 0:
        order_suspend(ledger, state.edge, job, MOVED if n_plan > 0 else PREEMPTED, orders)
    elif n_remaining < ledger.jobs[job, HELD]:
        order_plan(case, ledger, state, job, orders)


@lean
def _order(case: Case, ledger: Ledger, state: ElasticState, job: int, orders: OrderRows) -> None:
    """Allocate the new placement of `job`."""
    _load(state, job)
    order_plan(case, ledger, state, job, orders)


@inlined
def _load(state: ElasticState, job: int) -> None:
    """Fill ``plan`` with the new placement of `job`."""
    room, lists = state.room, state.edge.lists
    for server in range(len(room.plan)):
        room.plan[server] = 0
    for i in range(lists[PLACES, job], lists[PLACES, job] + lists[N_SERVERS, job]):
        room.plan[room.servers[i]] = room.counts[i]


@lean
def run(case: Case, ledger: Ledger, state: ElasticState, facts: EventFacts, orders: OrderRows, events: int) -> int:
    """At most so many events of a simulation; the same lines in each policy (:mod:`skedge.policies.gangs` says why).

    Parameters
    ----------
    case, ledger, facts, orders
        The arrays of the run.
    state
        That of the policy.
    events
        Most events, at least 1.

    Returns
    -------
    As of :func:`~skedge.core.engine.step.step`; BROKEN or PAUSED.
    """
    for _ in range(events):
        outcome = step(case, ledger, facts)
        if outcome == EVENT:
            decide(case, ledger, state, facts, orders)
            outcome = apply_all(case, ledger, orders)
        if outcome != QUIET:
            return outcome
    return PAUSED


@compiled
def _decide(handle: Any, state: ElasticState) -> None:
    decide(handle.case, handle.ledger, state, handle.facts, handle.orders)


@compiled
def _run(handle: Any, state: ElasticState, events: int) -> int:
    return run(handle.case, handle.ledger, state, handle.facts, handle.orders, events)


class Preemptive(ElasticPolicy):
    """Shortest completion first, worker by worker."""

    name: ClassVar[str] = "preemptive"
    compares: ClassVar[str] = "remaining time with up to D_j workers, shortest first"
    rank: ClassVar[str] = "shortest_completion"
    rows: ClassVar[int] = GROWS + 1
    decision, loop = _decide, _run

    def rank_terms(self, job: int, view: View) -> dict[str, Any]:
        """Where its data are."""
        return {"data_on": [self.cluster.label(server) for server, _ in sorted(view.data(job))]}
