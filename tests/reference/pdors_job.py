"""The job of ``pdors.py``: Eq. (1), utility, demands and what a placement costs, in the paper's letters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from skedge.policies.pdors.job import TrainingJob

Table = Sequence[Sequence[float]]
"""By machine and resource."""

Placement = tuple[tuple[int, int], ...]
"""Workers and PSs (w, s) by machine, in one slot."""

Schedule = list[tuple[int, Placement]]
"""pi_i: slots and placements."""

INF = math.inf


def rate_time(job: TrainingJob, *, inside: bool) -> float:
    """Denominator of Eq. (1) with the nominal ratio."""
    return job.sample_time + job.ratio / job.batch * 2 * job.gradient_mb / (
        job.internal_mb if inside else job.external_mb
    )


def up(x: float) -> int:
    """ceil(x), where the rounding error of a float is no reason for one more."""
    return math.ceil(x - 1e-9 * max(1.0, abs(x)))


def servers(job: TrainingJob, workers: int) -> int:
    """PSs for this number of workers (P10)."""
    return max(1, up(workers / job.ratio))


def quantum(job: TrainingJob) -> int:
    """Samples of a level of work: v counts levels, not samples (P3)."""
    return -(-job.work // job.levels)  # type: ignore[operator]


def quanta(job: TrainingJob) -> int:
    """V_i in levels."""
    return -(-job.work // quantum(job))


def utility(job: TrainingJob, duration: float) -> float:
    """u_i, a sigmoid."""
    u = job.utility
    return u.height / (1 + math.exp(u.steepness * (duration - u.target)))


def fits(job: TrainingJob, free: Sequence[float], w: int, s: int) -> bool:
    """(18) on one machine."""
    return all(a * w + b * s <= f * (1 + 1e-9) + 1e-18 for a, b, f in zip(job.worker, job.ps, free, strict=True))


def is_inside(placement: Placement) -> bool:
    """Fact 1: one machine has all workers and all PSs."""
    hosts = [h for h, (w, s) in enumerate(placement) if w or s]
    return len(hosts) == 1


def price_of(job: TrainingJob, prices: Table, placement: Placement) -> float:
    return sum(
        p * (a * w + b * s)
        for row, (w, s) in zip(prices, placement, strict=True)
        for p, a, b in zip(row, job.worker, job.ps, strict=True)
    )
