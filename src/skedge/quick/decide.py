"""The decision of each policy, compiled: as :mod:`skedge.policies.gangs` and :mod:`skedge.policies.fifo.strict`."""

from __future__ import annotations

import math

import numpy as np

from skedge.core.jit import compiled, inlined, lean
from skedge.core.kept_data import Stored
from skedge.core.model import Ints
from skedge.core.size import UNLIMITED
from skedge.core.time import NEVER
from skedge.policies.gangs.placement import Changes, Gang, carry_from, scan
from skedge.policies.gangs.srtf import ranked
from skedge.policies.gangs.tiresias import Clocks, execute, next_demotion, next_promotion, promote, rank_of
from skedge.policies.gangs.tiresias import begin as begin_clocks

from .gangs import begin, put, reject, suspend
from .state import (
    ACTIVE,
    BEGUN,
    CHOSEN,
    COMPUTE_FROM,
    DECIDED,
    FIFO,
    FINISHED,
    HELD,
    KIND,
    LEFT,
    PS,
    PS_KIND,
    RANKED,
    REMAINING,
    SERVERS,
    SRTF,
    TIRESIAS,
    VERDICT,
    WAKE_AT,
    WORKERS,
    GangBooks,
    GangCase,
    PolicyState,
)

RANK, PREEMPTED, MOVED, NEVER_FITS_EDGE, NEVER_FITS, NO_PS_THERE = range(6)
"""Codes of reasons: the policy's rank, and those of :mod:`skedge.policies.gangs.edge` and ``base``."""


@compiled
def decide(case: GangCase, books: GangBooks, choice: PolicyState, now: int, first: int, last: int) -> None:
    """Decide at `now`, when the jobs of the list FINISHED have completed, and `first` to ``last - 1`` have arrived."""
    at, lists = choice.at, choice.lists
    if choice.policy == TIRESIAS:
        execute(lists[CHOSEN, : at[CHOSEN]], choice.clocks, choice.gang, now - at[DECIDED], choice.limit)
        at[DECIDED] = now
    leave(choice.gang.running, lists, at)
    for job in range(first, last):
        if admit(case, books, choice.stored, job, now):
            lists[ACTIVE, at[ACTIVE]] = job
            at[ACTIVE] += 1
    if choice.policy == FIFO:
        changes = _fifo(case, books, choice)
    elif choice.policy == SRTF:
        changes = _srtf(case, books, choice, now)
    else:
        changes = _tiresias(case, books, choice, now)
    _carry_out(case, books, choice, changes, now)
    if choice.policy == TIRESIAS:
        _wake(case.step, books, choice, now)


# -- arrivals and departures -----------------------------------------------------------------------------------------


@lean
def leave(running: Ints, lists: Ints, at: Ints) -> None:
    """Let the finished jobs go, which are not `running` any more."""
    for i in range(at[FINISHED]):
        done, kept = lists[FINISHED, i], 0
        running[done] = 0
        for k in range(at[ACTIVE]):
            if lists[ACTIVE, k] != done:
                lists[ACTIVE, kept] = lists[ACTIVE, k]
                kept += 1
        at[ACTIVE] = kept


@lean
def admit(case: GangCase, books: GangBooks, stored: Stored, job: int, now: int) -> bool:
    """Whether the edge can hold an arrival; what never fits goes to the cloud or is rejected."""
    mine = books.jobs[job]
    kind, k, ps = mine[KIND], mine[WORKERS], mine[PS_KIND]
    fits = k <= (case.slots[kind] if kind >= 0 else 0)
    if case.cloud < 0 and not fits:
        reject(books, job, now, NEVER_FITS)
        return False
    if case.cloud < 0 and (ps < 0 or _number_of_ps(case, ps) == 0):
        reject(books, job, now, NO_PS_THERE)
        return False
    if not fits:
        books.placed[job, 0, 0], books.placed[job, 0, 1], mine[SERVERS] = case.cloud, k, 1
        begin(case, books, stored, job, -1, now, NEVER_FITS_EDGE)
    return bool(fits)


@inlined
def _number_of_ps(case: GangCase, kind: int) -> int:
    """The number of PS slots of a type."""
    # the last lists are those of all servers together, one per PS type
    of = len(case.ps_first) - 1 - case.ps_types + kind
    return case.ps_first[of + 1] - case.ps_first[of]


# -- the policies ----------------------------------------------------------------------------------------------------


