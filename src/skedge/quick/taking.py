"""The state of the policies that give and take single workers, and how these are given and taken; compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.engine.kept_data import Stored, empty_stored, store_all, with_space
from skedge.core.model.cluster import Ints
from skedge.core.model.scenario import Scenario
from skedge.platform.jit import compiled
from skedge.policies.gangs.preemptive import JobState

from .decide import RANK, ps_for
from .each import Crews, begin_each, crews_with_room, no_crews, stop
from .gangs import SUSPEND, note_decision
from .state import CHUNKS, KIND, NO_PS, PS, WORKERS, GangBooks, GangCase


class Taking(NamedTuple):
    """The state of the policy, and the workers of its jobs.

    Attributes
    ----------
    policy
        PREEMPTIVE or DRF.
    capacity
        Workers by (server, type).
    work
        Announced work by zeta [worker-µs], shape ``(jobs, 2)``.
    held, stored
        As Preemptive has them; DRF uses a part of it.
    crews
        The workers.
    lists, at
        Likewise as :class:`.state.PolicyState` has them.
    """

    policy: int
    capacity: Ints
    work: Ints
    held: JobState
    stored: Stored
    crews: Crews
    lists: Ints
    at: Ints


def make_taking(scenario: Scenario, policy: int) -> Taking:
    """The policy before the first event."""
    cluster, jobs = scenario.cluster, scenario.jobs
    count = len(jobs)
    wide = {"own": (count, len(cluster.servers)), "left": (count, 2)}
    held = JobState(*(np.zeros(wide.get(name, count), np.int64) for name in JobState._fields))
    held.kind[:], held.most[:], held.ps_kind[:] = jobs.worker_type, jobs.chunks, np.maximum(jobs.ps_type, 0)
    held.ps_server[:], held.stale[:] = -1, 1
    stored, work = with_space(empty_stored(), count, 0), np.array(scenario.announced_work)
    lists, at = np.zeros((12, count), np.int64), np.zeros(10, np.int64)
    return Taking(policy, cluster.workers, work, held, stored, no_crews(count), lists, at)


def taking_with_room(taking: Taking, more: int) -> Taking:
    """The same with room for at most `more` further entries and workers."""
    stored = with_space(taking.stored, len(taking.stored.first), more)
    return taking._replace(stored=stored, crews=crews_with_room(taking.crews, more))


def ask_for_one(case: GangCase, books: GangBooks) -> None:
    """Let each job ask for one worker, but for one per chunk where it can only go to the cloud."""
    table = books.jobs
    kind = table[:, KIND]
    on_edge = (kind >= 0) & (np.append(case.slots, 0)[kind] > 0)
    table[:, WORKERS] = np.where(on_edge | (case.cloud < 0), 1, table[:, CHUNKS])


@compiled
def allocate(case: GangCase, books: GangBooks, taking: Taking, job: int, workers: Ints, ps: int, now: int) -> None:
    """Let `job` hold these `workers`, by server, and the PS `ps`, or one that it does not have yet (NO_PS)."""
    held, where = taking.held, rows_of(workers)
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
def rows_of(workers: Ints) -> Ints:
    """(server, workers) rows of `workers`, by server."""
    out, size = np.empty((len(workers), 2), np.int64), 0
    for server in range(len(workers)):
        if workers[server] > 0:
            out[size, 0], out[size, 1] = server, workers[server]
            size += 1
    return out[:size]


@compiled
def suspend_each(case: GangCase, books: GangBooks, taking: Taking, job: int, now: int, reason: int) -> None:
    """Take all workers and the PS from `job`, which no order continues."""
    note_decision(books, now, job, SUSPEND, -1, -1, reason)
    stop(case, books, taking.crews, job, now)
    taking.held.running[job], taking.held.ps_server[job] = 0, -1
