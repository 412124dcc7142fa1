"""Tenants and priority classes: which of the jobs that a policy ranks are tried, and in which order; compiled.

1. jobs that may not be preempted: they hold workers for less than ``min_runtime``, or were preempted
   ``most_preemptions`` times;
2. the others by class, the highest first; a waiting job rises by a class each time ``ageing`` passes;
3. in a class, the next job of the tenant with the fewest workers by weight, counted as the jobs are taken;
4. of a tenant, the jobs as the policy ranks them.

A job that would take its tenant above its quota is left out, and holds up no other. Where the workers of a job are not
left, no job of a lower class begins on workers of its type: they come free for it. A job takes a PS with its workers;
where none of its type is left it takes nothing, and jobs of a lower class begin with PSs of another type.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.engine.ledger import DEMAND, HELD, NOW, PS_TYPE, STOPPED, TYPE, Case, Ledger
from skedge.core.engine.orders import OrderRows, add_wake
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.job_fields import JobColumns
from skedge.core.model.sharing import Sharing
from skedge.core.model.time import NEVER
from skedge.platform.jit import inlined, lean

from .edge import ACTIVE, EdgeState, count_ps
from .placement import Rule, Scratch, sort_by

TENANT, PRIORITY, ARRIVAL, SINCE, N_PREEMPTIONS, MARK, CLASS, TURNS, SORTED = range(9)
"""Rows of ``TenantState.jobs``.

- TENANT, PRIORITY, ARRIVAL [µs]: as submitted. SINCE: when it was given its workers [µs], of jobs that hold some.
  N_PREEMPTIONS: how often it has lost its workers to other jobs.
