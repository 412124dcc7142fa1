"""The decision of each policy, compiled: as :mod:`skedge.policies.gangs` and :mod:`skedge.policies.fifo.strict`."""

from __future__ import annotations

import math

import numpy as np

from skedge.core.jit import compiled, lean
from skedge.core.model import Ints
from skedge.core.time import NEVER
from skedge.policies.gangs.edge import PLENTY
from skedge.policies.gangs.placement import Changes, carry, select
from skedge.policies.gangs.srtf import ranked
from skedge.policies.gangs.tiresias import Clocks, execute, next_demotion, next_promotion, promote, rank_of
from skedge.policies.gangs.tiresias import begin as begin_clocks

from .gangs import begin, put, reject, suspend
from .state import (
    ACTIVE,
    BEGUN,
    CHOSEN,
    DECIDED,
    FIFO,
    RANKED,
    SRTF,
    WAKE_AT,
    Case,
    State,
)

RANK, PREEMPTED, MOVED, NEVER_FITS_EDGE, NEVER_FITS, NO_PS_THERE = range(6)
"""Codes of reasons: the policy's rank, and those of :mod:`skedge.policies.gangs.edge` and ``base``."""


@compiled
def decide(case: Case, state: State, now: int, finished: int, first: int, last: int) -> None:
    """Decide at `now`, after `finished` jobs have completed and jobs `first` to ``last - 1`` have arrived."""
    if case.policy == FIFO:
        _admit(case, state, now, finished, first, last)
        _fifo(case, state, now)
    elif case.policy == SRTF:
        _admit(case, state, now, finished, first, last)
        _srtf(case, state, now)
    else:
        execute(_chosen(state), state.clocks, state.gang, now - state.at[DECIDED], case.limit)
        state.at[DECIDED] = now
        _admit(case, state, now, finished, first, last)
        _tiresias(case, state, now)


# -- arrivals and departures -----------------------------------------------------------------------------------------


@compiled
def _admit(case: Case, state: State, now: int, finished: int, first: int, last: int) -> None:
    """Take in arrivals, let finished jobs go; what can never fit on the edge goes to the cloud or is rejected."""
    for i in range(finished):
        state.gang.running[state.finished[i]] = 0
        _remove(state, state.finished[i])
    for job in range(first, last):
        kind, k = case.kind[job], case.workers[job]
        fits = k <= (case.slots[kind] if kind >= 0 else 0)
        ps = case.ps_kind[job]
        if case.cloud < 0 and not fits:
            reject(state, job, now, NEVER_FITS)
        elif case.cloud < 0 and (ps < 0 or case.kind_first[ps] == case.kind_first[ps + 1]):
            reject(state, job, now, NO_PS_THERE)
        elif fits:
            state.active[state.at[ACTIVE]] = job
            state.at[ACTIVE] += 1
        else:
            gang = state.gang
            gang.servers[job, 0], gang.counts[job, 0], gang.used[job] = case.cloud, k, 1
            begin(case, state, job, -1, now, NEVER_FITS_EDGE)


@lean
def _remove(state: State, job: int) -> None:
    """Remove `job` from the active ones, if it is there."""
    active, n, kept = state.active, state.at[ACTIVE], 0
    for i in range(n):
        if active[i] != job:
            active[kept] = active[i]
            kept += 1
    state.at[ACTIVE] = kept


# -- the policies ----------------------------------------------------------------------------------------------------


@compiled
def _fifo(case: Case, state: State, now: int) -> None:
    """Start the jobs at the head of the queue whose demand is free."""
    queue, n = state.ranked, 0
    for i in range(state.at[ACTIVE]):
        job = state.active[i]
        if state.gang.running[job] == 0:
            queue[n] = job
            n += 1
    if n > 0:
        state.scratch.free[:] = state.free
        _select(case, state, queue[:n], _free_ps(case, state))
        none = queue[:0]
        _carry_out(case, state, carry(queue[:n], state.verdict[:n], none, state.gang, state.stored, state.scratch), now)


@compiled
def _srtf(case: Case, state: State, now: int) -> None:
    """Rank all jobs by remaining time and run as many as fit."""
    active, jobs = state.active[: state.at[ACTIVE]], state.jobs
    left = np.empty(len(active), np.int64)
    for i in range(len(active)):
        job = active[i]
        left[i] = max(jobs.left[job] - max(now - jobs.compute_from[job], 0) * jobs.held[job], 1)
    order = ranked(state.ranked[: state.at[RANKED]], active, left, case.workers, state.remaining)
    state.ranked[: len(order)] = order
    state.at[RANKED] = len(order)
    state.scratch.free[:] = case.capacity
    _select(case, state, order, _all_ps(case))
    _carry_out(case, state, _note(state, order), now)


