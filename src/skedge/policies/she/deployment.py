"""The cheapest deployment of a job in a batch: Alg. 2 lines 4-14, Alg. 3 (COST_C) and Alg. 4 (COST_D), compiled.

All is counted in the slots of the batch: slot 0 begins at tau_i, where the job would start. Servers are named by their
place in :class:`Ask`, whose order decides ties.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.ties import TOLERANCE
from skedge.platform.jit import compiled, lean

from .prices import Book, price, room, window_price

NO_PLAN, COST_C, COST_D = -1, 0, 1
"""Kinds of plans: none; workers and PS on one server; spread."""


class Ask(NamedTuple):
    """A job to be deployed.

    Attributes
    ----------
    work
        E D M / p for one worker [worker-µs], shape ``(2,)``: xi = 0 and xi = 1.
    most
        D_j, the most workers.
    slot, interval
        Length of a slot [µs]; slots that the batch owns.
    worker_row, ps_row
        Rows of the servers that may be used, in the books of workers and of PSs; edge before cloud, lower server first.
    xi
        Whether a job that is on this server alone has xi = 1 there.
    """

    work: Ints
    most: int
    slot: int
    interval: int
    worker_row: Ints
    ps_row: Ints
    xi: Ints


class PlanComparison(NamedTuple):
    """How plans are compared.

    Attributes
    ----------
    literal
        1: Alg. 4 as printed; 0: the exact placement.
    least_cost
        1: the least cost, then the fewest worker-slots, then the earliest completion (BatchSche); 0: the largest eta,
        then the earliest completion.
    """

    literal: int
    least_cost: int


class Deployment(NamedTuple):
    """A deployment: its kind, D_u, cost, d_j [slots] and the place of its PS."""

    kind: int
    workers: int
    cost: float
    slots: int
    ps: int


@lean
def slots_needed(ask: Ask, xi: int, workers: int) -> int:
    """d_j = E D M / (p D_u) (2e), rounded up to µs and then to slots."""
    exact = -(-ask.work[xi] // workers)
    return -(-exact // ask.slot)


@lean
def _cheaper(a: float, b: float) -> bool:
    return a < b * (1 - TOLERANCE)


class Window(NamedTuple):
    """What is free, and what it costs, in the first slots of the batch: for xi = 0 and 1, by server.

    Attributes
    ----------
    slots
        Number of slots, shape ``(2,)``; 0: not worked out yet.
    free, ps_free
        Workers and PSs that are free in all of them, shape ``(2, servers)``.
    unit, ps_unit
        Cost of one for all of them; inf where none is free.
    left
        Scratch, shape ``(servers,)``.
    """

    slots: Ints
    free: Floats
    ps_free: Floats
    unit: Floats
    ps_unit: Floats
    left: Floats


@compiled
def _window(servers: int) -> Window:
    both = (2, servers)
    arrays = np.empty(both), np.empty(both), np.empty(both), np.empty(both)
    return Window(np.zeros(2, np.int64), *arrays, np.empty(servers))


@lean
def _work_out(ask: Ask, xi: int, d: int, workers: Book, ps: Book, w: Window) -> None:
    """Work out the window of `d` slots, which most numbers of workers share with the one before."""
    w.slots[xi] = d
    for s in range(len(ask.xi)):
        w.free[xi, s], w.ps_free[xi, s] = room(workers, ask.worker_row[s], 0, d), room(ps, ask.ps_row[s], 0, d)
        w.unit[xi, s] = window_price(workers, ask.worker_row[s], 0, d) if w.free[xi, s] >= 1 else math.inf
        w.ps_unit[xi, s] = window_price(ps, ask.ps_row[s], 0, d) if w.ps_free[xi, s] >= 1 else math.inf


@compiled
def best_plan(ask: Ask, workers: Book, ps: Book, rule: PlanComparison, y: Ints) -> Deployment:
    """Alg. 2, lines 4-14: the best plan over D_u = 1 .. D_j, with COST_C and COST_D for each (ERRATA H3, H4, H7).

    `y` is scratch, an element per server.
    """
    best, w = Deployment(NO_PLAN, 0, math.inf, 0, -1), _window(len(y))
    for n in range(1, ask.most + 1):
        plan = _cost_c(ask, n, workers, ps, y, w)
        if _better(plan, best, rule):
            best = plan
        plan = cost_d_literal(ask, n, workers, ps, y) if rule.literal else _cost_d(ask, n, workers, ps, y, w)
        if _better(plan, best, rule):
            best = plan
    return best


@lean
def _better(a: Deployment, b: Deployment, rule: PlanComparison) -> bool:
    """Whether `a` beats `b`, which has at most as many workers and was found first (H7)."""
    if a.kind == NO_PLAN:
        return False
    if b.kind == NO_PLAN:
        return True
    # costs are compared absolutely: they are parts of 1, and eta = 1 - cost decides
    if a.cost < b.cost - TOLERANCE or b.cost < a.cost - TOLERANCE:
        return a.cost < b.cost
    size_a, size_b = a.slots * a.workers, b.slots * b.workers
    if rule.least_cost and size_a != size_b:
        return size_a < size_b
    return a.slots < b.slots or (a.slots == b.slots and a.kind < b.kind)


@compiled
def cost_c(ask: Ask, n: int, workers: Book, ps: Book, y: Ints) -> Deployment:
    """Alg. 3: `n` workers and the PS on the one server where they are cheapest over the whole window (H11).

    Where servers differ in xi they differ in d_j: of equal costs the earliest completion. `y` gets the workers by
    server.
    """
    return _cost_c(ask, n, workers, ps, y, _window(len(y)))


@lean
def _cost_c(ask: Ask, n: int, workers: Book, ps: Book, y: Ints, w: Window) -> Deployment:
    y[:] = 0
    best = Deployment(NO_PLAN, n, math.inf, 0, -1)
    for s in range(len(y)):
        xi = ask.xi[s]
        d = slots_needed(ask, xi, n)
        if d > ask.interval:
            continue
        # d_j only changes with D_u in steps, so neighbours share the window's prices
        if w.slots[xi] != d:
            _work_out(ask, xi, d, workers, ps, w)
        if w.free[xi, s] < n or w.ps_free[xi, s] < 1:
            continue
        cost = n * w.unit[xi, s] + w.ps_unit[xi, s]
        if _cheaper(cost, best.cost) or (not _cheaper(best.cost, cost) and d < best.slots):
            best = Deployment(COST_C, n, cost, d, s)
    if best.kind != NO_PLAN:
        y[best.ps] = n
    return best


@compiled
def cost_d(ask: Ask, n: int, workers: Book, ps: Book, y: Ints) -> Deployment:
    """COST_D, Alg. 4: `n` workers cheapest first, the PS where it is cheapest, both over the whole window, xi = 0.

    With one PS and xi = 0 problem (9) separates into the two, so this is its optimum (H14). `y` gets the workers by
    server.
    """
    return _cost_d(ask, n, workers, ps, y, _window(len(y)))


@lean
def _cost_d(ask: Ask, n: int, workers: Book, ps: Book, y: Ints, w: Window) -> Deployment:
    """:func:`cost_d`, with a window of prices that other numbers of workers share."""
    y[:] = 0
    d = slots_needed(ask, 0, n)
    if d > ask.interval:
        return Deployment(NO_PLAN, n, math.inf, d, -1)
    if w.slots[0] != d:
        _work_out(ask, 0, d, workers, ps, w)
    # the price of a unit does not rise within one decision, so cheapest first is optimal (H14)
    left, cost = n, 0.0
    for s in range(len(y)):
        w.left[s] = w.unit[0, s]
    while left > 0:
        s = _cheapest(w.left)
        if s < 0:
            return Deployment(NO_PLAN, n, math.inf, d, -1)
        y[s] = int(min(float(left), w.free[0, s]))
        left, cost = left - y[s], cost + y[s] * w.left[s]
        w.left[s] = math.inf
    for s in range(len(y)):
        w.left[s] = w.ps_unit[0, s]
    s = _cheapest(w.left)
    if s < 0:
        return Deployment(NO_PLAN, n, math.inf, d, -1)
    return Deployment(COST_D, n, cost + w.left[s], d, s)


@lean
def _cheapest(unit: Floats) -> int:
    """The first of the least prices; -1 if all are inf."""
    best = -1
    for s in range(len(unit)):
        if unit[s] < math.inf and (best < 0 or _cheaper(unit[s], unit[best])):
            best = s
    return best


@compiled
def cost_d_literal(ask: Ask, n: int, workers: Book, ps: Book, y: Ints) -> Deployment:
    """COST_D, Alg. 4 as printed, line by line; for comparison (H14).

    Three readings, without which it does not run: a plan that is put into L has its PS on s_i1 (printed z' is empty
    unless workers were moved), what is put there is y (not y'), and the plan chosen by the printed costs is charged its
    cost by (9), since the printed one is that of no plan.
    """
    y[:] = 0
    d = slots_needed(ask, 0, n)
    if d > ask.interval:
        return Deployment(NO_PLAN, n, math.inf, d, -1)
    count = len(y)
    free = np.array([room(workers, ask.worker_row[s], 0, d) for s in range(count)])
    lambda_, mu = _starting_prices(workers, ask.worker_row), _starting_prices(ps, ask.ps_row)
    order = np.argsort(lambda_, kind="mergesort")  # line 3
    left, last, cost_u = n, -1, 0.0
    for i in range(count):  # lines 4-7, 11, 12
        s = order[i]
        y[s] = int(min(float(left), free[s]))
        left -= y[s]
        if y[s] > 0:
            last, cost_u = i, cost_u + y[s] * window_price(workers, ask.worker_row[s], 0, d)
    if left > 0:  # lines 8-10
        return Deployment(NO_PLAN, n, math.inf, d, -1)
    printed, chosen = math.inf, -1
    for i in range(count):
        s = order[i]
        if room(ps, ask.ps_row[s], 0, d) < 1:  # lines 14, 27
            continue
        cost, listed = cost_u + window_price(ps, ask.ps_row[s], 0, d), True
        if i >= last:  # lines 18-33
            cost, listed = _printed_moves(cost, i, last, order, lambda_, mu[s], free[s] - y[s], y)
        if listed and cost < printed:  # line 37
            printed, chosen = cost, s
    if chosen < 0:  # lines 34-36
        return Deployment(NO_PLAN, n, math.inf, d, -1)
    return Deployment(COST_D, n, cost_u + window_price(ps, ask.ps_row[chosen], 0, d), d, chosen)


@compiled
def _starting_prices(book: Book, rows: Ints) -> Floats:
    """Price of a unit of each row in slot 0; 0 where there is none."""
    out = np.zeros(len(rows))
    for s in range(len(rows)):
        if book.capacity[rows[s]] > 0:
            out[s] = price(book, rows[s], book.load[rows[s], 0])
    return out


@compiled
def _printed_moves(
    cost: float, i1: int, last: int, order: Ints, lambda_: Floats, mu: float, spare: float, y: Ints
) -> tuple[float, bool]:
    """Lines 21-32: the printed cost after moving workers to s_i1, and whether the plan comes into L."""
    moved = y.copy()
    for i2 in range(last, -1, -1):
        gain = lambda_[order[i1]] - lambda_[order[i2]] - mu
        if gain > 0 or spare <= 0:
            return cost, True
        step = min(float(moved[order[i2]]), spare)
        spare -= step
        cost += gain * step
        moved[order[i2]] -= int(step)
        moved[order[i1]] += int(step)
    return cost, False
