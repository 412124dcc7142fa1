"""The state of the policies that give and take single workers, and how these are given and taken; compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.engine.allocations import allocate as hold
from skedge.core.engine.allocations import suspend
from skedge.core.engine.ledger import ELASTIC, NO_PS, NO_VALUE, Case, Ledger
from skedge.core.model.cluster import Ints
from skedge.core.model.scenario import Scenario
from skedge.platform.jit import compiled
from skedge.policies.gangs.preemptive import JobState

from .decide import RANK, ps_for


class Taking(NamedTuple):
    """The state of the policy.

    Attributes
    ----------
    policy
        PREEMPTIVE or DRF.
    capacity
        Workers by (server, type).
    demand
        Workers with which each job runs: one, but one for each chunk where it can only go to the cloud.
    work
        Announced work, not co-located and co-located [worker-µs], shape ``(jobs, 2)``.
    held
        As Preemptive has it; DRF uses a part of it.
    lists, at
        Likewise as :class:`.state.PolicyState` has them.
    """

    policy: int
    capacity: Ints
    demand: Ints
    work: Ints
    held: JobState
    lists: Ints
    counters: Ints


def make_taking(scenario: Scenario, policy: int) -> Taking:
    """The policy before the first event."""
    cluster, jobs = scenario.cluster, scenario.jobs
    n_jobs, slots = len(jobs), np.append(cluster.workers.sum(axis=0), 0)
    wide = {"own": (n_jobs, len(cluster.servers)), "left": (n_jobs, 2)}
    held = JobState(*(np.zeros(wide.get(name, n_jobs), np.int64) for name in JobState._fields))
    held.kind[:], held.max_workers[:], held.ps_kind[:] = jobs.worker_type, jobs.chunks, np.maximum(jobs.ps_type, 0)
    held.ps_server[:], held.stale[:] = -1, 1
    on_edge = (jobs.worker_type >= 0) & (slots[jobs.worker_type] > 0)
    demand = np.where(on_edge | (cluster.cloud is None), 1, jobs.chunks)
    lists, counters = np.zeros((12, n_jobs), np.int64), np.zeros(10, np.int64)
    return Taking(policy, cluster.workers, demand, np.array(scenario.announced_work), held, lists, counters)


@compiled
def allocate(case: Case, ledger: Ledger, taking: Taking, job: int, workers: Ints, ps: int) -> None:
    """Let `job` hold these `workers`, by server, and the PS `ps`, or one that it does not have yet (NO_PS)."""
    held, where = taking.held, rows_of(workers)
    if ps == NO_PS:
        ps = ps_for(case, ledger, job, where)
    server = int(case.ps_places[ps]) if ps >= 0 else -1
    held.own[job], held.running[job], held.ran[job], held.ps_server[job] = workers, 1, 1, server
    held.low[job], held.high[job] = where[0, 0], where[len(where) - 1, 0] + 1
    held.colocated[job] = 1 if case.one_server and len(where) == 1 and where[0, 0] == server else 0
    hold(case, ledger, job, where, ps, held.colocated[job], ELASTIC, RANK, NO_VALUE)


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
def suspend_each(case: Case, ledger: Ledger, taking: Taking, job: int, reason: int) -> None:
    """Take all workers and the PS from `job`, which no order continues."""
    suspend(case, ledger, job, reason)
    taking.held.running[job], taking.held.ps_server[job] = 0, -1
