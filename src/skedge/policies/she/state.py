"""The arrays of A_maxsche: what holds for a run and for a batch, the jobs and their plans, and the rows it adds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.engine.ledger import longer
from skedge.core.model.cluster import Bools, Cluster, Floats, Ints
from skedge.core.model.network import Delays
from skedge.platform.jit import lean

from .deployment import PlanComparison
from .prices import LoadProfile
from .prices import with_room as profile_with_room

RELEASE, UPLOAD_START, CHUNKS, KIND, PS_KIND, FIRST, COUNT, PS_SLOT, PS_SERVER, WORKERS, SLOTS, PLAN_END = range(12)
"""Columns of ``BatchState.jobs``.

- Time from which the upload test counts, and start of the uploads [µs]; D_j; columns of its types in the profiles of
  workers and of PSs.
- Once it is deployed: the first of its rows of ``BatchState.plans`` and their number; its PS slot (-1: in the cloud)
  and that one's server; D_u, d_j and the end of the plan [µs].
"""

OUTCOMES, PLANS, PRICES = range(3)
"""Numbers of ``BatchState.counters``: rows of the three tables."""

REASONS = ("one_server", "spread", "too_dear", "not_uploaded", "too_long", "no_room")
"""Reasons of decisions: the first two accept a job."""

ONE_SERVER, SPREAD, TOO_DEAR, NOT_UPLOADED, TOO_LONG, NO_ROOM = range(6)


class BatchCase(NamedTuple):
    """What does not change during a run.

    Attributes
    ----------
    rule
        How plans are compared.
    servers
        All servers, in the order of ties: edge before cloud, lower number first (H7).
    ps_server, ps_type
        Server and type of each PS slot.
    widths
        Columns of the profiles of workers and of PSs for each server.
    slot, cloud
        Length of a slot [µs]; number of the cloud, -1 if there is none.
    one_server
        1 if a job on one edge server with its PS there has xi = 1, too (D9).
    """

    rule: PlanComparison
    servers: Ints
    ps_server: Ints
    ps_type: Ints
    widths: tuple[int, int]
    slot: int
    cloud: int
    one_server: int


class BatchConditions(NamedTuple):
    """What does not change while a batch is decided on.

    Attributes
    ----------
    interval
        Slots that the batch owns.
    due
        Data that are on a server before this are in time [µs].
    now
        The present [µs].
    delays, work
        Upload delays; announced work by job and xi [worker-µs].
    in_service
        Whether each server is in service.
    """

    interval: int
    due: int
    now: int
    delays: Delays
    work: Ints
    in_service: Bools


class BatchState(NamedTuple):
    """The jobs, the loads of the batch, and the rows that decisions add.

    Attributes
    ----------
    jobs
        A row for each job; the columns are above.
    workers, ps
        Loads and prices of workers and of PSs.
    ps_job
        The job of each PS slot, -1 if it is free.
    outcomes, values
        Rows (time, job, reason, rows of its plan), and 1 - cost of each, NaN if there is no plan.
    plans
        Rows (job, server, workers, PSs, start, end), of each job by server.
    prices, price
        Rows (time, job, server, 0 for workers or 1 for PSs, type, start, end), and the price of each.
    counters
        Numbers of rows; see above.
    """

    jobs: Ints
    workers: LoadProfile
    ps: LoadProfile
    ps_job: Ints
    outcomes: Ints
    values: Floats
    plans: Ints
    prices: Ints
    price: Floats
    counters: Ints


def empty_state(cluster: Cluster, workers: LoadProfile, ps: LoadProfile) -> BatchState:
    """The state before the first job, with these profiles."""
    jobs, outcomes, plans, prices = (np.zeros((0, width), np.int64) for width in (12, 4, 6, 7))
    free = np.full(len(cluster.ps_server), -1)
    return BatchState(jobs, workers, ps, free, outcomes, np.zeros(0), plans, prices, np.zeros(0), np.zeros(3, np.int64))


def with_room(state: BatchState, servers: int) -> BatchState:
    """The same with room for one more job (:func:`has_room`)."""
    workers, ps = profile_with_room(state.workers), profile_with_room(state.ps)
    steps = int(max(workers.size.max(), ps.size.max()))
    outcomes, plans, prices = (state.counters + np.array([1, servers, (servers + 1) * (steps + 2)])).tolist()
    return state._replace(
        workers=workers,
        ps=ps,
        outcomes=longer(state.outcomes, outcomes),
        values=longer(state.values, outcomes),
        plans=longer(state.plans, plans),
        prices=longer(state.prices, prices),
        price=longer(state.price, prices),
    )


@lean
def has_room(state: BatchState, servers: int) -> bool:
    """Whether every array has room for one more job on this number of servers."""
    counters, steps, ps_steps = state.counters, _most_steps(state.workers), _most_steps(state.ps)
    room = counters[OUTCOMES] < len(state.outcomes) and counters[PLANS] + servers <= len(state.plans)
    # booking adds at most two steps to a row of a profile
    room = room and counters[PRICES] + (servers + 1) * (max(steps, ps_steps) + 2) <= len(state.prices)
    return room and steps + 2 <= state.workers.starts.shape[1] and ps_steps + 2 <= state.ps.starts.shape[1]


@lean
def _most_steps(profile: LoadProfile) -> int:
    most = 0
    for size in profile.size:
        most = max(most, size)
    return most
