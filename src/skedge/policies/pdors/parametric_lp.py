"""The linear relaxation of Problem (23)-(26) for all work levels of a slot in one sweep, compiled.

The optimum is a convex, piecewise linear function of W_1, because W_1 only stands on the right-hand side:
(sum w, sum s) = (W_1, W_1 / gamma). A parametric dual simplex walks along it; each breakpoint is one pivot.

*LPColumns.* What a machine can hold is a polygon of (w, s); a column is one of its corners. Machines with equal prices
and equal free capacity are one class of n machines: sum of its columns = n, the corner (0, 0) among them. So there are
two coupling rows and one row per class, and a basis is one *home* corner per class and two more corners, the *extras*.
It is enough to invert the 2 x 2 matrix of the extras, each less its class's home (generalised upper bounds).

*Start.* Near W_1 = 0 capacity does not bind: workers go to the machine with the cheapest worker, PSs to that with the
cheapest PS. *End.* When no column can enter, W_1 is the most that the slot can hold.

Equality in place of >= loses nothing: a polygon with (w, s) holds all that is below.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.ties import SAME
from skedge.platform.jit import compiled

from .rounding import Relaxation, Subproblem

DONE, GAVE_UP = 0, 1
"""End of :func:`sweep`; after GAVE_UP the levels that are left have the value nan."""

_ZERO_PIVOT = 1e-11
"""A pivot below this, relative to its column, counts as 0."""


_SAME_CORNER = 1e-9
"""Corners closer than this are one."""

_ZERO_PART = 1e-12
"""A part of a machine below this counts as 0."""


class LPColumns(NamedTuple):
    """Columns and basis of the program.

    Attributes
    ----------
    corner, cost, owner
        Corner (w, s), its cost and its class, by column; `columns[0]` of them.
    home, size
        Home column and number of machines, by class.
    lead, member
        First machine of a class; next machine of the same class, by machine, -1 after the last.
    extra
        The two extra columns of the basis.
    """

    corner: Floats
    cost: Floats
    owner: Ints
    columns: Ints
    home: Ints
    size: Floats
    lead: Ints
    member: Ints
    extra: Ints


@compiled
def corners(free: Floats, worker: Floats, ps: Floats, out: Floats) -> int:
    """Corners of {alpha w + beta s <= free, w, s >= 0} by ascending w, (0, 0) first.

    Parameters
    ----------
    free, worker, ps
        Free capacity of a machine, alpha and beta, shape ``(resources,)``.
    out
        Filled with (w, s), shape ``(resources + 3, 2)``.

    Returns
    -------
    Number of corners.

    Notes
    -----
    A kind of which not even one fits is left out (P16).
    """
    max_w = max_s = np.inf
    line = -1
    for r in range(len(free)):
        if worker[r] > 0:
            max_w = min(max_w, free[r] / worker[r])
        if ps[r] > 0 and free[r] / ps[r] <= max_s:
            steeper = line < 0 or worker[r] * ps[line] > worker[line] * ps[r]
            # at w = 0 the tightest resource binds; of several the steepest, as it is the one that binds for w > 0
            if free[r] / ps[r] < max_s or steeper:
                max_s, line = free[r] / ps[r], r
    max_w = 0.0 if max_w < 1 - _SAME_CORNER else max_w
    max_s = 0.0 if max_s < 1 - _SAME_CORNER else max_s
    out[0] = 0.0
    if max_w == 0.0 or max_s == 0.0:
        out[1, 0], out[1, 1] = max_w, max_s
        return 1 + int(max_w + max_s > 0)
    out[1, 0], out[1, 1] = 0.0, max_s
    n = 2
    while line >= 0:
        # along the line that binds, to where a steeper one begins to bind
        w, next_line, slope = max_w, -1, worker[line] / ps[line]
        for r in range(len(free)):
            if ps[r] > 0 and worker[r] / ps[r] > slope * (1 + SAME):
                w_cross = (free[r] / ps[r] - free[line] / ps[line]) / (worker[r] / ps[r] - slope)
                if w_cross < w or (
                    next_line >= 0 and w_cross == w and worker[r] * ps[next_line] > worker[next_line] * ps[r]
                ):
                    w, next_line = w_cross, r
        if w - out[n - 1, 0] > _SAME_CORNER:
            out[n, 0], out[n, 1] = w, max(0.0, (free[line] - worker[line] * w) / ps[line])
            n += 1
        line = next_line
    if out[n - 1, 1] > _SAME_CORNER:
        out[n, 0], out[n, 1] = max_w, 0.0
        n += 1
    else:
        out[n - 1, 1] = 0.0
    return n


@compiled
def classes(free: Floats, worker_price: Floats, ps_price: Floats, out: Ints) -> int:
    """Number the machines by class: equal prices and equal free capacity; classes by their first machine.

    Parameters
    ----------
    free
        Shape ``(machines, resources)``.
    worker_price, ps_price
        Shape ``(machines,)``.
    out
        Filled with the class of each machine.

    Returns
    -------
    Number of classes.
    """
    # sorted by one price first: only machines of equal worker price are compared in pairs
    order = np.argsort(worker_price, kind="mergesort")
    first = np.empty(len(free), np.int64)
    run = 0
    for i in range(len(order)):
        h = order[i]
        if worker_price[h] != worker_price[order[run]]:
            run = i
        first[h] = h
        for j in range(run, i):
            k = order[j]
            if first[k] == k and ps_price[k] == ps_price[h] and (free[k] == free[h]).all():
                first[h] = k
                break
    n = 0
    for h in range(len(free)):
        if first[h] == h:
            out[h] = n
            n += 1
        else:
            out[h] = out[first[h]]
    return n


@compiled
def sweep(problem: Subproblem, levels: Floats, relaxation: Relaxation) -> int:
    """Optimum of the relaxation for every W_1 of `levels`.

    Parameters
    ----------
    problem
        Problem (23).
    levels
        W_1, ascending, above 0.
    relaxation
        Filled: the optimum, nan from the level at which the sweep gave up; of the solutions the corner with the most
        workers, then PSs, on the machine of lowest number of a class.

    Returns
    -------
    DONE or GAVE_UP.
    """
    lp, value = _columns(problem), relaxation.cost
    value[:] = np.inf
    # no machine holds a worker, or none holds a PS: no level above 0 is feasible
    if lp.extra.min() < 0:
        return DONE
    n_done, inverse, amount, rate = 0, np.empty((2, 2)), np.empty(2), np.empty(2)
    # far more pivots than a sweep takes: a limit against cycling where several bases share a corner
    for _ in range(20 * lp.columns[0] + 100):
        _invert(lp, inverse)
        _amounts(lp, inverse, problem.ratio, amount, rate)
        limit, leaving, home_leaves = _ratio_test(lp, amount, rate)
        while n_done < len(levels) and levels[n_done] <= limit * (1 + SAME):
            extras = amount + levels[n_done] * rate
            value[n_done] = _spread(
                lp, extras, problem.worker_price, problem.ps_price, relaxation.w[n_done], relaxation.s[n_done]
            )
            n_done += 1
        if n_done == len(levels):
            return DONE
        if home_leaves:
            k = lp.owner[lp.extra[leaving]]
            # the home leaves: it changes places with the extra, so that a basis stays one home per class and two extras
            lp.home[k], lp.extra[leaving] = lp.extra[leaving], lp.home[k]
            _invert(lp, inverse)
        entering = _entering_column(lp, inverse, leaving)
        if entering < 0:
            return DONE
        lp.extra[leaving] = entering
    value[n_done:] = np.nan
    return GAVE_UP


@compiled
def _columns(problem: Subproblem) -> LPColumns:
    """All columns, every class at home in (0, 0), and the extras of the start (-1 where there is none)."""
    free, worker, ps, worker_price, ps_price, _, _ = problem
    class_of = np.empty(len(free), np.int64)
    n, widest = classes(free, worker_price, ps_price, class_of), free.shape[1] + 3
    size, lead, tail, member = np.zeros(n), np.full(n, -1), np.full(n, -1), np.full(len(free), -1)
    for h in range(len(free)):
        k = class_of[h]
        if lead[k] < 0:
            lead[k] = h
        else:
            member[tail[k]] = h
        tail[k] = h
        size[k] += 1.0
    corner, cost, owner = np.empty((n * widest, 2)), np.empty(n * widest), np.empty(n * widest, np.int64)
    home, extra, count = np.empty(n, np.int64), np.full(2, -1), 0
    cheapest = np.full(2, np.inf)
    for k in range(n):
        home[k] = count
        price = (worker_price[lead[k]], ps_price[lead[k]])
        end = count + corners(free[lead[k]], worker, ps, corner[count : count + widest])
        for j in range(count, end):
            owner[j], cost[j] = k, price[0] * corner[j, 0] + price[1] * corner[j, 1]
            for kind in range(2):
                if corner[j, kind] > 0 and corner[j, 1 - kind] == 0 and price[kind] < cheapest[kind]:
                    cheapest[kind], extra[kind] = price[kind], j
        count = end
    return LPColumns(corner, cost, owner, np.array([count]), home, size, lead, member, extra)


@compiled
def _invert(lp: LPColumns, inverse: Floats) -> None:
    """Invert the matrix whose columns are the extras, each less its class's home."""
    i, j = lp.extra[0], lp.extra[1]
    k, m = lp.home[lp.owner[i]], lp.home[lp.owner[j]]
    w0, s0 = lp.corner[i, 0] - lp.corner[k, 0], lp.corner[i, 1] - lp.corner[k, 1]
    w1, s1 = lp.corner[j, 0] - lp.corner[m, 0], lp.corner[j, 1] - lp.corner[m, 1]
    det = w0 * s1 - s0 * w1
    inverse[0, 0], inverse[0, 1] = s1 / det, -w1 / det
    inverse[1, 0], inverse[1, 1] = -s0 / det, w0 / det


