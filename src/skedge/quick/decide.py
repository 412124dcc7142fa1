"""The decision of each policy, compiled: as :mod:`skedge.policies.gangs` and :mod:`skedge.policies.fifo.strict`."""

from __future__ import annotations

import math

import numpy as np

from skedge.core.engine.agenda import WAKE, put
from skedge.core.engine.allocations import allocate, is_colocated, reject, suspend
from skedge.core.engine.ledger import (
    COMPUTE_FROM,
    DEMAND,
    GANG,
    HELD,
    LEFT,
    NO_VALUE,
    NOW,
    PS,
    PS_TYPE,
    TYPE,
    Case,
    Ledger,
)
from skedge.core.model.cluster import Ints
from skedge.core.model.size import UNLIMITED
from skedge.core.model.time import NEVER
from skedge.platform.jit import compiled, inlined, lean
from skedge.policies.gangs.placement import Changes, Gang, carry_from, scan
from skedge.policies.gangs.srtf import rank
from skedge.policies.gangs.tiresias import (
    Clocks,
    demote,
    execute,
    learn,
    next_demotion,
    next_promotion,
    promote,
    rank_of,
)
from skedge.policies.gangs.tiresias import begin as begin_clocks

from .state import (
    ACTIVE,
    BEGINS,
    BEGUN,
    CHOSEN,
    DECIDED,
    FIFO,
    FINISHED,
    FURTHER,
    MOVES,
    RANKED,
    REMAINING,
    SPARE,
    SRTF,
    STOPS,
    TIRESIAS,
    VERDICT,
    WAKE_AT,
    PolicyState,
)

RANK, PREEMPTED, MOVED, NEVER_FITS_EDGE, NEVER_FITS, NO_PS_THERE = range(6)
"""Codes of reasons: the policy's rank, and those of :mod:`skedge.policies.gangs.edge` and ``base``."""


@lean
def decide(case: Case, ledger: Ledger, choice: PolicyState, first: int, last: int) -> None:
    """Decide when the jobs of the list FINISHED have completed, and `first` to ``last - 1`` have arrived."""
    counters, lists, now = choice.counters, choice.lists, ledger.counters[NOW]
    if choice.policy == TIRESIAS:
        held = lists[CHOSEN, : counters[CHOSEN]]
        execute(held, choice.clocks, now - counters[DECIDED])
        learn(lists[FINISHED, : counters[FINISHED]], choice.clocks, choice.gang, choice.attained)
        demote(held, choice.clocks, choice.gang, choice.attained)
        counters[DECIDED] = now
    leave(choice.gang.running, lists, counters)
    for job in range(first, last):
        if admit(case, ledger, job, ledger.jobs[job, DEMAND]):
            lists[ACTIVE, counters[ACTIVE]] = job
            counters[ACTIVE] += 1
    if choice.policy == FIFO:
        _fifo(case, ledger, choice)
    elif choice.policy == SRTF:
        _srtf(case, ledger, choice, now)
    else:
        _tiresias(case, ledger, choice, now)
    _carry_out(case, ledger, choice)
    if choice.policy == TIRESIAS:
        _wake(case.step, ledger, choice, now)


# -- arrivals and departures -----------------------------------------------------------------------------------------


@lean
def leave(running: Ints, lists: Ints, counters: Ints) -> None:
    """Let the finished jobs go, which are not `running` any more."""
    for i in range(counters[FINISHED]):
        done, kept = lists[FINISHED, i], 0
        running[done] = 0
        for k in range(counters[ACTIVE]):
            if lists[ACTIVE, k] != done:
                lists[ACTIVE, kept] = lists[ACTIVE, k]
                kept += 1
        counters[ACTIVE] = kept


@lean
def admit(case: Case, ledger: Ledger, job: int, k: int) -> bool:
    """Whether the edge can hold an arrival that needs `k` workers; else it goes to the cloud or is rejected."""
    mine = ledger.jobs[job]
    kind, ps = mine[TYPE], mine[PS_TYPE]
    fits = k <= (case.slots[kind] if kind >= 0 else 0)
    if case.cloud < 0 and not fits:
        reject(ledger, job, NEVER_FITS, NO_VALUE)
        return False
    if case.cloud < 0 and (ps < 0 or _number_of_ps(case, ps) == 0):
        reject(ledger, job, NO_PS_THERE, NO_VALUE)
        return False
    if not fits:
        _to_cloud(case, ledger, job, k)
    return bool(fits)


@compiled
def _to_cloud(case: Case, ledger: Ledger, job: int, k: int) -> None:
    """Have `job` hold `k` workers in the cloud, for good."""
    where = np.array([[case.cloud, k]])
    allocate(case, ledger, job, where, -1, is_colocated(case, where, -1), GANG, NEVER_FITS_EDGE, NO_VALUE)


@inlined
def _number_of_ps(case: Case, kind: int) -> int:
    """The number of PS slots of a type."""
    # the last lists are those of all servers together, one per PS type
    of = len(case.ps_first) - 1 - case.ps_types + kind
    return case.ps_first[of + 1] - case.ps_first[of]


