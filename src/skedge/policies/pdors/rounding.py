"""Alg. 4 lines 8-12 of PD-ORS: Problem (23), its relaxation by HiGHS, randomized rounding (27)-(28), and the repair.

Problem (23)-(26), one slot with external communication: minimise sum_h p^w_h w_h + p^s_h s_h so that each machine's
demands fit what is free (24), sum w <= F (25), sum w >= W_1 (26) and sum s >= W_1 / gamma, without which no PS would be
bought (P1). HiGHS comes with SciPy. Both sums are taken with equality: surplus workers or PSs can be dropped at no
higher cost. With >=, workers or PSs whose resources have no price (P5) would cost nothing, and a solution could hold
more than F workers, or workers without PSs.

A rounded plan must satisfy the packing rows (24), (25), the cover row (26) and s >= max(1, ceil(w / gamma)); the gain
before rounding is that of Lemmas 1 and 2. Of S attempts the cheapest that does is kept (P14). If none does, the last
one is repaired (P15): workers or PSs are dropped where a machine is overfull, the most expensive workers while
sum w > F, then the cheapest workers and PSs are added where there is room. With ``cover_soft`` the paper's "may be
acceptable" holds: before any repair the attempt with the most workers is kept that satisfies all but (26).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skedge.core.errors import PolicyError, SolverError
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import ceil_almost, servers_for
from skedge.core.model.ties import SLACK
from skedge.platform.jit import compiled, lean

if TYPE_CHECKING:
    from numpy.random import Generator

MISSED, ROUNDED, REPAIRED, SHORT = 0, 1, 2, 3
"""How :func:`integral` found a placement: not at all, by an attempt, by repair, by an attempt that misses (26)."""

_WHOLE = 1e-7
"""Distance up to which a share counts as an integer, to absorb the LP's rounding."""

_LEAST_TOLERANCE = 1e-10
"""HiGHS's least tolerance; it is absolute, so prices are scaled by the cheapest usable column (P19)."""

_OPTIMAL, _INFEASIBLE = 0, 2


class Subproblem(NamedTuple):
    """Problem (23): one slot for one job.

    Attributes
    ----------
    free
        What is left, shape ``(machines, resources)``.
    worker, ps
        alpha and beta, shape ``(resources,)``.
    worker_price, ps_price
        p^w_h and p^s_h of (23), shape ``(machines,)``.
    """

    free: Floats
    worker: Floats
    ps: Floats
    worker_price: Floats
    ps_price: Floats


def subproblem(free: Floats, price: Floats, worker: Floats, ps: Floats) -> Subproblem:
    """Problem (23) of a slot, from what is `free` and its `price`, both of shape ``(machines, resources)``."""
    return Subproblem(free, worker, ps, price @ worker, price @ ps)


def room_for(free: Floats, demand: Floats) -> Floats:
    """How many workers (PSs) of `demand` each machine holds, not rounded; 0 where not even one fits (P16)."""
    asked = demand > 0
    room = (free[:, asked] / demand[asked]).min(axis=1)
    return np.where(room < 1 - SLACK, 0.0, room)


def relax(m: Subproblem, workers: float, ratio: float, limit: float = np.inf) -> tuple[float, Floats, Floats]:
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

    rows, prices, bounds, scale = _program(m)
    done = linprog(
        prices / scale,
        A_ub=rows,
        b_ub=m.free.ravel(),
        A_eq=np.kron(np.eye(2), np.ones(len(m.free))),
        b_eq=[workers, workers / ratio],
        bounds=np.column_stack([np.zeros(len(bounds)), bounds]),
        method="highs",
        options={
            "primal_feasibility_tolerance": _LEAST_TOLERANCE,
            "dual_feasibility_tolerance": _LEAST_TOLERANCE,
            "time_limit": limit,
        },
    )
    return _read(done, prices, len(m.free))


def solve(m: Subproblem, workers: float, ratio: float, batch: int, limit: float = np.inf) -> tuple[float, Ints, Ints]:
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
    nowhere = np.zeros(len(m.free), np.int64)
    if count > batch:
        return np.inf, nowhere, nowhere
    rows, prices, bounds, scale = _program(m)
    sums, wanted = np.kron(np.eye(2), np.ones(len(m.free))), [count, servers_for(count, ratio)]
    done = milp(
        prices / scale,
        constraints=[
            LinearConstraint(rows, ub=m.free.ravel()),
            LinearConstraint(sums, lb=wanted, ub=wanted),
        ],
        bounds=Bounds(0, np.floor(bounds + SLACK)),
        integrality=np.ones(len(prices)),
        options={"mip_rel_gap": 0.0, "time_limit": limit},
    )
    cost, w, s = _read(done, prices, len(m.free))
    whole_w, whole_s = np.rint(w).astype(np.int64), np.rint(s).astype(np.int64)
    return (cost if cost == np.inf else float(m.worker_price @ whole_w + m.ps_price @ whole_s)), whole_w, whole_s