@compiled
def _fifo(case: GangCase, books: GangBooks, choice: PolicyState) -> Changes:
    """Start the jobs at the head of the queue whose demand is free."""
    lists, n = choice.lists, 0
    for i in range(choice.at[ACTIVE]):
        job = lists[ACTIVE, i]
        if choice.gang.running[job] == 0:
            lists[RANKED, n] = job
            n += 1
    choice.at[RANKED] = n
    queue = lists[RANKED, :n]
    first = _verdicts(case, books, choice, queue, _free_ps(case, books.ps_job))
    return _change(choice, queue, first, lists[CHOSEN, :0])


@compiled
def _srtf(case: GangCase, books: GangBooks, choice: PolicyState, now: int) -> Changes:
    """Rank all jobs by remaining time and run as many as fit."""
    lists, at, jobs = choice.lists, choice.at, books.jobs
    active = lists[ACTIVE, : at[ACTIVE]]
    left = np.empty(len(active), np.int64)
    for i in range(len(active)):
        job = active[i]
        left[i] = max(jobs[job, LEFT] - max(now - jobs[job, COMPUTE_FROM], 0) * jobs[job, HELD], 1)
    order = ranked(lists[RANKED, : at[RANKED]], active, left, choice.gang.workers, lists[REMAINING])
    lists[RANKED, : len(order)] = order
    at[RANKED] = len(order)
    first = _verdicts(case, books, choice, order, all_ps(case))
    return _change(choice, order, first, lists[CHOSEN, : at[CHOSEN]])


@compiled
def _tiresias(case: GangCase, books: GangBooks, choice: PolicyState, now: int) -> Changes:
    """Promote all that are due, select; D2."""
    lists, at, gang, clocks = choice.lists, choice.at, choice.gang, choice.clocks
    jobs, promotes = lists[ACTIVE, : at[ACTIVE]], not math.isinf(choice.knob)
    if promotes:
        promote(_unmarked(jobs, gang.running, True), clocks, gang, choice.knob, now)
    while True:
        _sort(jobs, clocks)
        first = _verdicts(case, books, choice, jobs, all_ps(case))
        if not (promotes and promote(_unmarked(jobs, lists[VERDICT], False), clocks, gang, choice.knob, now)):
            break
    changes = _change(choice, jobs, first, lists[CHOSEN, : at[CHOSEN]])
    at[BEGUN] = begin_clocks(changes.begins, clocks, now, at[BEGUN], case.overhead)
    for job in changes.stops:
        clocks.stopped[job] = now
    return changes


@compiled
def _unmarked(jobs: Ints, mark: Ints, by_job: bool) -> Ints:
    """Those of `jobs` whose mark is 0; marks are indexed by job, or in the order of `jobs`."""
    out, n = np.empty(len(jobs), np.int64), 0
    for i in range(len(jobs)):
        if mark[jobs[i] if by_job else i] == 0:
            out[n] = jobs[i]
            n += 1
    return out[:n]


@lean
def _sort(jobs: Ints, clocks: Clocks) -> None:
    """Sort `jobs`, nearly sorted, by rank."""
    most = -1
    for i in range(len(jobs)):
        job, k = jobs[i], i
        mine = rank_of(clocks, job)
        if mine >= most:
            most = mine
            continue
        # strictly worse only, so that the sort is stable, as in the policy
        while k > 0 and rank_of(clocks, jobs[k - 1]) > mine:
            jobs[k] = jobs[k - 1]
            k -= 1
        jobs[k] = job


