"""A_maxsche, Alg. 2: whether a job of a batch is deployed now, its plan, and what it books; compiled.

The event-driven policy calls :func:`choose` for one job after the other, a run without events (:mod:`.run`)
:func:`deploy` for a whole batch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from skedge.core.engine.ledger import longer
from skedge.core.model.cluster import Bools, Cluster, Floats, Ints
from skedge.core.model.network import Delays, upload_delay
from skedge.platform.jit import compiled, inlined, lean

from .deployment import COST_C, NO_PLAN, Deployment, DeploymentRequest, PlanComparison, best_plan, slots_needed
from .prices import LoadProfile, price, take
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
    copies
        1 if data go to every server from the arrival on (D6); 0 if they go where workers are placed.
    """

    rule: PlanComparison
    servers: Ints
    ps_server: Ints
    ps_type: Ints
    widths: tuple[int, int]
    slot: int
    cloud: int
    one_server: int
    copies: int


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


# -- Alg. 2 ----------------------------------------------------------------------------------------------------------


@compiled
def deploy(case: BatchCase, state: BatchState, jobs: Ints, conditions: BatchConditions) -> int:
    """Decide on `jobs` in turn; returns how many were decided on before an array was full.

    Parameters
    ----------
    case, conditions
        What does not change during the run, and during the batch.
    state
        Changed in place.
    jobs
        The jobs of the batch, in order.
    """
    for k in range(len(jobs)):
        if not has_room(state, len(case.servers)):
            return k
        if choose(case, state, jobs[k], conditions) <= SPREAD:
            _book(case, state, jobs[k], conditions.now, priced=True)
    return len(jobs)


@compiled
def choose(case: BatchCase, state: BatchState, job: int, conditions: BatchConditions) -> int:
    """Alg. 2, lines 3 to 17: the outcome of `job`, with its plan if it is deployed; returns the reason.

    Parameters
    ----------
    case, state, conditions
        As in :func:`deploy`; there must be room for the rows of a job.
    job
        The job, which is booked by :func:`book` if the reason is ONE_SERVER or SPREAD.
    """
    request, servers = job_request(case, state, job, conditions)
    y = np.zeros(len(servers), np.int64)
    plan = best_plan(request, state.workers, state.ps, case.rule, y)
    reason, counters, n_plans = _reason(request, plan), state.counters, state.counters[PLANS]
    if reason <= SPREAD:
        _set_plan(case, state, job, servers, plan, y, conditions)
    row = state.outcomes[counters[OUTCOMES]]
    row[0], row[1], row[2], row[3] = conditions.now, job, reason, counters[PLANS] - n_plans
    state.values[counters[OUTCOMES]] = math.nan if plan.kind == NO_PLAN else 1 - plan.cost
    counters[OUTCOMES] += 1
    return reason


@compiled
def job_request(
    case: BatchCase, state: BatchState, job: int, conditions: BatchConditions
) -> tuple[DeploymentRequest, Ints]:
    """`job` and the servers that it may use, in the order of ties.

    Parameters
    ----------
    case, state, job, conditions
        As in :func:`choose`.
    """
    columns, widths = state.jobs[job], case.widths
    servers, n = np.empty(len(case.servers), np.int64), 0
    for server in case.servers:
        # data are on their way from the arrival on (D6)
        if (
            _is_candidate(case, state, columns, server)
            and conditions.in_service[server]
            and (columns[RELEASE] + upload_delay(conditions.delays, job, server) < conditions.due)
        ):
            servers[n], n = server, n + 1
    rows, ps_rows, colocated = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        rows[i] = servers[i] * widths[0] + columns[KIND]
        ps_rows[i] = servers[i] * widths[1] + columns[PS_KIND]
        colocated[i] = case.one_server == 1 or servers[i] == case.cloud
    work, interval = conditions.work[job], conditions.interval
    return DeploymentRequest(work, columns[CHUNKS], case.slot, interval, rows, ps_rows, colocated), servers[:n]


@inlined
def _is_candidate(case: BatchCase, state: BatchState, columns: Ints, server: int) -> bool:
    """Whether `server` has a worker, or a PS, of a job's type."""
    row, ps_row = server * case.widths[0] + columns[KIND], server * case.widths[1] + columns[PS_KIND]
    return state.workers.capacity[row] > 0 or state.ps.capacity[ps_row] > 0


@compiled
def _reason(request: DeploymentRequest, plan: Deployment) -> int:
    """The reason why a job is deployed, or waits for the next batch."""
    if plan.kind != NO_PLAN:
        # Alg. 2 line 15: eta = 1 - cost must be positive
        if plan.cost >= 1:
            return TOO_DEAR
        return ONE_SERVER if plan.kind == COST_C else SPREAD
    if len(request.colocated) == 0:
        return NOT_UPLOADED
    # if one server is enough for xi = 1 anywhere then on the last one, which is the cloud
    if slots_needed(request, request.colocated[-1], request.max_workers) > request.interval:
        return TOO_LONG
    return NO_ROOM


