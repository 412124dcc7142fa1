"""The linear relaxation of Problem (23)-(26) for all work levels of a slot in one sweep, compiled.

The optimum is a convex, piecewise linear function of W_1, because W_1 only stands on the right-hand side:
(sum w, sum s) = (W_1, W_1 / gamma). A parametric dual simplex walks along it; each breakpoint is one pivot.

*Columns.* What a machine can hold is a polygon of (w, s); a column is one of its corners. Machines with equal prices
and equal free capacity are one class of n machines: sum of its columns = n, the corner (0, 0) among them. So there are
two coupling rows and one row per class, and a basis is one *home* corner per class and two more corners, the *extras*.
It is enough to invert the 2 x 2 matrix of the extras, each less its class's home (generalised upper bounds).

*Start.* Near W_1 = 0 capacity does not bind: workers go to the machine with the cheapest worker, PSs to that with the
cheapest PS. *End.* When no column can enter, W_1 is the most that the slot can hold.

Equality in place of >= loses nothing: a polygon with (w, s) holds all that is below.
"""

from __future__ import annotations

import numpy as np

from skedge.core.jit import compiled
from skedge.core.model import Floats, Ints

DONE, GAVE_UP = 0, 1
"""How :func:`sweep` ends; after GAVE_UP the levels that are left have the value nan."""

_SMALL = 1e-11
"""A pivot smaller than this, relative to its column, is none."""


_APART = 1e-9
"""Corners closer than this are one."""


@compiled
def corners(free: Floats, worker: Floats, ps: Floats, out: Floats) -> int:
    """Corners of {alpha w + beta s <= free, w, s >= 0} by ascending w, (0, 0) first; returns their number.

    `out` has shape ``(resources + 3, 2)``. A kind of which not even one fits is left out (ERRATA P16).
    """
    most_w = most_s = np.inf
    line = -1
    for r in range(len(free)):
        if worker[r] > 0:
            most_w = min(most_w, free[r] / worker[r])
        if ps[r] > 0 and free[r] / ps[r] <= most_s:
            steeper = line < 0 or worker[r] * ps[line] > worker[line] * ps[r]
            if free[r] / ps[r] < most_s or steeper:
                most_s, line = free[r] / ps[r], r
    most_w = 0.0 if most_w < 1 - _APART else most_w
    most_s = 0.0 if most_s < 1 - _APART else most_s
    out[0] = 0.0
    if most_w == 0.0 or most_s == 0.0:
        out[1, 0], out[1, 1] = most_w, most_s
        return 1 + int(most_w + most_s > 0)
    out[1, 0], out[1, 1] = 0.0, most_s
    n = 2
    while line >= 0:
        # along the line that binds, to where a steeper one begins to bind
        w, after, slope = most_w, -1, worker[line] / ps[line]
        for r in range(len(free)):
            if ps[r] > 0 and worker[r] / ps[r] > slope * (1 + 1e-12):
                cross = (free[r] / ps[r] - free[line] / ps[line]) / (worker[r] / ps[r] - slope)
                if cross < w or (after >= 0 and cross == w and worker[r] * ps[after] > worker[after] * ps[r]):
                    w, after = cross, r
        if w - out[n - 1, 0] > _APART:
            out[n, 0], out[n, 1] = w, max(0.0, (free[line] - worker[line] * w) / ps[line])
            n += 1
        line = after
    if out[n - 1, 1] > _APART:
        out[n, 0], out[n, 1] = most_w, 0.0
        n += 1
    else:
        out[n - 1, 1] = 0.0
    return n


