"""The cheapest deployment of a job in a batch: Alg. 2 lines 4-14, Alg. 3 (COST_C) and Alg. 4 (COST_D), compiled.

All is counted in the slots of the batch: slot 0 begins at tau_i, where the job would start. Servers are named by their
place in :class:`DeploymentRequest`, whose order decides ties.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.ties import TOLERANCE
from skedge.platform.jit import compiled, lean

from .prices import LoadProfile, free_units, price, window_price

NO_PLAN, COST_C, COST_D = -1, 0, 1
"""Kinds of plans: none; workers and PS on one server; spread."""

TIES = ("earliest", "worker_slots", "printed")
"""Rules for plans of equal cost, by number: see :class:`PlanComparison`."""

EARLIEST, WORKER_SLOTS, PRINTED = range(len(TIES))


class DeploymentRequest(NamedTuple):
    """A job to be deployed.

    Attributes
    ----------
    work
        E D M / p for one worker [worker-µs], shape ``(2,)``: xi = 0 and xi = 1.
    max_workers
        D_j, the most workers.
    slot, interval
        Length of a slot [µs]; slots that the batch owns.
    worker_row, ps_row
        Rows of the usable servers in the profiles of workers and of PSs; edge before cloud, lower server first.
    colocated
        1 for a server that alone gives a job xi = 1.
    """

    work: Ints
    max_workers: int
    slot: int
    interval: int
    worker_row: Ints
    ps_row: Ints
    colocated: Ints


class PlanComparison(NamedTuple):
    """How plans are compared.

    Attributes
    ----------
    literal
        1: Alg. 4 as printed; 0: the exact placement.
    tie
        Among plans of equal cost, and so of equal eta. EARLIEST: the earliest completion, then one server, then fewer
        workers. WORKER_SLOTS: first the fewest worker-slots. PRINTED: the first that is tried, as the ">" of line 11
        keeps it: the fewest workers, then one server.
    """

    literal: int
    tie: int


class Deployment(NamedTuple):
    """A deployment: its kind, D_u, cost, d_j [slots] and the place of its PS."""

    kind: int
    workers: int
    cost: float
    slots: int
    ps: int


@lean
def slots_needed(request: DeploymentRequest, colocated: int, workers: int) -> int:
    """d_j = E D M / (p D_u) (2e), rounded up to µs and then to slots."""
    # workers share the chunks evenly, also where D_u does not divide D_j (H12)
    time_us = -(-request.work[colocated] // workers)
    return -(-time_us // request.slot)


@lean
def _is_cheaper(a: float, b: float) -> bool:
    return a < b * (1 - TOLERANCE)


class Window(NamedTuple):
    """What is free, and what it costs, in the first slots of the batch: for xi = 0 and 1, by server.

    Attributes
    ----------
    slots
        Number of slots, shape ``(2,)``; 0: not worked out yet.
    free_workers, ps_free
        Workers and PSs that are free in all of them, shape ``(2, servers)``.
    worker_price, ps_price
        Cost of one for all of them; inf where none is free.
    candidate_price
        Scratch, shape ``(servers,)``.
    """

    slots: Ints
    free_workers: Floats
    ps_free: Floats
    worker_price: Floats
    ps_price: Floats
    candidate_price: Floats


@compiled
def _empty_window(servers: int) -> Window:
    shape = (2, servers)
    arrays = np.empty(shape), np.empty(shape), np.empty(shape), np.empty(shape)
    return Window(np.zeros(2, np.int64), *arrays, np.empty(servers))


@lean
def _fill_window(
    request: DeploymentRequest, colocated: int, d: int, workers: LoadProfile, ps: LoadProfile, w: Window
) -> None:
    """Work out the window of `d` slots, which most numbers of workers share with the one before."""
    w.slots[colocated] = d
    for s in range(len(request.colocated)):
        w.free_workers[colocated, s], w.ps_free[colocated, s] = (
            free_units(workers, request.worker_row[s], 0, d),
            free_units(ps, request.ps_row[s], 0, d),
        )
        w.worker_price[colocated, s] = (
            window_price(workers, request.worker_row[s], 0, d) if w.free_workers[colocated, s] >= 1 else math.inf
        )
        w.ps_price[colocated, s] = (
            window_price(ps, request.ps_row[s], 0, d) if w.ps_free[colocated, s] >= 1 else math.inf
        )


@compiled
def best_plan(
    request: DeploymentRequest, workers: LoadProfile, ps: LoadProfile, rule: PlanComparison, y: Ints
) -> Deployment:
    """Alg. 2, lines 4-14: the best plan over D_u = 1 .. D_j, with COST_C and COST_D for each (ERRATA H3, H4, H7).

    Parameters
    ----------
    request
        The job and the servers that it may use.
    workers, ps
        Loads and prices of the batch.
    rule
        How plans are compared.
    y
        Filled with the workers of the plan by server, y_jsu, shape ``(servers,)``.

    Returns
    -------
    The plan; NO_PLAN if no number of workers fits into the interval and onto the servers.
    """
    best, w = Deployment(NO_PLAN, 0, math.inf, 0, -1), _empty_window(len(y))
    # c_j follows from D_u, so the loop of line 3 over c_j has nothing to try (H3)
    for n in range(1, request.max_workers + 1):
        for kind in (COST_C, COST_D):
            plan = _plan(kind, n, request, workers, ps, rule, y, w)
            if _is_better(plan, best, rule):
                best = plan
    if best.kind != NO_PLAN:
        _plan(best.kind, best.workers, request, workers, ps, rule, y, w)
    else:
        y[:] = 0
    return best


@lean
def _plan(
    kind: int, n: int, request: DeploymentRequest, workers: LoadProfile, ps: LoadProfile, rule: PlanComparison,
    y: Ints, w: Window,
) -> Deployment:  # fmt: skip
    """The cheapest plan of `n` workers of a kind."""
    if kind == COST_C:
        return _cost_c(request, n, workers, ps, y, w)
    return cost_d_literal(request, n, workers, ps, y) if rule.literal else _cost_d(request, n, workers, ps, y, w)


@lean
def _is_better(a: Deployment, b: Deployment, rule: PlanComparison) -> bool:
    """Whether `a` beats `b`, which has at most as many workers and was tried first (H7)."""
    if a.kind == NO_PLAN:
        return False
    if b.kind == NO_PLAN:
        return True
    # costs are compared absolutely: they are parts of 1, and eta = 1 - cost decides
    if a.cost < b.cost - TOLERANCE or b.cost < a.cost - TOLERANCE:
        return a.cost < b.cost
    if rule.tie == PRINTED:
        return False
    size_a, size_b = a.slots * a.workers, b.slots * b.workers
    if rule.tie == WORKER_SLOTS and size_a != size_b:
        return size_a < size_b
    return a.slots < b.slots or (a.slots == b.slots and a.kind < b.kind)


@compiled
def cost_c(request: DeploymentRequest, n: int, workers: LoadProfile, ps: LoadProfile, y: Ints) -> Deployment:
    """Alg. 3: `n` workers and the PS on the one server where they are cheapest over the whole window (H11).

    Where servers differ in xi they differ in d_j: of equal costs the earliest completion.

    Parameters
    ----------
    request, workers, ps
        As in :func:`best_plan`.
    n
        D_u, 1 to D_j.
    y
        Filled with the workers by server, shape ``(servers,)``.
    """
    return _cost_c(request, n, workers, ps, y, _empty_window(len(y)))


@lean
def _cost_c(
    request: DeploymentRequest, n: int, workers: LoadProfile, ps: LoadProfile, y: Ints, w: Window
) -> Deployment:
    y[:] = 0
    best = Deployment(NO_PLAN, n, math.inf, 0, -1)
    for s in range(len(y)):
        colocated = request.colocated[s]
        d = slots_needed(request, colocated, n)
        if d > request.interval:
            continue
        # d_j only changes with D_u in steps, so neighbours share the window's prices; one window for each xi
        if w.slots[colocated] != d:
            _fill_window(request, colocated, d, workers, ps, w)
        # (9a) and (9b); the interval limits d above, which nothing in print does (H3, H19)
        if w.free_workers[colocated, s] < n or w.ps_free[colocated, s] < 1:
            continue
        cost = n * w.worker_price[colocated, s] + w.ps_price[colocated, s]
        if _is_cheaper(cost, best.cost) or (not _is_cheaper(best.cost, cost) and d < best.slots):
            best = Deployment(COST_C, n, cost, d, s)
    if best.kind != NO_PLAN:
        y[best.ps] = n
    return best


@compiled
def cost_d(request: DeploymentRequest, n: int, workers: LoadProfile, ps: LoadProfile, y: Ints) -> Deployment:
    """COST_D, Alg. 4: `n` workers cheapest first, the PS where it is cheapest, both over the whole window, xi = 0.

    With one PS and xi = 0 problem (9) separates into the two, so this is its optimum (H14).

    Parameters
    ----------
    request, n, workers, ps, y
        As in :func:`cost_c`.
    """
    return _cost_d(request, n, workers, ps, y, _empty_window(len(y)))


@lean
def _cost_d(
    request: DeploymentRequest, n: int, workers: LoadProfile, ps: LoadProfile, y: Ints, w: Window
) -> Deployment:
    """:func:`cost_d`, with a window of prices that other numbers of workers share."""
    y[:] = 0
    d = slots_needed(request, 0, n)
    if d > request.interval:
        return Deployment(NO_PLAN, n, math.inf, d, -1)
    if w.slots[0] != d:
        _fill_window(request, 0, d, workers, ps, w)
    # the price of a unit does not rise within one decision, so cheapest first is optimal (H14)
    n_left, cost = n, 0.0
    for s in range(len(y)):
        w.candidate_price[s] = w.worker_price[0, s]
    while n_left > 0:
        s = _cheapest(w.candidate_price)
        if s < 0:
            return Deployment(NO_PLAN, n, math.inf, d, -1)
        y[s] = int(min(float(n_left), w.free_workers[0, s]))
        n_left, cost = n_left - y[s], cost + y[s] * w.candidate_price[s]
        w.candidate_price[s] = math.inf
    for s in range(len(y)):
        w.candidate_price[s] = w.ps_price[0, s]
    s = _cheapest(w.candidate_price)
    if s < 0:
        return Deployment(NO_PLAN, n, math.inf, d, -1)
    return Deployment(COST_D, n, cost + w.candidate_price[s], d, s)


@lean
def _cheapest(unit_price: Floats) -> int:
    """The first of the least prices; -1 if all are inf."""
    best = -1
    for s in range(len(unit_price)):
        if unit_price[s] < math.inf and (best < 0 or _is_cheaper(unit_price[s], unit_price[best])):
            best = s
    return best


@compiled
def cost_d_literal(request: DeploymentRequest, n: int, workers: LoadProfile, ps: LoadProfile, y: Ints) -> Deployment:
    """COST_D, Alg. 4 as printed, line by line; for comparison (H14).

    Three readings, without which it does not run: a plan that is put into L has its PS on s_i1 (printed z' is empty
    unless workers were moved), what is put there is y (not y'), and the plan chosen by the printed costs is charged its
    cost by (9), since the printed one is that of no plan.

    Parameters
    ----------
    request, n, workers, ps, y
        As in :func:`cost_c`.
    """
    y[:] = 0
    d = slots_needed(request, 0, n)
    if d > request.interval:
        return Deployment(NO_PLAN, n, math.inf, d, -1)
    n_servers = len(y)
    free = np.array([free_units(workers, request.worker_row[s], 0, d) for s in range(n_servers)])
    lambda_, mu = _starting_prices(workers, request.worker_row), _starting_prices(ps, request.ps_row)
    order = _by_price(lambda_)  # line 3
    n_left, last_used, cost_u = n, -1, 0.0
    for i in range(n_servers):  # lines 4-7, 11, 12
        s = order[i]
        y[s] = int(min(float(n_left), free[s]))
        n_left -= y[s]
        if y[s] > 0:
            last_used, cost_u = i, cost_u + y[s] * window_price(workers, request.worker_row[s], 0, d)
    if n_left > 0:  # lines 8-10
        return Deployment(NO_PLAN, n, math.inf, d, -1)
    least_printed, chosen = math.inf, -1
    for i in range(n_servers):
        s = order[i]
        if free_units(ps, request.ps_row[s], 0, d) < 1:  # lines 14, 27
            continue
        cost, in_list = cost_u + window_price(ps, request.ps_row[s], 0, d), True
        if i >= last_used:  # lines 18-33
            cost, in_list = _printed_moves(cost, i, last_used, order, lambda_, mu[s], free[s] - y[s], y)
        if in_list and cost < least_printed:  # line 37
            least_printed, chosen = cost, s
    if chosen < 0:  # lines 34-36
        return Deployment(NO_PLAN, n, math.inf, d, -1)
    return Deployment(COST_D, n, cost_u + window_price(ps, request.ps_row[chosen], 0, d), d, chosen)


@compiled
def _starting_prices(profile: LoadProfile, rows: Ints) -> Floats:
    """Price of a unit of each row in slot 0; 0 where there is none."""
    prices = np.zeros(len(rows))
    for s in range(len(rows)):
        if profile.capacity[rows[s]] > 0:
            prices[s] = price(profile, rows[s], profile.load[rows[s], 0])
    return prices


@compiled
def _by_price(prices: Floats) -> Ints:
    """The servers by price; equal prices keep the order of ties. Compiled in a tenth of the time of NumPy's sort."""
    order = np.arange(len(prices))
    for i in range(1, len(prices)):
        j = i
        while j > 0 and prices[order[j - 1]] > prices[order[j]]:
            order[j - 1], order[j], j = order[j], order[j - 1], j - 1
    return order


@compiled
def _printed_moves(
    cost: float, i1: int, last_used: int, order: Ints, lambda_: Floats, mu: float, spare: float, y: Ints
) -> tuple[float, bool]:
    """Lines 21-32: the printed cost after moving workers to s_i1, and whether the plan comes into L."""
    moved = y.copy()  # y' of line 19, which the printed plan does not use
    for i2 in range(last_used, -1, -1):
        # line 22 compares the prices of slot tau_i alone, and credits mu for each worker that moves
        gain = lambda_[order[i1]] - lambda_[order[i2]] - mu
        if gain > 0 or spare <= 0:
            return cost, True
        step = min(float(moved[order[i2]]), spare)
        spare -= step
        cost += gain * step
        moved[order[i2]] -= int(step)
        moved[order[i1]] += int(step)
    return cost, False
