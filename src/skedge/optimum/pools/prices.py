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


class Demand(NamedTuple):
    """Demand of the jobs at given prices: L(b) [µs], and worker time bought by cell [µs]."""

    value: float
    time: Floats


class Purchase(NamedTuple):
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


class Buyers(NamedTuple):
    """The jobs of a :class:`~.pools.JobPool`, as its attributes of these names."""

    release: Floats
    arrival: Floats
    work: Floats
    rate: Floats
    min_time: Floats
    cloud_jct: Floats
    cloud_release: Floats
    edge_saving: Floats


class Buyer(NamedTuple):
    """A job that buys time.

    Attributes
    ----------
    release, arrival
        When its data are on the edge, and when it arrived [µs].
    need, rate
        D_j p_j / R_j [µs], the length of the time that it buys, and R_j, for which it pays in all of it.
    min_time
        Least computing time on the edge [µs].
    cloud_cost
        What it waits and pays at least if it uses the cloud [µs].
    """

    release: float
    arrival: float
    need: float
    rate: float
    min_time: float
    cloud_cost: float


def value(pool: JobPool, grid: Grid) -> Demand:
    """L(b), and the worker time that the jobs buy."""
    total, time = _demand(grid, Buyers(*(getattr(pool, name) for name in Buyers._fields)))
    return Demand(total - pool.lanes * float(grid.price @ np.diff(grid.edges)), time)


def improve(pool: JobPool, grid: Grid, rounds: int) -> tuple[float, Grid]:
    """The best L(b) found from the prices of `grid` on, and its prices: a projected supergradient method.

    Steps are Polyak's, towards a target above the best value; a target that is not reached is brought nearer.
    """
    width = np.diff(grid.edges)
    price, best, best_grid, target_gap, stalled = grid.price.copy(), -np.inf, grid, 0.05, 0
    for _ in range(rounds):
        trial = Grid(grid.edges, price)
        demand = value(pool, trial)
        # gains of rounding size do not count, or the search would never stall
        stalled = 0 if demand.value > best * (1 + 1e-5) else stalled + 1
        if demand.value > best:
            best, best_grid = demand.value, trial
        # the target is out of reach: half as far, from the best prices so far
        if stalled >= _MAX_STALLED:
            target_gap, stalled, price = target_gap / 2, 0, best_grid.price
            continue
        # dL/db of a cell, per unit of its width: time bought less time that exists
        excess = demand.time / width - pool.lanes
        # a price cannot fall below 0, so these cells do not take part in the step
        excess[(price <= 0) & (excess < 0)] = 0.0
        norm = float((excess**2) @ width)
        if norm <= 0 or target_gap < _MIN_TARGET_GAP:
            break
        step = ((1 + target_gap) * max(best, 1.0) - demand.value) / norm
        price = np.maximum(price + step * excess, 0.0)
    return best, best_grid


_MAX_STALLED = 6
"""Rounds without a better value before the target is brought nearer."""

_MIN_TARGET_GAP = 1e-4
"""Relative distance of the target below which the search ends."""


@compiled
def _demand(grid: Grid, jobs: Buyers) -> tuple[float, Floats]:
    """Sum of v_j, and worker time bought by cell."""
    cells = len(grid.price)
    # an entry a cell, one after the last, one more in the cell that is cut and in the one that completes the need
    size = cells + 3
    bag = Purchase(
        np.empty(size), np.empty(size), np.empty(size, np.int64), np.empty(size, np.int64), np.zeros(1, np.int64)
    )
    time, total = np.zeros(cells), 0.0
    for j in range(len(jobs.release)):
        rate, saving, cloud_release = jobs.rate[j], jobs.edge_saving[j], jobs.cloud_release[j]
        cloud_cost = jobs.cloud_jct[j]
        if saving > 0.0:
            without_help = cloud_release - jobs.arrival[j] + saving * jobs.work[j]
            help_value = _edge_help(grid, jobs.release[j], cloud_release, rate, saving, time, 0)
            cloud_cost = max(cloud_cost, without_help - help_value)
        job = Buyer(jobs.release[j], jobs.arrival[j], jobs.work[j] / rate, rate, jobs.min_time[j], cloud_cost)
        best, completion = _cheapest(grid, job, bag)
        total += best
        # a second pass, as only now is it known that the job buys this help
        if completion < 0.0 and cloud_cost > jobs.cloud_jct[j]:
            _edge_help(grid, jobs.release[j], cloud_release, rate, saving, time, 1)
        if completion >= 0.0:
            n = _cheapest_time(grid, job, completion, bag)
            for i in range(n):
                # after the last cell time is free, and no price of the grid depends on it
                if bag.cell[i] < cells:
                    time[bag.cell[i]] += rate * bag.length[i]
    return total, time