# -- the policies ----------------------------------------------------------------------------------------------------


@lean
def _fifo(case: Case, ledger: Ledger, choice: PolicyState) -> None:
    """Start the jobs at the head of the queue whose demand is free."""
    lists, counters = choice.lists, choice.counters
    counters[RANKED] = _unmarked(lists[ACTIVE, : counters[ACTIVE]], choice.gang.running, True, lists[RANKED])
    queue = lists[RANKED, : counters[RANKED]]
    _free_ps(case, ledger.ps_job, choice.scratch.ps_left)
    _change(choice, queue, _verdicts(case, ledger, choice, queue), lists[CHOSEN, :0])


@lean
def _srtf(case: Case, ledger: Ledger, choice: PolicyState, now: int) -> None:
    """Rank all jobs by remaining time and run as many as fit."""
    lists, counters, jobs = choice.lists, choice.counters, ledger.jobs
    active, left, order = lists[ACTIVE, : counters[ACTIVE]], lists[SPARE], lists[FURTHER]
    for i in range(len(active)):
        job = active[i]
        left[i] = max(jobs[job, LEFT] - max(now - jobs[job, COMPUTE_FROM], 0) * jobs[job, HELD], 1)
    rank(lists[RANKED, : counters[RANKED]], active, left, choice.gang.workers, lists[REMAINING], order)
    counters[RANKED] = len(active)
    for i in range(len(active)):
        lists[RANKED, i] = order[i]
    all_ps(case, choice.scratch.ps_left)
    order = lists[RANKED, : counters[RANKED]]
    _change(choice, order, _verdicts(case, ledger, choice, order), lists[CHOSEN, : counters[CHOSEN]])


@lean
def _tiresias(case: Case, ledger: Ledger, choice: PolicyState, now: int) -> None:
    """Promote all that are due, select; D2."""
    lists, counters, gang, clocks = choice.lists, choice.counters, choice.gang, choice.clocks
    jobs, waits, promotes = lists[ACTIVE, : counters[ACTIVE]], lists[SPARE], not math.isinf(choice.knob)
    if promotes:
        waiting = _unmarked(jobs, gang.running, True, waits)
        promote(waits[:waiting], clocks, gang, choice.knob, now)
    while True:
        _sort(jobs, clocks)
        all_ps(case, choice.scratch.ps_left)
        first = _verdicts(case, ledger, choice, jobs)
        if not promotes:
            break
        waiting = _unmarked(jobs, lists[VERDICT], False, waits)
        if not promote(waits[:waiting], clocks, gang, choice.knob, now):
            break
    _change(choice, jobs, first, lists[CHOSEN, : counters[CHOSEN]])
    counters[BEGUN] = begin_clocks(lists[BEGINS, : counters[BEGINS]], clocks, now, counters[BEGUN], case.overhead)
    for job in lists[STOPS, : counters[STOPS]]:
        clocks.stopped[job] = now


@lean
def _unmarked(jobs: Ints, mark: Ints, by_job: bool, out: Ints) -> int:
    """Fill `out` with those of `jobs` whose mark is 0, by job or in the order of `jobs`; returns how many these are."""
    n = 0
    for i in range(len(jobs)):
        if mark[jobs[i] if by_job else i] == 0:
            out[n] = jobs[i]
            n += 1
    return n


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