- MARK: what :func:`arrange` has found, TRIED or LEFT_OUT; in :func:`note_shares` 1 if it begins or stops now.
- CLASS: minus its class now. TURNS: jobs in the order of their turns. SORTED: to work on.
"""

TRIED, LEFT_OUT = 1, 2
"""Marks of jobs: to be tried; left out of this selection, as it waits for its last place."""

MIN_RUNTIME, MAX_PREEMPTIONS, AGEING, WAKES_AT = range(4)
"""Numbers of ``TenantState.numbers`` [µs, but for the second]: the bounds, NEVER for none; the next wake-up."""

CAPACITY, SHORT = 0, 1
"""Rows of ``TenantState.kinds``: workers in service; the class that waits for workers of this type, -1 for none."""


class TenantState(NamedTuple):
    """What is kept of tenants and classes.

    Attributes
    ----------
    jobs
        A column for each job; the rows are above.
    limits, used
        Most workers of each tenant, and those given to it so far, shape ``(tenants, types)``.
    weights
        Of the tenants.
    queues
        Where the jobs of each tenant in a class begin and end in TURNS, shape ``(tenants, 2)``.
    kinds
        Numbers by type of workers; see above.
    numbers
        Numbers; see above.
    """

    jobs: Ints
    limits: Ints
    used: Ints
    weights: Floats
    queues: Ints
    kinds: Ints
    numbers: Ints


def make_tenants(sharing: Sharing, workers: Ints) -> TenantState:
    """The state before the first job; `workers` are those of the edge, by type."""
    tenants, limits = list(sharing.tenants.values()), sharing.limits(workers)
    preemptions = NEVER if sharing.most_preemptions is None else sharing.most_preemptions
    bounds = sharing.min_runtime, preemptions, sharing.ageing or NEVER, NEVER
    return TenantState(
        jobs=np.zeros((SORTED + 1, 0), np.int64),
        limits=limits,
        used=np.zeros_like(limits),
        weights=np.array([tenant.weight for tenant in tenants]),
        queues=np.zeros((len(tenants), 2), np.int64),
        kinds=np.zeros((2, len(workers)), np.int64),
        numbers=np.array(bounds),
    )


def with_tenants(state: TenantState, jobs: JobColumns, first: int, last: int) -> TenantState:
    """`state` with the jobs from number `first` up to, without, `last`.

    Parameters
    ----------
    state
        With the jobs before `first`.
    jobs
        Tenants, priorities and arrivals.
    first, last
        Numbers of jobs.
    """
    table, room = state.jobs, state.jobs.shape[1]
    if last > room:
        table = np.zeros((SORTED + 1, max(last, 2 * room, 64)), np.int64)
        table[:, :room] = state.jobs
    for row, column in ((TENANT, jobs.tenant), (PRIORITY, jobs.priority), (ARRIVAL, jobs.arrival)):
        table[row, first:last] = column[first:last]
    return state._replace(jobs=table)


# -- which jobs are tried --------------------------------------------------------------------------------------------


@lean
def arrange(
    case: Case, ledger: Ledger, edge: EdgeState, tenants: TenantState, scratch: Scratch, rule: Rule,
    order: Ints, arranged: Ints, running_stay: bool,
) -> int:  # fmt: skip
    """Fill `arranged` with the jobs to try, in this order, then the others, last those left out; returns how many.

    Parameters
    ----------
    case, ledger, edge
        The run.
    tenants
        Jobs marked LEFT_OUT are not tried; the others are marked anew.
    scratch
        To work on.
    rule
        Whether nothing goes ahead of a job whose workers are not left.
    order
        Jobs, as the policy ranks them.
    arranged
        Out.
    running_stay
        Whether `order` has only jobs that wait, while the others keep what they hold.
    """
    jobs, n_tried, n_turns = tenants.jobs, 0, 0
    _count(case, ledger, edge, tenants, scratch, running_stay)
    for job in order:
        if jobs[MARK, job] == LEFT_OUT:
            continue
        jobs[MARK, job] = 0
        if _is_safe(ledger, tenants, job):
            if _take(case, ledger, tenants, scratch, job) == TAKEN:
                arranged[n_tried] = job
                n_tried += 1
        else:
            jobs[CLASS, job] = -_class_of(ledger, tenants, job)
            jobs[TURNS, n_turns] = job
            n_turns += 1
    # stable sorts: by class, then by tenant, then as ranked
    sort_by(jobs[TENANT], jobs[TURNS : SORTED + 1], n_turns)
    sort_by(jobs[CLASS], jobs[TURNS : SORTED + 1], n_turns)
    n_tried = _take_turns(case, ledger, tenants, scratch, rule, arranged, n_tried, n_turns)
    n = n_tried
    for mark in (0, LEFT_OUT):
        for job in order:
            if jobs[MARK, job] == mark:
                arranged[n] = job
                n += 1
    return n_tried


@lean
def _count(
    case: Case, ledger: Ledger, edge: EdgeState, tenants: TenantState, scratch: Scratch, running_stay: bool
) -> None:  # fmt: skip
    """Count the workers and PSs to give out, and what the tenants have of those that are not."""
    used, kinds = tenants.used, tenants.kinds
    count_ps(case, ledger, running_stay, scratch.ps_left)
    for kind in range(len(scratch.total)):
        kinds[SHORT, kind], kinds[CAPACITY, kind], scratch.total[kind] = -1, 0, 0
        for server in range(len(ledger.free)):
            kinds[CAPACITY, kind] += ledger.capacity[server, kind]
            scratch.total[kind] += ledger.free[server, kind] if running_stay else ledger.capacity[server, kind]
        for tenant in range(len(used)):
            used[tenant, kind] = 0
    if running_stay:
        for i in range(edge.lengths[ACTIVE]):
            job = edge.lists[ACTIVE, i]
            used[tenants.jobs[TENANT, job], ledger.jobs[job, TYPE]] += ledger.jobs[job, HELD]


@inlined
def _is_safe(ledger: Ledger, tenants: TenantState, job: int) -> bool:
    """Whether `job` holds workers and may not be preempted."""
    numbers = tenants.numbers
    is_new = ledger.counters[NOW] - tenants.jobs[SINCE, job] < numbers[MIN_RUNTIME]
    return ledger.jobs[job, HELD] > 0 and (is_new or tenants.jobs[N_PREEMPTIONS, job] >= numbers[MAX_PREEMPTIONS])


@inlined
def _class_of(ledger: Ledger, tenants: TenantState, job: int) -> int:
    """The class of `job` now."""
    aged = 0
    if ledger.jobs[job, HELD] == 0:
        aged = (ledger.counters[NOW] - _wait_start(ledger, tenants, job)) // tenants.numbers[AGEING]
    return tenants.jobs[PRIORITY, job] + aged


@inlined
def _wait_start(ledger: Ledger, tenants: TenantState, job: int) -> int:
    """When `job`, which waits, arrived or lost its workers [µs]."""
    return max(tenants.jobs[ARRIVAL, job], ledger.jobs[job, STOPPED])


TAKEN, AT_LIMIT, NO_ROOM = range(3)
"""What :func:`_take` found."""


@inlined
def _take(case: Case, ledger: Ledger, tenants: TenantState, scratch: Scratch, job: int) -> int:
    """Have `job` tried, if it is within its tenant's quota and its workers and a PS are left."""
    job_row, tenant = ledger.jobs[job], tenants.jobs[TENANT, job]
    k, kind, ps_kind = job_row[DEMAND], job_row[TYPE], max(job_row[PS_TYPE], 0)
    limit, used = tenants.limits[tenant, kind], tenants.used
    if limit < case.slots[kind] and used[tenant, kind] + k > limit:
        return AT_LIMIT
    if k > scratch.total[kind] or scratch.ps_left[ps_kind] < 1:
        return NO_ROOM
    used[tenant, kind] += k
    scratch.total[kind] -= k
    scratch.ps_left[ps_kind] -= 1
    tenants.jobs[MARK, job] = TRIED
    return TAKEN


