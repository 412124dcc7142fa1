"""PD-ORS as a plain program: loops, recursion, one dense linear program each.

The algorithms stand in the order of the paper and comments give their steps; where the printed text cannot be meant,
the entry of ``docs/errata-pdors.md`` stands beside the code as P1, P2, ... It shares with the product only the data of
a job. Machines and resources are lists. What is found by trying everything is in ``pdors_by_enumeration.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.random import Generator
from scipy.optimize import linprog

from reference.pdors_job import (
    INF,
    Placement,
    Schedule,
    Table,
    fits,
    price_of,
    quanta,
    quantum,
    rate_time,
    servers,
    up,
    utility,
)
from skedge.policies.pdors.job import TrainingJob

Theta = Callable[[TrainingJob, Table, Table, int], tuple[float, Placement | None]]
"""Alg. 4, or another way to theta(t, v): of a job, what is free, the prices and v; with a placement that attains it."""


@dataclass(frozen=True)
class Offer:
    """The answer to a job: its payoff lambda, -inf if no schedule completes it, and its schedule if it is admitted."""

    job: int
    payoff: float
    schedule: Schedule


# -- Alg. 1: PD-ORS ----------------------------------------------------------------------------------------------------


def pd_ors(
    jobs: Sequence[TrainingJob], capacity: Table, horizon: int, theta: Theta, load: np.ndarray | None = None
) -> list[Offer]:
    """Alg. 1: the jobs by arrival and id, each admitted if its best schedule is worth more than it costs.

    Parameters
    ----------
    jobs
        In order of arrival; the prices are calibrated from them (P8).
    capacity
        C_h^r.
    horizon
        T.
    theta
        Alg. 4 (:func:`alg_4` with its draws), or an exact one.
    load
        rho_h^r[t] before the first job, shape ``(slots, machines, resources)``; changed in place.
    """
    offers, upper, lower = [], *price_bounds(jobs, capacity, horizon)
    # line 1
    rho = np.zeros((horizon, len(capacity), len(capacity[0]))) if load is None else load
    for job in jobs:
        # line 2
        free = np.maximum(np.array(capacity) - rho, 0).tolist()
        prices = [price(row, capacity, upper, lower) for row in rho]
        payoff, schedule = alg_2(job, free, prices, horizon, theta)
        if payoff > 0:
            # line 3: rho rises, and with it the prices that the next job finds
            for t, placement in schedule:
                for h, (w, s) in enumerate(placement):
                    rho[t, h] += np.array(job.worker) * w + np.array(job.ps) * s
            offers.append(Offer(job.id, payoff, schedule))
        else:
            # line 4
            offers.append(Offer(job.id, payoff, []))
    return offers


def price(rho: np.ndarray, capacity: Table, upper: Sequence[float], lower: float) -> list[list[float]]:
    """Q_h^r of one slot, (12): L (U^r / L)^(rho / C); 0 for a resource that no job uses (P5)."""
    return [
        [
            lower * (u / lower) ** (min(load / limit, 1) if limit else 1) if u else 0.0
            for load, limit, u in zip(loads, limits, upper, strict=True)
        ]
        for loads, limits in zip(rho.tolist(), capacity, strict=True)
    ]


def price_bounds(jobs: Sequence[TrainingJob], capacity: Table, horizon: int) -> tuple[list[float], float]:
    """U^r and L, (13) and (14); L is at least 1e-12 U (P6)."""
    upper, lower, _ = constants(jobs, capacity, horizon)
    return upper, max(lower, 1e-12 * max(upper))


def constants(jobs: Sequence[TrainingJob], capacity: Table, horizon: int) -> tuple[list[float], float, float]:
    """U^r, L (without its guard), mu, for completion = end."""
    resources = range(len(capacity[0]))
    demands = [[j.worker[r] + j.ps[r] for r in resources] for j in jobs]
    best = [utility(j, up(j.work / j.batch * rate_time(j, inside=True))) for j in jobs]
    upper = [max((u / d[r] for u, d in zip(best, demands, strict=True) if d[r]), default=0) for r in resources]
    worker_slots = [up(j.work * rate_time(j, inside=False)) * sum(d) for j, d in zip(jobs, demands, strict=True)]
    mu = max(horizon * sum(map(sum, capacity)) / n for n in worker_slots)
    lower = min(utility(j, horizon - j.arrival) / (2 * mu * n) for j, n in zip(jobs, worker_slots, strict=True))
    return upper, lower, mu


# -- Alg. 2: the best completion ---------------------------------------------------------------------------------------


def alg_2(
    job: TrainingJob, free: Sequence[Table], prices: Sequence[Table], horizon: int, theta: Theta
) -> tuple[float, Schedule]:
    """Alg. 2: the largest payoff over all completions, and its schedule; -inf and none if none completes the job.

    Parameters
    ----------
    job
        The job.
    free, prices
        By slot.
    horizon
        T.
    theta
        As in :func:`pd_ors`.
    """
    slots, levels = range(job.arrival, horizon), range(1, quanta(job) + 1)
    table: dict[tuple[int, int], tuple[float, Placement | None]] = {(t, 0): (0.0, None) for t in slots}
    table |= {(t, v): theta(job, free[t], prices[t], v) for t in slots for v in levels}
    best_payoff, best_schedule = -INF, []
    for t in slots:  # lines 1 and 3
        # line 2
        cost, work = alg_3(lambda u, v: table[u, v][0], job.arrival, t, quanta(job))
        if cost < INF and below(-(utility(job, t + 1 - job.arrival) - cost), -best_payoff):
            best_payoff = utility(job, t + 1 - job.arrival) - cost
            best_schedule = [(u, placement) for u, v in work if (placement := table[u, v][1]) is not None]
    if not best_schedule:
        return -INF, []
    # the last slots may hold no work: then the job is complete earlier (P21)
    last, _ = best_schedule[-1]
    cost = sum(price_of(job, prices[t], placement) for t, placement in best_schedule)
    return utility(job, last + 1 - job.arrival) - cost, best_schedule


# -- Alg. 3: the work of each slot -------------------------------------------------------------------------------------


def alg_3(
    theta: Callable[[int, int], float], first: int, last: int, levels: int
) -> tuple[float, list[tuple[int, int]]]:
    """Alg. 3: Theta(last, levels), Eq. (21), and the work (t, v) of each slot; memoised.

    Parameters
    ----------
    theta
        theta(t, v).
    first, last
        First and last slot.
    levels
        V_i in levels.
    """

    @lru_cache(None)
    def best(t: int, v: int) -> tuple[float, tuple[tuple[int, int], ...]]:
        if t < first:  # the base case, which is not printed (P2)
            return (0.0 if v == 0 else INF), ()
        least, work = INF, tuple[tuple[int, int], ...]()
        for u in range(v + 1):  # lines 1 and 5
            # lines 2 and 3
            cost, earlier = best(t - 1, v - u)
            # line 4
            if below(theta(t, u) + cost, least):
                least, work = theta(t, u) + cost, (*earlier, (t, u))
        return least, work

    cost, work = best(last, levels)
    return cost, list(work)


# -- Alg. 4: the cost of a slot ----------------------------------------------------------------------------------------


def alg_4(
    job: TrainingJob, free: Table, prices: Table, v: int, *, rng: Generator, gain: float, tries: int, repair: bool
) -> tuple[float, Placement | None]:
    """Alg. 4: theta(t, v), the cheaper of the internal and the external case (line 12).

    Parameters
    ----------
    job
        The job.
    free, prices
        Of the slot.
    v
        Levels of work, 1 or more.
    rng, gain, tries, repair
        As in :func:`rounded`.
    """
    cost, placement = internal(job, free, prices, v)
    external_cost, external_placement = rounded(job, free, prices, v, rng=rng, gain=gain, tries=tries, repair=repair)
    return (external_cost, external_placement) if below(external_cost, cost) else (cost, placement)


def internal(job: TrainingJob, free: Table, prices: Table, v: int) -> tuple[float, Placement | None]:
    """Alg. 4 lines 2-7: all on one machine, the cheapest (P11 to P13)."""
    w = up(v * quantum(job) * rate_time(job, inside=True))
    s, least, cheapest = servers(job, w), INF, None
    for h, row in enumerate(free):
        placement = tuple((w, s) if k == h else (0, 0) for k in range(len(free)))
        cost = price_of(job, prices, placement)
        if w <= job.batch and fits(job, row, w, s) and (least == INF or cost < least * (1 - 1e-9)):
            least, cheapest = cost, placement
    return least, cheapest


def rounded(
    job: TrainingJob, free: Table, prices: Table, v: int, *, rng: Generator, gain: float, tries: int, repair: bool
) -> tuple[float, Placement | None]:
    """Alg. 4 lines 8-11: round the relaxation, up to `tries` times (P14); infeasible if none holds, or repaired.

    Parameters
    ----------
    job, free, prices, v
        As in :func:`theta`.
    rng
        For the draws.
    gain
        G_delta.
    tries
        S.
    repair
        False, as printed: without a feasible rounding there is no placement. True: the last one is repaired (P15).
    """
    need = v * quantum(job) * rate_time(job, inside=False)
    if up(need) > job.batch:
        return INF, None
    bound, w_lp, s_lp = relaxed(job, free, prices, need)
    if bound == INF or not below(bound, internal(job, free, prices, v)[0]):
        return INF, None
    used = [h for h in range(len(free)) if w_lp[h] + s_lp[h] > 0]
    if all(abs(gain * x - round(gain * x)) <= 1e-7 for x in (*w_lp, *s_lp)):
        tries = 1
    best, cheapest = INF, None
    for _ in range(tries):
        w, s = [0] * len(free), [0] * len(free)
        for counts, shares in ((w, w_lp), (s, s_lp)):
            for h in used:
                counts[h] = draw(gain * shares[h], rng)
        placement = tuple(zip(w, s, strict=True))
        feasible = up(need) <= sum(w) <= job.batch and sum(s) >= servers(job, sum(w))
        if (
            feasible
            and all(fits(job, free[h], *placement[h]) for h in used)
            and price_of(job, prices, placement) < best
        ):
            best, cheapest = price_of(job, prices, placement), placement
    if cheapest is None and repair:
        cheapest = repaired(job, free, prices, up(need), w, s)
        best = INF if cheapest is None else price_of(job, prices, cheapest)
    return best, cheapest


def relaxed(job: TrainingJob, free: Table, prices: Table, need: float) -> tuple[float, list[float], list[float]]:
    """Line 8: Problem (23) with the PS row (P1) as one dense linear program: cost, w and s by machine."""
    machines = len(free)
    cost, upper = np.zeros(2 * machines), np.zeros(2 * machines)
    for kind, demand in enumerate((job.worker, job.ps)):
        for h in range(machines):
            cost[kind * machines + h] = sum(p * d for p, d in zip(prices[h], demand, strict=True))
            fits_alone = min(f / d for f, d in zip(free[h], demand, strict=True) if d)
            upper[kind * machines + h] = fits_alone if fits_alone >= 1 - 1e-9 else 0
    rows, bounds = [], []
    for h in range(machines):
        for r in range(len(job.worker)):
            row = np.zeros(2 * machines)
            row[h], row[machines + h] = job.worker[r], job.ps[r]
            rows.append(row)
            bounds.append(free[h][r])
    for kind, least in enumerate((need, need / job.ratio)):
        row = np.zeros(2 * machines)
        row[kind * machines : (kind + 1) * machines] = -1
        rows.append(row)
        bounds.append(-least)
    usable = cost[upper > 0]
    scale = usable.min() if len(usable) else 1.0
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    solution = linprog(
        cost / scale, rows, bounds, bounds=list(zip(np.zeros(len(upper)), upper, strict=True)), options=tight
    )
    if solution.status != 0:
        assert solution.status == 2, solution.message
        return INF, [], []
    return float(cost @ solution.x), solution.x[:machines].tolist(), solution.x[machines:].tolist()


def draw(x: float, rng: Generator) -> int:
    """(27), (28); what is whole up to 1e-7 draws nothing."""
    low = math.floor(x + 1e-7)
    return low + (x - low > 1e-7 and rng.random() < x - low)


def repaired(
    job: TrainingJob, free: Table, prices: Table, target: int, w: list[int], s: list[int]
) -> Placement | None:  # fmt: skip
    """Make a rounding feasible (P15): drop what overloads a machine, then add what is missing where it is cheapest.

    Parameters
    ----------
    job, free, prices
        As in :func:`theta`.
    target
        Workers that the work needs.
    w, s
        The rounding; changed in place.
    """
    for h, row in enumerate(free):
        while (w[h] or s[h]) and not fits(job, row, w[h], s[h]):
            loads = [a * w[h] + b * s[h] for a, b in zip(job.worker, job.ps, strict=True)]
            overload = [(load - f) / load if load else -INF for load, f in zip(loads, row, strict=True)]
            scarcest = overload.index(max(overload))
            drop_worker = w[h] > 0 and (s[h] == 0 or job.worker[scarcest] >= job.ps[scarcest])
            w[h], s[h] = (w[h] - 1, s[h]) if drop_worker else (w[h], s[h] - 1)

    def cost(server: int, demand: Sequence[float]) -> float:
        return sum(p * x for p, x in zip(prices[server], demand, strict=True))

    by_price = [
        sorted(range(len(free)), key=lambda h: (cost(h, job.worker), h)),
        sorted(range(len(free)), key=lambda h: (cost(h, job.ps), h)),
    ]
    for h in reversed(by_price[0]):
        while sum(w) > job.batch and w[h]:
            w[h] -= 1
    for h in by_price[0]:
        while sum(w) < target and fits(job, free[h], w[h] + 1, s[h]):
            w[h] += 1
    for h in by_price[1]:
        while sum(s) < servers(job, sum(w)) and fits(job, free[h], w[h], s[h] + 1):
            s[h] += 1
    if sum(w) < target or sum(s) < servers(job, sum(w)):
        return None
    return tuple(zip(w, s, strict=True))


def below(a: float, b: float) -> bool:
    """Less by more than 1e-9 of b (P24); any number is below inf."""
    return a < b - 1e-9 * abs(b) if b < INF else a < b
