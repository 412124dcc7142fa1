"""The jobs of one batch deployed one after the other, Alg. 2 of She et al., with the rows of the record; compiled.

As :class:`~skedge.policies.she.policy.Batch`, the kernel and the simulated world do it together.
"""

from __future__ import annotations

import math

import numpy as np

from skedge.core.model.cluster import Ints
from skedge.core.model.network import upload_delay
from skedge.core.record.schedule import VERBS
from skedge.platform.jit import compiled, inlined, lean
from skedge.policies.common.step_functions import add
from skedge.policies.she.deployment import (
    COST_C,
    NO_PLAN,
    Deployment,
    DeploymentRequest,
    best_plan,
    cost_d,
    cost_d_literal,
    slots_needed,
)
from skedge.policies.she.prices import LoadProfile, price

from .state import (
    CHUNKS,
    COUNT,
    DECISIONS,
    END,
    FIRST,
    KIND,
    NO_ROOM,
    NOT_UPLOADED,
    ONE_SERVER,
    PLANNED,
    PLANS,
    PRICES,
    PS,
    PS_KIND,
    PS_SERVER,
    RUNS,
    SINCE,
    SPREAD,
    TOO_DEAR,
    TOO_LONG,
    TYPES,
    UPLOADED,
    BatchBooks,
    BatchCase,
    has_room,
)

ALLOCATE, RESERVE, POSTPONE = (VERBS.index(verb) for verb in ("allocate", "reserve", "postpone"))


@compiled
def deploy(
    case: BatchCase, books: BatchBooks, workers: LoadProfile, ps: LoadProfile, batch: Ints, tau: int, due: int, now: int
) -> int:
    """Decide on the jobs of `batch`, in order, at `now`; returns how many were decided on before an array was full.

    Uploads that end before `due` [µs] are in time; `tau` is the number of slots of the batch.
    """
    for k in range(len(batch)):
        if not has_room(case, books, workers, ps):
            return k
        job = batch[k]
        ask, servers = _ask(case, books, job, tau, due)
        y = np.zeros(len(servers), np.int64)
        plan = best_plan(ask, workers, ps, case.rule, y)
        # Alg. 2 line 15: eta = 1 - cost must be positive
        if plan.kind != NO_PLAN and plan.cost < 1:
            _workers_of(case, ask, plan, workers, ps, y)
            _accept(case, books, job, servers, plan, y, now)
            take(case, books, workers, ps, job, now)
            _note_prices(case, books, workers, ps, job, now)
        else:
            _postpone(books, job, ask, plan, now)
    return len(batch)


@compiled
def hold(case: BatchCase, books: BatchBooks, workers: LoadProfile, ps: LoadProfile, held: Ints, now: int) -> int:
    """Book the jobs that still train, before a batch; returns how many were booked before an array was full."""
    for k in range(len(held)):
        if not has_room(case, books, workers, ps):
            return k
        take(case, books, workers, ps, held[k], now)
    return len(held)


@compiled
def _ask(case: BatchCase, books: BatchBooks, job: int, tau: int, due: int) -> tuple[DeploymentRequest, Ints]:
    """The job and the servers that it may use, in the order of ties."""
    mine = books.jobs[job]
    first, end = case.first[mine[TYPES]], case.first[mine[TYPES] + 1]
    chosen, n = np.empty(end - first, np.int64), 0
    for i in range(first, end):
        if mine[SINCE] + upload_delay(case.delays, job, case.counters[i]) < due:
            chosen[n], n = i, n + 1
    servers, xi = case.counters[chosen[:n]], case.xi[chosen[:n]]
    rows, ps_rows = servers * case.widths[0] + mine[KIND], servers * case.widths[1] + mine[PS_KIND]
    return DeploymentRequest(case.work[job], mine[CHUNKS], case.slot, tau, rows, ps_rows, xi), servers


@compiled
def _workers_of(
    case: BatchCase, ask: DeploymentRequest, plan: Deployment, workers: LoadProfile, ps: LoadProfile, y: Ints
) -> None:
    """Workers of a plan by place in `ask`, y_jsu."""
    if plan.kind == COST_C:
        y[:] = 0
        y[plan.ps] = plan.workers
    elif case.rule.literal:
        cost_d_literal(ask, plan.workers, workers, ps, y)
    else:
        cost_d(ask, plan.workers, workers, ps, y)


