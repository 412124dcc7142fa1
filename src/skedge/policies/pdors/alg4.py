"""Alg. 4 of PD-ORS: theta(t, v), the cheaper of the internal and the external case; the policy and its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import ceil_almost, servers_for
from skedge.core.model.ties import SLACK, better
from skedge.core.policy import Params
from skedge.platform.jit import compiled

from .admission import Admission, SlotPlan
from .job import Completion, Levels, TrainingJob, value
from .parametric_lp import DONE, sweep
from .policy import PrimalDual
from .prices import CalibrationJobs, Prices, PrimalDualParams, calibrate, check_cluster
from .rounding import (
    MISSED,
    ROUNDED,
    Subproblem,
    cover_gain,
    has_room,
    integral,
    packing_gain,
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
        How the external case is solved: ``rounded`` as in Alg. 4, or ``exact``, as an integer program (small
        clusters only; the theory's oracle).
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
    milp_after_repair
        Where neither rounding nor repair finds a placement, look for one by the integer program (P15): dear.
    time_limit
        Of one call of HiGHS [s].
    """

    theta: Literal["rounded", "exact"] = "rounded"
    relaxation: Literal["parametric", "highs"] = "parametric"
    gain: Literal["eq29", "eq30"] | Annotated[float, Field(gt=0)] = 1.0
    delta: float = Field(0.1, gt=0, le=1)
    tries: int = Field(50, ge=1)
    cover_soft: bool = False
    milp_after_repair: bool = False
    time_limit: float = Field(60.0, gt=0)