def _program(m: Subproblem) -> tuple[Floats, Floats, Floats, float]:
    """Rows (24), prices, upper bounds, and the cheapest usable price."""
    from scipy.sparse import csr_array, eye_array, hstack, kron  # noqa: PLC0415

    eye = eye_array(len(m.free))
    rows = hstack([kron(eye, m.worker[:, None]), kron(eye, m.ps[:, None])])
    prices = np.concatenate([m.worker_price, m.ps_price])
    bounds = np.concatenate([room_for(m.free, m.worker), room_for(m.free, m.ps)])
    usable = prices[(bounds > 0) & (prices > 0)]
    return csr_array(rows), prices, bounds, float(usable.min()) if len(usable) else 1.0


def _read(done: object, prices: Floats, machines: int) -> tuple[float, Floats, Floats]:
    status, x = done.status, done.x  # type: ignore[attr-defined]
    if status == _INFEASIBLE:
        return np.inf, np.zeros(machines), np.zeros(machines)
    if status != _OPTIMAL:
        raise SolverError(f"HiGHS: {done.message}")  # type: ignore[attr-defined]
    return float(prices @ x), x[:machines], x[machines:]


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
    x = 3 * _log_of(delta, rows, least) / (2 * least)
    return 1 + x - math.sqrt(x * x + 2 * x)


def cover_gain(delta: float, rows: int, least: float) -> float:
    """G of Lemma 2 and Eq. (30), at least 1: cover rows hold with probability 1 - delta/3.

    `rows` is m, 2 with the PS row (P17); `least` is W_a, the least a_i / A_ij: min(W_1, W_1 / gamma) here.
    """
    x = _log_of(delta, rows, least) / least
    return 1 + x + math.sqrt(x * x + 2 * x)


def cover_bound(gain: float, delta: float, rows: int, least: float) -> float:
    """Lemma 1: with probability 1 - delta/3 no cover row falls to this part of a_i or below; 0 or less is vacuous.

    The paper prints delta/(3m); the union bound over m rows gives delta/3 (P18).
    """
    return gain * (1 - math.sqrt(2 * _log_of(delta, rows, least) / (gain * least)))


def packing_bound(gain: float, delta: float, rows: int, least: float) -> float:
    """Lemma 2: with probability 1 - delta/3 no packing row exceeds this multiple of b_i."""
    return gain * (1 + math.sqrt(3 * _log_of(delta, rows, least) / (gain * least)))


def _log_of(delta: float, rows: int, least: float) -> float:
    if not 0 < delta <= 1:
        raise PolicyError(f"delta = {delta}; it must be above 0 and at most 1")
    if not least > 0:
        raise PolicyError(f"W = {least}; the bounds of the rounding need a row that can hold something")
    return math.log(3 * rows / delta)


@compiled
def parts(x: Floats) -> tuple[Ints, Floats, Ints]:
    """floor(x), x - floor(x), and where the latter is not 0: what (27)-(28) rounds."""
    low = np.floor(x + _WHOLE).astype(np.int64)
    part = x - low
    return low, part, np.flatnonzero(part > _WHOLE)


@lean
def round_each(low: Ints, part: Floats, fractional: Ints, rng: Generator, out: Ints) -> None:
    """Round each fractional x (:func:`parts`) up with probability x - floor(x), else down, (27)-(28)."""
    for i in fractional:
        out[i] = low[i] + int(rng.random() < part[i])