@compiled
def _set_plan(
    case: BatchCase,
    state: BatchState,
    job: int,
    servers: Ints,
    plan: Deployment,
    y: Ints,
    conditions: BatchConditions,
) -> None:
    """Alg. 2, lines 16 and 17: the rows of the plan, and what `job` holds by it."""
    columns, now, counters = state.jobs[job], conditions.now, state.counters
    workers, ready = np.zeros(len(case.servers), np.int64), now
    if not case.copies:
        columns[UPLOAD_START] = now
    for i in range(len(servers)):
        if y[i] > 0:
            workers[servers[i]] = y[i]
            # of copies, uploaded from the arrival on, mostly all is there at tau_i already
            ready = max(ready, columns[UPLOAD_START] + upload_delay(conditions.delays, job, servers[i]))
    columns[WORKERS], columns[SLOTS], columns[PLAN_END] = plan.workers, plan.slots, ready + plan.slots * case.slot
    columns[PS_SERVER], columns[FIRST] = servers[plan.ps], counters[PLANS]
    columns[PS_SLOT] = _free_ps(case, state, columns)
    if columns[PS_SLOT] >= 0:
        state.ps_job[columns[PS_SLOT]] = job
    for server in range(len(workers)):
        has_ps = server == columns[PS_SERVER]
        if workers[server] > 0 or has_ps:
            row = state.plans[counters[PLANS]]
            row[0], row[1], row[2], row[3], row[4], row[5] = (
                job,
                server,
                workers[server],
                has_ps,
                now,
                columns[PLAN_END],
            )
            counters[PLANS] += 1
    columns[COUNT] = counters[PLANS] - columns[FIRST]


@inlined
def _free_ps(case: BatchCase, state: BatchState, columns: Ints) -> int:
    """The first free PS slot of a job's type on its PS's server; by the profile there is one. -1: in the cloud."""
    if columns[PS_SERVER] == case.cloud:
        return -1
    kind, slot = columns[PS_KIND], 0
    while case.ps_server[slot] != columns[PS_SERVER] or case.ps_type[slot] != kind or state.ps_job[slot] >= 0:
        slot += 1
    return slot


@compiled
def book(case: BatchCase, state: BatchState, jobs: Ints, now: int, priced: bool) -> int:
    """Alg. 2, line 18: book `jobs` by their plans, so that prices rise; returns how many before an array was full.

    Parameters
    ----------
    case, state
        As in :func:`deploy`.
    jobs
        Jobs that hold what their plans say.
    now
        From when on they are booked: the begin of slot 0 [µs].
    priced
        Whether the prices that change are rows of the record.
    """
    for k in range(len(jobs)):
        if not has_room(state, len(case.servers)):
            return k
        _book(case, state, jobs[k], now, priced)
    return len(jobs)


@lean
def _book(case: BatchCase, state: BatchState, job: int, now: int, priced: bool) -> None:
    columns = state.jobs[job]
    for i in range(columns[FIRST], columns[FIRST] + columns[COUNT]):
        if state.plans[i, 2] > 0:
            _book_units(case, state, job, state.plans[i, 1], 0, state.plans[i, 2], now, priced)
    _book_units(case, state, job, columns[PS_SERVER], 1, 1, now, priced)


@lean
def _book_units(
    case: BatchCase, state: BatchState, job: int, server: int, is_ps: int, units: int, now: int, priced: bool
) -> None:
    """Book workers of `job` on a server, or its PS, from `now` to the end of its plan, where there is a limit."""
    columns, width = state.jobs[job], case.widths[is_ps]
    profile, kind = (state.ps, columns[PS_KIND]) if is_ps else (state.workers, columns[KIND])
    row, slots = server * width + kind, max(1, -(-(columns[PLAN_END] - now) // case.slot))
    if profile.capacity[row] == math.inf:
        return
    take(profile, row, units, 0, slots)
    # the last column stands for a type that only the cloud has, which has no name
    if not priced or kind == width - 1:
        return
    for i in range(profile.size[row]):
        start, end = profile.starts[row, i], slots
        if i + 1 < profile.size[row]:
            end = min(end, profile.starts[row, i + 1])
        if start < end:
            piece = state.prices[state.counters[PRICES]]
            piece[0], piece[1], piece[2], piece[3], piece[4] = now, job, server, is_ps, kind
            piece[5], piece[6] = now + start * case.slot, now + end * case.slot
            state.price[state.counters[PRICES]] = price(profile, row, profile.load[row, i])
            state.counters[PRICES] += 1