@compiled
def classes(free: Floats, worker_price: Floats, ps_price: Floats, out: Ints) -> int:
    """Number machines by class: equal prices and equal free capacity; classes by their first machine. Their number."""
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
def sweep(
    free: Floats, worker: Floats, ps: Floats, worker_price: Floats, ps_price: Floats, ratio: float, levels: Floats,
    w_out: Floats, s_out: Floats, value: Floats,
) -> int:  # fmt: skip
    """Optimum of the relaxation for every W_1 of `levels`.

    Parameters
    ----------
    free, worker, ps, worker_price, ps_price
        As in :class:`.relaxation.Market`.
    levels
        W_1, ascending, above 0.
    w_out, s_out
        Filled with a solution, shape ``(len(levels), machines)``: the corner with the most workers, then PSs, on the
        machine of lowest number of a class.
    value
        Filled with the optimum; inf where it is infeasible.

    Returns
    -------
    DONE or GAVE_UP.
    """
    machines = len(free)
    of = np.empty(machines, np.int64)
    count = classes(free, worker_price, ps_price, of)
    size, member = np.zeros(count), np.full(machines, -1)
    lead, tail = np.full(count, -1), np.full(count, -1)
    for h in range(machines):
        c = of[h]
        if lead[c] < 0:
            lead[c] = h
        else:
            member[tail[c]] = h
        tail[c] = h
        size[c] += 1.0
    # the columns, by class
    widest = free.shape[1] + 3
    p, cost, owner = np.empty((count * widest, 2)), np.empty(count * widest), np.empty(count * widest, np.int64)
    home, columns = np.empty(count, np.int64), 0
    found = np.empty((widest, 2))
    cheapest = np.full(2, -1)
    for c in range(count):
        home[c] = columns
        for i in range(corners(free[lead[c]], worker, ps, found)):
            p[columns], owner[columns] = found[i], c
            cost[columns] = worker_price[lead[c]] * found[i, 0] + ps_price[lead[c]] * found[i, 1]
            for kind in range(2):
                price, axis = (worker_price, found[i, 1]) if kind == 0 else (ps_price, found[i, 0])
                if axis == 0.0 and found[i, kind] > 0:
                    best = cheapest[kind]
                    if best < 0 or price[lead[c]] < price[lead[owner[best]]]:
                        cheapest[kind] = columns
            columns += 1
    value[:] = np.inf
    if cheapest[0] < 0 or cheapest[1] < 0:
        return DONE
    extra, ray = cheapest.copy(), np.array([1.0, 1.0 / ratio])
    done, inverse, amount, rate = 0, np.empty((2, 2)), np.empty(2), np.empty(2)
    for _ in range(20 * columns + 100):
        _invert(p, home, owner, extra, inverse)
        w = s = 0.0
        for c in range(count):
            w += size[c] * p[home[c], 0]
            s += size[c] * p[home[c], 1]
        for i in range(2):
            amount[i] = -inverse[i, 0] * w - inverse[i, 1] * s
            rate[i] = inverse[i, 0] * ray[0] + inverse[i, 1] * ray[1]
        together = owner[extra[0]] == owner[extra[1]]
        until, leaves, of_home = _ratio_test(size, owner, extra, amount, rate, together)
        while done < len(levels) and levels[done] <= until * (1 + 1e-12):
            value[done] = _spread(
                p, home, owner, extra, amount + levels[done] * rate, together,
                lead, member, size, worker_price, ps_price, w_out[done], s_out[done],
            )  # fmt: skip
            done += 1
        if done == len(levels):
            return DONE
        if of_home:
            c = owner[extra[leaves]]
            home[c], extra[leaves] = extra[leaves], home[c]
            _invert(p, home, owner, extra, inverse)
        enters = _enter(p, cost, home, owner, extra, inverse, leaves, columns)
        if enters < 0:
            return DONE
        extra[leaves] = enters
    value[done:] = np.nan
    return GAVE_UP


@compiled
def _invert(p: Floats, home: Ints, owner: Ints, extra: Ints, inverse: Floats) -> None:
    """Invert the matrix whose columns are the extras, each less its class's home."""
    i, j = home[owner[extra[0]]], home[owner[extra[1]]]
    w0, s0 = p[extra[0], 0] - p[i, 0], p[extra[0], 1] - p[i, 1]
    w1, s1 = p[extra[1], 0] - p[j, 0], p[extra[1], 1] - p[j, 1]
    det = w0 * s1 - s0 * w1
    inverse[0, 0], inverse[0, 1] = s1 / det, -w1 / det
    inverse[1, 0], inverse[1, 1] = -s0 / det, w0 / det


