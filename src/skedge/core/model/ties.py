"""The tolerances with which policies and the core compare numbers, and the comparisons that use them.

Numbers that are equal on paper differ by rounding in floats, so the choice between them would depend on the order of
additions. A candidate therefore replaces the best one so far only if it is better by more than a tolerance, and the
order of the candidates decides ties. Each name has one meaning and one value. Solver tolerances are given where the
solver is called.
"""

from __future__ import annotations

import numpy as np

from skedge.platform.jit import inlined

TOLERANCE = 1e-9
"""Relative tolerance for comparing costs, prices and gains; closer values tie."""

SLACK = 1e-9
"""Relative slack on a demand, a capacity or a missing piece, to absorb rounding of sums."""

NOISE = 1e-9
"""Rounding error of a sum, difference or product of floats: 0.1 * 30 is 3."""

SAME = 1e-12
"""Relative difference below which two floats count as the same number."""

FITS = 1e-8
"""Relative slack on a capacity where a record or a plan is checked (M26): above SLACK, so what was ordered fits."""

RESTATED = 1e-6
"""Relative difference allowed between a recorded cost or price and the same computed again in another order."""

GRAIN = 2.0**40
"""Shares and priorities are compared in whole multiples of 1 / GRAIN, so that rounding does not break ties."""


@inlined
def better(a: float, b: float) -> bool:
    """True if cost `a` is below cost `b` by more than the tolerance; any finite cost is better than inf."""
    return bool(a < b - TOLERANCE * abs(b)) if b < np.inf else bool(a < b)
