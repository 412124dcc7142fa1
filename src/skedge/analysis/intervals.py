"""Means over seeds with confidence intervals: bootstrap for bounded metrics, Student's t for paired differences.

Of resampled windows both are Student's t.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import default_rng

from skedge.core.model.cluster import Floats

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


def estimate(values: Floats, *, of_one: bool = False) -> Estimate:
    """Mean of `values` and its 95 % confidence interval by Student's t; no interval for one value.

    For unbounded quantities such as differences: the interval is symmetric.

    Parameters
    ----------
    values
        Shape ``(n,)``, n >= 1.
    of_one
        The values are of resamples of one observation. Their spread then is the standard error of that observation,
        which more of them measure better and do not make smaller: the interval is not divided by the root of their
        number n. It is longer by the root of 1 + 1/n, as their mean is off the observation.
    """
    mean = float(values.mean())
    if len(values) < 2:
        return Estimate(mean)
    from scipy.stats import t  # noqa: PLC0415 - takes a second to import, and one seed needs none

    error = values.std(ddof=1) * np.sqrt(int(of_one) + 1 / len(values))
    half = float(t.ppf(0.975, len(values) - 1) * error)
    return Estimate(mean, mean - half, mean + half)


def bounded(values: Floats, *, of_one: bool = False, limits: tuple[float, float] = (0.0, np.inf)) -> Estimate:
    """Mean of `values` and its 95 % bootstrap confidence interval; no interval for fewer than 5 values.

    The interval lies between the smallest and the largest value, so that no time is negative and no share above 1. It
    is bias-corrected and accelerated (BCa; Efron 1987), or uses percentiles if the values are too similar for that. The
    same values give the same interval.

    Parameters
    ----------
    values
        Shape ``(n,)``, n >= 1.
    of_one
        As for :func:`estimate`, whose interval it is, cut at the limits: quantiles of a few resamples are about
        their minimum and maximum, which hold the truth far less often.
    limits
        The least and the largest value that the quantity can have: 0 and 1 for a share. Where a value is below the
        least, that is none.
    """
    mean = float(values.mean())
    if len(values) < FEWEST:
        return Estimate(mean)
    # BCa is undefined without variance
    if (values == values[0]).all():
        return Estimate(float(values[0]), float(values[0]), float(values[0]))
    if of_one:
        lowest, highest = limits
        return _cut(estimate(values, of_one=True), lowest if values.min() >= lowest else -np.inf, highest)
    ends = _bootstrap(values, "BCa")
    low, high = ends if np.isfinite(ends).all() else _bootstrap(values, "percentile")
    return Estimate(mean, low, high)


def _cut(uncut: Estimate, lowest: float, highest: float) -> Estimate:
    """The estimate with its interval cut at the least and the largest value that the quantity can have."""
    if uncut.low is None or uncut.high is None:
        return uncut
    return replace(uncut, low=max(uncut.low, lowest), high=min(uncut.high, highest))


def _bootstrap(values: Floats, method: str) -> tuple[float, float]:
    from scipy.stats import bootstrap  # noqa: PLC0415 - takes a second to import, and few seeds need none

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy warns of values that are too similar for BCa, which `bounded` looks for
        result = bootstrap((values,), np.mean, n_resamples=_RESAMPLES, method=method, rng=default_rng(0))
    return float(result.confidence_interval.low), float(result.confidence_interval.high)
