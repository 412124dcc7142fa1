"""Alg. 4 lines 8-12 of PD-ORS: Problem (23), its relaxation by HiGHS, randomized rounding (27)-(28), and the repair.

Problem (23)-(26), one slot with external communication: minimise sum_h p^w_h w_h + p^s_h s_h so that each machine's
demands fit what is free (24), sum w <= F (25), sum w >= W_1 (26) and sum s >= W_1 / gamma, without which no PS would be
bought (P1). HiGHS comes with SciPy. Both sums are taken with equality: surplus workers or PSs can be dropped at no
higher cost. With >=, workers or PSs whose resources have no price (P5) would cost nothing, and a solution could hold
more than F workers, or workers without PSs.

A rounded plan must satisfy the packing rows (24), (25), the cover row (26) and s >= max(1, ceil(w / gamma)); the gain
before rounding is that of Lemmas 1 and 2. Of S attempts the cheapest that does is kept (P14). If none does, there is
no placement, as printed; with `repair` the last one is repaired (P15): workers or PSs are dropped where a machine is
overfull, the most expensive workers while sum w > F, then the cheapest workers and PSs are added where there is room.
With ``cover_soft`` the paper's "may be acceptable" holds: before any repair the attempt with the most workers is kept
that satisfies all but (26).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skedge.core.errors import SolverError
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import ceil_almost, servers_for
from skedge.core.model.ties import SLACK
from skedge.platform.jit import compiled, lean

if TYPE_CHECKING:
    from numpy.random import Generator

MISSED, ROUNDED, REPAIRED, SHORT = 0, 1, 2, 3
"""Outcomes of :func:`integral`: no placement, one by an attempt, by repair, by an attempt that misses (26)."""

NOT_ROUNDED = -1
"""A level whose relaxation is infeasible, or no cheaper than the internal case."""

_INTEGER_TOLERANCE = 1e-7
"""Distance up to which a share counts as an integer, to absorb the LP's rounding."""

_HIGHS_TOLERANCE = 1e-10
"""HiGHS's least tolerance; it is absolute, so prices are scaled by the cheapest usable column (P19)."""

_OPTIMAL, _INFEASIBLE = 0, 2


class Subproblem(NamedTuple):
    """Problem (23): one slot for one job.

    Attributes
    ----------
    free
        C - rho, shape ``(machines, resources)``.
    worker, ps
        alpha and beta, shape ``(resources,)``.
    worker_price, ps_price
        p^w_h and p^s_h of (23), shape ``(machines,)``.
    ratio, batch
        gamma, workers per PS, and F, most workers (25).
    """

    free: Floats
    worker: Floats
    ps: Floats
    worker_price: Floats
    ps_price: Floats
    ratio: float
    batch: int


class Relaxation(NamedTuple):
    """The linear relaxation of Problem (23), solved for several W_1, one row each.

    Attributes
    ----------
    cost
        Its optimum, inf where it is infeasible, shape ``(levels,)``.
    w, s
        A solution, shape ``(levels, machines)``.
    """

    cost: Floats
    w: Floats
    s: Floats


class RoundingRule(NamedTuple):
    """How a solution of the relaxation is rounded.

    Attributes
    ----------
    tries
        S, attempts, >= 1.
    soft
        ``cover_soft``: where no attempt does all the work, the one that does most is taken.
    repair
        Where no attempt is taken, the last one is repaired (P15).
    """

    tries: int
    soft: bool
    repair: bool


class PriceOrder(NamedTuple):
    """Machines by ascending price of a worker and of a PS, then by number."""

    worker: Ints
    ps: Ints


def subproblem(free: Floats, price: Floats, worker: Floats, ps: Floats, ratio: float, batch: int) -> Subproblem:
    """Problem (23) of a slot.

    Parameters
    ----------
    free, price
        Free capacity and its price, shape ``(machines, resources)``.
    worker, ps
        alpha and beta, shape ``(resources,)``.
    ratio, batch
        gamma and F of the job.
    """
    return Subproblem(free, worker, ps, price @ worker, price @ ps, ratio, batch)


