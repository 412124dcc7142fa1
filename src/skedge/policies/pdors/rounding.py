"""Randomized rounding of PD-ORS, (27)-(28), with the pre-rounding gain of Lemmas 1 and 2, and the repair after it.

A rounded plan must satisfy the packing rows (24), (25), the cover row (26) and s >= max(1, ceil(w / gamma)). Of S
attempts the cheapest that does is kept (P14). If none does, the last one is repaired (P15): workers or
PSs are dropped where a machine is overfull, the dearest workers while sum w > F, then the cheapest workers and PSs are
added where there is room. With ``cover_soft`` the paper's "may be acceptable" holds: before any repair the attempt
with the most workers is kept that satisfies all but (26).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from skedge.core.errors import PolicyError
from skedge.core.jit import compiled
from skedge.core.model import Floats, Ints
from skedge.core.speed import ceil_almost, servers_for

if TYPE_CHECKING:
    from numpy.random import Generator

MISSED, ROUNDED, REPAIRED, SHORT = 0, 1, 2, 3
"""How :func:`integral` found a placement: not at all, by an attempt, by repair, by an attempt that misses (26)."""

_WHOLE = 1e-7
"""A share this close to a whole number is one: what the LP leaves."""

_FITS = 1e-9
"""A load fits within this part of the capacity."""


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
    """Lemma 1: with probability 1 - delta/3 no cover row falls to this part of a_i or below; 0 or less says nothing.

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
def round_each(x: Floats, rng: Generator, out: Ints) -> None:
    """Each x up with probability x - floor(x), else down, (27)-(28); whole numbers draw nothing."""
    for i in range(len(x)):
        low = int(np.floor(x[i] + _WHOLE))
        part = x[i] - low
        out[i] = low
        if part > _WHOLE and rng.random() < part:
            out[i] += 1


@compiled
def integral(
    w_lp: Floats, s_lp: Floats, need: float, ratio: float, batch: int, gain: float, tries: int, soft: bool,
    free: Floats, worker: Floats, ps: Floats, worker_price: Floats, ps_price: Floats, worker_order: Ints,
    ps_order: Ints, rng: Generator, w_out: Ints, s_out: Ints,
) -> tuple[float, int]:  # fmt: skip
    """Alg. 4 lines 9-11: a whole-numbered placement made of a solution of the relaxation.

    Parameters
    ----------
    w_lp, s_lp
        The solution, by machine.
    need
        W_1.
    gain, tries, soft
        G_delta, S, ``cover_soft``.
    free, worker, ps, worker_price, ps_price
        As in :class:`.relaxation.Market`.
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
    kept, drawn = np.zeros(2 * n, np.int64), np.zeros(2 * n, np.int64)
    fractional = (np.abs(x - np.rint(x)) > _WHOLE).any()
    for _ in range(tries if fractional else 1):
        round_each(x, rng, drawn)
        workers, servers = drawn[:n].sum(), drawn[n:].sum()
        if workers < 1 or workers > batch or servers < servers_for(workers, ratio):
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
    w_out[at], s_out[at] = drawn[:n], drawn[n:]
    if not _repair(w_out, s_out, need, ratio, batch, free, worker, ps, worker_order, ps_order):
        return np.inf, MISSED
    return (worker_price * w_out + ps_price * s_out).sum(), REPAIRED


@compiled
def fits(free: Floats, worker: Floats, ps: Floats, workers: int, servers: int) -> bool:
    """Whether one machine's free capacity holds so many workers and PSs, (24)."""
    for r in range(len(free)):  # noqa: SIM110 - numba takes no generators
        if worker[r] * workers + ps[r] * servers > free[r] * (1 + _FITS) + _FITS * _FITS:
            return False
    return True


@compiled
def _packs(free: Floats, worker: Floats, ps: Floats, at: Ints, drawn: Ints) -> bool:
    for i in range(len(at)):  # noqa: SIM110 - numba takes no generators
        if not fits(free[at[i]], worker, ps, drawn[i], drawn[len(at) + i]):
            return False
    return True


@compiled
def _repair(
    w: Ints, s: Ints, need: float, ratio: float, batch: int, free: Floats, worker: Floats, ps: Floats,
    worker_order: Ints, ps_order: Ints,
) -> bool:  # fmt: skip
    """Make (w, s) satisfy all rows, in place; whether that succeeded. It can miss a placement that exists."""
    for h in range(len(w)):
        while (w[h] > 0 or s[h] > 0) and not fits(free[h], worker, ps, w[h], s[h]):
            if s[h] == 0 or (w[h] > 0 and _relief(free[h], worker, ps, w[h], s[h])):
                w[h] -= 1
            else:
                s[h] -= 1
    total, target = w.sum(), max(1, ceil_almost(need))
    for i in range(len(w) - 1, -1, -1):
        h = worker_order[i]
        drop = min(w[h], max(0, total - batch))
        w[h] -= drop
        total -= drop
    for h in worker_order:
        while total < target and fits(free[h], worker, ps, w[h] + 1, s[h]):
            w[h] += 1
            total += 1
    if total < target:
        return False
    servers, asked = s.sum(), servers_for(total, ratio)
    for h in ps_order:
        while servers < asked and fits(free[h], worker, ps, w[h], s[h] + 1):
            s[h] += 1
            servers += 1
    return servers >= asked


@compiled
def _relief(free: Floats, worker: Floats, ps: Floats, workers: int, servers: int) -> bool:
    """Whether a worker, not a PS, has the larger part in the row that is exceeded most."""
    worst, over = 0, -np.inf
    for r in range(len(free)):
        load = worker[r] * workers + ps[r] * servers
        excess = (load - free[r]) / max(load, 1e-300)
        if load > 0 and excess > over:
            worst, over = r, excess
    return worker[worst] >= ps[worst]
