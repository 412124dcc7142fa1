"""Problem (23)-(26) of PD-ORS, one slot with external communication: its linear relaxation and itself, by HiGHS.

Minimise sum_h p^w_h w_h + p^s_h s_h so that each machine's demands fit what is free (24), sum w <= F (25),
sum w >= W_1 (26) and sum s >= W_1 / gamma, without which no PS would be bought (P1). HiGHS comes with SciPy.

Both sums are taken with equality: what holds more workers or PSs holds fewer, at no higher cost. With >= a kind that
costs nothing, of a resource that has no price (P5), could be taken beyond F, or without its PSs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.errors import SkedgeError
from skedge.core.model import Floats, Ints
from skedge.core.speed import ceil_almost, servers_for

_TOLERANCE = 1e-10
"""HiGHS's least tolerance; it is absolute, so prices are scaled by the cheapest usable column (P19)."""

_OPTIMAL, _INFEASIBLE = 0, 2


class SolverError(SkedgeError):
    """HiGHS failed or ran out of time; the message says which."""


class Market(NamedTuple):
    """One slot as one job sees it.

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


def market(free: Floats, price: Floats, worker: Floats, ps: Floats) -> Market:
    """The market of a slot with so much `free` at such prices, both of shape ``(machines, resources)``."""
    return Market(free, worker, ps, price @ worker, price @ ps)


def room_for(free: Floats, demand: Floats) -> Floats:
    """How many workers (PSs) of `demand` each machine holds, not rounded; 0 where not even one fits (P16)."""
    asked = demand > 0
    room = (free[:, asked] / demand[asked]).min(axis=1)
    return np.where(room < 1 - 1e-9, 0.0, room)


def relax(m: Market, workers: float, ratio: float, limit: float = np.inf) -> tuple[float, Floats, Floats]:
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
            "primal_feasibility_tolerance": _TOLERANCE,
            "dual_feasibility_tolerance": _TOLERANCE,
            "time_limit": limit,
        },
    )
    return _read(done, prices, len(m.free))


def solve(m: Market, workers: float, ratio: float, batch: int, limit: float = np.inf) -> tuple[float, Ints, Ints]:
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
        bounds=Bounds(0, np.floor(bounds + 1e-9)),
        integrality=np.ones(len(prices)),
        options={"mip_rel_gap": 0.0, "time_limit": limit},
    )
    cost, w, s = _read(done, prices, len(m.free))
    whole_w, whole_s = np.rint(w).astype(np.int64), np.rint(s).astype(np.int64)
    return (cost if cost == np.inf else float(m.worker_price @ whole_w + m.ps_price @ whole_s)), whole_w, whole_s


def _program(m: Market) -> tuple[Floats, Floats, Floats, float]:
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
