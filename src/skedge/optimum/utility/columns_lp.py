"""Upper bounds on the total utility of DMLRS: every job alone, and R-DMLRS's linear program by columns.

**Proof of validity.** Let p^r(t) >= 0 be a price of resource r in slot t. A job that is done in slot t pays for its
worker-slots until then at least C_i(t), the least that :class:`.job_slots.JobSlots` allows: its steps of all slots,
cheapest first, until the whole job is trained. All jobs together pay at most sum_t sum_r C^r p^r(t), as there are no
more resources. So

    total utility <= sum_i max(0, max_t u_i(t) - C_i(t)) + sum_t sum_r C^r p^r(t) =: D(p)   for every p >= 0,

the dual objective (10) with lambda_i recomputed by relaxed costs. D(p) is a bound for any p, however found.

**How good.** The prices are the dual of R-DMLRS (8), (9) over the plans found so far; at these prices every job's best
plan is added, until no job has a better one (column generation). The least D(p) on the way is reported.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Floats
from skedge.optimum.types import OPTIMALITY_TOLERANCE
from skedge.platform.jit import compiled

from .job_slots import JobSlots

_MAX_ROUNDS = 80
_MAX_SIZE = 60_000
"""Most jobs times slots."""


class DualValue(NamedTuple):
    """D(p), and every job's best plan at these prices: its utility and its workers by slot; 0 if it has none."""

    value: float
    utility: Floats
    workers: Floats


def alone(jobs: JobSlots) -> float:
    """The sum of every job's utility alone on all machines.

    **Proof.** Alone, a job is trained as much as possible in each slot from its first on, and a later completion is
    worth no more.
    """
    return float(np.maximum(jobs.utility.max(axis=1, initial=-np.inf), 0.0).sum())


def dual_bound(jobs: JobSlots, worker_price: Floats, income: float) -> DualValue:
    """D(p) for what a worker of each job costs in each slot, shape ``(jobs, T)``; `income` is sum C p."""
    surplus, utility, workers = _best_plans(jobs.utility, jobs.first_slot, jobs.fraction, jobs.workers, worker_price)
    return DualValue(float(surplus.sum()) + income, utility, workers)


def dual(jobs: JobSlots, price: Floats) -> DualValue:
    """D(p) at prices by resource and slot, shape ``(T, resources)``."""
    return dual_bound(jobs, jobs.needs @ price.T, float((price @ jobs.capacity).sum()))


def columns(jobs: JobSlots) -> tuple[float, int] | None:
    """The least D(p) found, and the number of rounds; None if the scenario is too large."""
    count, slots = jobs.utility.shape
    if count * slots > _MAX_SIZE or count == 0:
        return None
    price = np.zeros((slots, len(jobs.capacity)))
    best, master = np.inf, _MasterProgram(jobs)
    for round_number in range(1, _MAX_ROUNDS + 1):
        offer = dual(jobs, price)
        # D(p) need not fall from round to round, and each value is a bound
        best = min(best, offer.value)
        if not master.add(offer):
            return best, round_number
        # the optimum over the plans so far is below that over all plans, which D(p) bounds: they meet at the optimum
        reached, price = master.prices()
        if best - reached <= OPTIMALITY_TOLERANCE * max(best, 1e-12):
            return best, round_number
    return best, _MAX_ROUNDS