@compiled
def _amounts(lp: LPColumns, inverse: Floats, ratio: float, amount: Floats, rate: Floats) -> None:
    """Values of the extras as functions of W_1: amount + W_1 * rate."""
    w = s = 0.0
    for k in range(len(lp.home)):
        w += lp.size[k] * lp.corner[lp.home[k], 0]
        s += lp.size[k] * lp.corner[lp.home[k], 1]
    for i in range(2):
        amount[i] = -inverse[i, 0] * w - inverse[i, 1] * s
        rate[i] = inverse[i, 0] + inverse[i, 1] / ratio


@compiled
def _ratio_test(lp: LPColumns, amount: Floats, rate: Floats) -> tuple[float, int, bool]:
    """The W_1 up to which the basis is feasible, the extra that leaves there, and whether its class's home leaves."""
    limit, leaving, home_leaves = np.inf, 0, False
    for i in range(2):
        if rate[i] < -_ZERO_PIVOT and -amount[i] / rate[i] < limit:
            limit, leaving, home_leaves = -amount[i] / rate[i], i, False
    same_class = lp.owner[lp.extra[0]] == lp.owner[lp.extra[1]]
    for i in range(2):
        a, r = (amount[0] + amount[1], rate[0] + rate[1]) if same_class else (amount[i], rate[i])
        size = lp.size[lp.owner[lp.extra[i]]]
        # the home's part is what the extras leave of its class, so it reaches 0 when they fill the class
        if r > _ZERO_PIVOT and (size - a) / r < limit:
            limit, home_leaves = (size - a) / r, True
            # of two extras of one class the fuller one takes the home's place
            leaving = int(amount[1] + limit * rate[1] > amount[0] + limit * rate[0]) if same_class else i
    return limit, leaving, home_leaves


