"""Every tolerance with which policies and the core compare numbers, and the comparisons made of them.

Numbers that are equal on paper differ by rounding in floats, so that which is chosen would depend on the order of
additions. A candidate therefore replaces the best one so far only if it is better by more than a tolerance, and the
order of the candidates decides ties. One name is one meaning and one value; the tolerances of a
solver are beside its call.
"""

from __future__ import annotations

import numpy as np

from .jit import inlined

TOLERANCE = 1e-9
"""Relative tolerance between costs, prices and gains: closer ones tie."""

SLACK = 1e-9
"""Part of a demand or capacity by which a load may exceed it, and of a piece that may be missing: sums of floats."""

NOISE = 1e-9
"""Rounding error of a sum, difference or product of floats: 0.1 * 30 is 3."""

SAME = 1e-12
"""Relative difference below which two floats are the same number, computed in two ways."""

GRAIN = 2.0**40
"""Shares and priorities are compared in whole multiples of 1 / GRAIN, so that rounding does not break ties."""


@inlined
def better(a: float, b: float) -> bool:
    """True if cost `a` is below cost `b` by more than the tolerance; any finite cost is better than inf."""
    return bool(a < b - TOLERANCE * abs(b)) if b < np.inf else bool(a < b)
