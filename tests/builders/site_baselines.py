"""OASiS at sites, against enumeration."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from skedge.core.model.latency import Linear
from skedge.policies.oasis.at_sites import SiteOasis, SiteOasisParams, site_prices
from skedge.policies.okita.sites import SiteJob, Sites

TWO = Sites(np.array([[6.0], [6.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]))


def site_job(number: int = 0, **changes: Any) -> SiteJob:
    """One unit for a worker and for a PS, two chunks a worker and slot, four chunks at each of two sites."""
    usual: dict[str, Any] = {
        "arrival": 0, "rate": 2, "chunk_mb": 1, "exchange_mb": 1, "data": (4, 4), "worker": (1,),
        "ps": (1,), "latency": Linear(10),
    }  # fmt: skip
    return SiteJob(number, **{**usual, **changes})


def oasis(sites: Sites, jobs: list[SiteJob], horizon: int, **params: Any) -> SiteOasis:
    return SiteOasis(sites, horizon, site_prices(jobs, sites, horizon), SiteOasisParams(**params))


def the_plan_is_the_cheapest_of_all(seed: int, *, split: bool) -> None:
    """Against all ways to spread the chunks over three slots and the workers over its sites, PS at the cheapest."""
    rng = np.random.default_rng(seed)
    sites, horizon = Sites(rng.integers(1, 5, (2, 1)).astype(float), TWO.cost), 3
    jobs = [
        site_job(i, data=tuple(rng.integers(1, 3, 2).tolist()), rate=int(rng.integers(1, 3)),
                 ps=(int(rng.integers(2)),), latency=Linear(float(rng.integers(1, 30))))
        for i in range(3)
    ]  # fmt: skip
    scheduler = oasis(sites, jobs, horizon, split_sites=split)
    for job in jobs:
        best = cheapest_plan(scheduler, job, horizon, split=split)
        before = scheduler.loads.price.copy()
        scheduler.arrive(job)
        plan = scheduler.plans.get(job.id, {})
        assert (max(plan, default=horizon) >= horizon) == np.isinf(best)
        if np.isfinite(best):
            paid = sum(
                before[slot, :, 0] @ booked.workers + before[slot, booked.ps, 0] * job.ps[0]
                for slot, booked in plan.items()
            )
            assert paid + job.latency(max(plan) + 1) == pytest.approx(best, rel=1e-8)


def cheapest_plan(scheduler: SiteOasis, job: SiteJob, horizon: int, *, split: bool) -> float:
    slots = []
    for slot in range(horizon):
        free, price = scheduler.loads.free(slot)[:, 0], scheduler.loads.price[slot, :, 0]
        slots.append([(0, 0.0), *offers(free, price, job, split=split)])
    total, best = int(job.chunks.sum()), np.inf
    for found in product(*slots):
        used = [t for t, (chunks, _) in enumerate(found) if chunks]
        if sum(chunks for chunks, _ in found) >= total:
            best = min(best, sum(cost for _, cost in found) + job.latency(max(used) + 1))
    return best


def offers(free: Any, price: Any, job: SiteJob, *, split: bool) -> list[tuple[int, float]]:
    """(chunks, cost) of all placements in a slot with the PS at its cheapest site."""
    hosts = [h for h in ((1,) if split else (0, 1)) if free[h] >= job.ps[0] - 1e-9]
    if not hosts:
        return []
    ps = min(hosts, key=lambda h: (price[h] * job.ps[0], h))
    room = [int(free[h] - (job.ps[0] if h == ps else 0) + 1e-9) if h == 0 or not split else 0 for h in range(2)]
    counts = [y for y in product(range(room[0] + 1), range(room[1] + 1)) if sum(y)]
    return [(int(job.rate) * sum(y), price @ y + price[ps] * job.ps[0]) for y in counts]
