"""The Lagrangian bound: workers have a price over time, and every job buys the cheapest way to complete.

**Proof of validity.** Let b(t) >= 0 be the price of a worker of a pool at time t. Take any schedule, and a job j of it
that is trained on the edge and completes at c. It holds at most R_j = min(D_j, m) workers at a time, all of them
between its ready time a_j and c, and D_j p_j worker time in all, so it pays at least R_j B(c), B(c) being the cost of
the cheapest D_j p_j / R_j of the time from a_j to c. With what it waits, c - r_j, that is at least

    v_j = min( away_j, min over c >= a_j + least_j of  c - r_j + R_j B(c) ),

and a job that uses the cloud waits away_j at least and pays at least 0. (In the family ``work`` away_j
is with all the edge's help that it can have before its data are in the cloud, at most R_j workers from a_j on, each
unit of which makes it less by saved_j. What it takes of that it pays for, so that it waits and pays at least as if it
had no help, less saved_j - b(t) for R_j workers where that is above 0; the larger of both holds.) All jobs together pay
at most m times the integral of b, for the pool has m workers. So

    total JCT >= sum_j v_j - m * integral of b =: L(b)   for every b >= 0.

L(b) is a bound for any b, however found; :func:`value` computes it exactly for prices that are constant on the cells of
a grid and 0 after it. A coarse grid makes the bound weaker, not wrong.

**How good.** A job's c - r_j is at least its mean busy time plus half of D_j p_j / R_j, so that max L is at least the
optimum of the linear relaxation of ILP (4) in which the term p/2 of Eq. (3) is the job's, not the chunk's
(:mod:`.flow`). b starts as that program's dual and is improved along supergradients: the time that the jobs buy in a
cell, less the time that exists.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.platform.jit import compiled, inlined, lean

from .pools import JobPool


class Grid(NamedTuple):
    """Prices of a pool: `price` [1/worker] from ``edges[i]`` to ``edges[i + 1]`` [µs], 0 after the last.

    `price` is a waiting time [µs] per worker time [µs].
    """

    edges: Floats
    price: Floats


class Bought(NamedTuple):
    """Demand of the jobs at given prices: L(b) [µs], and worker time bought by cell [µs]."""

    value: float
    time: Floats


class Bag(NamedTuple):
    """The time that a job buys, as a heap: the dearest entry first, of equal cost the last one.

    Attributes
    ----------
    cost, length
        Price, and time [µs].
    cell, age
        The cell, and a number that rises from entry to entry.
    newest
        The number of the last entry, shape ``(1,)``.
    """

    cost: Floats
    length: Floats
    cell: Ints
    age: Ints
    newest: Ints


def value(pool: JobPool, grid: Grid) -> Bought:
    """L(b), and the worker time that the jobs buy."""
    total, time = _buy(
        grid.edges, grid.price, pool.ready, pool.arrival, pool.work, pool.rate, pool.least,
        pool.away, pool.far, pool.saved,
    )  # fmt: skip
    return Bought(total - pool.lanes * float(grid.price @ np.diff(grid.edges)), time)


def improve(pool: JobPool, grid: Grid, rounds: int) -> tuple[float, Grid]:
    """The best L(b) found from the prices of `grid` on, and its prices: a projected supergradient method.

    Steps are Polyak's, towards a target above the best value; a target that is not reached is brought nearer.
    """
    width = np.diff(grid.edges)
    price, best, kept, reach, stalled = grid.price.copy(), -np.inf, grid, 0.05, 0
    for _ in range(rounds):
        here = Grid(grid.edges, price)
        bought = value(pool, here)
        if bought.value > best * (1 + 1e-5):
            stalled = 0
        else:
            stalled += 1
        if bought.value > best:
            best, kept = bought.value, here
        # the target is out of reach: half as far, from the best prices so far
        if stalled >= _PATIENCE:
            reach, stalled, price = reach / 2, 0, kept.price
            continue
        excess = bought.time / width - pool.lanes
        # a price cannot fall below 0, so these cells do not take part in the step
        excess[(price <= 0) & (excess < 0)] = 0.0
        norm = float((excess**2) @ width)
        if norm <= 0 or reach < _LEAST_REACH:
            break
        step = ((1 + reach) * max(best, 1.0) - bought.value) / norm
        price = np.maximum(price + step * excess, 0.0)
    return best, kept


_PATIENCE = 6
"""Rounds without a better value before the target is brought nearer."""

_LEAST_REACH = 1e-4
"""Relative distance of the target below which the search ends."""


@compiled
def _buy(
    edges: Floats, price: Floats, ready: Floats, arrival: Floats, work: Floats, rate: Floats, least: Floats,
    away: Floats, far: Floats, saved: Floats,
) -> tuple[float, Floats]:  # fmt: skip
    """Sum of v_j, and worker time bought by cell."""
    cells = len(price)
    most = cells + 3
    bag = Bag(np.empty(most), np.empty(most), np.empty(most, np.int64), np.empty(most, np.int64), np.zeros(1, np.int64))
    time, total = np.zeros(cells), 0.0
    for j in range(len(ready)):
        need = work[j] / rate[j]
        helped = away[j]
        if saved[j] > 0.0:
            unhelped = far[j] - arrival[j] + saved[j] * work[j]
            helped = max(helped, unhelped - _help(edges, price, ready[j], far[j], rate[j], saved[j], time, 0))
        best, stop = _cheapest(edges, price, ready[j], arrival[j], need, rate[j], least[j], helped, bag)
        total += best
        # a second pass, as only now is it known that the job buys this help
        if stop < 0.0 and helped > away[j]:
            _help(edges, price, ready[j], far[j], rate[j], saved[j], time, 1)
        if stop >= 0.0:
            n = _fill(edges, price, ready[j], need, stop, bag)
            for i in range(n):
                if bag.cell[i] < cells:
                    time[bag.cell[i]] += rate[j] * bag.length[i]
    return total, time


@lean
def _help(
    edges: Floats, price: Floats, ready: float, far: float, rate: float, saved: float, time: Floats, count: int
) -> float:
    """Savings of worker time before `far` less its cost, where positive; `count`: add the time bought to `time`."""
    cells, gain, at, g = len(price), 0.0, ready, _cell_of(edges, ready)
    while at < far:
        here = price[g] if g < cells else 0.0
        end = min(edges[g + 1] if g < cells else far, far)
        if here < saved:
            gain += rate * (end - at) * (saved - here)
            if count == 1 and g < cells:
                time[g] += rate * (end - at)
        at = end
        g += 1
    return gain


@lean
def _cheapest(
    edges: Floats, price: Floats, ready: float, arrival: float, need: float, rate: float, least: float, away: float,
    bag: Bag,
) -> tuple[float, float]:  # fmt: skip
    """v_j, and the completion c that attains it; -1 if that is :attr:`.pools.JobPool.away`.

    Goes along the cells with the cheapest `need` of the time so far. Within a cell, later completion exchanges dearest
    time for the cell's, so that the cost is convex there and its least value is where an exchange ends.
    """
    cells, first = len(price), ready + least
    best, stop = away, -1.0
    n, filled, cost, at = 0, 0.0, 0.0, ready
    g = _cell_of(edges, ready)
    while at - arrival < best:
        here = price[g] if g < cells else 0.0
        end = edges[g + 1] if g < cells else max(first, at) + 2 * need
        # no completion counts before `first`: the cell is cut there
        if at < first < end:
            end = first
        at, filled, cost, n = _take(here, end, need, rate, at, filled, cost, bag, n, g)
        if filled >= need:
            best, stop = _better(at, first, arrival, cost, best, stop)
        swapped = 0.0
        while filled >= need and at < end and n > 0 and bag.cost[0] > here:
            part = min(end - at, bag.length[0])
            cost -= rate * (bag.cost[0] - here) * part
            n = _use(bag, n, part)
            swapped, at = swapped + part, at + part
            best, stop = _better(at, first, arrival, cost, best, stop)
        # one entry for all that was exchanged
        if swapped > 0.0:
            n = _insert(bag, n, here, swapped, g)
        at = end
        if filled >= need:
            best, stop = _better(at, first, arrival, cost, best, stop)
        if g >= cells and at > first:
            break
        if g < cells and at >= edges[g + 1]:
            g += 1
    return best, stop


@inlined
def _take(
    here: float, end: float, need: float, rate: float, at: float, filled: float, cost: float, bag: Bag, n: int, g: int,
) -> tuple[float, float, float, int]:  # fmt: skip
    """Buy the time still needed from the cell: (at, filled, cost, entries)."""
    if filled >= need:
        return at, filled, cost, n
    part = min(end - at, need - filled)
    filled += part
    # a rest of rounding is no time that is missing
    if need - filled <= 1e-9 * need:
        filled = need
    return at + part, filled, cost + rate * here * part, _insert(bag, n, here, part, g)


@inlined
def _better(at: float, first: float, arrival: float, cost: float, best: float, stop: float) -> tuple[float, float]:
    """The better of the completion `at`, if feasible, and the best so far."""
    if at >= first and at - arrival + cost < best:
        return at - arrival + cost, at
    return best, stop


@lean
def _fill(edges: Floats, price: Floats, ready: float, need: float, stop: float, bag: Bag) -> int:
    """The cheapest `need` of the time from `ready` to `stop`: the number of entries."""
    cells = len(price)
    n, filled, at, g = 0, 0.0, ready, _cell_of(edges, ready)
    while at < stop:
        here = price[g] if g < cells else 0.0
        end = min(edges[g + 1] if g < cells else np.inf, stop)
        left, part = end - at, min(end - at, max(need - filled, 0.0))
        filled += part
        left -= part
        while left > 0.0 and n > 0 and bag.cost[0] > here:
            swap = min(left, bag.length[0])
            n = _use(bag, n, swap)
            part, left = part + swap, left - swap
        if part > 0.0:
            n = _insert(bag, n, here, part, g)
        at = end
        g += 1
    return n


@lean
def _cell_of(edges: Floats, time: float) -> int:
    """The cell that contains `time`; the grid begins no later than the first ready time."""
    low, high = 0, len(edges)
    while low < high:
        middle = (low + high) // 2
        if edges[middle] <= time:
            low = middle + 1
        else:
            high = middle
    return low - 1


@lean
def _insert(bag: Bag, n: int, cost: float, length: float, g: int) -> int:
    """Add an entry to `n` entries; of equal cost, the last one comes first. Returns their number."""
    age = 0 if n == 0 else bag.newest[0] + 1
    bag.newest[0] = age
    i = n
    while i > 0 and bag.cost[(i - 1) // 2] <= cost:
        _copy(bag, (i - 1) // 2, i)
        i = (i - 1) // 2
    bag.cost[i], bag.length[i], bag.cell[i], bag.age[i] = cost, length, g, age
    return n + 1


@lean
def _use(bag: Bag, n: int, length: float) -> int:
    """Take `length` from the dearest of `n` entries, and the entry out if nothing is left; returns their number."""
    bag.length[0] -= length
    if bag.length[0] > 0.0:
        return n
    last, i, child = n - 1, 0, 1
    while child < last:
        if child + 1 < last and _dearer(bag, child + 1, child):
            child += 1
        if not _dearer(bag, child, last):
            break
        _copy(bag, child, i)
        i, child = child, 2 * child + 1
    _copy(bag, last, i)
    return last


@inlined
def _dearer(bag: Bag, i: int, k: int) -> bool:
    return bool((bag.cost[i] > bag.cost[k]) | ((bag.cost[i] == bag.cost[k]) & (bag.age[i] > bag.age[k])))


@inlined
def _copy(bag: Bag, i: int, to: int) -> None:
    bag.cost[to], bag.length[to], bag.cell[to], bag.age[to] = bag.cost[i], bag.length[i], bag.cell[i], bag.age[i]
