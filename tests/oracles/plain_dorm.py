"""Dorm's problem by trying every partition, for two or three jobs on two machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import ceil

from oracles.plain_machines import Asks, filling, pss

Cells = tuple[int, ...]
"""By machine."""


@dataclass(frozen=True)
class Tenant:
    """A job in the system and what it has: workers and PSs by machine."""

    asks: Asks
    workers: Cells
    servers: Cells

    @property
    def runs(self) -> bool:
        return any(self.workers)


def best_use(tenants: list[Tenant], capacity: tuple[tuple[float, ...], ...], loss: float, changed: int) -> float | None:
    """The largest utilisation of a partition within the bounds; None if there is none."""
    total = [sum(row[r] for row in capacity) for r in range(len(capacity[0]))]
    fair = fair_shares(tenants, total)
    options = [list(_options(one, capacity)) for one in tenants]

    def search(i: int, left: tuple[tuple[float, ...], ...], loss: float, changed: int) -> float | None:
        if loss < -1e-9 or changed < 0:
            return None
        if i == len(tenants):
            return 0.0
        best, one = None, tenants[i]
        for w, s in options[i]:
            after = _after(left, one.asks, w, s)
            if after is None:
                continue
            apart = abs(dominant_share(one.asks, sum(w), sum(s), total) - fair[i])
            other = one.runs and (w, s) != (one.workers, one.servers)
            rest = search(i + 1, after, loss - apart, changed - other)
            if rest is not None:
                use = rest + _use(one.asks, w, s, total)
                best = use if best is None else max(best, use)
        return best

    return search(0, capacity, loss, changed)


def use_of(tenants: list[Tenant], capacity: tuple[tuple[float, ...], ...]) -> float:
    """The utilisation of what they have: the sum over the resources."""
    total = [sum(row[r] for row in capacity) for r in range(len(capacity[0]))]
    return sum(_use(one.asks, one.workers, one.servers, total) for one in tenants)


def _use(asks: Asks, w: Cells, s: Cells, total: list[float]) -> float:
    parts = zip(asks.worker, asks.ps, total, strict=True)
    return sum((sum(w) * a + sum(s) * b) / t for a, b, t in parts if t > 0)


def loss_of(tenants: list[Tenant], fair: list[float], total: list[float]) -> float:
    """Sum of the distances from the fair shares."""
    had = [dominant_share(one.asks, sum(one.workers), sum(one.servers), total) for one in tenants]
    return sum(abs(a - b) for a, b in zip(had, fair, strict=True))


def fair_shares(tenants: list[Tenant], total: list[float]) -> list[float]:
    """The dominant shares under DRF on one machine that has everything."""
    asks = [one.asks for one in tenants]
    w, p = filling(asks, [list(total)], total)
    return [dominant_share(one, sum(w[i]), sum(p[i]), total) for i, one in enumerate(asks)]


def dominant_share(asks: Asks, workers: int, servers: int, total: list[float]) -> float:
    """Part of the resource of which gamma workers and their PS take the largest part."""
    parts = [(a + b / asks.ratio) / t if t else 0.0 for a, b, t in zip(asks.worker, asks.ps, total, strict=True)]
    r = parts.index(max(parts))
    return (workers * asks.worker[r] + servers * asks.ps[r]) / total[r]


def _options(one: Tenant, capacity: tuple[tuple[float, ...], ...]) -> Iterator[tuple[Cells, Cells]]:
    """All workers and PSs by machine that the job could have alone; nothing only if it has nothing now."""
    machines, most = len(capacity), one.asks.most
    if not one.runs:
        yield (0,) * machines, (0,) * machines
    for w in _spread(most, machines):
        if not sum(w):
            continue
        for s in _exactly(pss(sum(w), one.asks.ratio), machines):
            if _after(capacity, one.asks, w, s) is not None:
                yield w, s


@cache
def _spread(most: int, machines: int) -> list[Cells]:
    return [cells for cells in product(range(most + 1), repeat=machines) if sum(cells) <= most]


@cache
def _exactly(count: int, machines: int) -> list[Cells]:
    return [cells for cells in product(range(count + 1), repeat=machines) if sum(cells) == count]


def _after(left: tuple[tuple[float, ...], ...], asks: Asks, w: Cells, s: Cells) -> tuple[tuple[float, ...], ...] | None:
    rest = tuple(
        tuple(have - w[h] * a - s[h] * b for have, a, b in zip(row, asks.worker, asks.ps, strict=True))
        for h, row in enumerate(left)
    )
    return rest if all(x >= -1e-9 for row in rest for x in row) else None


def bounds_of(theta1: float, theta2: float, resources: int, running: int, *, whole: bool) -> tuple[float, int]:
    """Bounds of the loss and of the changed jobs."""
    loss = theta1 * 2 * resources
    return (ceil(loss - 1e-9) if whole else loss), ceil(theta2 * running - 1e-9)