@compiled
def _accept(case: BatchCase, books: BatchBooks, job: int, servers: Ints, plan: Deployment, y: Ints, now: int) -> None:
    """Deploy the job by its plan: its holdings, and the rows of its plan, decisions and runs."""
    mine, ready, used = books.jobs[job], now, 0
    held = np.zeros(len(case.delays.cloud), np.int64)
    for i in range(len(servers)):
        if y[i] > 0:
            held[servers[i]], used = y[i], used + 1
            # copies are uploaded from the arrival on, so mostly all is there at tau_i already
            ready = max(ready, mine[UPLOADED] + upload_delay(case.delays, job, servers[i]))
    mine[PS_SERVER] = servers[plan.ps]
    mine[PS] = _free_ps(case, books, mine, now)
    zeta = _zeta(case, mine, held[servers[plan.ps]] > 0 and used == 1)
    end = ready - (-case.work[job, zeta] // plan.workers)
    mine[PLANNED], mine[END] = ready + plan.slots * case.slot, -(-end // case.step) * case.step
    if mine[PS] >= 0:
        books.ps_until[mine[PS]] = mine[END]
    mine[FIRST], mine[COUNT] = books.counters[RUNS], used
    reason = ONE_SERVER if plan.kind == COST_C else SPREAD
    for server in range(len(held)):
        if held[server] > 0 or server == mine[PS_SERVER]:
            _note_decision(books, now, job, RESERVE, server, -1, reason, math.nan)
            row = books.plans[books.counters[PLANS]]
            row[0], row[1], row[2], row[3] = job, server, held[server], int(server == mine[PS_SERVER])
            row[4], row[5] = now, mine[PLANNED]
            books.counters[PLANS] += 1
    for server in range(len(held)):
        if held[server] > 0:
            _note_decision(books, now, job, ALLOCATE, server, held[server], reason, 1 - plan.cost)
            row = books.runs[books.counters[RUNS]]
            row[0], row[1], row[2], row[3], row[4] = job, server, held[server], now, min(ready, mine[END])
            row[5], row[6], row[7], row[8], row[9] = mine[END], case.work[job, zeta], plan.workers, zeta, 0
            books.counters[RUNS] += 1


@inlined
def _free_ps(case: BatchCase, books: BatchBooks, mine: Ints, now: int) -> int:
    """The first free PS slot of the job's type on its PS's server; -1: in the cloud."""
    if mine[PS_SERVER] == case.cloud:
        return -1
    i = case.ps_first[mine[PS_SERVER] * case.widths[1] + mine[PS_KIND]]
    # by the book there is one
    while books.ps_until[case.ps_list[i]] > now:
        i += 1
    return case.ps_list[i]


@inlined
def _zeta(case: BatchCase, mine: Ints, together: bool) -> int:
    """Zeta of a deployment, as :func:`skedge.core.colocation.colocated`; `together`: one server has all of it."""
    return int(together and (mine[PS_SERVER] == case.cloud or case.one_server == 1))


@lean
def take(case: BatchCase, books: BatchBooks, workers: LoadProfile, ps: LoadProfile, job: int, now: int) -> None:
    """Book the holdings of `job` from `now` to its planned end, where the capacity is limited."""
    mine = books.jobs[job]
    slots = _slots_left(case, mine, now)
    for i in range(mine[FIRST], mine[FIRST] + mine[COUNT]):
        _add(workers, books.runs[i, 1] * case.widths[0] + mine[KIND], books.runs[i, 2], slots)
    _add(ps, mine[PS_SERVER] * case.widths[1] + mine[PS_KIND], 1, slots)


@inlined
def _slots_left(case: BatchCase, mine: Ints, now: int) -> int:
    return max(1, -(-(mine[PLANNED] - now) // case.slot))


@inlined
def _add(book: LoadProfile, row: int, units: int, slots: int) -> None:
    if book.capacity[row] < math.inf:
        book.size[row] = add(book.starts, book.load, row, book.size[row], units, 0, slots, 0)


@lean
def _note_prices(case: BatchCase, books: BatchBooks, workers: LoadProfile, ps: LoadProfile, job: int, now: int) -> None:
    """The prices that `job` has just changed."""
    mine = books.jobs[job]
    for i in range(mine[FIRST], mine[FIRST] + mine[COUNT]):
        _note_pieces(case, books, workers, job, books.runs[i, 1], 0, now)
    _note_pieces(case, books, ps, job, mine[PS_SERVER], 1, now)


@lean
def _note_pieces(
    case: BatchCase, books: BatchBooks, book: LoadProfile, job: int, server: int, of_ps: int, now: int
) -> None:
    """The prices of a unit on `server` until the planned end: of workers, or of PSs."""
    mine = books.jobs[job]
    kind, width = (mine[PS_KIND], case.widths[1]) if of_ps else (mine[KIND], case.widths[0])
    row, slots = server * width + kind, _slots_left(case, mine, now)
    # the last column stands for a type that only the cloud has, which has no name
    if kind == width - 1 or book.capacity[row] == math.inf:
        return
    for i in range(book.size[row]):
        start, end = max(book.starts[row, i], 0), slots
        if i + 1 < book.size[row]:
            end = min(end, book.starts[row, i + 1])
        if start < end:
            out = books.prices[books.counters[PRICES]]
            out[0], out[1], out[2], out[3], out[4] = now, job, server, of_ps, kind
            out[5], out[6] = now + start * case.slot, now + end * case.slot
            books.price[books.counters[PRICES]] = price(book, row, book.load[row, i])
            books.counters[PRICES] += 1


@compiled
def _postpone(books: BatchBooks, job: int, ask: DeploymentRequest, plan: Deployment, now: int) -> None:
    """The decision that `job` waits for the next batch, and why."""
    reason, eta = TOO_DEAR, math.nan
    if plan.kind != NO_PLAN:
        eta = 1 - plan.cost
    elif len(ask.colocated) == 0:
        reason = NOT_UPLOADED
    elif slots_needed(ask, ask.colocated.max(), ask.max_workers) > ask.interval:
        reason = TOO_LONG
    else:
        reason = NO_ROOM
    _note_decision(books, now, job, POSTPONE, -1, -1, reason, eta)


@inlined
def _note_decision(
    books: BatchBooks, now: int, job: int, verb: int, server: int, workers: int, reason: int, value: float
) -> None:
    row = books.decisions[books.counters[DECISIONS]]
    row[0], row[1], row[2], row[3], row[4], row[5] = now, job, verb, server, workers, reason
    books.values[books.counters[DECISIONS]] = value
    books.counters[DECISIONS] += 1