@compiled
def _entering_column(lp: LPColumns, inverse: Floats, leaving: int) -> int:
    """The column that enters for the extra that leaves: least reduced cost per unit; -1 if there is none."""
    # a and b are the dual prices of the two coupling rows, of a worker and of a PS
    a = b = 0.0
    for i in range(2):
        extra_cost = lp.cost[lp.extra[i]] - lp.cost[lp.home[lp.owner[lp.extra[i]]]]
        a += extra_cost * inverse[i, 0]
        b += extra_cost * inverse[i, 1]
    best, least = -1, np.inf
    for j in range(lp.columns[0]):
        k = lp.home[lp.owner[j]]
        w, s = lp.corner[j, 0] - lp.corner[k, 0], lp.corner[j, 1] - lp.corner[k, 1]
        pivot = inverse[leaving, 0] * w + inverse[leaving, 1] * s
        noise = _ZERO_PIVOT * (abs(inverse[leaving, 0] * w) + abs(inverse[leaving, 1] * s))
        # dual simplex: the leaving part falls below 0, so only a negative entry can take its place
        if pivot >= -noise or j == lp.extra[0] or j == lp.extra[1]:
            continue
        # the basis is optimal, so a reduced cost below 0 is rounding
        reduced = max(0.0, lp.cost[j] - lp.cost[k] - a * w - b * s)
        if reduced < -pivot * least * (1 - SAME):
            best, least = j, reduced / -pivot
    return best


