"""A training job of PD-ORS and OASiS: work in samples, resource vectors, two communication rates.

====================== =========================== ================
paper                  here                        unit
====================== =========================== ================
a_i                    arrival                     slot, from 0
V_i = E_i K_i          work                        samples
F_i                    batch                       samples, workers
tau_i                  sample_time                 slots
g_i                    gradient_mb                 MB
gamma_i                ratio                       workers per PS
b_i^(i), b_i^(e)       internal_mb, external_mb    MB per slot
x^(i), x^(e) (ours)    internal, external          worker-slots per sample
alpha_i^r, beta_i^r    worker, ps                  by resource
u_i                    utility                     of slots
====================== =========================== ================

A sample is what the rest of skedge calls a mini-batch, the smallest piece of work: V = epochs x chunks x mini-batches,
and tau is the time of a mini-batch with the PS's update (:func:`announced`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from skedge.core.errors import ScenarioError
from skedge.core.model.cluster import Floats, Ints, Physics
from skedge.core.model.job_fields import JobColumns
from skedge.core.model.speed import MBIT_PER_MB, ceil_almost
from skedge.core.model.ties import NOISE, SAME
from skedge.core.model.time import SECOND
from skedge.core.model.value import Sigmoid

Completion = Literal["end", "index"]
"""u is taken of the end of the last slot less the arrival, t~ + 1 - a, or of its index, t~ - a, as printed."""

MAX_LEVELS = 2000
"""Levels of a job's work, where they follow the job."""


@dataclass(frozen=True)
class TrainingJob:
    """A job as its user announces it; symbols and units in the module's table.

    The rate of a worker uses the nominal ratio, not the numbers that are really placed (P10).

    Attributes
    ----------
    levels
        N_q, the wanted number of work levels of the dynamic program; None: they follow the job (:func:`levels_of`).

    Raises
    ------
    ScenarioError
        If a value is out of its range; names the job, the field and what would be right.
    """

    id: int
    arrival: int
    work: int
    batch: int
    sample_time: float
    gradient_mb: float
    ratio: float
    internal_mb: float
    external_mb: float
    worker: tuple[float, ...]
    ps: tuple[float, ...]
    utility: Sigmoid
    levels: int | None = None

    def __post_init__(self) -> None:
        for name in ("work", "batch"):
            self._require(name, getattr(self, name) >= 1, "1 or more")
        self._require("levels", self.levels is None or self.levels >= 1, "1 or more")
        for name in ("sample_time", "ratio", "external_mb"):
            self._require(name, _finite(getattr(self, name)) and getattr(self, name) > 0, "above 0")
        self._require("gradient_mb", _finite(self.gradient_mb) and self.gradient_mb >= 0, "0 or more")
        self._require("arrival", self.arrival >= 0, "0 or more")
        self._require("internal_mb", self.internal_mb >= self.external_mb, "at least external_mb")
        for name in ("worker", "ps"):
            self._require(name, all(_finite(x) and x >= 0 for x in getattr(self, name)), "0 or more for each resource")
        self._require("ps", len(self.ps) == len(self.worker), "as many resources as worker")
        self._require("worker", sum(self.worker) > 0, "above 0 for some resource")
        self._require("ps", sum(self.ps) > 0, "above 0 for some resource")

    def _require(self, name: str, holds: bool, right: str) -> None:
        if not holds:
            raise ScenarioError(f"job {self.id}: {name} = {getattr(self, name)}; it must be {right}")

    @cached_property
    def internal(self) -> float:
        """Worker-slots per sample on one machine, x^(i) = tau + 2 g gamma/(b^(i) F): Eq. (1) with (2) and Fact 1."""
        # P10: the nominal gamma; the numbers that are placed differ by rounding
        return self.sample_time + 2 * self.gradient_mb * self.ratio / (self.internal_mb * self.batch)

    @cached_property
    def external(self) -> float:
        """Worker-slots per sample on several machines, x^(e), with b^(e)."""
        return self.sample_time + 2 * self.gradient_mb * self.ratio / (self.external_mb * self.batch)

    def shortest(self, worker_slots_per_sample: float) -> int:
        """Slots that V takes with F workers, the most that the batch feeds (4): ceil(V x / F)."""
        return int(ceil_almost(self.work * worker_slots_per_sample / self.batch))

    @cached_property
    def demands(self) -> tuple[Floats, Floats]:
        """Demands alpha and beta as arrays, shape ``(resources,)``."""
        return np.array(self.worker, float), np.array(self.ps, float)


def _finite(x: float) -> bool:
    return math.isfinite(x)


