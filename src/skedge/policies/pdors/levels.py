"""Work levels: in what units PD-ORS and OASiS total a job's work, and how many of them a slot can do (P3).

Alg. 3 totals samples, up to 1e8 of them. Here a job's work is a number of levels, each of `quantum` samples. By default
they follow the job. A worker does 1/x samples in a slot, x being x^(i) on one machine and x^(e) elsewhere:

- If the job needs at most :data:`MOST` worker-slots at the better rate, a worker does k whole levels in a slot at that
  rate, and no work is lost by totaling levels. k is the least number for which a worker at the other rate does whole
  levels too: then levels are *exact*, as they are where there is one rate. Where no such k keeps k levels for
  each worker-slot, rounded up, within MOST, k is the largest that does: in a slot workers at the other rate may lose a
  level, 1/k of what one worker does.
- If it needs more, a level is 1/MOST of its work, and a slot loses less than that.

In a slot only those numbers of levels are tried of which one more would take a worker more, at one of the rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from skedge.core.model import Floats, Ints
from skedge.core.speed import ceil_almost

from .job import TrainingJob

MOST = 2000
"""Levels of a job's work, where they follow the job."""

_SAME = 1e-12
"""Two rates are in the ratio of whole numbers if they are within this, relatively."""


class Levels(NamedTuple):
    """Levels of a job's work.

    Attributes
    ----------
    quantum
        Samples of a level; the last one may be smaller.
    total
        Levels that make the job complete.
    exact
        Whether finer levels could not change anything.
    steps
        The numbers of levels that a slot is tried with, ascending from 0.
    """

    quantum: float
    total: int
    exact: bool
    steps: Ints

    def workers(self, rate: float) -> Floats:
        """Workers that each of `steps` needs at `rate` [worker-slots per sample], real."""
        return np.asarray(self.quantum * rate * self.steps)


def levels_of(job: TrainingJob, rates: Sequence[float]) -> Levels:
    """The levels of a job whose placements have these rates [worker-slots per sample], the best first."""
    if job.levels is not None:
        whole = math.ceil(job.work / job.levels)
        total = math.ceil(job.work / whole)
        return Levels(whole, total, exact=False, steps=np.arange(_largest(job, rates[0], whole, total) + 1))
    each, exact = _per_worker(job, rates)
    quantum = 1 / (rates[0] * each) if each else job.work / MOST
    total = max(1, int(ceil_almost(job.work / quantum)))
    return Levels(quantum, total, exact, _steps(job, rates, quantum, total))


def _largest(job: TrainingJob, rate: float, quantum: float, total: int) -> int:
    """Most levels that one slot can hold with w <= F, constraint (4)."""
    most = min(total, int(job.batch / (quantum * rate)) + 1)
    while most > 0 and ceil_almost(most * quantum * rate) > job.batch:
        most -= 1
    return most


def _per_worker(job: TrainingJob, rates: Sequence[float]) -> tuple[int, bool]:
    """Levels that a worker does in a slot at the best rate, 0 if less than one; whether they are exact."""
    room = MOST // max(1, int(ceil_almost(job.work * rates[0])))
    slower = rates[0] / rates[-1]
    whole = Fraction(slower).limit_denominator(max(1, room))
    exact = room > 0 and abs(float(whole) - slower) <= _SAME * slower
    return (whole.denominator if exact else room), exact


def _steps(job: TrainingJob, rates: Sequence[float], quantum: float, total: int) -> Ints:
    """Levels within the batch for which one more would take a worker more, and 0."""
    levels = np.arange(1, total + 1)
    useful = np.zeros(total, np.bool_)
    for rate in rates:
        real = levels * quantum * rate
        workers = np.ceil(real - 1e-9 * np.maximum(1.0, real))
        useful |= (np.diff(workers, append=np.inf) > 0) & (workers <= job.batch)
    return np.concatenate([[0], levels[useful]])