@lean
def _edge_help(
    grid: Grid, release: float, cloud_release: float, rate: float, saving: float, time: Floats, count: int
) -> float:
    """Savings of worker time before `cloud_release` less its cost, where positive.

    With `count` the time bought is added to `time`.
    """
    cells, gain, now, g = len(grid.price), 0.0, release, _cell_of(grid.edges, release)
    while now < cloud_release:
        cell_price = grid.price[g] if g < cells else 0.0
        end = min(grid.edges[g + 1] if g < cells else cloud_release, cloud_release)
        if cell_price < saving:
            gain += rate * (end - now) * (saving - cell_price)
            if count == 1 and g < cells:
                time[g] += rate * (end - now)
        now = end
        g += 1
    return gain


@lean
def _cheapest(grid: Grid, job: Buyer, bag: Purchase) -> tuple[float, float]:
    """v_j, and the completion c that attains it; -1 if that is in the cloud.

    Goes along the cells with the cheapest `need` of the time so far. Within a cell, later completion exchanges dearest
    time for the cell's, so that the cost is convex there and its least value is where an exchange ends.
    """
    cells, first, need = len(grid.price), job.release + job.min_time, job.need
    best, completion = job.cloud_cost, -1.0
    n, filled, cost, now = 0, 0.0, 0.0, job.release
    g = _cell_of(grid.edges, job.release)
    # waiting alone costs now - arrival: from `best` on no completion is better
    while now - job.arrival < best:
        cell_price = grid.price[g] if g < cells else 0.0
        end = grid.edges[g + 1] if g < cells else max(first, now) + 2 * need
        # no completion counts before `first`: the cell is cut there
        if now < first < end:
            end = first
        if filled < need:
            part = min(end - now, need - filled)
            filled += part
            # a rest of rounding is no time that is missing
            if need - filled <= 1e-9 * need:
                filled = need
            now, cost, n = now + part, cost + job.rate * cell_price * part, _insert(bag, n, cell_price, part, g)
        if filled >= need:
            best, completion = _better_completion(now, first, job.arrival, cost, best, completion)
        swapped = 0.0
        while filled >= need and now < end and n > 0 and bag.cost[0] > cell_price:
            part = min(end - now, bag.length[0])
            cost -= job.rate * (bag.cost[0] - cell_price) * part
            n = _consume(bag, n, part)
            swapped, now = swapped + part, now + part
            best, completion = _better_completion(now, first, job.arrival, cost, best, completion)
        # one entry for all that was exchanged
        if swapped > 0.0:
            n = _insert(bag, n, cell_price, swapped, g)
        now = end
        if filled >= need:
            best, completion = _better_completion(now, first, job.arrival, cost, best, completion)
        if g >= cells and now > first:
            break
        # after a cut at `first` the rest of the same cell follows
        if g < cells and now >= grid.edges[g + 1]:
            g += 1
    return best, completion


@inlined
def _better_completion(
    now: float, first: float, arrival: float, cost: float, best: float, completion: float
) -> tuple[float, float]:
    """The better of the completion `now`, if feasible, and the best so far."""
    if now >= first and now - arrival + cost < best:
        return now - arrival + cost, now
    return best, completion


@lean
def _cheapest_time(grid: Grid, job: Buyer, completion: float, bag: Purchase) -> int:
    """The cheapest `need` of the time from the job's release to `completion`: the number of entries."""
    cells = len(grid.price)
    n, filled, now, g = 0, 0.0, job.release, _cell_of(grid.edges, job.release)
    while now < completion:
        cell_price = grid.price[g] if g < cells else 0.0
        end = min(grid.edges[g + 1] if g < cells else np.inf, completion)
        left, part = end - now, min(end - now, max(job.need - filled, 0.0))
        filled += part
        left -= part
        while left > 0.0 and n > 0 and bag.cost[0] > cell_price:
            swap = min(left, bag.length[0])
            n = _consume(bag, n, swap)
            part, left = part + swap, left - swap
        if part > 0.0:
            n = _insert(bag, n, cell_price, part, g)
        now = end
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
def _insert(bag: Purchase, n: int, cost: float, length: float, g: int) -> int:
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
def _consume(bag: Purchase, n: int, length: float) -> int:
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
def _dearer(bag: Purchase, i: int, k: int) -> bool:
    return bool((bag.cost[i] > bag.cost[k]) | ((bag.cost[i] == bag.cost[k]) & (bag.age[i] > bag.age[k])))


@inlined
def _copy(bag: Purchase, i: int, to: int) -> None:
    bag.cost[to], bag.length[to], bag.cell[to], bag.age[to] = bag.cost[i], bag.length[i], bag.cell[i], bag.age[i]
