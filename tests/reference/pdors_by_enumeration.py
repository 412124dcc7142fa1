"""PD-ORS's problems by trying everything, and a check of its schedules, for few machines, slots and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from reference.pdors import alg_3
from reference.pdors_job import (
    INF,
    Placement,
    Table,
    fits,
    is_inside,
    price_of,
    quanta,
    quantum,
    rate_time,
    servers,
    utility,
)
from skedge.policies.pdors.admission import Plan, SlotPlan
from skedge.policies.pdors.job import TrainingJob

# -- one slot ----------------------------------------------------------------------------------------------------------


def placements(job: TrainingJob, free: Table) -> Iterator[Placement]:
    """All that satisfy (4), (18) and s >= max(1, ceil(w / gamma)), w >= 1."""
    by_machine = [[(w, s) for w in range(job.batch + 1) for s in range(40) if fits(job, row, w, s)] for row in free]
    for placement in product(*by_machine):
        workers, pss = (sum(counts[i] for counts in placement) for i in (0, 1))
        if 1 <= workers <= job.batch and pss >= servers(job, workers):
            yield placement


def exact_theta(job: TrainingJob, free: Table, prices: Table, v: int) -> float:
    """theta(t, v) exactly: the optimum of Problem (19), with PSs by the ratio.

    Parameters
    ----------
    job
        The job.
    free, prices
        Of the slot.
    v
        Levels of work.
    """
    if v == 0:
        return 0.0
    work, best = v * quantum(job), INF
    for placement in placements(job, free):
        workers, pss = (sum(counts[i] for counts in placement) for i in (0, 1))
        samples = workers / rate_time(job, inside=is_inside(placement))
        if samples >= work * (1 - 1e-9) and pss >= servers(job, workers):
            best = min(best, price_of(job, prices, placement))
    return best


# -- one job -----------------------------------------------------------------------------------------------------------


def split_cost(theta: Callable[[int, int], float], first: int, last: int, levels: int) -> float:
    """Theta(last, levels) over all ways to split the work over the slots.

    Parameters
    ----------
    theta
        theta(t, v).
    first, last
        First and last slot.
    levels
        V_i in levels.
    """
    splits = product(range(levels + 1), repeat=last - first + 1)
    return min(sum(theta(first + t, v) for t, v in enumerate(split)) for split in splits if sum(split) == levels)


def best_payoff(theta: Callable[[int, int], float], job: TrainingJob, horizon: int) -> float:
    """The objective of Alg. 2: max over t~ of u(t~ + 1 - a) - Theta(t~, V)."""
    ends = range(job.arrival, horizon)
    return max(utility(job, t + 1 - job.arrival) - alg_3(theta, job.arrival, t, quanta(job))[0] for t in ends)


# -- whole schedules ---------------------------------------------------------------------------------------------------


def as_placement(slot_plan: SlotPlan, machines: int) -> Placement:
    counts = dict(zip(slot_plan.machines, zip(slot_plan.workers, slot_plan.ps, strict=True), strict=True))
    return tuple(counts.get(h, (0, 0)) for h in range(machines))


def violations(plans: Sequence[tuple[TrainingJob, Plan]], capacity: Table, horizon: int) -> list[str]:
    """Violations of (3)-(7) and of the ratio by the admitted plans; written from the paper."""
    broken, load = [], np.zeros((horizon, len(capacity), len(capacity[0])))
    for job, plan in plans:
        samples = 0.0
        for slot_plan in plan.slots:
            placement = as_placement(slot_plan, len(capacity))
            workers, pss = (sum(x[i] for x in placement) for i in (0, 1))
            samples += workers / rate_time(job, inside=is_inside(placement))
            if not job.arrival <= slot_plan.slot < horizon:
                broken.append(f"(7) job {job.id} in slot {slot_plan.slot}")
                continue
            if workers > job.batch:
                broken.append(f"(4) job {job.id} in slot {slot_plan.slot}: {workers} workers")
            if workers < 1 or pss < servers(job, workers):
                broken.append(f"ratio: job {job.id} in slot {slot_plan.slot}: {workers} workers, {pss} PSs")
            for h, (w, s) in enumerate(placement):
                load[slot_plan.slot, h] += np.array(job.worker) * w + np.array(job.ps) * s
        if samples < job.work * (1 - 1e-9):
            broken.append(f"(3) job {job.id}: {samples} of {job.work} samples")
        if plan.completion != max(slot_plan.slot for slot_plan in plan.slots) + 1:
            broken.append(f"(6) job {job.id}: completion {plan.completion}")
        if len({slot_plan.slot for slot_plan in plan.slots}) < len(plan.slots):
            broken.append(f"job {job.id}: two placements in one slot")
    over = np.argwhere(load > np.array(capacity) * (1 + 1e-9))
    return broken + [f"(5) machine {h} resource {r} in slot {t}" for t, h, r in over.tolist()]


def schedules(job: TrainingJob, capacity: Table, horizon: int) -> Iterator[tuple[float, list[tuple[int, Placement]]]]:
    """All schedules pi of a job on the empty cluster that end with the slot in which the work is done."""
    options = list(placements(job, capacity))
    work = job.work * (1 - 1e-9)

    def extend(t: int, samples: float, placed: list[tuple[int, Placement]]) -> Iterator[list[tuple[int, Placement]]]:
        if samples >= work:
            yield placed
        elif t < horizon:
            yield from extend(t + 1, samples, placed)
            for placement in options:
                trained = sum(w for w, _ in placement) / rate_time(job, inside=is_inside(placement))
                yield from extend(t + 1, samples + trained, [*placed, (t, placement)])

    for parts in extend(job.arrival, 0.0, []):
        yield utility(job, parts[-1][0] + 1 - job.arrival), parts


def offline_optimum(jobs: Sequence[TrainingJob], capacity: Table, horizon: int) -> float:
    """R-DMLRS: at most one schedule for each job, (8), (9), as an integer program over all of them."""
    utilities, rows, owner = [], [], []
    for i, job in enumerate(jobs):
        for u, parts in schedules(job, capacity, horizon):
            load = np.zeros((horizon, len(capacity), len(capacity[0])))
            for t, placement in parts:
                for h, (w, s) in enumerate(placement):
                    load[t, h] += np.array(job.worker) * w + np.array(job.ps) * s
            utilities.append(u)
            rows.append(load.ravel())
            owner.append(i)
    if not utilities:
        return 0.0
    limits = np.tile(np.array(capacity, float).ravel(), horizon)
    one_each = (np.array(owner)[None, :] == np.arange(len(jobs))[:, None]).astype(float)
    constraints = [LinearConstraint(np.array(rows).T, ub=limits * (1 + 1e-9)), LinearConstraint(one_each, ub=1)]
    solution = milp(
        -np.array(utilities), constraints=constraints, integrality=np.ones(len(utilities)), bounds=Bounds(0, 1)
    )
    assert solution.status == 0, solution.message
    return -float(solution.fun)
