"""Means over seeds with confidence intervals: bootstrap for bounded metrics, Student's t for paired differences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import default_rng

from skedge.core.model import Floats

FEWEST = 5
"""Minimum number of seeds for an interval: with fewer, its width is mostly random."""

_RESAMPLES = 9999


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % confidence interval; `low` and `high` are None without an interval."""

    mean: float
    low: float | None = None
    high: float | None = None

    @property
    def sign(self) -> int:
        """-1 or 1 if the interval lies wholly below or above 0, else 0."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > 0) - int(self.high < 0)


def import_statistics() -> None:
    """Import what intervals need; it takes half a second, so a caller that waits for others does it meanwhile."""
    import scipy.stats  # noqa: F401, PLC0415 - one seed needs none


def estimate(values: Floats) -> Estimate:
    """Mean of `values` and its 95 % confidence interval by Student's t; no interval for one value.

    For unbounded quantities such as differences: the interval is symmetric.
    """
    mean = float(values.mean())
    if len(values) < 2:
        return Estimate(mean)
    from scipy.stats import t  # noqa: PLC0415 - takes a second to import, and one seed needs none

    half = float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return Estimate(mean, mean - half, mean + half)


def bounded(values: Floats) -> Estimate:
    """Mean of `values` and its 95 % bootstrap confidence interval; no interval for fewer than 5 values.

    The interval lies between the smallest and the largest value, so that no time is negative and no share above 1. It
    is bias-corrected and accelerated (BCa; Efron 1987), or uses percentiles if the values are too similar for that. The
    same values give the same interval.
    """
    mean = float(values.mean())
    if len(values) < FEWEST:
        return Estimate(mean)
    if (values == values[0]).all():
        return Estimate(float(values[0]), float(values[0]), float(values[0]))
    ends = _bootstrap(values, "BCa")
    low, high = ends if np.isfinite(ends).all() else _bootstrap(values, "percentile")
    return Estimate(mean, low, high)


def _bootstrap(values: Floats, method: str) -> tuple[float, float]:
    from scipy.stats import bootstrap  # noqa: PLC0415 - takes a second to import, and few seeds need none

    with np.errstate(all="ignore"):
        found = bootstrap((values,), np.mean, n_resamples=_RESAMPLES, method=method, rng=default_rng(0))
    return float(found.confidence_interval.low), float(found.confidence_interval.high)
