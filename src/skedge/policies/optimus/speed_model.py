"""Optimus' speed model (Peng et al., EuroSys'18): how long an iteration takes with w workers and p PSs.

Time of an iteration, in slots, with a global batch of M:

    t(p, w) = a M/w + b + c w/p + d w + e p + f/p

The first five terms are 1/f(p, w) of the paper's synchronous training, its Eq. (4), all coefficients >= 0. The last one
is ours, for the model of PD-ORS, where t = tau M/w + 2 g/(p b): with w/p = gamma that is its Eq. (1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skedge.core.errors import InputError
from skedge.core.model.cluster import Floats, Ints

if TYPE_CHECKING:
    from numpy.random import Generator

_FITTED = 5
_LARGEST = 10
"""Test runs have 1 to 10 workers and PSs."""


def terms(batch: float, workers: Floats | Ints, servers: Floats | Ints) -> Floats:
    """The terms of t(p, w) without their coefficients, shape ``(samples, 6)``."""
    w, p = np.asarray(workers, float), np.asarray(servers, float)
    return np.column_stack([batch / w, np.ones_like(w), w / p, w, p, 1 / p])


def true_coefficients(sample_slots: float, gradient_mb: float, mb_per_slot: float) -> Floats:
    """Coefficients of PD-ORS' Eq. (1): a = tau, f = 2 g/b; shape ``(6,)``."""
    return np.array([sample_slots, 0.0, 0.0, 0.0, 0.0, 2 * gradient_mb / mb_per_slot])


def fit(batch: float, workers: Ints, servers: Ints, slots: Floats) -> Floats:
    """Coefficients a to e by non-negative least squares; f is 0.

    Parameters
    ----------
    batch
        M.
    workers, servers
        w and p of each test run, shape ``(samples,)``, >= 1.
    slots
        The iteration time that was measured, shape ``(samples,)``, > 0.

    Raises
    ------
    InputError
        If there are fewer than 5 samples: as many as coefficients.

    Notes
    -----
    Relative errors are minimised, rows being divided by the measured times: noise is a share of the time.
    """
    from scipy.optimize import nnls  # noqa: PLC0415 - takes 0.3 s to import

    if len(slots) < _FITTED:
        raise InputError(f"speed model: {len(slots)} samples; it has {_FITTED} coefficients and takes as many or more")
    rows = terms(batch, workers, servers)[:, :_FITTED] / slots[:, None]
    # columns of norm 1, since M/w and 1/p differ by orders of magnitude
    scale = np.linalg.norm(rows, axis=0)
    coefficients, _ = nnls(rows / scale, np.ones(len(slots)))
    return np.append(coefficients / scale, 0.0)


def measure(truth: Floats, batch: float, samples: int, noise: float, rng: Generator) -> tuple[Ints, Ints, Floats]:
    """Test runs: w and p drawn from 1 to 10, and the measured iteration times.

    Parameters
    ----------
    truth
        True coefficients, shape ``(6,)``.
    batch
        M.
    samples
        Number of test runs.
    noise
        Sigma of the log-normal factor by which the times are off.
    rng
        Draws w and p, then the noise.
    """
    # D5: w and p are independent of each other; with w = p the terms w/p and 1 could not be told apart
    w, p = rng.integers(1, _LARGEST, (2, samples), endpoint=True)
    return w, p, (terms(batch, w, p) @ truth) * np.exp(noise * rng.standard_normal(samples))