@compiled
def _spread(
    lp: LPColumns, amount: Floats, worker_price: Floats, ps_price: Floats, w_out: Floats, s_out: Floats
) -> float:  # fmt: skip
    """Write a basic solution by machine, each class filled from its lowest machine on; returns its cost."""
    w_out[:] = 0.0
    s_out[:] = 0.0
    total, corner_ids, counts = 0.0, np.empty(3, np.int64), np.empty(3)
    for k in range(len(lp.home)):
        # a class that is all in the corner (0, 0) holds nothing
        idle = lp.corner[lp.home[k], 0] == 0.0 and lp.corner[lp.home[k], 1] == 0.0
        if idle and lp.owner[lp.extra[0]] != k and lp.owner[lp.extra[1]] != k:
            continue
        # the extras have the amounts of the basis, the home what they leave of the class's n machines
        corner_ids[2], counts[2] = lp.home[k], lp.size[k]
        for i in range(2):
            corner_ids[i], counts[i] = -1, 0.0
            if lp.owner[lp.extra[i]] == k:
                corner_ids[i], counts[i] = lp.extra[i], max(0.0, amount[i])
                counts[2] -= counts[i]
        _fill(lp, lp.lead[k], corner_ids, counts, w_out, s_out)
        h = lp.lead[k]
        while h >= 0 and w_out[h] + s_out[h] > 0:
            total += worker_price[h] * w_out[h] + ps_price[h] * s_out[h]
            h = lp.member[h]
    return total


@compiled
def _fill(lp: LPColumns, h: int, corner_ids: Ints, counts: Floats, w_out: Floats, s_out: Floats) -> None:
    """Give `counts` machines (real), from `h` on, the corners `corner_ids`, those with the most workers first."""
    # room: the part of machine h that has no corner yet; a mixture of corners is a point of its polygon
    room = 1.0
    for _ in range(3):
        k = _fullest(lp.corner, corner_ids)
        if k < 0 or (lp.corner[corner_ids[k], 0] == 0.0 and lp.corner[corner_ids[k], 1] == 0.0):
            break
        while counts[k] > _ZERO_PART and h >= 0:
            portion = min(counts[k], room)
            w_out[h] += portion * lp.corner[corner_ids[k], 0]
            s_out[h] += portion * lp.corner[corner_ids[k], 1]
            counts[k] -= portion
            room -= portion
            if room <= _ZERO_PART:
                h, room = lp.member[h], 1.0
        corner_ids[k] = -1


@compiled
def _fullest(corner: Floats, corner_ids: Ints) -> int:
    """The position of the corner with the most workers, then PSs; -1 if none is left."""
    best = -1
    for k in range(len(corner_ids)):
        if corner_ids[k] < 0:
            continue
        w, s = corner[corner_ids[k], 0], corner[corner_ids[k], 1]
        if (
            best < 0
            or w > corner[corner_ids[best], 0]
            or (w == corner[corner_ids[best], 0] and s > corner[corner_ids[best], 1])
        ):
            best = k
    return best