@compiled
def integral(
    w_lp: Floats, s_lp: Floats, need: float, ratio: float, batch: int, gain: float, tries: int, soft: bool,
    free: Floats, worker: Floats, ps: Floats, worker_price: Floats, ps_price: Floats, worker_order: Ints,
    ps_order: Ints, rng: Generator, w_out: Ints, s_out: Ints,
) -> tuple[float, int]:  # fmt: skip
    """Alg. 4 lines 9-12: a whole-numbered placement made of a solution of the relaxation.

    Parameters
    ----------
    w_lp, s_lp
        The solution, by machine.
    need
        W_1.
    gain, tries, soft
        G_delta, S, ``cover_soft``.
    free, worker, ps, worker_price, ps_price
        As in :class:`Subproblem`.
    worker_order, ps_order
        Machines by ascending price, then number.
    rng
        Each attempt draws for the fractional w by machine, then for the fractional s.
    w_out, s_out
        Filled with the placement.

    Returns
    -------
    Its cost (inf if there is none) and how it was found.
    """
    at = np.flatnonzero(w_lp + s_lp > 0)
    x = np.concatenate((w_lp[at], s_lp[at])) * gain
    n, best, most, how = len(at), np.inf, 0, MISSED
    low, part, fractional = parts(x)
    kept, drawn = np.zeros(2 * n, np.int64), low.copy()
    # whole solutions leave nothing to draw: every attempt would be the same
    for _ in range(tries if len(fractional) else 1):
        round_each(low, part, fractional, rng, drawn)
        workers, pss = drawn[:n].sum(), drawn[n:].sum()
        # rows of (4) and of the PSs first: they need no look at the machines
        if workers < 1 or workers > batch or pss < servers_for(workers, ratio):
            continue
        short = workers < ceil_almost(need)
        if short and (not soft or how == ROUNDED or workers <= most):
            continue
        if not _packs(free, worker, ps, at, drawn):
            continue
        cost = (worker_price[at] * drawn[:n] + ps_price[at] * drawn[n:]).sum()
        if short:
            most = workers
        elif how == ROUNDED and cost >= best:
            continue
        best, how = cost, SHORT if short else ROUNDED
        kept[:] = drawn
    w_out[:] = 0
    s_out[:] = 0
    if how != MISSED:
        w_out[at], s_out[at] = kept[:n], kept[n:]
        return best, how
    # no attempt held all rows: the last one is repaired (P15)
    w_out[at], s_out[at] = drawn[:n], drawn[n:]
    if not _repair(w_out, s_out, need, ratio, batch, free, worker, ps, worker_order, ps_order):
        return np.inf, MISSED
    return (worker_price * w_out + ps_price * s_out).sum(), REPAIRED


@compiled
def has_room(free: Floats, worker: Floats, ps: Floats, workers: int, pss: int) -> bool:
    """Whether one machine's free capacity holds these workers and PSs, (24)."""
    for r in range(len(free)):  # noqa: SIM110 - numba takes no generators
        if worker[r] * workers + ps[r] * pss > free[r] * (1 + SLACK) + SLACK * SLACK:
            return False
    return True


@compiled
def _packs(free: Floats, worker: Floats, ps: Floats, at: Ints, drawn: Ints) -> bool:
    for i in range(len(at)):  # noqa: SIM110 - numba takes no generators
        if not has_room(free[at[i]], worker, ps, drawn[i], drawn[len(at) + i]):
            return False
    return True


@compiled
def _repair(
    w: Ints, s: Ints, need: float, ratio: float, batch: int, free: Floats, worker: Floats, ps: Floats,
    worker_order: Ints, ps_order: Ints,
) -> bool:  # fmt: skip
    """Make (w, s) satisfy all rows, in place; whether that succeeded. It can miss a placement that exists."""
    for h in range(len(w)):
        while (w[h] > 0 or s[h] > 0) and not has_room(free[h], worker, ps, w[h], s[h]):
            if s[h] == 0 or (w[h] > 0 and _relief(free[h], worker, ps, w[h], s[h])):
                w[h] -= 1
            else:
                s[h] -= 1
    total, target = w.sum(), max(1, ceil_almost(need))
    # first what is too many for (4), the dearest machines first; then what is missing, the cheapest first
    for i in range(len(w) - 1, -1, -1):
        h = worker_order[i]
        drop = min(w[h], max(0, total - batch))
        w[h] -= drop
        total -= drop
    for h in worker_order:
        while total < target and has_room(free[h], worker, ps, w[h] + 1, s[h]):
            w[h] += 1
            total += 1
    if total < target:
        return False
    # there may be more workers than W_1 asks for, and the PSs follow those that are there
    pss, asked = s.sum(), servers_for(total, ratio)
    for h in ps_order:
        while pss < asked and has_room(free[h], worker, ps, w[h], s[h] + 1):
            s[h] += 1
            pss += 1
    return pss >= asked


@compiled
def _relief(free: Floats, worker: Floats, ps: Floats, workers: int, pss: int) -> bool:
    """Whether a worker, not a PS, has the larger part in the row that is exceeded most."""
    worst, over = 0, -np.inf
    for r in range(len(free)):
        load = worker[r] * workers + ps[r] * pss
        excess = (load - free[r]) / max(load, 1e-300)
        if load > 0 and excess > over:
            worst, over = r, excess
    return worker[worst] >= ps[worst]
