"""Bounds from a policy's own prices: valid by construction, but loose; they are the subject of the papers' proofs.

**A_online** (ERRATA J24 and section 6). Run it with fractional Q at speed 1 + eps. beta_sw(t) is the weight 1 / D_j of
the untrained parts of the chunks dispatched to a worker; beta / (1 + eps), the mean over the workers
of a type, is a price of their time. Then alpha is not taken from the run, as (6a') does not hold with a cloud (section
6), but set to its minimum: v_j of :mod:`.pools.prices` at these prices, over all times, the cloud included. The bound
is L(beta / (1 + eps)), which holds for any prices; eps is searched. At speed 1 the dual objective would be 0.

**PD-ORS.** The dual objective (10) at the prices after the decision on the last job, lambda_i being
recomputed by the relaxed costs of :mod:`.utility.columns_lp`, a worker on the machine where it is cheapest, its PSs on
theirs: D(p), which holds for any prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from skedge.core.model.cluster import Floats
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.optimum.chunks.bounds import grid
from skedge.optimum.pools.pools import JobPool, pools
from skedge.optimum.pools.prices import Grid, value
from skedge.optimum.utility.columns_lp import dual_bound
from skedge.optimum.utility.job_slots import job_slots
from skedge.recorded_run import Run
from skedge.simulate import run

from .types import Bound, BoundClock

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0)
"""Values of eps that are tried."""


def certificate_of_chunks(scenario: Scenario, epsilons: Sequence[float] = EPSILONS) -> Bound | None:
    """The best of A_online's certificates on the total JCT [s]; None if it leaves out a job, or a job can never run."""
    clock, job_pools = BoundClock("lower"), pools(scenario, "chunks")
    if not all(np.isfinite(pool.min_jct).all() for pool in job_pools):
        return None
    best, best_epsilon = -np.inf, 0.0
    # any prices give a bound, so every eps may be tried and the best one kept
    for epsilon in epsilons:
        speed = scenario.physics.speedup * (1 + epsilon)
        result = run(replace(scenario, physics=replace(scenario.physics, speedup=speed)), "aonline:q_mode=fractional")
        if result.metrics["finished"] < len(scenario.jobs):
            return None
        bound = sum(_lagrangian(pool, result, 1 + epsilon) for pool in job_pools)
        if bound > best:
            best, best_epsilon = bound, epsilon
    text = f"A_online's own beta at speed 1 + {best_epsilon:g}; alpha at its minimum"
    return clock.bound("certificate", best / SECOND, text)


def _lagrangian(pool: JobPool, result: Run, speed: float) -> float:
    """L(beta / speed) of a pool [µs]; a pool without workers has no price."""
    if not pool.lanes:
        return float(pool.min_jct.sum())
    # a price is constant on a cell: that in its middle is as valid as any other
    edges = grid(pool)
    price = mean_beta(result, pool, (edges[:-1] + edges[1:]) / 2) / speed
    return value(pool, Grid(edges, price)).value


def mean_beta(result: Run, pool: JobPool, times: Floats) -> Floats:
    """Fractional beta_sw at `times` [µs], the mean over the workers of the pool.

    A chunk counts 1 / D_j from its dispatch on, less the part of it that has been trained.
    """
    decisions, runs = (table.filter(table["lane"].is_not_null() & table["job"].is_in(pool.jobs.tolist()))
               for table in (result.schedule.decisions, result.schedule.runs))  # fmt: skip
    weight = 1 / result.scenario.jobs.chunks
    chunk_time = result.scenario.true_chunk_time[:, 0]
    dispatch_time, dispatch_weight = decisions["time"].to_numpy(), weight[decisions["job"].to_numpy()]
    job, start, end = (runs[name].to_numpy() for name in ("job", "start", "end"))
    rate = weight[job] / chunk_time[job]
    # dispatched, less trained: a run grows linearly from its start and stops to grow at its end
    load = (
        _sums_until(times, dispatch_time, dispatch_weight)[0]
        - _ramps_until(times, start, rate)
        + _ramps_until(times, end, rate)
    )
    return np.maximum(load, 0.0) / pool.lanes


def _sums_until(times: Floats, event_times: np.ndarray, amount: Floats) -> tuple[Floats, Floats]:
    """Sums of `amount`, and of `amount` x `event_times`, over those at or before each time."""
    # rank: how many events are at or before each time, an index into the running sums
    order = np.argsort(event_times, kind="stable")
    rank = np.searchsorted(event_times[order], times, side="right")
    first, second = (np.concatenate([[0.0], np.cumsum(v[order])])[rank] for v in (amount, amount * event_times))
    return first, second


def _ramps_until(times: Floats, starts: np.ndarray, rate: Floats) -> Floats:
    """Sum of rate x (t - at) over those at or before each time t."""
    # sum of rate (t - start) = t sum of rate - sum of rate start
    total, weighted = _sums_until(times, starts, rate)
    return total * times - weighted


def certificate_of_utility(result: Run) -> Bound | None:
    """The certificate of a run that states its prices (PD-ORS, OASiS) on the total utility; None without prices."""
    clock, scenario = BoundClock("higher"), result.scenario
    jobs, low = job_slots(scenario), (result.meta.get("params") or {}).get("low")
    if jobs is None or low is None:
        return None
    low_prices = [float(part) for part in (low if isinstance(low, list | tuple) else str(low).split(";"))]
    price = final_prices(result, low_prices)
    demand = scenario.jobs
    worker_cost = (demand.worker_needs @ price.transpose(1, 2, 0)).min(axis=0)
    ps_cost = (demand.ps_needs @ price.transpose(1, 2, 0)).min(axis=0)
    # gamma workers need one PS, so a worker pays 1 / gamma of it
    price_per_worker = worker_cost + ps_cost / demand.ratio[:, None]
    income = float((price * scenario.cluster.amounts).sum())
    text = f"the dual objective (10) at the last prices of {result.policy.partition(':')[0]}"
    return clock.bound("certificate", dual_bound(jobs, price_per_worker, income).value, text)


def final_prices(result: Run, low_prices: Sequence[float]) -> Floats:
    """Prices after the last decision, shape ``(T, servers, resources)``.

    Resources without a stated price cost `low_prices`; with n numbers, server i has number i mod n (M29).
    """
    scenario, slot = result.scenario, result.scenario.physics.slot
    cluster = scenario.cluster
    initial = np.array([low_prices[i % len(low_prices)] for i in range(len(cluster.servers))])
    shape = (scenario.physics.slots or 0, len(cluster.servers), len(cluster.resources))
    price = np.broadcast_to(initial[:, None], shape).copy()
    server = {name: i for i, name in enumerate(cluster.server_ids)}
    resource = {name: i for i, name in enumerate(cluster.resources)}
    statements = result.schedule.prices.sort("made_at", maintain_order=True)
    for row in statements.iter_rows(named=True):
        slots = slice(row["from"] // slot, -(-row["to"] // slot))
        # in order of time, so that the last statement about a slot stays
        price[slots, server[row["server"]], resource[row["resource"]]] = row["price"]
    return price
