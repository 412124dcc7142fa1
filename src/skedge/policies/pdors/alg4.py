"""Alg. 4 of PD-ORS: theta(t, v), the cheaper of the internal and the external case; the policy and its parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from skedge.core.errors import PolicyError
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import ceil_almost, servers_for
from skedge.core.model.ties import SLACK, better
from skedge.core.policy import Params
from skedge.platform.jit import compiled

from .admission import Admission, SlotPlan
from .job import Levels, TrainingJob
from .parametric_lp import DONE, sweep
from .policy import PrimalDual
from .prices import Prices, PrimalDualParams, pdors_prices
from .rounding import (
    MISSED,
    NOT_ROUNDED,
    PriceOrder,
    Relaxation,
    RoundingRule,
    Subproblem,
    has_room,
    integral,
    relax,
    room_for,
    solve,
    subproblem,
)

if TYPE_CHECKING:
    from numpy.random import Generator


class PdorsParams(PrimalDualParams):
    """Parameters of PD-ORS, besides those of :class:`.prices.PrimalDualParams`.

    Attributes
    ----------
    theta
        Method for the external case: ``rounded`` as in Alg. 4, or ``exact``, as an integer program (small clusters
        only; the theory's oracle).
    relaxation
        ``parametric``: all work levels of a slot in one sweep; ``highs``: one linear program each, the plain path.
    gain
        G_delta: a number, or ``eq29`` or ``eq30`` with `delta`.
    delta
        In (0, 1].
    tries
        S.
    cover_soft
        Where no attempt does all the work, take the one that does most instead of repairing it.
    repair
        Where no attempt is feasible, repair the last one (P15); false, as printed: that work has no placement in that
        slot, and a job without any schedule is discarded.
    milp_after_repair
        Where neither rounding nor repair finds a placement, look for one by the integer program (P15): dear.
    time_limit
        Limit of one call of HiGHS [s].
    """

    theta: Literal["rounded", "exact"] = "rounded"
    relaxation: Literal["parametric", "highs"] = "parametric"
    gain: Literal["eq29", "eq30"] | Annotated[float, Field(gt=0)] = 1.0
    delta: float = Field(0.1, gt=0, le=1)
    tries: int = Field(50, ge=1)
    cover_soft: bool = False
    repair: bool = True
    milp_after_repair: bool = False
    time_limit: float = Field(60.0, gt=0)


class PdorsAdmission(Admission):
    """PD-ORS's admission on a cluster: Alg. 4 finds the cost of a slot.

    Parameters
    ----------
    capacity, horizon, prices
        As in :class:`.admission.Admission`.
    rng
        Draws the roundings: by slot ascending, then work level.
    params
        See :class:`PdorsParams`.

    Attributes
    ----------
    outcomes
        Number of external placements by how they were found: ``MISSED``, ``ROUNDED``, ``REPAIRED`` and ``SHORT`` of
        :mod:`.rounding` (D8).
    """

    def __init__(
        self, capacity: Floats, horizon: int, prices: Prices, rng: Generator, params: PdorsParams | None = None
    ) -> None:
        self.params = params or PdorsParams()
        super().__init__(capacity, horizon, prices, self.params.completion)
        self.rng = rng
        self._rule = RoundingRule(self.params.tries, self.params.cover_soft, self.params.repair)
        self.outcomes = np.zeros(4, np.int64)
        self._placements = np.zeros((0, 0, 2, len(capacity)), np.int32)
        self._is_internal = np.zeros((0, 0), np.bool_)

    def rates(self, job: TrainingJob) -> tuple[float, ...]:
        """x^(i) on one machine, x^(e) elsewhere (Fact 1)."""
        return job.internal, job.external

    def slot_costs(self, job: TrainingJob) -> Floats:
        """theta(t, v) by Alg. 4, for all t and v."""
        levels = self.levels(job)
        slots, n_levels = self.horizon - job.arrival, len(levels.steps) - 1
        # kept from offer to offer, as it is large (slots x levels x machines); `internal` clears what it fills
        if self._placements.shape[0] < slots or self._placements.shape[1] <= n_levels:
            self._placements = np.zeros((self.horizon, n_levels + 1, 2, len(self.loads.capacity)), np.int32)
        self._is_internal = np.zeros((slots, n_levels + 1), np.bool_)
        theta = np.zeros((slots, n_levels + 1))
        for t in range(slots):
            free, price = self.loads.free(job.arrival + t), self.loads.price[job.arrival + t]
            problem = subproblem(free, price, *job.demands, job.ratio, job.batch)
            self._solve_slot(job, levels, problem, SlotTable(theta[t], self._placements[t], self._is_internal[t]))
        return theta

    def placement(self, job: TrainingJob, slot: int, step: int, cost: float) -> SlotPlan:
        """As :meth:`.admission.Admission.placement`; it was found by :meth:`slot_costs`.

        Parameters
        ----------
        job, slot, step, cost
            As there.
        """
        workers, ps = self._placements[slot - job.arrival, step]
        machines, quanta = np.flatnonzero(workers + ps), int(self.levels(job).steps[step])
        is_internal = self._is_internal[slot - job.arrival, step]
        kind: Literal["internal", "external"] = "internal" if is_internal else "external"
        counts = tuple(workers[machines].tolist()), tuple(ps[machines].tolist())
        return SlotPlan(slot, quanta, kind, tuple(machines.tolist()), *counts, cost)

    def _solve_slot(self, job: TrainingJob, levels: Levels, problem: Subproblem, table: SlotTable) -> None:
        """Alg. 4 for one slot: theta(t, .), with placements; `table` keeps the cheaper case of each level (line 12)."""
        # lines 2-7: the internal case
        internal(problem, levels.workers(job.internal), table)
        needs = levels.workers(job.external)[1:]
        # (4): never more workers than F_i; needs grow with the level, so the levels that remain are the first ones
        needs = needs[needs <= job.batch * (1 + SLACK)]
        if len(needs) == 0:
            return
        unsolved = np.ones(len(needs), np.bool_)
        if self.params.theta == "rounded":
            outcomes = np.full(len(needs), NOT_ROUNDED)
            # line 8: the relaxation; lines 9-12: its roundings, and the comparison with the internal case
            external(
                problem, needs, self._relaxed(problem, needs), self._gains(job, problem, needs), self._rule, self.rng,
                table, outcomes,
            )  # fmt: skip
            self.outcomes += np.bincount(outcomes[outcomes != NOT_ROUNDED], minlength=len(self.outcomes))
            unsolved = (outcomes == MISSED) & self.params.milp_after_repair
        # Problem (23) itself in place of lines 8-11, then line 12: all levels with `theta=exact`; with
        # `milp_after_repair` those that rounding and repair missed (P15)
        for v in np.flatnonzero(unsolved) + 1:
            cost, workers, pss = solve(problem, float(needs[v - 1]), self.params.time_limit)
            if better(cost, table.theta[v]):
                table.theta[v], table.is_internal[v] = cost, False
                table.placements[v, 0], table.placements[v, 1] = workers, pss

    def _relaxed(self, problem: Subproblem, needs: Floats) -> Relaxation:
        """Alg. 4 line 8, for all levels."""
        relaxation = Relaxation(np.full(len(needs), np.nan), *np.zeros((2, len(needs), len(problem.free))))
        # one parametric sweep solves the relaxation for all levels; where it stalls, each is solved by HiGHS below
        if self.params.relaxation == "parametric" and sweep(problem, needs, relaxation) == DONE:
            return relaxation
        for i in np.flatnonzero(np.isnan(relaxation.cost)):
            solution = relax(problem, float(needs[i]), self.params.time_limit)
            relaxation.cost[i], relaxation.w[i], relaxation.s[i] = solution
        return relaxation

    def _gains(self, job: TrainingJob, problem: Subproblem, needs: Floats) -> Floats:
        """G_delta by level: a number, Eq. (29) or Eq. (30)."""
        gain, delta = self.params.gain, self.params.delta
        if gain == "eq30":
            # P17: m = 2 cover rows, (26) and that of the PSs, whose W are W_1 and W_1 / gamma
            return np.array([cover_gain(delta, 2, min(need, need / job.ratio)) for need in needs])
        if gain == "eq29":
            room = np.concatenate([room_for(problem.free, problem.worker), room_for(problem.free, problem.ps)])
            # W_2, without the machines that hold nothing: as printed a full machine makes it 0 (P16)
            least = min(float(job.batch), float(room[room > 0].min(initial=np.inf)))
            return np.full(len(needs), packing_gain(delta, problem.free.size + 1, least))
        return np.full(len(needs), float(gain))


class PdOrs(PrimalDual):
    """PD-ORS: jobs admitted by primal-dual prices; workers and PSs may share servers."""

    name: ClassVar[str] = "pdors"
    Parameters: ClassVar[type[Params]] = PdorsParams

    def calibrate(self, jobs: Sequence[TrainingJob], capacity: Floats, horizon: int) -> Prices:
        """One price function for all machines."""
        return pdors_prices(jobs, capacity, horizon, self.params.completion)

    def admission(self, capacity: Floats, horizon: int, prices: Prices) -> Admission:
        """Alg. 1-4."""
        return PdorsAdmission(capacity, horizon, prices, self.rng, self.params)


class SlotTable(NamedTuple):
    """theta(t, .) of one slot, filled by :func:`internal` and :func:`external`.

    Attributes
    ----------
    theta
        theta(t, v), shape ``(levels + 1,)``, theta(t, 0) = 0; inf where no placement was found.
    placements
        Workers and PSs that attain it, shape ``(levels + 1, 2, machines)``; may have more rows.
    is_internal
        True where all of them are on one machine, shape ``(levels + 1,)``.
    """

    theta: Floats
    placements: Ints
    is_internal: np.ndarray


@compiled
def internal(problem: Subproblem, needs: Floats, table: SlotTable) -> None:
    """Alg. 4 lines 2-7: for each level the cheapest machine that holds all, by (cost, number).

    Parameters
    ----------
    problem
        Problem (23).
    needs
        W_1 by level at the internal rate, real, shape ``(levels + 1,)``, ascending from 0.
    table
        Filled; theta is inf where no machine holds the workers and PSs.
    """
    # unpacked once: every access to an array of a tuple counts a reference, in a loop over machines by levels
    free, worker, ps, worker_price, ps_price, ratio, batch = problem
    theta, placements, is_internal = table
    theta[0] = 0.0
    for v in range(1, len(theta)):
        # D6 (P10, P11): w follows from the work, and s from w
        w = max(1, ceil_almost(needs[v]))
        s = servers_for(w, ratio)
        best, machine = np.inf, -1
        # (4): F_i samples do not keep more than F_i workers busy
        if w <= batch:
            for h in range(len(free)):
                cost = worker_price[h] * w + ps_price[h] * s
                # the price first: most machines are ruled out without a look at what they hold
                if better(cost, best) and has_room(free[h], worker, ps, w, s):
                    best, machine = cost, h
        # D7 (P12, P13): lines 4-7 return here; the external case is still to come, and may be cheaper
        theta[v], is_internal[v] = best, machine >= 0
        placements[v] = 0
        if machine >= 0:
            placements[v, 0, machine], placements[v, 1, machine] = w, s


@compiled
def external(
    problem: Subproblem, needs: Floats, relaxation: Relaxation, gains: Floats, rule: RoundingRule, rng: Generator,
    table: SlotTable, outcomes: Ints,
) -> None:  # fmt: skip
    """Alg. 4 lines 9-12 for each level: round, and keep the cheaper case.

    Parameters
    ----------
    problem
        Problem (23).
    needs
        W_1 by level at the external rate, real, shape ``(levels,)``; row i is level i + 1 of `table`.
    relaxation
        Its solution, by level.
    gains, rule
        G_delta by level, and how to round.
    rng
        Draws the roundings, by level.
    table
        After :func:`internal`; changed where the external case is cheaper.
    outcomes
        Filled with how :func:`.rounding.integral` found a placement, shape ``(levels,)``; unchanged for levels that
        were not rounded.
    """
    # a stable order: of equal prices the lower machine first
    order = PriceOrder(
        np.argsort(problem.worker_price, kind="mergesort"), np.argsort(problem.ps_price, kind="mergesort")
    )
    machines = len(problem.free)
    w, s = np.empty(machines, np.int64), np.empty(machines, np.int64)
    theta, placements, is_internal = table
    for i in range(len(needs)):
        v, bound = i + 1, relaxation.cost[i]
        # no rounding costs less than the relaxation, so a level whose internal case is cheaper than that is done (D7)
        if bound == np.inf or not (rule.soft or better(bound, theta[v])):
            continue
        cost, outcome = integral(problem, relaxation.w[i], relaxation.s[i], needs[i], gains[i], rule, order, rng, w, s)
        outcomes[i] = outcome
        if outcome != MISSED and better(cost, theta[v]):
            theta[v], is_internal[v] = cost, False
            for h in range(machines):
                placements[v, 0, h], placements[v, 1, h] = w[h], s[h]


def packing_gain(delta: float, rows: int, least: float) -> float:
    """G of Lemma 1 and Eq. (29), at most 1: packing rows hold with probability 1 - delta/3.

    Parameters
    ----------
    delta
        In (0, 1].
    rows
        Number of packing rows, RH + 1 in (29).
    least
        W_b (W_2 in (29)): the least b_i / B_ij over the entries above 0.

    Raises
    ------
    PolicyError
        If delta or W_b is out of its range.
    """
    x = 3 * _log_term(delta, rows, least) / (2 * least)
    return 1 + x - math.sqrt(x * x + 2 * x)


def cover_gain(delta: float, rows: int, least: float) -> float:
    """G of Lemma 2 and Eq. (30), at least 1: cover rows hold with probability 1 - delta/3.

    Parameters
    ----------
    delta
        In (0, 1].
    rows
        m, number of cover rows: 2 with that of the PSs (P17).
    least
        W_a, the least a_i / A_ij: min(W_1, W_1 / gamma) here.
    """
    x = _log_term(delta, rows, least) / least
    return 1 + x + math.sqrt(x * x + 2 * x)


def cover_bound(gain: float, delta: float, rows: int, least: float) -> float:
    """Lemma 1: with probability 1 - delta/3 no cover row falls to this part of a_i or below; 0 or less is vacuous.

    The paper prints delta/(3m); the union bound over m rows gives delta/3 (P18).

    Parameters
    ----------
    gain
        G_delta, > 0.
    delta, rows, least
        As in :func:`cover_gain`.
    """
    return gain * (1 - math.sqrt(2 * _log_term(delta, rows, least) / (gain * least)))


def packing_bound(gain: float, delta: float, rows: int, least: float) -> float:
    """Lemma 2: with probability 1 - delta/3 no packing row exceeds this multiple of b_i.

    Parameters
    ----------
    gain
        G_delta, > 0.
    delta, rows, least
        As in :func:`packing_gain`.
    """
    return gain * (1 + math.sqrt(3 * _log_term(delta, rows, least) / (gain * least)))


def _log_term(delta: float, rows: int, least: float) -> float:
    if not 0 < delta <= 1:
        raise PolicyError(f"delta = {delta}; it must be above 0 and at most 1")
    if not least > 0:
        raise PolicyError(f"W = {least}; the bounds of the rounding need a row that can hold something")
    return math.log(3 * rows / delta)