def room_for(free: Floats, demand: Floats) -> Floats:
    """Number of workers (PSs) of `demand` that each machine holds, real; 0 where not even one fits (P16)."""
    needed = demand > 0
    room = (free[:, needed] / demand[needed]).min(axis=1)
    return np.where(room < 1 - SLACK, 0.0, room)


def relax(problem: Subproblem, workers: float, limit: float = np.inf) -> tuple[float, Floats, Floats]:
    """Optimum of the linear relaxation for W_1 = `workers`, and a solution (w, s) by machine.

    Returns
    -------
    The cost, inf if it is infeasible.

    Raises
    ------
    SolverError
        If HiGHS ends with anything else, or takes more than `limit` seconds.
    """
    from scipy.optimize import linprog  # noqa: PLC0415 - takes 0.3 s to import

    rows, prices, bounds, scale = _program(problem)
    # (25) needs no row: the sum of w is W_1 itself, and levels of more than F workers are not asked for
    result = linprog(
        prices / scale,
        A_ub=rows,
        b_ub=problem.free.ravel(),
        A_eq=np.kron(np.eye(2), np.ones(len(problem.free))),
        b_eq=[workers, workers / problem.ratio],
        bounds=np.column_stack([np.zeros(len(bounds)), bounds]),
        method="highs",
        options={
            "primal_feasibility_tolerance": _HIGHS_TOLERANCE,
            "dual_feasibility_tolerance": _HIGHS_TOLERANCE,
            "time_limit": limit,
        },
    )
    return _read(result, prices, len(problem.free))