class _MasterProgram:
    """Plans found so far, and the linear program over them."""

    def __init__(self, jobs: JobSlots) -> None:
        self.jobs = jobs
        self.owner: list[int] = []
        self.utility: list[float] = []
        self.use: list[Floats] = []
        self.seen: set[tuple[int, bytes]] = set()

    def add(self, offer: DualValue) -> bool:
        """Add every job's plan if it is new; returns whether there was one."""
        before = len(self.owner)
        for j in np.flatnonzero(offer.utility > 0).tolist():
            # plans that differ by rounding alone are one: no round is spent on them
            key = (j, np.round(offer.workers[j], 9).tobytes() + np.float64(offer.utility[j]).tobytes())
            if key not in self.seen:
                self.seen.add(key)
                self.owner.append(j)
                self.utility.append(float(offer.utility[j]))
                self.use.append((offer.workers[j][:, None] * self.jobs.needs[j]).ravel())
        return len(self.owner) > before

    def prices(self) -> tuple[float, Floats]:
        """Optimum over the plans, and the prices of its dual, shape ``(T, resources)``."""
        from scipy import sparse  # noqa: PLC0415 - takes 0.3 s to import
        from scipy.optimize import linprog  # noqa: PLC0415

        slots, resources = self.jobs.utility.shape[1], len(self.jobs.capacity)
        # rows in parts of the capacity: resources have units of very different size
        scale = np.tile(np.maximum(self.jobs.capacity, 1e-12), slots)
        use = sparse.csr_matrix(np.array(self.use).T / scale[:, None])
        job_rows = sparse.csr_matrix((np.ones(len(self.owner)), (self.owner, np.arange(len(self.owner)))))
        limit = np.concatenate([np.tile(self.jobs.capacity, slots) / scale, np.ones(job_rows.shape[0])])
        solution = linprog(-np.array(self.utility), A_ub=sparse.vstack([use, job_rows]), b_ub=limit, method="highs")
        if solution.status != 0:
            return np.inf, np.zeros((slots, resources))
        paid = np.maximum(-solution.ineqlin.marginals[: slots * resources], 0.0) / scale
        return -float(solution.fun), paid.reshape(slots, resources)


@compiled
def _best_plans(
    utility: Floats, first: np.ndarray, part: Floats, workers: Floats, price: Floats
) -> tuple[Floats, Floats, Floats]:
    """lambda_i = max(0, max_t u_i(t) - C_i(t)) of every job, and its best plan's utility and workers by slot."""
    count, slots = utility.shape
    surplus, plan_utility, chosen = np.zeros(count), np.zeros(count), np.zeros((count, slots))
    cost, step_of = np.empty(2 * slots), np.empty(2 * slots, np.int64)
    for j in range(count):
        # steps are inserted slot by slot, so that at slot t the list holds those up to t, cheapest first
        n, stop = 0, -1
        for t in range(first[j], slots):
            for k in range(2):
                if part[j, k] > 0.0:
                    # the steps of all slots so far by price: the first ones that hold the whole job cost C_i(t)
                    n = _insert_sorted(cost, step_of, n, workers[j, k] * price[j, t], 2 * t + k)
            # no plan that ends here can be better: C_i >= 0
            if utility[j, t] - surplus[j] <= 0.0:
                continue
            paid, left = 0.0, 1.0
            for i in range(n):
                used = min(left, part[j, step_of[i] % 2])
                paid, left = paid + used * cost[i], left - used
            if left <= 1e-9 and utility[j, t] - paid > surplus[j]:
                surplus[j], plan_utility[j], stop = utility[j, t] - paid, utility[j, t], t
        if stop >= 0:
            _add_plan(chosen[j], step_of, n, stop, part[j], workers[j])
    return surplus, plan_utility, chosen


@compiled
def _add_plan(chosen: Floats, step: np.ndarray, n: int, stop: int, part: Floats, workers: Floats) -> None:
    """The workers of the cheapest plan that is done in slot `stop`."""
    left = 1.0
    for i in range(n):
        if step[i] // 2 <= stop:
            used = min(left, part[step[i] % 2])
            chosen[step[i] // 2] += used * workers[step[i] % 2]
            left -= used


@compiled
def _insert_sorted(cost: Floats, step: np.ndarray, n: int, c: float, s: int) -> int:
    i = n
    while i > 0 and cost[i - 1] > c:
        cost[i], step[i] = cost[i - 1], step[i - 1]
        i -= 1
    cost[i], step[i] = c, s
    return n + 1
