"""A decision of Preemptive, compiled: as :mod:`skedge.policies.gangs.preemptive`."""

from __future__ import annotations

import numpy as np

from skedge.core.engine.allocations import work_done
from skedge.core.engine.ledger import LEFT, NO_PS, NOW, PS, Case, Ledger
from skedge.core.model.cluster import Ints
from skedge.platform.jit import compiled
from skedge.policies.gangs.preemptive import Room, estimate, merged, take

from .decide import MOVED, PREEMPTED, all_ps
from .state import ACTIVE, RANKED
from .taking import Taking, allocate, suspend_each


@compiled
def take_in_turn(case: Case, ledger: Ledger, taking: Taking) -> None:
    """Rank the jobs, let them take in turn, carry out what changes."""
    ranked = _rank(case, ledger, taking)
    taking.lists[RANKED, : len(ranked)] = ranked
    taking.counters[RANKED] = len(ranked)
    room = _room(case, ledger, taking)
    jobs, plan, zeta = take(ranked, taking.held, ledger.data, room, case.delays)
    _carry_out(case, ledger, taking, jobs, plan, zeta)


@compiled
def _rank(case: Case, ledger: Ledger, taking: Taking) -> Ints:
    """Rank the jobs in the system anew that run or are stale."""
    held, n = taking.held, 0
    anew, left = np.empty(taking.counters[ACTIVE], np.int64), np.empty(taking.counters[ACTIVE], np.int64)
    for job in taking.lists[ACTIVE, : taking.counters[ACTIVE]]:
        if held.running[job] or held.stale[job]:
            held.stale[job] = 1
            anew[n] = job
            left[n] = max(ledger.jobs[job, LEFT] - work_done(ledger, job, ledger.counters[NOW]), 1)
            n += 1
    anew = anew[:n]
    estimate(anew, left[:n], taking.work, case.slots, held)
    anew = anew[np.argsort(held.estimate[anew], kind="mergesort")]
    ranked = merged(taking.lists[RANKED, : taking.counters[RANKED]], anew, held.estimate, held.stale)
    for job in anew:
        held.stale[job] = 0
    return ranked


@compiled
def _room(case: Case, ledger: Ledger, taking: Taking) -> Room:
    """What is left to take."""
    ps_free = np.zeros((len(taking.capacity), case.ps_types), np.int64)
    if case.one_server:
        for p in range(len(taking.capacity) * case.ps_types):
            for i in range(case.ps_first[p], case.ps_first[p + 1]):
                ps_free[p // case.ps_types, p % case.ps_types] += ledger.ps_job[case.ps_list[i]] < 0
    ps_left = np.empty(case.ps_types, np.int64)
    all_ps(case, ps_left)
    return Room(taking.capacity.copy(), ps_left, ps_free, case.one_server, case.overhead, 1)


@compiled
def _carry_out(case: Case, ledger: Ledger, taking: Taking, jobs: Ints, plan: Ints, zeta: Ints) -> None:
    """First what is taken from running jobs, then what they get, then those that begin: beside their PS first."""
    held = taking.held
    ran, ps = held.running[jobs], ledger.jobs[jobs, PS]
    grows, begins = np.zeros(len(jobs), np.bool_), np.zeros(len(jobs), np.bool_)
    for n in range(len(jobs)):
        job = jobs[n]
        begins[n] = ran[n] == 0
        if begins[n]:
            continue
        kept, own = np.minimum(plan[n], held.own[job]), held.own[job]
        grows[n] = (plan[n] > own).any()
        if not kept.any():
            suspend_each(case, ledger, taking, job, MOVED if plan[n].any() else PREEMPTED)
        elif (kept < own).any():
            allocate(case, ledger, taking, job, kept, ps[n])
    for i in np.flatnonzero(grows):
        allocate(case, ledger, taking, jobs[i], plan[i], ps[i])
    for beside in (1, 0):
        for i in np.flatnonzero(begins)[::-1]:
            if zeta[i] == beside:
                allocate(case, ledger, taking, jobs[i], plan[i], NO_PS)