def solve(problem: Subproblem, workers: float, limit: float = np.inf) -> tuple[float, Ints, Ints]:
    """Optimum of the integer program, and an optimal placement.

    It has max(1, ceil(W_1)) workers and max(1, ceil(sum w / gamma)) PSs: more workers need no fewer PSs.

    Returns
    -------
    The cost, inf if it is infeasible.

    Raises
    ------
    SolverError
        As :func:`relax`.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415

    count = max(1, ceil_almost(workers))
    no_placement = np.zeros(len(problem.free), np.int64)
    if count > problem.batch:
        return np.inf, no_placement, no_placement
    rows, prices, bounds, scale = _program(problem)
    sums, totals = np.kron(np.eye(2), np.ones(len(problem.free))), [count, servers_for(count, problem.ratio)]
    result = milp(
        prices / scale,
        constraints=[
            LinearConstraint(rows, ub=problem.free.ravel()),
            LinearConstraint(sums, lb=totals, ub=totals),
        ],
        bounds=Bounds(0, np.floor(bounds + SLACK)),
        integrality=np.ones(len(prices)),
        options={"mip_rel_gap": 0.0, "time_limit": limit},
    )
    cost, w, s = _read(result, prices, len(problem.free))
    whole_w, whole_s = np.rint(w).astype(np.int64), np.rint(s).astype(np.int64)
    return (
        (cost if cost == np.inf else float(problem.worker_price @ whole_w + problem.ps_price @ whole_s)),
        whole_w,
        whole_s,
    )


def _program(problem: Subproblem) -> tuple[Floats, Floats, Floats, float]:
    """Rows (24), prices, upper bounds, and the cheapest usable price."""
    from scipy.sparse import csr_array, eye_array, hstack, kron  # noqa: PLC0415

    eye = eye_array(len(problem.free))
    rows = hstack([kron(eye, problem.worker[:, None]), kron(eye, problem.ps[:, None])])
    prices = np.concatenate([problem.worker_price, problem.ps_price])
    bounds = np.concatenate([room_for(problem.free, problem.worker), room_for(problem.free, problem.ps)])
    usable = prices[(bounds > 0) & (prices > 0)]
    return csr_array(rows), prices, bounds, float(usable.min()) if len(usable) else 1.0


def _read(result: object, prices: Floats, machines: int) -> tuple[float, Floats, Floats]:
    status, x = result.status, result.x  # type: ignore[attr-defined]
    if status == _INFEASIBLE:
        return np.inf, np.zeros(machines), np.zeros(machines)
    if status != _OPTIMAL:
        raise SolverError(f"HiGHS: {result.message}")  # type: ignore[attr-defined]
    return float(prices @ x), x[:machines], x[machines:]


@compiled
def split_parts(x: Floats) -> tuple[Ints, Floats, Ints]:
    """floor(x), x - floor(x), and the positions where the latter is not 0, which (27)-(28) round."""
    low = np.floor(x + _INTEGER_TOLERANCE).astype(np.int64)
    fraction = x - low
    return low, fraction, np.flatnonzero(fraction > _INTEGER_TOLERANCE)


@lean
def round_each(low: Ints, fraction: Floats, fractional: Ints, rng: Generator, out: Ints) -> None:
    """Round each fractional x up with probability x - floor(x), else down, (27)-(28).

    Parameters
    ----------
    low, fraction, fractional
        From :func:`split_parts`.
    rng
        One draw for each fractional x, in order.
    out
        Changed at the positions `fractional`.
    """
    for i in fractional:
        out[i] = low[i] + int(rng.random() < fraction[i])


@compiled
def integral(
    problem: Subproblem, w_lp: Floats, s_lp: Floats, need: float, gain: float, rule: RoundingRule,
    order: PriceOrder, rng: Generator, w_out: Ints, s_out: Ints,
) -> tuple[float, int]:  # fmt: skip
    """Alg. 4 lines 9-12: a whole-numbered placement made of a solution of the relaxation.

    Parameters
    ----------
    problem
        Problem (23).
    w_lp, s_lp
        The solution, shape ``(machines,)``.
    need
        W_1, workers, real, > 0.
    gain, rule
        G_delta, and how to round.
    order
        The order in which repair visits the machines.
    rng
        Each attempt draws for the fractional w by machine, then for the fractional s.
    w_out, s_out
        Filled with the placement, shape ``(machines,)``.

    Returns
    -------
    Its cost (inf if there is none) and how it was found.
    """
    # unpacked once: every access to an array of a tuple counts a reference
    free, worker, ps, worker_price, ps_price, ratio, batch = problem
    machines = np.flatnonzero(w_lp + s_lp > 0)
    x = np.concatenate((w_lp[machines], s_lp[machines])) * gain
    price = np.concatenate((worker_price[machines], ps_price[machines]))
    n, best, most_workers, outcome = len(machines), np.inf, 0, MISSED
    low, fraction, fractional = split_parts(x)
    best_draw, drawn = np.zeros(2 * n, np.int64), low.copy()
    # whole solutions leave nothing to draw: every attempt would be the same
    for _ in range(rule.tries if len(fractional) else 1):
        round_each(low, fraction, fractional, rng, drawn)
        workers, pss = _count(drawn, 0, n), _count(drawn, n, 2 * n)
        # rows of (4) and of the PSs first: they need no look at the machines
        if workers < 1 or workers > batch or pss < servers_for(workers, ratio):
            continue
        misses_cover = workers < ceil_almost(need)
        if misses_cover and (not rule.soft or outcome == ROUNDED or workers <= most_workers):
            continue
        if not _packs(free, worker, ps, machines, drawn):
            continue
        cost = _cost(price, drawn)
        if misses_cover:
            most_workers = workers
        # P14: not the first attempt that holds, as Alg. 4 line 11 has it, but the cheapest of S
        elif outcome == ROUNDED and cost >= best:
            continue
        best, outcome = cost, SHORT if misses_cover else ROUNDED
        best_draw[:] = drawn
    w_out[:] = 0
    s_out[:] = 0
    if outcome != MISSED:
        w_out[machines], s_out[machines] = best_draw[:n], best_draw[n:]
        return best, outcome
    if not rule.repair:
        return np.inf, MISSED
    # no attempt held all rows: the last one is repaired (P15)
    w_out[machines], s_out[machines] = drawn[:n], drawn[n:]
    if not _repair(problem, order, need, w_out, s_out):
        return np.inf, MISSED
    return (worker_price * w_out + ps_price * s_out).sum(), REPAIRED


@compiled
def has_room(free: Floats, worker: Floats, ps: Floats, workers: int, pss: int) -> bool:
    """True if a machine's free capacity holds these workers and PSs, (24).

    Parameters
    ----------
    free, worker, ps
        Free capacity, alpha and beta, shape ``(resources,)``.
    workers, pss
        Numbers of workers and PSs.
    """
    for r in range(len(free)):  # noqa: SIM110 - numba takes no generators
        if worker[r] * workers + ps[r] * pss > free[r] * (1 + SLACK) + SLACK * SLACK:
            return False
    return True


@lean
def _count(counts: Ints, start: int, end: int) -> int:
    total = 0
    for i in range(start, end):
        total += counts[i]
    return total


@lean
def _cost(price: Floats, counts: Ints) -> float:
    """The price of workers, the first half, and PSs, summed by machine."""
    n, total = len(counts) // 2, 0.0
    for i in range(n):
        total += price[i] * counts[i] + price[n + i] * counts[n + i]
    return total


@lean
def _packs(free: Floats, worker: Floats, ps: Floats, machines: Ints, drawn: Ints) -> bool:
    for i in range(len(machines)):
        if not has_room(free[machines[i]], worker, ps, drawn[i], drawn[len(machines) + i]):
            return False
    return True


@compiled
def _repair(problem: Subproblem, order: PriceOrder, need: float, w: Ints, s: Ints) -> bool:
    """Make (w, s) satisfy all rows, in place (P15); false if that fails, which it may though a placement exists."""
    free, worker, ps, _, _, ratio, batch = problem
    worker_order, ps_order = order
    for h in range(len(w)):
        while (w[h] > 0 or s[h] > 0) and not has_room(free[h], worker, ps, w[h], s[h]):
            if s[h] == 0 or (w[h] > 0 and _worker_has_larger_part(free[h], worker, ps, w[h], s[h])):
                w[h] -= 1
            else:
                s[h] -= 1
    total, target_workers = w.sum(), max(1, ceil_almost(need))
    # first what is too many for (4), the dearest machines first; then what is missing, the cheapest first
    for i in range(len(w) - 1, -1, -1):
        h = worker_order[i]
        drop = min(w[h], max(0, total - batch))
        w[h] -= drop
        total -= drop
    for h in worker_order:
        while total < target_workers and has_room(free[h], worker, ps, w[h] + 1, s[h]):
            w[h] += 1
            total += 1
    if total < target_workers:
        return False
    # there may be more workers than W_1 asks for, and the PSs follow those that are there
    pss, target_ps = s.sum(), servers_for(total, ratio)
    for h in ps_order:
        while pss < target_ps and has_room(free[h], worker, ps, w[h], s[h] + 1):
            s[h] += 1
            pss += 1
    return pss >= target_ps


@compiled
def _worker_has_larger_part(free: Floats, worker: Floats, ps: Floats, workers: int, pss: int) -> bool:
    """True if a worker takes no less than a PS of the resource that is exceeded most."""
    worst, max_excess = 0, -np.inf
    for r in range(len(free)):
        load = worker[r] * workers + ps[r] * pss
        excess = (load - free[r]) / max(load, 1e-300)
        if load > 0 and excess > max_excess:
            worst, max_excess = r, excess
    return worker[worst] >= ps[worst]
