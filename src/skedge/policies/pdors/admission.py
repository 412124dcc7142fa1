"""Alg. 1-3 of PD-ORS and OASiS: the offer, the best completion, the dynamic program over work levels.

A policy derives from :class:`Admission` and gives the cost theta(t, v) of v levels of work in slot t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from skedge.core.errors import SolverError
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.ties import TOLERANCE
from skedge.platform.jit import compiled, lean

from .job import Completion, Levels, TrainingJob, levels_of, value
from .prices import PricedLoads, Prices, check_cluster


@dataclass(frozen=True)
class SlotPlan:
    """A job's placement in one slot.

    Attributes
    ----------
    slot, quanta, kind
        The slot, the work levels done in it, and ``internal`` (all on one machine) or ``external``.
    machines, workers, ps
        The machines that are used, ascending, and the workers and PSs on each.
    cost
        At the prices before the job was admitted [utility].
    """

    slot: int
    quanta: int
    kind: Literal["internal", "external"]
    machines: tuple[int, ...]
    workers: tuple[int, ...]
    ps: tuple[int, ...]
    cost: float


@dataclass(frozen=True)
class Plan:
    """A job's schedule pi: its slots, utility, cost and payoff lambda; completion is an END time [slots]."""

    slots: tuple[SlotPlan, ...]
    completion: int
    utility: float
    cost: float

    @property
    def payoff(self) -> float:
        """Utility less cost."""
        return self.utility - self.cost


@dataclass(frozen=True)
class Charge:
    """The charge of a plan for one resource of one machine in one slot."""

    slot: int
    machine: int
    resource: int
    amount: float
    price: float

    @property
    def cost(self) -> float:
        """Amount times price [utility]."""
        return self.amount * self.price


@dataclass(frozen=True)
class AdmissionAnswer:
    """The answer to an offered job, with its reasons.

    Attributes
    ----------
    job
        Its id.
    admitted
        x_i: true if the job is admitted.
    reason
        One sentence; its first word is one of ``admitted``, ``too_dear``, ``no_room``, ``never_fits``, ``solver``.
    plan
        The plan of the largest payoff, carried out if `admitted`; None if no plan completes the job.
    ends
        The completions that were compared: END times a + 1 .. T.
    utility, cost
        Utility and cost of each, shape ``(len(ends),)``; cost inf where the job cannot be complete by then.
    dearest
        The largest charges of `plan`, dearest first: the prices that made a rejection.
    """

    job: int
    admitted: bool
    reason: str
    plan: Plan | None
    ends: Ints
    utility: Floats
    cost: Floats
    dearest: tuple[Charge, ...] = ()

    @property
    def shortfall(self) -> float:
        """The smallest rise of utility that would have admitted the job; 0 if it was, inf if no plan completes it."""
        if self.admitted:
            return 0.0
        return float((self.cost - self.utility).min(initial=np.inf))


@compiled
def prefix_table(theta: Floats, steps: Ints, total: Floats, last: Ints) -> None:
    """Alg. 3 for every completion: Theta(t, v) = min over u of theta(t, u) + Theta(t - 1, v - u), Eq. (21).

    Parameters
    ----------
    theta
        Shape ``(slots, len(steps))``, theta(t, 0) = 0; inf where it is infeasible.
    steps
        The work u of each column of `theta`, ascending from 0. The least that is more than v counts as v.
    total, last
        Filled, shape ``(slots, V' + 1)``: Theta, and the column of slot t that attains it (-1 if it is inf). Where the
        slots after t cannot make up for what is missing Theta is inf too: no completion needs it.
    """
    total[:], last[:] = np.inf, -1
    levels, max_step = total.shape[1] - 1, steps[theta.shape[1] - 1]
    # Theta(t - 1, v) from v = -max_step on: D2, a slot may do more than is left, which counts as all of it.
    # D1 (P2): before the first slot no work is done, Theta(a-1, 0) = 0 and Theta(a-1, v) = inf
    before = np.full(max_step + levels + 1, np.inf)
    before[: max_step + 1] = 0.0
    # forward over the slots, where Alg. 3 recurses backward: row t is Theta(t, .), so one table serves every t~ (D1)
    for t in range(len(theta)):
        # less than `first` cannot become V' in the slots after t, more than `reach` cannot be done in those before
        first, reach = max(0, levels - max_step * (len(theta) - 1 - t)), min(levels, max_step * (t + 1))
        # u outside, v inside: compilers make vector instructions of it; each v still meets its u in ascending order,
        # so that of equal costs the least work in the last slot stays, D4 (P25)
        for i in range(theta.shape[1]):
            # where the step before does v already, this one is no cheaper
            low = max(first, steps[i - 1] + 1 if i > 0 else 0)
            if theta[t, i] < np.inf and low <= reach:
                rest = before[max_step + low - steps[i] : max_step + reach + 1 - steps[i]]
                _take_cheaper(total[t, low : reach + 1], last[t, low : reach + 1], rest, theta[t, i], i)
        before[:max_step], before[max_step:] = total[t, 0], total[t]