def announced(
    job: int, arrival: int, jobs: JobColumns, utility: Sigmoid, physics: Physics, levels: int | None
) -> TrainingJob:
    """The job of a scenario, as its user announces it.

    Parameters
    ----------
    job, arrival
        Its row, and the first slot in which it can run.
    jobs, utility
        The announced jobs, and u_i of this one.
    physics
        For the slot, `speedup` and `colocation`: unless that is ``one_server``, all communication is external.
    levels
        N_q; None: they follow the job.
    """
    slot_s = physics.slot / SECOND
    internal = jobs.internal_mbps if physics.colocation == "one_server" else jobs.bandwidth_mbps
    return TrainingJob(
        id=job,
        arrival=arrival,
        work=int(jobs.chunks[job] * jobs.minibatches[job]),
        batch=int(jobs.batch[job]),
        sample_time=float(jobs.minibatch_s[job] + jobs.ps_update_s[job]) / slot_s / physics.speedup,
        gradient_mb=float(jobs.gradient_mb[job]) / physics.speedup,
        ratio=float(jobs.ratio[job]),
        internal_mb=float(internal[job]) / MBIT_PER_MB * slot_s,
        external_mb=float(jobs.bandwidth_mbps[job]) / MBIT_PER_MB * slot_s,
        worker=tuple(jobs.worker_needs[job].tolist()),
        ps=tuple(jobs.ps_needs[job].tolist()),
        utility=utility,
        levels=levels,
    )


def value(job: TrainingJob, end: int, completion: Completion) -> float:
    """u_i of a job that is complete at the END time `end`."""
    # P4: with `index` of t~ - a, the index of the last slot less the arrival, as printed
    return job.utility(end - job.arrival - (completion == "index"))


class Levels(NamedTuple):
    """The units in which the dynamic program counts a job's work.

    Attributes
    ----------
    quantum
        Samples of a level; the last one may be smaller.
    total
        Levels that make the job complete.
    exact
        True if finer levels could not change anything.
    steps
        The numbers of levels tried in a slot, ascending from 0.
    """

    quantum: float
    total: int
    exact: bool
    steps: Ints

    def workers(self, rate: float) -> Floats:
        """W_1 of each of `steps` at `rate` [worker-slots per sample]: workers, real."""
        return np.asarray(self.quantum * rate * self.steps)


def levels_of(job: TrainingJob, rates: Sequence[float]) -> Levels:
    """The levels of a job whose placements have these rates [worker-slots per sample], the best first.

    Notes
    -----
    Alg. 3 totals samples, up to 1e8 of them. Here a job's work is a number of levels, each of `quantum` samples (P3).
    By default they follow the job. A worker does 1/x samples in a slot, x being x^(i) on one machine and x^(e)
    elsewhere:

    - If the job needs at most :data:`MAX_LEVELS` worker-slots at the better rate, a worker does k whole levels in a
      slot at that rate, and no work is lost by totaling levels. k is the least number for which a worker at the other
      rate does whole levels too: then levels are *exact*, as they are where there is one rate. Where no such k keeps k
      levels for each worker-slot, rounded up, within MAX_LEVELS, k is the largest that does: in a slot workers at the
      other rate may lose a level, 1/k of what one worker does.
    - If it needs more, a level is 1/MAX_LEVELS of its work, and a slot loses less than that.

    In a slot only those numbers of levels are tried of which one more would take a worker more, at one of the rates.
    """
    if job.levels is not None:
        # a given N_q: ceil(V / N_q) samples a level, so a slot loses what its workers do beyond whole levels
        samples = math.ceil(job.work / job.levels)
        total = math.ceil(job.work / samples)
        return Levels(samples, total, exact=False, steps=np.arange(_largest_step(job, rates[0], samples, total) + 1))
    levels_per_worker, exact = _per_worker(job, rates)
    quantum = 1 / (rates[0] * levels_per_worker) if levels_per_worker else job.work / MAX_LEVELS
    total = max(1, int(ceil_almost(job.work / quantum)))
    return Levels(quantum, total, exact, _steps(job, rates, quantum, total))


def _largest_step(job: TrainingJob, rate: float, quantum: float, total: int) -> int:
    """Most levels that one slot can hold with w <= F, constraint (4)."""
    level = min(total, int(job.batch / (quantum * rate)) + 1)
    # the quotient may be off by rounding, so the count of workers decides
    while level > 0 and ceil_almost(level * quantum * rate) > job.batch:
        level -= 1
    return level


def _per_worker(job: TrainingJob, rates: Sequence[float]) -> tuple[int, bool]:
    """Levels that a worker does in a slot at the best rate, 0 if less than one; whether they are exact."""
    room = MAX_LEVELS // max(1, int(ceil_almost(job.work * rates[0])))
    slower = rates[0] / rates[-1]
    # k levels at the better rate are k * slower at the other: the least k that makes both whole
    fraction = Fraction(slower).limit_denominator(max(1, room))
    exact = room > 0 and abs(float(fraction) - slower) <= SAME * slower
    return (fraction.denominator if exact else room), exact


def _steps(job: TrainingJob, rates: Sequence[float], quantum: float, total: int) -> Ints:
    """Levels within the batch for which one more level would take one more worker, and 0."""
    levels = np.arange(1, total + 1)
    useful = np.zeros(total, np.bool_)
    for rate in rates:
        real = levels * quantum * rate
        workers = np.ceil(real - NOISE * np.maximum(1.0, real))
        # one level more takes a worker more; a number of levels between leaves part of a worker unused
        useful |= (np.diff(workers, append=np.inf) > 0) & (workers <= job.batch)
    return np.concatenate([[0], levels[useful]])
