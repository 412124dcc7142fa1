"""Dorm's problem by trying every partition, for two or three jobs on two machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import ceil

from reference.drf import filling
from reference.machines import JobDemand, n_ps_for

Cells = tuple[int, ...]
"""By machine."""


@dataclass(frozen=True)
class Tenant:
    """A job in the system, and the workers and PSs that it has by machine."""

    demand: JobDemand
    workers: Cells
    servers: Cells

    @property
    def runs(self) -> bool:
        return any(self.workers)


def best_use(tenants: list[Tenant], capacity: tuple[tuple[float, ...], ...], loss: float, changed: int) -> float | None:
    """The largest utilisation of a partition within the bounds; None if there is none.

    Parameters
    ----------
    tenants
        The jobs in the system, with what they have now.
    capacity
        Amounts by machine and resource.
    loss, changed
        Most fairness loss, and most jobs that run and may be changed (:func:`bounds_of`).
    """
    total = [sum(row[r] for row in capacity) for r in range(len(capacity[0]))]
    fair = fair_shares(tenants, total)
    options = [list(_options(tenant, capacity)) for tenant in tenants]

    def search(i: int, free: tuple[tuple[float, ...], ...], loss: float, changed: int) -> float | None:
        if loss < -1e-9 or changed < 0:
            return None
        if i == len(tenants):
            return 0.0
        best, tenant = None, tenants[i]
        for w, s in options[i]:
            free_after = _free_after(free, tenant.demand, w, s)
            if free_after is None:
                continue
            distance = abs(dominant_share(tenant.demand, sum(w), sum(s), total) - fair[i])
            moved = tenant.runs and (w, s) != (tenant.workers, tenant.servers)
            use_of_others = search(i + 1, free_after, loss - distance, changed - moved)
            if use_of_others is not None:
                use = use_of_others + _use(tenant.demand, w, s, total)
                best = use if best is None else max(best, use)
        return best

    return search(0, capacity, loss, changed)


def use_of(tenants: list[Tenant], capacity: tuple[tuple[float, ...], ...]) -> float:
    """Utilisation of a partition: the used part of each resource, summed over the resources."""
    total = [sum(row[r] for row in capacity) for r in range(len(capacity[0]))]
    return sum(_use(tenant.demand, tenant.workers, tenant.servers, total) for tenant in tenants)


def _use(demand: JobDemand, w: Cells, s: Cells, total: list[float]) -> float:
    parts = zip(demand.worker, demand.ps, total, strict=True)
    return sum((sum(w) * a + sum(s) * b) / t for a, b, t in parts if t > 0)


def loss_of(tenants: list[Tenant], fair: list[float], total: list[float]) -> float:
    """Fairness loss of a partition: the sum of the distances from the fair shares."""
    shares = [dominant_share(tenant.demand, sum(tenant.workers), sum(tenant.servers), total) for tenant in tenants]
    return sum(abs(a - b) for a, b in zip(shares, fair, strict=True))


def fair_shares(tenants: list[Tenant], total: list[float]) -> list[float]:
    """Dominant shares under DRF on one machine with all resources."""
    demands = [tenant.demand for tenant in tenants]
    w, p = filling(demands, [list(total)], total)
    return [dominant_share(demand, sum(w[i]), sum(p[i]), total) for i, demand in enumerate(demands)]


def dominant_share(demand: JobDemand, workers: int, servers: int, total: list[float]) -> float:
    """Share of the resource of which gamma workers and their PS take the largest part."""
    parts = [(a + b / demand.ratio) / t if t else 0.0 for a, b, t in zip(demand.worker, demand.ps, total, strict=True)]
    r = parts.index(max(parts))
    return (workers * demand.worker[r] + servers * demand.ps[r]) / total[r]


def _options(tenant: Tenant, capacity: tuple[tuple[float, ...], ...]) -> Iterator[tuple[Cells, Cells]]:
    """All workers and PSs by machine that the job could have alone; none only for a job that has none now."""
    machines, max_workers = len(capacity), tenant.demand.max_workers
    if not tenant.runs:
        yield (0,) * machines, (0,) * machines
    for w in _counts_up_to(max_workers, machines):
        if not sum(w):
            continue
        for s in _counts_of(n_ps_for(sum(w), tenant.demand.ratio), machines):
            if _free_after(capacity, tenant.demand, w, s) is not None:
                yield w, s


@cache
def _counts_up_to(max_workers: int, machines: int) -> list[Cells]:
    return [cells for cells in product(range(max_workers + 1), repeat=machines) if sum(cells) <= max_workers]


@cache
def _counts_of(count: int, machines: int) -> list[Cells]:
    return [cells for cells in product(range(count + 1), repeat=machines) if sum(cells) == count]


def _free_after(
    free: tuple[tuple[float, ...], ...], demand: JobDemand, w: Cells, s: Cells
) -> tuple[tuple[float, ...], ...] | None:
    free_after = tuple(
        tuple(amount - w[h] * a - s[h] * b for amount, a, b in zip(row, demand.worker, demand.ps, strict=True))
        for h, row in enumerate(free)
    )
    return free_after if all(x >= -1e-9 for row in free_after for x in row) else None


def bounds_of(theta1: float, theta2: float, resources: int, running: int, *, round_loss: bool) -> tuple[float, int]:
    """Bounds of the loss, theta1 * 2 * resources, and of the changed jobs, theta2 * running jobs, both rounded up.

    `round_loss` False leaves the first as it is.
    """
    loss = theta1 * 2 * resources
    return (ceil(loss - 1e-9) if round_loss else loss), ceil(theta2 * running - 1e-9)
