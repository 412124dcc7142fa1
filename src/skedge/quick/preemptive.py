"""A run of Preemptive, compiled: its decisions, as :mod:`skedge.policies.gangs.preemptive`, and its events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.jit import compiled
from skedge.core.model import Ints
from skedge.core.scenario import Scenario
from skedge.core.time import NEVER
from skedge.policies.gangs.placement import Stored, empty_stored, store_all, with_space
from skedge.policies.gangs.preemptive import JobState, Room, estimate, merged, take

from .decide import MOVED, PREEMPTED, RANK, admit, all_ps, leave, ps_for
from .each import SIZE, Crews, begin_each, crews_with_room, finish_each, no_crews, remaining, stop
from .gangs import SUSPEND, finish, note_decision, tidy
from .loop import FULL, OVER, PAUSED, arrivals_at, happening, next_time
from .state import (
    ACTIVE,
    ARRIVED,
    CHUNKS,
    COMPLETED,
    DONE,
    FINISHED,
    KIND,
    LEFT,
    NO_PS,
    NOW,
    PS,
    RANKED,
    WORKERS,
    Books,
    Case,
    has_room,
    room,
)


class Taking(NamedTuple):
    """The state of the policy, and the workers of its jobs.

    Attributes
    ----------
    capacity
        Workers by (server, type).
    work
        Announced work by zeta [worker-µs], shape ``(jobs, 2)``.
    kept
        1: data stay where they were brought.
    held, stored
        As the policy has them.
    crews
        The workers.
    lists, at
        Likewise as :class:`.state.Choice` has them.
    """

    capacity: Ints
    work: Ints
    held: JobState
    stored: Stored
    crews: Crews
    lists: Ints
    at: Ints


def make_taking(scenario: Scenario) -> Taking:
    """The policy before the first event."""
    cluster, jobs = scenario.cluster, scenario.jobs
    count = len(jobs)
    wide = {"own": (count, len(cluster.servers)), "left": (count, 2)}
    held = JobState(*(np.zeros(wide.get(name, count), np.int64) for name in JobState._fields))
    held.kind[:], held.most[:], held.ps_kind[:] = jobs.worker_type, jobs.chunks, np.maximum(jobs.ps_type, 0)
    held.ps_server[:], held.stale[:] = -1, 1
    stored, work = with_space(empty_stored(), count, 0), np.array(scenario.announced_work)
    lists, at = np.zeros((7, count), np.int64), np.zeros(7, np.int64)
    return Taking(cluster.workers, work, held, stored, no_crews(count), lists, at)


def taking_with_room(taking: Taking, more: int) -> Taking:
    """The same with room for at most `more` further entries and workers."""
    stored = with_space(taking.stored, len(taking.stored.first), more)
    return taking._replace(stored=stored, crews=crews_with_room(taking.crews, more))


def ask_for_one(case: Case, books: Books) -> None:
    """Let each job ask for one worker, but for one per chunk where it can only go to the cloud."""
    table = books.jobs
    kind = table[:, KIND]
    on_edge = (kind >= 0) & (np.append(case.slots, 0)[kind] > 0)
    table[:, WORKERS] = np.where(on_edge | (case.cloud < 0), 1, table[:, CHUNKS])


@compiled
def advance_taking(case: Case, books: Books, taking: Taking, events: int) -> int:
    """Go on for at most this number of events; as :func:`.loop.advance`."""
    at, done, crews = books.at, taking.lists[FINISHED], taking.crews
    for _ in range(events):
        now = at[NOW] = next_time(books.jobs, books.agenda, at)
        if now == NEVER:
            return OVER
        arrivals = arrivals_at(books.jobs, at)
        more = room(case.slots, at, arrivals)
        if not has_room(books, taking.stored, more) or len(crews.rows) - crews.size[0] < more:
            return FULL
        happening(books.agenda, at, books.jobs, done, taking.at)
        finished, first = taking.at[FINISHED], at[ARRIVED]
        at[ARRIVED] += arrivals
        if finished > 0 or arrivals > 0:
            for i in range(finished):
                if crews.of[done[i], SIZE] > 0:
                    finish_each(case, books, crews, done[i], now)
                else:
                    finish(case, books, done[i], now)
                taking.lists[COMPLETED, at[DONE]] = done[i]
                at[DONE] += 1
            _decide(case, books, taking, now, first, at[ARRIVED])
            taking.at[FINISHED] = 0
            tidy(books.agenda, at, books.jobs)
    return PAUSED


@compiled
def _decide(case: Case, books: Books, taking: Taking, now: int, first: int, last: int) -> None:
    """Decide when the jobs of the list FINISHED have completed, and `first` to ``last - 1`` have arrived."""
    lists, at, held = taking.lists, taking.at, taking.held
    leave(held.running, lists, at)
    for i in range(at[FINISHED]):
        held.stale[lists[FINISHED, i]] = 1
    for job in range(first, last):
        if admit(case, books, job, now):
            lists[ACTIVE, at[ACTIVE]] = job
            at[ACTIVE] += 1
    ranked = _rank(case, books, taking, now)
    lists[RANKED, : len(ranked)] = ranked
    at[RANKED] = len(ranked)
    jobs, plan, zeta = take(ranked, held, taking.stored, _room(case, books, taking), case.delays)
    _carry_out(case, books, taking, jobs, plan, zeta, now)


@compiled
def _rank(case: Case, books: Books, taking: Taking, now: int) -> Ints:
    """Rank the jobs in the system anew that run or are stale."""
    held, n = taking.held, 0
    anew, left = np.empty(taking.at[ACTIVE], np.int64), np.empty(taking.at[ACTIVE], np.int64)
    for job in taking.lists[ACTIVE, : taking.at[ACTIVE]]:
        if held.running[job] or held.stale[job]:
            held.stale[job] = 1
            anew[n] = job
            left[n] = remaining(books, taking.crews, job, now) if held.running[job] else books.jobs[job, LEFT]
            n += 1
    anew = anew[:n]
    estimate(anew, left[:n], taking.work, case.slots, held)
    anew = anew[np.argsort(held.estimate[anew], kind="mergesort")]
    ranked = merged(taking.lists[RANKED, : taking.at[RANKED]], anew, held.estimate, held.stale)
    for job in anew:
        held.stale[job] = 0
    return ranked


@compiled
def _room(case: Case, books: Books, taking: Taking) -> Room:
    """What is left to take."""
    ps_free = np.zeros((len(taking.capacity), case.ps_types), np.int64)
    if case.one_server:
        for p in range(len(taking.capacity) * case.ps_types):
            for i in range(case.ps_first[p], case.ps_first[p + 1]):
                ps_free[p // case.ps_types, p % case.ps_types] += books.ps_job[case.ps_list[i]] < 0
    return Room(taking.capacity.copy(), all_ps(case), ps_free, case.one_server, case.overhead, 1)


@compiled
def _carry_out(case: Case, books: Books, taking: Taking, jobs: Ints, plan: Ints, zeta: Ints, now: int) -> None:
    """First what is taken from running jobs, then what they get, then those that begin: beside their PS first."""
    held, crews = taking.held, taking.crews
    ran, ps = held.running[jobs], books.jobs[jobs, PS]
    grows, begins = np.zeros(len(jobs), np.bool_), np.zeros(len(jobs), np.bool_)
    for n in range(len(jobs)):
        job = jobs[n]
        begins[n] = ran[n] == 0
        if begins[n]:
            continue
        kept, own = np.minimum(plan[n], held.own[job]), held.own[job]
        grows[n] = (plan[n] > own).any()
        if not kept.any():
            note_decision(books, now, job, SUSPEND, -1, -1, MOVED if plan[n].any() else PREEMPTED)
            stop(case, books, crews, job, now)
            if not plan[n].any():
                held.running[job], held.ps_server[job] = 0, -1
        elif (kept < own).any():
            _allocate(case, books, taking, job, kept, ps[n], now)
    for i in np.flatnonzero(grows):
        _allocate(case, books, taking, jobs[i], plan[i], ps[i], now)
    for beside in (1, 0):
        for i in np.flatnonzero(begins)[::-1]:
            if zeta[i] == beside:
                _allocate(case, books, taking, jobs[i], plan[i], NO_PS, now)


@compiled
def _allocate(case: Case, books: Books, taking: Taking, job: int, workers: Ints, ps: int, now: int) -> None:
    """Let `job` hold these `workers`, by server, and the PS `ps`, or one that it does not have yet (NO_PS)."""
    held, where = taking.held, _rows(workers)
    if books.jobs[job, PS] != NO_PS:
        stop(case, books, taking.crews, job, now)
    if ps == NO_PS:
        ps = ps_for(case, books, job, where)
    server = int(case.ps_places[ps]) if ps >= 0 else -1
    store_all(taking.stored, job, workers)
    held.own[job], held.running[job], held.ran[job], held.ps_server[job] = workers, 1, 1, server
    held.low[job], held.high[job] = where[0, 0], where[len(where) - 1, 0] + 1
    held.zeta[job] = 1 if case.one_server and len(where) == 1 and where[0, 0] == server else 0
    begin_each(case, books, taking.crews, job, where, ps, held.zeta[job], now, RANK)


@compiled
def _rows(workers: Ints) -> Ints:
    """(server, workers) rows of `workers`, by server."""
    out, size = np.empty((len(workers), 2), np.int64), 0
    for server in range(len(workers)):
        if workers[server] > 0:
            out[size, 0], out[size, 1] = server, workers[server]
            size += 1
    return out[:size]
