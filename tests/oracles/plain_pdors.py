"""PD-ORS without any of the product's shortcuts: loops, recursion, one dense linear program each, enumeration.

It shares with the product only the data of a job. Machines and resources are lists; a placement is (w, s) by machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.random import Generator
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from skedge.policies.pdors.admission import Plan, SlotPlan
from skedge.policies.pdors.job import TrainingJob

Table = Sequence[Sequence[float]]
Placement = tuple[tuple[int, int], ...]
INF = math.inf


def rate_time(job: TrainingJob, *, inside: bool) -> float:
    """Denominator of Eq. (1) with the nominal ratio."""
    return job.sample_time + job.ratio / job.batch * 2 * job.gradient_mb / (
        job.internal_mb if inside else job.external_mb
    )


def up(x: float) -> int:
    return math.ceil(x - 1e-9 * max(1.0, abs(x)))


def servers(job: TrainingJob, workers: int) -> int:
    return max(1, up(workers / job.ratio))


def quantum(job: TrainingJob) -> int:
    assert job.levels is not None
    return -(-job.work // job.levels)


def quanta(job: TrainingJob) -> int:
    return -(-job.work // quantum(job))


def utility(job: TrainingJob, duration: float) -> float:
    u = job.utility
    return u.height / (1 + math.exp(u.steepness * (duration - u.target)))


def fits(job: TrainingJob, free: Sequence[float], w: int, s: int) -> bool:
    return all(a * w + b * s <= f * (1 + 1e-9) + 1e-18 for a, b, f in zip(job.worker, job.ps, free, strict=True))


def is_inside(placement: Placement) -> bool:
    """Fact 1: one machine has all workers and all PSs."""
    used = [h for h, (w, s) in enumerate(placement) if w or s]
    return len(used) == 1


def price_of(job: TrainingJob, prices: Table, placement: Placement) -> float:
    return sum(
        p * (a * w + b * s)
        for row, (w, s) in zip(prices, placement, strict=True)
        for p, a, b in zip(row, job.worker, job.ps, strict=True)
    )


# -- prices ------------------------------------------------------------------------------------------------------------


def constants(jobs: Sequence[TrainingJob], capacity: Table, horizon: int) -> tuple[list[float], float, float]:
    """U^r, L (without its guard), mu, for completion = end."""
    resources = range(len(capacity[0]))
    asked = [[j.worker[r] + j.ps[r] for r in resources] for j in jobs]
    best = [utility(j, up(j.work / j.batch * rate_time(j, inside=True))) for j in jobs]
    high = [max((u / d[r] for u, d in zip(best, asked, strict=True) if d[r]), default=0) for r in resources]
    need = [up(j.work * rate_time(j, inside=False)) * sum(d) for j, d in zip(jobs, asked, strict=True)]
    mu = max(horizon * sum(map(sum, capacity)) / n for n in need)
    low = min(utility(j, horizon - j.arrival) / (2 * mu * n) for j, n in zip(jobs, need, strict=True))
    return high, low, mu


# -- one slot ----------------------------------------------------------------------------------------------------------


def placements(job: TrainingJob, free: Table) -> Iterator[Placement]:
    """All that satisfy (4), (18) and s >= max(1, ceil(w / gamma)), w >= 1."""
    single = [[(w, s) for w in range(job.batch + 1) for s in range(40) if fits(job, row, w, s)] for row in free]
    for found in product(*single):
        workers, pss = (sum(part[i] for part in found) for i in (0, 1))
        if 1 <= workers <= job.batch and pss >= servers(job, workers):
            yield found


def exact_theta(job: TrainingJob, free: Table, prices: Table, v: int) -> float:
    """The true optimum of Problem (19) with internal workers and PSs by the ratio, by enumeration."""
    if v == 0:
        return 0.0
    work, best = v * quantum(job), INF
    for found in placements(job, free):
        workers, pss = (sum(part[i] for part in found) for i in (0, 1))
        done = workers / rate_time(job, inside=is_inside(found))
        if done >= work * (1 - 1e-9) and pss >= servers(job, workers):
            best = min(best, price_of(job, prices, found))
    return best


def internal(job: TrainingJob, free: Table, prices: Table, v: int) -> tuple[float, Placement | None]:
    w = up(v * quantum(job) * rate_time(job, inside=True))
    s, best, where = servers(job, w), INF, None
    for h, row in enumerate(free):
        one = tuple((w, s) if k == h else (0, 0) for k in range(len(free)))
        cost = price_of(job, prices, one)
        if w <= job.batch and fits(job, row, w, s) and (best == INF or cost < best * (1 - 1e-9)):
            best, where = cost, one
    return best, where


def relaxed(job: TrainingJob, free: Table, prices: Table, need: float) -> tuple[float, list[float], list[float]]:
    """Problem (23) with the PS row, as one dense linear program; columns w_0.., s_0.."""
    machines = len(free)
    cost, most = np.zeros(2 * machines), np.zeros(2 * machines)
    for kind, demand in enumerate((job.worker, job.ps)):
        for h in range(machines):
            cost[kind * machines + h] = sum(p * d for p, d in zip(prices[h], demand, strict=True))
            room = min(f / d for f, d in zip(free[h], demand, strict=True) if d)
            most[kind * machines + h] = room if room >= 1 - 1e-9 else 0
    rows, limits = [], []
    for h in range(machines):
        for r in range(len(job.worker)):
            row = np.zeros(2 * machines)
            row[h], row[machines + h] = job.worker[r], job.ps[r]
            rows.append(row)
            limits.append(free[h][r])
    for kind, least in enumerate((need, need / job.ratio)):
        row = np.zeros(2 * machines)
        row[kind * machines : (kind + 1) * machines] = -1
        rows.append(row)
        limits.append(-least)
    usable = cost[most > 0]
    scale = usable.min() if len(usable) else 1.0
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    done = linprog(cost / scale, rows, limits, bounds=list(zip(np.zeros(len(most)), most, strict=True)), options=tight)
    if done.status != 0:
        assert done.status == 2, done.message
        return INF, [], []
    return float(cost @ done.x), done.x[:machines].tolist(), done.x[machines:].tolist()


def draw(x: float, rng: Generator) -> int:
    """(27), (28); what is whole up to 1e-7 draws nothing."""
    low = math.floor(x + 1e-7)
    return low + (x - low > 1e-7 and rng.random() < x - low)


def rounded(
    job: TrainingJob, free: Table, prices: Table, v: int, rng: Generator, gain: float, tries: int
) -> tuple[float, Placement | None]:  # fmt: skip
    """Alg. 4 lines 8-11, then the repair."""
    need = v * quantum(job) * rate_time(job, inside=False)
    if up(need) > job.batch:
        return INF, None
    bound, w_lp, s_lp = relaxed(job, free, prices, need)
    if bound == INF or not below(bound, internal(job, free, prices, v)[0]):
        return INF, None
    used = [h for h in range(len(free)) if w_lp[h] + s_lp[h] > 0]
    if all(abs(gain * x - round(gain * x)) <= 1e-7 for x in (*w_lp, *s_lp)):
        tries = 1
    best, where = INF, None
    for _ in range(tries):
        w, s = [0] * len(free), [0] * len(free)
        for counts, shares in ((w, w_lp), (s, s_lp)):
            for h in used:
                counts[h] = draw(gain * shares[h], rng)
        found = tuple(zip(w, s, strict=True))
        holds = up(need) <= sum(w) <= job.batch and sum(s) >= servers(job, sum(w))
        if holds and all(fits(job, free[h], *found[h]) for h in used) and price_of(job, prices, found) < best:
            best, where = price_of(job, prices, found), found
    if where is None:
        where = repaired(job, free, prices, up(need), w, s)
        best = INF if where is None else price_of(job, prices, where)
    return best, where


def repaired(
    job: TrainingJob, free: Table, prices: Table, target: int, w: list[int], s: list[int]
) -> Placement | None:  # fmt: skip
    """P15, with the step for sum w <= F."""
    for h, row in enumerate(free):
        while (w[h] or s[h]) and not fits(job, row, w[h], s[h]):
            loads = [a * w[h] + b * s[h] for a, b in zip(job.worker, job.ps, strict=True)]
            over = [(load - f) / load if load else -INF for load, f in zip(loads, row, strict=True)]
            worst = over.index(max(over))
            drop_worker = w[h] > 0 and (s[h] == 0 or job.worker[worst] >= job.ps[worst])
            w[h], s[h] = (w[h] - 1, s[h]) if drop_worker else (w[h], s[h] - 1)
    by_price = [
        sorted(
            range(len(free)),
            key=lambda h, d=demand: (  # type: ignore[misc]
                sum(p * x for p, x in zip(prices[h], d, strict=True)),
                h,
            ),
        )
        for demand in (job.worker, job.ps)
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
    return a < b - 1e-9 * abs(b) if b < INF else a < b


# -- Alg. 2 and 3 ------------------------------------------------------------------------------------------------------


def total_cost(theta: Callable[[int, int], float], first: int, last: int, levels: int) -> float:
    """Theta(last, levels) by Alg. 3, memoised."""

    @lru_cache(None)
    def best(t: int, v: int) -> float:
        if t < first:
            return 0.0 if v == 0 else INF
        return min(theta(t, u) + best(t - 1, v - u) for u in range(v + 1))

    return best(last, levels)


def split_cost(theta: Callable[[int, int], float], first: int, last: int, levels: int) -> float:
    """The same over all ways to split the work over the slots."""
    splits = product(range(levels + 1), repeat=last - first + 1)
    return min(sum(theta(first + t, v) for t, v in enumerate(split)) for split in splits if sum(split) == levels)


def best_payoff(theta: Callable[[int, int], float], job: TrainingJob, horizon: int) -> float:
    """Alg. 2: max over t~ of u(t~ + 1 - a) - Theta(t~, V')."""
    ends = range(job.arrival, horizon)
    return max(utility(job, t + 1 - job.arrival) - total_cost(theta, job.arrival, t, quanta(job)) for t in ends)


# -- whole schedules ---------------------------------------------------------------------------------------------------


def as_placement(part: SlotPlan, machines: int) -> Placement:
    counts = dict(zip(part.machines, zip(part.workers, part.ps, strict=True), strict=True))
    return tuple(counts.get(h, (0, 0)) for h in range(machines))


def violations(plans: Sequence[tuple[TrainingJob, Plan]], capacity: Table, horizon: int) -> list[str]:
    """What of (3)-(7) and of the ratio the admitted plans break; written from the paper."""
    found, load = [], np.zeros((horizon, len(capacity), len(capacity[0])))
    for job, plan in plans:
        done = 0.0
        for part in plan.slots:
            placement = as_placement(part, len(capacity))
            workers, pss = (sum(x[i] for x in placement) for i in (0, 1))
            done += workers / rate_time(job, inside=is_inside(placement))
            if not job.arrival <= part.slot < horizon:
                found.append(f"(7) job {job.id} in slot {part.slot}")
                continue
            if workers > job.batch:
                found.append(f"(4) job {job.id} in slot {part.slot}: {workers} workers")
            if workers < 1 or pss < servers(job, workers):
                found.append(f"ratio: job {job.id} in slot {part.slot}: {workers} workers, {pss} PSs")
            for h, (w, s) in enumerate(placement):
                load[part.slot, h] += np.array(job.worker) * w + np.array(job.ps) * s
        if done < job.work * (1 - 1e-9):
            found.append(f"(3) job {job.id}: {done} of {job.work} samples")
        if plan.completion != max(part.slot for part in plan.slots) + 1:
            found.append(f"(6) job {job.id}: completion {plan.completion}")
        if len({part.slot for part in plan.slots}) < len(plan.slots):
            found.append(f"job {job.id}: two placements in one slot")
    over = np.argwhere(load > np.array(capacity) * (1 + 1e-9))
    return found + [f"(5) machine {h} resource {r} in slot {t}" for t, h, r in over.tolist()]


def schedules(job: TrainingJob, capacity: Table, horizon: int) -> Iterator[tuple[float, list[tuple[int, Placement]]]]:
    """All schedules pi of a job on the empty cluster that end with the slot in which the work is done."""
    options = list(placements(job, capacity))
    work = job.work * (1 - 1e-9)

    def extend(t: int, done: float, parts: list[tuple[int, Placement]]) -> Iterator[list[tuple[int, Placement]]]:
        if done >= work:
            yield parts
        elif t < horizon:
            yield from extend(t + 1, done, parts)
            for found in options:
                more = sum(w for w, _ in found) / rate_time(job, inside=is_inside(found))
                yield from extend(t + 1, done + more, [*parts, (t, found)])

    for parts in extend(job.arrival, 0.0, []):
        yield utility(job, parts[-1][0] + 1 - job.arrival), parts


def offline_optimum(jobs: Sequence[TrainingJob], capacity: Table, horizon: int) -> float:
    """R-DMLRS: at most one schedule for each job, (8), (9), as an integer program over all of them."""
    value, rows, owner = [], [], []
    for i, job in enumerate(jobs):
        for u, parts in schedules(job, capacity, horizon):
            load = np.zeros((horizon, len(capacity), len(capacity[0])))
            for t, placement in parts:
                for h, (w, s) in enumerate(placement):
                    load[t, h] += np.array(job.worker) * w + np.array(job.ps) * s
            value.append(u)
            rows.append(load.ravel())
            owner.append(i)
    if not value:
        return 0.0
    limits = np.tile(np.array(capacity, float).ravel(), horizon)
    once = (np.array(owner)[None, :] == np.arange(len(jobs))[:, None]).astype(float)
    both = [LinearConstraint(np.array(rows).T, ub=limits * (1 + 1e-9)), LinearConstraint(once, ub=1)]
    done = milp(-np.array(value), constraints=both, integrality=np.ones(len(value)), bounds=Bounds(0, 1))
    assert done.status == 0, done.message
    return -float(done.fun)
