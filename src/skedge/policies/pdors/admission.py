"""Alg. 1-3 of PD-ORS and OASiS: the offer, the best completion, the dynamic program over work levels.

A policy derives from :class:`Admission` and says what v levels of work cost in slot t, theta(t, v).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from skedge.core.errors import SolverError
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.ties import TOLERANCE, better
from skedge.platform.jit import compiled

from .job import Completion, Levels, TrainingJob, levels_of, value
from .prices import Ledger, Prices, check_cluster


@dataclass(frozen=True)
class SlotPlan:
    """A job's placement in one slot.

    Attributes
    ----------
    slot, quanta, kind
        Which slot, how many work levels its workers do, ``internal`` (all on one machine) or ``external``.
    machines, workers, ps
        The machines that are used, ascending, and how many workers and PSs each holds.
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
    """What a plan pays for one resource of one machine in one slot."""

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
    """What became of an offered job, and why.

    Attributes
    ----------
    job
        Its id.
    admitted
        Whether it was.
    reason
        One sentence; its first word is one of ``admitted``, ``too_dear``, ``no_room``, ``never_fits``, ``solver``.
    plan
        The plan of the largest payoff, carried out if `admitted`; None if no plan completes the job.
    ends
        The completions that were compared: END times a + 1 .. T.
    utility, cost
        Of each of them, shape ``(len(ends),)``; cost inf where the job cannot be complete by then.
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
        """The smallest rise of utility that would have admitted the job: 0 if it was, inf if no plan completes it."""
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
    levels, most = total.shape[1] - 1, steps[theta.shape[1] - 1]
    for t in range(len(theta)):
        # less than `first` cannot become V' in the slots after t, more than `reach` cannot be done in those before
        first, reach = max(0, levels - most * (len(theta) - 1 - t)), min(levels, most * (t + 1))
        for v in range(first, reach + 1):
            best, chosen = np.inf, -1
            for i in range(theta.shape[1]):
                # the step before does v already, so this one is the same at no lower cost
                if i > 0 and steps[i - 1] >= v:
                    break
                left = max(0, v - steps[i])
                # before the first slot no work is done: Theta(-1, 0) = 0 and Theta(-1, v) = inf
                rest = total[t - 1, left] if t > 0 else (0.0 if left == 0 else np.inf)
                if better(theta[t, i] + rest, best):
                    best, chosen = theta[t, i] + rest, i
            total[t, v], last[t, v] = best, chosen


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
        What u is taken of.

    Raises
    ------
    ScenarioError
        If the capacity is empty or the horizon below 1.
    """

    def __init__(self, capacity: Floats, horizon: int, prices: Prices, completion: Completion = "end") -> None:
        check_cluster(capacity, horizon, ())
        self.horizon, self.completion = horizon, completion
        self.ledger = Ledger(capacity, horizon, prices)
        self.payoffs = 0.0

    def slot_costs(self, job: TrainingJob) -> Floats:
        """theta(t, v) of the slots from the arrival on, shape ``(horizon - arrival, len(levels.steps))``."""
        raise NotImplementedError

    def placement(self, job: TrainingJob, slot: int, step: int, cost: float) -> SlotPlan:
        """The placement that attains `cost` = theta(slot, v), v being number `step` of ``levels.steps``."""
        raise NotImplementedError

    def rates(self, job: TrainingJob) -> tuple[float, ...]:
        """Worker-slots per sample that a placement can have, the best first."""
        raise NotImplementedError

    def levels(self, job: TrainingJob) -> Levels:
        """In what the work of a job is counted."""
        return levels_of(job, self.rates(job))

    def offer(self, job: TrainingJob) -> AdmissionAnswer:
        """Admit `job` and allocate its plan, or reject it; jobs are offered by (arrival, id).

        Raises
        ------
        ScenarioError
            As :meth:`answer`.
        """
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
        check_cluster(self.ledger.capacity, self.horizon, (job,))
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
        plan = self._best(job, theta, utility, cost, last)
        if plan is None:
            return AdmissionAnswer(job.id, False, self._why_not(job), None, ends, utility, cost)
        # Alg. 1 step 4: a payoff of 0 is a rejection
        admitted = plan.payoff > 0
        return AdmissionAnswer(
            job.id, admitted, _reason(plan, admitted), plan, ends, utility, cost, self._dearest(job, plan)
        )  # fmt: skip

    @property
    def dual(self) -> float:
        """D_I, Eq. (10): payoffs of the admitted jobs + sum of p C."""
        return self.payoffs + self.ledger.value

    def _best(self, job: TrainingJob, theta: Floats, utility: Floats, cost: Floats, last: Ints) -> Plan | None:
        """Alg. 2: the completion of the largest payoff, whatever its sign."""
        best, end = -np.inf, -1
        for t in range(len(theta)):
            payoff = utility[t] - cost[t]
            # strictly better only: of equal payoffs the earliest completion stays
            if cost[t] < np.inf and (end < 0 or payoff > best + TOLERANCE * abs(best)):
                best, end = payoff, t
        if end < 0:
            return None
        slots, left, steps = [], last.shape[1] - 1, self.levels(job).steps
        for t in range(end, -1, -1):
            step = int(last[t, left])
            if step > 0:
                slots.append(self.placement(job, job.arrival + t, step, float(theta[t, step])))
                left = max(0, left - int(steps[step]))
        slots.reverse()
        # the last slots may hold no work: the job is complete when its last used slot ends
        completion = slots[-1].slot + 1
        return Plan(tuple(slots), completion, float(utility[completion - 1 - job.arrival]), float(cost[end]))

    def _carry_out(self, job: TrainingJob, plan: Plan) -> None:
        """Alg. 1 line 3."""
        self.payoffs += plan.payoff
        for part in plan.slots:
            self.ledger.take(part.slot, np.array(part.machines), _amounts(job, part))

    def _dearest(self, job: TrainingJob, plan: Plan, count: int = 5) -> tuple[Charge, ...]:
        charges = [
            Charge(part.slot, h, r, float(amount), float(self.ledger.price[part.slot, h, r]))
            for part in plan.slots
            for h, row in zip(part.machines, _amounts(job, part), strict=True)
            for r, amount in enumerate(row)
            if amount > 0
        ]
        return tuple(sorted(charges, key=lambda c: -c.cost)[:count])

    def _why_not(self, job: TrainingJob) -> str:
        for what, demand in zip(("workers", "PSs"), job.demands, strict=True):
            if not (self.ledger.capacity >= demand).all(axis=1).any():
                return f"never_fits: no server holds one of its {what}, even an empty one"
        slots, needs = self.horizon - job.arrival, job.shortest(self.rates(job)[0])
        if needs > slots:
            return f"never_fits: it takes {needs} slots at best with a batch of {job.batch}; {slots} are left"
        levels = self.levels(job)
        if levels.steps[-1] * slots < levels.total:
            return f"never_fits: its {levels.total} work levels are too coarse for {slots} slots; take more levels"
        return "no_room: what is free does not hold the workers and PSs that complete it"


def _amounts(job: TrainingJob, part: SlotPlan) -> Floats:
    """What a placement takes, shape ``(len(machines), resources)``."""
    worker, ps = job.demands
    return np.outer(part.workers, worker) + np.outer(part.ps, ps)


def _reason(plan: Plan, admitted: bool) -> str:
    if admitted:
        return f"admitted: utility {plan.utility:.6g} above cost {plan.cost:.6g}"
    return f"too_dear: the best plan costs {plan.cost:.6g} and is worth {plan.utility:.6g}"