@compiled
def _wake(step: int, books: GangBooks, choice: PolicyState, now: int) -> None:
    """Ask for the next demotion or promotion of Tiresias-L."""
    lists, at, clocks, gang = choice.lists, choice.at, choice.clocks, choice.gang
    if at[WAKE_AT] <= now:
        at[WAKE_AT] = NEVER
    due = next_demotion(lists[CHOSEN, : at[CHOSEN]], clocks, gang, choice.limit)
    if not math.isinf(choice.knob):
        waits = _unmarked(lists[ACTIVE, : at[ACTIVE]], gang.running, True)
        due = min(due, next_promotion(waits, clocks, gang, choice.knob, now))
    if due < NEVER and now + due < at[WAKE_AT]:
        at[WAKE_AT] = max(now + math.ceil(due), now + 1)
        put(books.agenda, books.at, -(-at[WAKE_AT] // step) * step, -1, 0)


# -- from a selection to allocations ---------------------------------------------------------------------------------


@compiled
def all_ps(case: GangCase) -> Ints:
    """PS slots to give out by type, if all jobs are up for selection."""
    left = np.empty(case.ps_types, np.int64)
    for kind in range(len(left)):
        left[kind] = UNLIMITED if case.cloud >= 0 else _number_of_ps(case, kind)
    return left


@compiled
def _free_ps(case: GangCase, ps_job: Ints) -> Ints:
    """PS slots to give out by type, if running jobs are not up for selection."""
    left, first = all_ps(case), len(case.ps_first) - 1 - case.ps_types
    if case.cloud < 0:
        for kind in range(len(left)):
            for i in range(case.ps_first[first + kind], case.ps_first[first + kind + 1]):
                left[kind] -= ps_job[case.ps_list[i]] >= 0
    return left


@compiled
def _verdicts(case: GangCase, books: GangBooks, choice: PolicyState, order: Ints, ps_left: Ints) -> int:
    """Select among `order`; returns how many jobs at its beginning run on where they are.

    Those are the running jobs before the first one that waits: their workers are apart from each other, so each keeps
    its place. For the others is left what is free and what the running ones among them hold.
    """
    gang, scratch, verdict, first = choice.gang, choice.scratch, choice.lists[VERDICT, : len(order)], 0
    while first < len(order) and gang.running[order[first]]:
        verdict[first] = -1
        ps_left[gang.ps_kind[order[first]]] -= 1
        first += 1
    scratch.free[:] = books.free
    scratch.unheld[:] = books.free
    for job in order[first:]:
        if gang.running[job]:
            for i in range(gang.used[job]):
                scratch.free[gang.servers[job, i], gang.kind[job]] += gang.counts[job, i]
    for kind in range(len(scratch.total)):
        scratch.total[kind] = scratch.free[:, kind].sum()
        if choice.rule.keep_running == 0:
            scratch.unheld[:, kind] = scratch.free[:, kind]
    scan(order, first, gang, choice.stored, choice.rule, scratch, ps_left, case.delays, verdict)
    return first


@compiled
def _change(choice: PolicyState, order: Ints, first: int, held: Ints) -> Changes:
    """What follows from the verdicts on `order`, of which the first `first` run on; notes which jobs run."""
    verdict = choice.lists[VERDICT, : len(order)]
    runs = np.empty(len(order), np.int64)
    changes = carry_from(first, order, verdict, held, choice.gang, choice.scratch, runs)
    choice.lists[CHOSEN, : len(changes.runs)] = changes.runs
    choice.at[CHOSEN] = len(changes.runs)
    return changes


@compiled
def _carry_out(case: GangCase, books: GangBooks, choice: PolicyState, changes: Changes, now: int) -> None:
    """First all suspensions, then all placements; a job that is moved keeps its PS."""
    kept, gang, stored = np.empty(len(changes.moves), np.int64), choice.gang, choice.stored
    for job in changes.stops:
        suspend(case, books, job, now, PREEMPTED)
    for i, job in enumerate(changes.moves):
        kept[i] = books.jobs[job, PS]
        suspend(case, books, job, now, MOVED)
    for i, job in enumerate(changes.moves):
        _place(books, gang, job)
        begin(case, books, stored, job, kept[i], now, RANK)
    for job in changes.begins:
        _place(books, gang, job)
        ps = ps_for(case, books, job, books.placed[job, : books.jobs[job, SERVERS]])
        begin(case, books, stored, job, ps, now, RANK)


@lean
def _place(books: GangBooks, gang: Gang, job: int) -> None:
    """Note the placement that the policy has chosen, by server."""
    placed = books.placed[job]
    for i in range(gang.used[job]):
        server, k = gang.servers[job, i], i
        while k > 0 and placed[k - 1, 0] > server:
            placed[k, 0], placed[k, 1] = placed[k - 1, 0], placed[k - 1, 1]
            k -= 1
        placed[k, 0], placed[k, 1] = server, gang.counts[job, i]
    books.jobs[job, SERVERS] = gang.used[job]


@lean
def ps_for(case: GangCase, books: GangBooks, job: int, where: Ints) -> int:
    """A free PS slot of the job's type: on a server of its placement `where`, else of lowest number, else the cloud."""
    kind = books.jobs[job, PS_KIND]
    if kind < 0:
        return -1
    for i in range(len(where)):
        slot = _free_slot(case, books.ps_job, where[i, 0] * case.ps_types + kind)
        if slot >= 0:
            return slot
    return _free_slot(case, books.ps_job, len(case.ps_first) - 1 - case.ps_types + kind)


@inlined
def _free_slot(case: GangCase, ps_job: Ints, of: int) -> int:
    """The first free PS slot of a list; -1 if there is none."""
    found = -1
    for i in range(case.ps_first[of], case.ps_first[of + 1]):
        if found < 0 and ps_job[case.ps_list[i]] < 0:
            found = case.ps_list[i]
    return found