@lean
def _wake(step: int, ledger: Ledger, choice: PolicyState, now: int) -> None:
    """Ask for the next demotion or promotion of Tiresias-L."""
    lists, counters, clocks, gang = choice.lists, choice.counters, choice.clocks, choice.gang
    if counters[WAKE_AT] <= now:
        counters[WAKE_AT] = NEVER
    due = next_demotion(lists[CHOSEN, : counters[CHOSEN]], clocks, gang, choice.attained)
    if not math.isinf(choice.knob):
        waits = lists[SPARE]
        waiting = _unmarked(lists[ACTIVE, : counters[ACTIVE]], gang.running, True, waits)
        due = min(due, next_promotion(waits[:waiting], clocks, gang, choice.knob, now))
    if due < NEVER and now + due < counters[WAKE_AT]:
        counters[WAKE_AT] = max(now + math.ceil(due), now + 1)
        put(ledger.agenda, ledger.counters, -(-counters[WAKE_AT] // step) * step, WAKE, -1, 0)


# -- from a selection to allocations ---------------------------------------------------------------------------------


@lean
def all_ps(case: Case, left: Ints) -> None:
    """Fill `left`: PS slots to give out by type, if all jobs are up for selection."""
    for kind in range(case.ps_types):
        left[kind] = UNLIMITED if case.cloud >= 0 else _number_of_ps(case, kind)


@lean
def _free_ps(case: Case, ps_job: Ints, left: Ints) -> None:
    """Fill `left`: PS slots to give out by type, if running jobs are not up for selection."""
    first = len(case.ps_first) - 1 - case.ps_types
    all_ps(case, left)
    if case.cloud < 0:
        for kind in range(case.ps_types):
            for i in range(case.ps_first[first + kind], case.ps_first[first + kind + 1]):
                left[kind] -= ps_job[case.ps_list[i]] >= 0


@lean
def _verdicts(case: Case, ledger: Ledger, choice: PolicyState, order: Ints) -> int:
    """Select among `order`; returns how many jobs at its beginning run on where they are.

    Those are the running jobs before the first one that waits: their workers are apart from each other, so each keeps
    its place. For the others is left what is free and what the running ones among them hold.
    """
    gang, scratch, verdict, first = choice.gang, choice.scratch, choice.lists[VERDICT, : len(order)], 0
    while first < len(order) and gang.running[order[first]]:
        verdict[first] = -1
        scratch.ps_left[gang.ps_kind[order[first]]] -= 1
        first += 1
    for server in range(len(ledger.free)):
        for kind in range(len(scratch.total)):
            scratch.free[server, kind] = scratch.unheld[server, kind] = ledger.free[server, kind]
    for n in range(first, len(order)):
        job = order[n]
        if gang.running[job]:
            for i in range(gang.used[job]):
                scratch.free[gang.servers[job, i], gang.kind[job]] += gang.counts[job, i]
    for kind in range(len(scratch.total)):
        scratch.total[kind] = 0
        for server in range(len(ledger.free)):
            scratch.total[kind] += scratch.free[server, kind]
            if choice.rule.keep_running == 0:
                scratch.unheld[server, kind] = scratch.free[server, kind]
    scan(order, first, gang, ledger.data, choice.rule, scratch, case.delays, verdict)
    return first


@lean
def _change(choice: PolicyState, order: Ints, first: int, held: Ints) -> None:
    """Note what follows from the verdicts on `order`, of which the first `first` run on."""
    lists, counters = choice.lists, choice.counters
    changes = Changes(lists[STOPS], lists[MOVES], lists[BEGINS], lists[SPARE])
    lengths = carry_from(first, order, lists[VERDICT, : len(order)], held, choice.gang, choice.scratch, changes)
    counters[STOPS], counters[MOVES], counters[BEGINS], counters[CHOSEN] = lengths
    for i in range(counters[CHOSEN]):
        lists[CHOSEN, i] = lists[SPARE, i]


@lean
def _carry_out(case: Case, ledger: Ledger, choice: PolicyState) -> None:
    """First all suspensions, then all placements; a job that is moved keeps its PS."""
    gang, lists, counters = choice.gang, choice.lists, choice.counters
    moves, present_ps = lists[MOVES, : counters[MOVES]], lists[SPARE]
    for job in lists[STOPS, : counters[STOPS]]:
        suspend(case, ledger, job, PREEMPTED)
    for i, job in enumerate(moves):
        present_ps[i] = ledger.jobs[job, PS]
        suspend(case, ledger, job, MOVED)
    for i, job in enumerate(moves):
        where = choice.where[: _place(gang, job, choice.where)]
        ps = present_ps[i]
        allocate(case, ledger, job, where, ps, is_colocated(case, where, ps), GANG, RANK, NO_VALUE)
    for job in lists[BEGINS, : counters[BEGINS]]:
        where = choice.where[: _place(gang, job, choice.where)]
        ps = ps_for(case, ledger, job, where)
        allocate(case, ledger, job, where, ps, is_colocated(case, where, ps), GANG, RANK, NO_VALUE)


@inlined
def _place(gang: Gang, job: int, where: Ints) -> int:
    """Fill the first rows of `where` with the placement that the policy has chosen, by server; returns how many."""
    for i in range(gang.used[job]):
        server, k = gang.servers[job, i], i
        while k > 0 and where[k - 1, 0] > server:
            where[k, 0], where[k, 1] = where[k - 1, 0], where[k - 1, 1]
            k -= 1
        where[k, 0], where[k, 1] = server, gang.counts[job, i]
    return gang.used[job]


@lean
def ps_for(case: Case, ledger: Ledger, job: int, where: Ints) -> int:
    """A free PS slot of the job's type: on a server of its placement `where`, else of lowest number, else the cloud."""
    kind = ledger.jobs[job, PS_TYPE]
    if kind < 0:
        return -1
    for i in range(len(where)):
        slot = _free_slot(case, ledger.ps_job, where[i, 0] * case.ps_types + kind)
        if slot >= 0:
            return slot
    return _free_slot(case, ledger.ps_job, len(case.ps_first) - 1 - case.ps_types + kind)


@inlined
def _free_slot(case: Case, ps_job: Ints, of: int) -> int:
    """The first free PS slot of a list; -1 if there is none."""
    found = -1
    for i in range(case.ps_first[of], case.ps_first[of + 1]):
        if found < 0 and ps_job[case.ps_list[i]] < 0:
            found = case.ps_list[i]
    return found