@lean
def _take_turns(
    case: Case, ledger: Ledger, tenants: TenantState, scratch: Scratch, rule: Rule,
    arranged: Ints, n_tried: int, n_turns: int,
) -> int:  # fmt: skip
    """Take jobs class by class, in turns of their tenants; returns how many are to be tried."""
    jobs, kinds, last = tenants.jobs, tenants.kinds, 0
    for turn in range(n_turns):
        if turn == last:
            last = _open_class(tenants, turn, n_turns)
        tenant = _next_tenant(tenants)
        job = jobs[TURNS, tenants.queues[tenant, 0]]
        tenants.queues[tenant, 0] += 1
        level, kind = -jobs[CLASS, job], ledger.jobs[job, TYPE]
        # a waiting job must not take workers that a higher class waits for, which could then wait for ever
        if level < kinds[SHORT, kind] and ledger.jobs[job, HELD] == 0:
            continue
        answer = _take(case, ledger, tenants, scratch, job)
        if answer == TAKEN:
            arranged[n_tried] = job
            n_tried += 1
        elif answer == NO_ROOM:
            if rule.stop_at_first:
                break
            if kinds[SHORT, kind] < 0 and scratch.total[kind] < ledger.jobs[job, DEMAND] <= kinds[CAPACITY, kind]:
                kinds[SHORT, kind] = level
    return n_tried


@inlined
def _open_class(tenants: TenantState, first: int, n_turns: int) -> int:
    """Let each tenant's queue be its jobs of the class that begins at turn `first`; returns where the class ends."""
    jobs, queues = tenants.jobs, tenants.queues
    for tenant in range(len(queues)):
        queues[tenant, 0] = queues[tenant, 1] = 0
    last = first
    while last < n_turns and jobs[CLASS, jobs[TURNS, last]] == jobs[CLASS, jobs[TURNS, first]]:
        tenant = jobs[TENANT, jobs[TURNS, last]]
        if queues[tenant, 1] == 0:
            queues[tenant, 0] = last
        last += 1
        queues[tenant, 1] = last
    return last


@inlined
def _next_tenant(tenants: TenantState) -> int:
    """The tenant with the fewest workers by weight among those with jobs in their queues."""
    best, least = -1, 0.0
    for tenant in range(len(tenants.queues)):
        if tenants.queues[tenant, 0] < tenants.queues[tenant, 1]:
            n_workers = 0
            for kind in range(tenants.used.shape[1]):
                n_workers += tenants.used[tenant, kind]
            if best < 0 or n_workers / tenants.weights[tenant] < least:
                best, least = tenant, n_workers / tenants.weights[tenant]
    return best


# -- after a selection -----------------------------------------------------------------------------------------------


@lean
def note_shares(
    ledger: Ledger, tenants: TenantState | None, active: Ints, stops: Ints, begins: Ints, orders: OrderRows
) -> None:  # fmt: skip
    """Note who is given workers and who is preempted; ask to be woken when time alone next changes the order.

    Parameters
    ----------
    ledger
        Before these orders.
    tenants
        In and out; None: there is nothing to note.
    active
        Jobs in the system.
    stops, begins
        What the selection changes.
    orders
        Out.
    """
    if tenants is None:
        return
    now, jobs, numbers = ledger.counters[NOW], tenants.jobs, tenants.numbers
    for job in active:
        jobs[MARK, job] = 0
    for job in begins:
        jobs[SINCE, job], jobs[MARK, job] = now, 1
    for job in stops:
        jobs[N_PREEMPTIONS, job], jobs[MARK, job] = jobs[N_PREEMPTIONS, job] + 1, 1
    some_wait, due = False, NEVER
    for job in active:
        held, changes = ledger.jobs[job, HELD] > 0, jobs[MARK, job] == 1
        if held != changes:
            end = jobs[SINCE, job] + numbers[MIN_RUNTIME]
            due = min(due, end) if end > now else due
            continue
        some_wait = True
        if numbers[AGEING] < NEVER:
            start = now if held else _wait_start(ledger, tenants, job)
            due = min(due, start + ((now - start) // numbers[AGEING] + 1) * numbers[AGEING])
    if numbers[WAKES_AT] <= now:
        numbers[WAKES_AT] = NEVER
    if some_wait and due < numbers[WAKES_AT]:
        numbers[WAKES_AT] = due
        add_wake(orders, due)