@compiled
def _ratio_test(
    size: Floats, owner: Ints, extra: Ints, amount: Floats, rate: Floats, together: bool
) -> tuple[float, int, bool]:
    """Up to which W_1 no part of the basis is below 0; the extra that leaves then; whether its class's home leaves."""
    until, leaves, of_home = np.inf, 0, False
    for i in range(2):
        if rate[i] < -_SMALL and -amount[i] / rate[i] < until:
            until, leaves, of_home = -amount[i] / rate[i], i, False
    for i in range(2):
        a, r = (amount[0] + amount[1], rate[0] + rate[1]) if together else (amount[i], rate[i])
        if r > _SMALL and (size[owner[extra[i]]] - a) / r < until:
            until, of_home = (size[owner[extra[i]]] - a) / r, True
            # of two extras of one class the fuller one takes the home's place
            leaves = int(amount[1] + until * rate[1] > amount[0] + until * rate[0]) if together else i
    return until, leaves, of_home


@compiled
def _enter(
    p: Floats, cost: Floats, home: Ints, owner: Ints, extra: Ints, inverse: Floats, leaves: int, columns: int
) -> int:
    """The column that enters for the extra that leaves: least reduced cost per unit; -1 if there is none."""
    a = b = 0.0
    for i in range(2):
        over = cost[extra[i]] - cost[home[owner[extra[i]]]]
        a += over * inverse[i, 0]
        b += over * inverse[i, 1]
    best, least = -1, np.inf
    for j in range(columns):
        h = home[owner[j]]
        w, s = p[j, 0] - p[h, 0], p[j, 1] - p[h, 1]
        pivot = inverse[leaves, 0] * w + inverse[leaves, 1] * s
        if pivot >= -_SMALL * (abs(inverse[leaves, 0] * w) + abs(inverse[leaves, 1] * s)) or j == extra[0] or j == extra[1]:
            continue
        reduced = max(0.0, cost[j] - cost[h] - a * w - b * s)
        if reduced < -pivot * least * (1 - 1e-12):
            best, least = j, reduced / -pivot
    return best


@compiled
def _spread(
    p: Floats, home: Ints, owner: Ints, extra: Ints, amount: Floats, together: bool,
    lead: Ints, member: Ints, size: Floats, worker_price: Floats, ps_price: Floats, w_out: Floats, s_out: Floats,
) -> float:  # fmt: skip
    """Write a basic solution by machine, each class filled from its lowest machine on; returns its cost."""
    w_out[:] = 0.0
    s_out[:] = 0.0
    total = 0.0
    mine, part = np.empty(3, np.int64), np.empty(3)
    for c in range(len(lead)):
        idle = p[home[c], 0] == 0.0 and p[home[c], 1] == 0.0
        if idle and owner[extra[0]] != c and owner[extra[1]] != c:
            continue
        mine[0], mine[1], mine[2] = -1, -1, home[c]
        part[0], part[1], part[2] = 0.0, 0.0, size[c]
        for i in range(2):
            if owner[extra[i]] == c:
                mine[i], part[i] = extra[i], max(0.0, amount[i])
                part[2] -= part[i]
        part[2] = max(0.0, part[2])
        h, left = lead[c], 1.0
        for _ in range(3):
            k = _fullest(p, mine)
            if k < 0 or (p[mine[k], 0] == 0.0 and p[mine[k], 1] == 0.0):
                break
            while part[k] > 1e-12 and h >= 0:
                here = min(part[k], left)
                w_out[h] += here * p[mine[k], 0]
                s_out[h] += here * p[mine[k], 1]
                part[k] -= here
                left -= here
                if left <= 1e-12:
                    h, left = member[h], 1.0
            mine[k] = -1
        h = lead[c]
        while h >= 0 and w_out[h] + s_out[h] > 0:
            total += worker_price[h] * w_out[h] + ps_price[h] * s_out[h]
            h = member[h]
    return total


@compiled
def _fullest(p: Floats, mine: Ints) -> int:
    """Which of the corners has the most workers, then PSs; -1 if none is left."""
    best = -1
    for k in range(len(mine)):
        if mine[k] < 0:
            continue
        if best < 0 or p[mine[k], 0] > p[mine[best], 0] or (
            p[mine[k], 0] == p[mine[best], 0] and p[mine[k], 1] > p[mine[best], 1]
        ):
            best = k
    return best