@compiled
def _tiresias(case: Case, state: State, now: int) -> None:
    """Promote all that are due, select; D2."""
    gang, clocks, jobs = state.gang, state.clocks, state.active[: state.at[ACTIVE]]
    promote(jobs[gang.running[jobs] == 0], clocks, gang, case.knob, now)
    while True:
        _sort(jobs, clocks)
        state.scratch.free[:] = case.capacity
        _select(case, state, jobs, _all_ps(case))
        if not promote(jobs[state.verdict[: len(jobs)] == 0], clocks, gang, case.knob, now):
            break
    changes = _note(state, jobs)
    state.at[BEGUN] = begin_clocks(changes.begins, clocks, now, state.at[BEGUN], case.overhead)
    for job in changes.stops:
        clocks.stopped[job] = now
    _carry_out(case, state, changes, now)
    _wake(case, state, now)


@lean
def _sort(jobs: Ints, clocks: Clocks) -> None:
    """Sort `jobs`, nearly sorted, by rank."""
    for i in range(1, len(jobs)):
        job, k = jobs[i], i
        mine = rank_of(clocks, job)
        while k > 0 and rank_of(clocks, jobs[k - 1]) > mine:
            jobs[k] = jobs[k - 1]
            k -= 1
        jobs[k] = job


@compiled
def _wake(case: Case, state: State, now: int) -> None:
    """Ask for the next demotion or promotion."""
    at, clocks = state.at, state.clocks
    if at[WAKE_AT] <= now:
        at[WAKE_AT] = NEVER
    due = next_demotion(_chosen(state), clocks, state.gang, case.limit)
    active = state.active[: at[ACTIVE]]
    due = min(due, next_promotion(active[state.gang.running[active] == 0], clocks, state.gang, case.knob, now))
    if due < NEVER and now + due < at[WAKE_AT]:
        at[WAKE_AT] = max(now + np.int64(math.ceil(due)), now + 1)
        put(state, -(-at[WAKE_AT] // case.step) * case.step, -1, 0)


# -- from a selection to allocations ---------------------------------------------------------------------------------


@compiled
def _chosen(state: State) -> Ints:
    """The jobs that the last decision left running."""
    return state.chosen[: state.at[CHOSEN]]


@compiled
def _select(case: Case, state: State, order: Ints, ps_left: Ints) -> None:
    verdict = state.verdict[: len(order)]
    select(order, state.gang, state.stored, case.rule, state.scratch, ps_left, case.delays, verdict)


@compiled
def _all_ps(case: Case) -> Ints:
    """PS slots to give out by type, if all jobs are up for selection."""
    if case.cloud >= 0:
        return np.full(len(case.kind_first) - 1, PLENTY)
    return case.kind_first[1:] - case.kind_first[:-1]


@compiled
def _free_ps(case: Case, state: State) -> Ints:
    """PS slots to give out by type, if running jobs are not up for selection."""
    left = _all_ps(case)
    if case.cloud < 0:
        for kind in range(len(left)):
            for slot in case.kind_list[case.kind_first[kind] : case.kind_first[kind + 1]]:
                left[kind] -= state.ps_job[slot] >= 0
    return left


@compiled
def _note(state: State, order: Ints) -> Changes:
    """What follows from the verdicts on `order`, all jobs in the system."""
    verdict = state.verdict[: len(order)]
    changes = carry(order, verdict, _chosen(state), state.gang, state.stored, state.scratch)
    state.chosen[: len(changes.runs)] = changes.runs
    state.at[CHOSEN] = len(changes.runs)
    return changes


@compiled
def _carry_out(case: Case, state: State, changes: Changes, now: int) -> None:
    """First all suspensions, then all placements; a job that is moved keeps its PS."""
    kept = state.jobs.ps[changes.moves]
    for job in changes.stops:
        suspend(case, state, job, now, PREEMPTED)
    for job in changes.moves:
        suspend(case, state, job, now, MOVED)
    for i in range(len(kept)):
        begin(case, state, changes.moves[i], kept[i], now, RANK)
    for job in changes.begins:
        begin(case, state, job, _ps_for(case, state, job), now, RANK)


@compiled
def _ps_for(case: Case, state: State, job: int) -> int:
    """A free PS slot of the job's type: on a server of its placement, else of lowest number, else the cloud."""
    kind, gang, kinds = case.ps_kind[job], state.gang, len(case.kind_first) - 1
    if kind < 0:
        return -1
    servers = gang.servers[job, : gang.used[job]]
    tried = -1
    for _ in range(len(servers)):
        server = NEVER
        for other in servers:  # in order of server
            if tried < other < server:
                server = other
        tried, pair = server, server * kinds + kind
        for slot in case.ps_list[case.ps_first[pair] : case.ps_first[pair + 1]]:
            if state.ps_job[slot] < 0:
                return slot
    for slot in case.kind_list[case.kind_first[kind] : case.kind_first[kind + 1]]:
        if state.ps_job[slot] < 0:
            return slot
    return -1