def pdors_prices(
    jobs: Sequence[TrainingJob], capacity: Floats, horizon: int, completion: Completion = "end"
) -> Prices:  # fmt: skip
    """U^r, mu and L of PD-ORS, Eq. (13), (14), from the jobs of the trace or of a window of history.

    P4: the argument of u is the least duration, not the least duration less a_i.

    Raises
    ------
    ScenarioError
        As :func:`.prices.calibrate`.
    """
    check_cluster(capacity, horizon, jobs)
    demand = np.array([sum(job.demands) for job in jobs]).reshape(len(jobs), capacity.shape[1])
    best = np.array([value(job, job.arrival + job.shortest(job.internal), completion) for job in jobs])
    worst = np.array([value(job, horizon, completion) for job in jobs])
    slots = np.array([float(ceil_almost(job.work * job.external)) for job in jobs])
    return calibrate(CalibrationJobs(demand, best, worst, slots), capacity, horizon, factor=2)


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
    found
        How the external placements were found, by the numbers of :mod:`.rounding`.
    """

    def __init__(
        self, capacity: Floats, horizon: int, prices: Prices, rng: Generator, params: PdorsParams | None = None
    ) -> None:
        self.params = params or PdorsParams()
        super().__init__(capacity, horizon, prices, self.params.completion)
        self.rng = rng
        self.found = np.zeros(4, np.int64)
        self._placed = np.zeros((0, 0, 2, len(capacity)), np.int32)
        self._inside = np.zeros((0, 0), np.bool_)

    def rates(self, job: TrainingJob) -> tuple[float, ...]:
        """On one machine, and elsewhere."""
        return job.internal, job.external

    def slot_costs(self, job: TrainingJob) -> Floats:
        """theta(t, v) by Alg. 4, for all t and v."""
        levels = self.levels(job)
        slots, most = self.horizon - job.arrival, len(levels.steps) - 1
        if self._placed.shape[0] < slots or self._placed.shape[1] <= most:
            self._placed = np.zeros((self.horizon, most + 1, 2, len(self.ledger.capacity)), np.int32)
        self._inside = np.zeros((slots, most + 1), np.bool_)
        theta = np.zeros((slots, most + 1))
        for t in range(slots):
            free = self.ledger.free(job.arrival + t)
            m = subproblem(free, self.ledger.price[job.arrival + t], *job.demands)
            self._slot(job, levels, m, theta[t], self._placed[t], self._inside[t])
        return theta

    def placement(self, job: TrainingJob, slot: int, step: int, cost: float) -> SlotPlan:
        """What :meth:`slot_costs` has found."""
        workers, ps = self._placed[slot - job.arrival, step]
        at, levels = np.flatnonzero(workers + ps), int(self.levels(job).steps[step])
        kind: Literal["internal", "external"] = "internal" if self._inside[slot - job.arrival, step] else "external"
        return SlotPlan(
            slot, levels, kind, tuple(at.tolist()), tuple(workers[at].tolist()), tuple(ps[at].tolist()), cost
        )  # fmt: skip

    def _slot(
        self, job: TrainingJob, levels: Levels, m: Subproblem, theta: Floats, placed: Ints, inside: np.ndarray
    ) -> None:  # fmt: skip
        """Alg. 4 for one slot: theta(t, .), the cheaper one of the internal and the external case, with placements."""
        internal(m.free, m.worker, m.ps, m.worker_price, m.ps_price, levels.workers(job.internal), job.ratio, job.batch,
                 theta, placed, inside)  # fmt: skip
        needs = levels.workers(job.external)[1:]
        # (4): never more workers than F_i; needs grow with the level, so the levels that remain are the first ones
        needs = needs[needs <= job.batch * (1 + SLACK)]
        most = len(needs)
        if most == 0:
            return
        left = np.ones(most, np.bool_)
        if self.params.theta == "rounded":
            bounds, w, s = self._relaxed(m, needs, job.ratio)
            how = np.full(most, ROUNDED)
            external(
                m.free, m.worker, m.ps, m.worker_price, m.ps_price, needs, job.ratio, job.batch, bounds, w, s,
                self._gains(job, m, needs), self.params.tries, self.params.cover_soft, self.rng,
                theta, placed, inside, how, self.found,
            )  # fmt: skip
            left = (how == MISSED) & self.params.milp_after_repair
        for v in np.flatnonzero(left) + 1:
            cost, whole_w, whole_s = solve(m, float(needs[v - 1]), job.ratio, job.batch, self.params.time_limit)
            if better(cost, theta[v]):
                theta[v], placed[v, 0], placed[v, 1], inside[v] = cost, whole_w, whole_s, False

    def _relaxed(self, m: Subproblem, needs: Floats, ratio: float) -> tuple[Floats, Floats, Floats]:
        """Alg. 4 line 8, for all levels: optimum and a solution (w, s) by level."""
        bounds = np.full(len(needs), np.nan)
        w, s = np.zeros((2, len(needs), len(m.free)))
        if self.params.relaxation == "parametric":
            prices = (m.worker_price, m.ps_price)
            # one parametric sweep solves the relaxation for all levels; where it stalls, each is solved by HiGHS below
            if sweep(m.free, m.worker, m.ps, *prices, ratio, needs, w, s, bounds) == DONE:
                return bounds, w, s
        for i in np.flatnonzero(np.isnan(bounds)):
            bounds[i], w[i], s[i] = relax(m, float(needs[i]), ratio, self.params.time_limit)
        return bounds, w, s

    def _gains(self, job: TrainingJob, m: Subproblem, needs: Floats) -> Floats:
        """G_delta by level."""
        gain, delta = self.params.gain, self.params.delta
        if gain == "eq30":
            return np.array([cover_gain(delta, 2, min(need, need / job.ratio)) for need in needs])
        if gain == "eq29":
            room = np.concatenate([room_for(m.free, m.worker), room_for(m.free, m.ps)])
            least = min(float(job.batch), float(room[room > 0].min(initial=np.inf)))
            return np.full(len(needs), packing_gain(delta, m.free.size + 1, least))
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


@compiled
def internal(
    free: Floats, worker: Floats, ps: Floats, worker_price: Floats, ps_price: Floats, needs: Floats, ratio: float,
    batch: int, theta: Floats, placed: Ints, inside: np.ndarray,
) -> None:  # fmt: skip
    """Alg. 4 lines 2-7: for each level the cheapest machine that holds all, by (cost, number).

    `needs` is W_1 by level, real; `worker` and `ps` are alpha and beta. theta[v] is inf where no machine holds them.
    """
    theta[0] = 0.0
    for v in range(1, len(theta)):
        w = max(1, ceil_almost(needs[v]))
        s = servers_for(w, ratio)
        best, at = np.inf, -1
        # (4): F_i samples do not keep more than F_i workers busy
        if w <= batch:
            for h in range(len(free)):
                cost = worker_price[h] * w + ps_price[h] * s
                if better(cost, best) and has_room(free[h], worker, ps, w, s):
                    best, at = cost, h
        theta[v], inside[v] = best, at >= 0
        placed[v] = 0
        if at >= 0:
            placed[v, 0, at], placed[v, 1, at] = w, s


@compiled
def external(
    free: Floats, worker: Floats, ps: Floats, worker_price: Floats, ps_price: Floats, needs: Floats, ratio: float,
    batch: int, bounds: Floats, w_lp: Floats, s_lp: Floats, gains: Floats, tries: int, soft: bool, rng: Generator,
    theta: Floats, placed: Ints, inside: np.ndarray, hows: Ints, found: Ints,
) -> None:  # fmt: skip
    """Alg. 4 lines 9-12 for each level: round, and keep the cheaper case; `hows` and `found` record how.

    `needs` is W_1, `bounds` the optimum of the relaxation, `w_lp` and `s_lp` its solution, all by level; `worker` and
    `ps` are alpha and beta. The rounding itself is :func:`.rounding.integral`.
    """
    # a stable order: of equal prices the lower machine first
    worker_order = np.argsort(worker_price, kind="mergesort")
    ps_order = np.argsort(ps_price, kind="mergesort")
    w, s = np.empty(len(free), np.int64), np.empty(len(free), np.int64)
    for i in range(len(needs)):
        v = i + 1
        # no rounding costs less than the relaxation, so a level whose internal case is cheaper than that is done
        if bounds[i] == np.inf or not (soft or better(bounds[i], theta[v])):
            continue
        cost, how = integral(
            w_lp[i], s_lp[i], needs[i], ratio, batch, gains[i], tries, soft, free, worker, ps, worker_price, ps_price,
            worker_order, ps_order, rng, w, s,
        )  # fmt: skip
        hows[i] = how
        found[how] += 1
        if how != MISSED and better(cost, theta[v]):
            theta[v], inside[v] = cost, False
            for h in range(len(free)):
                placed[v, 0, h], placed[v, 1, h] = w[h], s[h]