@lean
def _take_cheaper(best: Floats, chosen: Ints, rest: Floats, cost: float, column: int) -> None:
    """Where `cost` more than `rest` is :func:`~skedge.core.model.ties.better`, take it, and note the column."""
    for k in range(len(best)):
        candidate, least = cost + rest[k], best[k]
        # without a branch, as `better` has one; what is not finite loses to all that is
        wins = candidate < least - TOLERANCE * (abs(least) if least < np.inf else 0.0)
        best[k] = candidate if wins else least
        chosen[k] = column if wins else chosen[k]


class Admission:
    """Alg. 1; a policy derives from it and gives :meth:`slot_costs` and :meth:`placement`.

    Parameters
    ----------
    capacity
        C_h^r, shape ``(machines, resources)``.
    horizon
        T [slots].
    prices
        The frozen constants.
    completion
        The argument of u (P4): ``end`` or ``index`` of the last slot.

    Attributes
    ----------
    loads
        The allocated resources and their prices.
    payoffs
        Sum of lambda_i over the admitted jobs.

    Raises
    ------
    ScenarioError
        If the capacity is empty or the horizon below 1.
    """

    def __init__(self, capacity: Floats, horizon: int, prices: Prices, completion: Completion = "end") -> None:
        check_cluster(capacity, horizon, ())
        self.horizon, self.completion = horizon, completion
        self.loads = PricedLoads(capacity, horizon, prices)
        self.payoffs = 0.0

    def slot_costs(self, job: TrainingJob) -> Floats:
        """theta(t, v) of the slots from the arrival on, shape ``(horizon - arrival, len(levels.steps))``."""
        raise NotImplementedError

    def placement(self, job: TrainingJob, slot: int, step: int, cost: float) -> SlotPlan:
        """The placement that attains theta(t, v).

        Parameters
        ----------
        job
            The job of the last call of :meth:`slot_costs`.
        slot, step
            t, and the position of v in ``levels.steps``.
        cost
            theta(t, v), finite.
        """
        raise NotImplementedError

    def rates(self, job: TrainingJob) -> tuple[float, ...]:
        """Worker-slots per sample of each kind of placement, the best first: x^(i), x^(e)."""
        raise NotImplementedError

    def levels(self, job: TrainingJob) -> Levels:
        """The levels in which the work of a job is counted (D2, P3)."""
        return levels_of(job, self.rates(job))

    def offer(self, job: TrainingJob) -> AdmissionAnswer:
        """Admit `job` and allocate its plan, or reject it; jobs are offered by (arrival, id).

        Raises
        ------
        ScenarioError
            As :meth:`answer`.
        """
        # step 2 of Alg. 1, then step 3; a rejection, step 4, changes nothing
        answer = self.answer(job)
        if answer.admitted and answer.plan is not None:
            self._carry_out(job, answer.plan)
        return answer

    def answer(self, job: TrainingJob) -> AdmissionAnswer:
        """The answer of :meth:`offer`, without changing allocations or prices.

        Raises
        ------
        ScenarioError
            If the job is not made for this cluster. A solver that fails rejects the job.
        """
        check_cluster(self.loads.capacity, self.horizon, (job,))
        # completions as END times: t~ + 1 in the paper's indices
        ends = np.arange(job.arrival + 1, self.horizon + 1)
        utility = np.array([value(job, int(end), self.completion) for end in ends])
        levels = self.levels(job)
        try:
            theta = self.slot_costs(job)
        except SolverError as error:
            return AdmissionAnswer(job.id, False, f"solver: {error}", None, ends, utility, np.full(len(ends), np.inf))
        total = np.empty((len(theta), levels.total + 1))
        last = np.empty((len(theta), levels.total + 1), np.int64)
        prefix_table(theta, levels.steps, total, last)
        # every prefix of the slots has its own table row, so one pass serves all completions of Alg. 2
        cost = total[:, -1]
        plan = self._best_plan(job, theta, utility, cost, last)
        if plan is None:
            return AdmissionAnswer(job.id, False, self._rejection_reason(job), None, ends, utility, cost)
        # Alg. 1 step 4: a payoff of 0 is a rejection
        admitted = plan.payoff > 0
        return AdmissionAnswer(
            job.id, admitted, _reason(plan, admitted), plan, ends, utility, cost, self._dearest(job, plan)
        )  # fmt: skip

    @property
    def dual(self) -> float:
        """D_I, Eq. (10): payoffs of the admitted jobs + sum of p C."""
        return self.payoffs + self.loads.value

    def _best_plan(self, job: TrainingJob, theta: Floats, utility: Floats, cost: Floats, last: Ints) -> Plan | None:
        """Alg. 2: the plan of the largest payoff, whatever its sign, for the explanation; Alg. 1 looks at the sign."""
        best, end = -np.inf, -1
        for t in range(len(theta)):
            payoff = utility[t] - cost[t]
            # strictly better only: of equal payoffs the earliest completion stays
            if cost[t] < np.inf and (end < 0 or payoff > best + TOLERANCE * abs(best)):
                best, end = payoff, t
        if end < 0:
            return None
        slots, left, steps = [], last.shape[1] - 1, self.levels(job).steps
        # back from the last slot: `last` has the work of each slot, and v less it is left to the slots before
        for t in range(end, -1, -1):
            step = int(last[t, left])
            if step > 0:
                slots.append(self.placement(job, job.arrival + t, step, float(theta[t, step])))
                left = max(0, left - int(steps[step]))
        slots.reverse()
        # D3 (P21): the last slots may hold no work; the job is complete when its last used slot ends
        completion = slots[-1].slot + 1
        return Plan(tuple(slots), completion, float(utility[completion - 1 - job.arrival]), float(cost[end]))

    def _carry_out(self, job: TrainingJob, plan: Plan) -> None:
        """Step 3 of Alg. 1: allocate the plan, and raise the prices with it."""
        self.payoffs += plan.payoff
        for slot_plan in plan.slots:
            self.loads.take(slot_plan.slot, np.array(slot_plan.machines), _amounts(job, slot_plan))

    def _dearest(self, job: TrainingJob, plan: Plan, count: int = 5) -> tuple[Charge, ...]:
        charges = [
            Charge(slot_plan.slot, h, r, float(amount), float(self.loads.price[slot_plan.slot, h, r]))
            for slot_plan in plan.slots
            for h, row in zip(slot_plan.machines, _amounts(job, slot_plan), strict=True)
            for r, amount in enumerate(row)
            if amount > 0
        ]
        return tuple(sorted(charges, key=lambda c: -c.cost)[:count])

    def _rejection_reason(self, job: TrainingJob) -> str:
        for kind, demand in zip(("workers", "PSs"), job.demands, strict=True):
            if not (self.loads.capacity >= demand).all(axis=1).any():
                return f"never_fits: no server holds one of its {kind}, even an empty one"
        slots, needs = self.horizon - job.arrival, job.shortest(self.rates(job)[0])
        if needs > slots:
            return f"never_fits: it takes {needs} slots at best with a batch of {job.batch}; {slots} are left"
        levels = self.levels(job)
        if levels.steps[-1] * slots < levels.total:
            return f"never_fits: its {levels.total} work levels are too coarse for {slots} slots; take more levels"
        return "no_room: what is free does not hold the workers and PSs that complete it"


def _amounts(job: TrainingJob, slot_plan: SlotPlan) -> Floats:
    """Resources of a placement, alpha w + beta s, shape ``(len(machines), resources)``."""
    worker, ps = job.demands
    return np.outer(slot_plan.workers, worker) + np.outer(slot_plan.ps, ps)


def _reason(plan: Plan, admitted: bool) -> str:
    if admitted:
        return f"admitted: utility {plan.utility:.6g} above cost {plan.cost:.6g}"
    return f"too_dear: the best plan costs {plan.cost:.6g} and is worth {plan.utility:.6g}"
