"""Jobs of PD-ORS's evaluation, made from a trace's arrivals: resource needs, samples, two rates, sigmoid utilities.

All values are drawn column by column from one generator, in the order of :class:`ValueRanges`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from skedge.core.errors import TraceError
from skedge.core.model.cluster import Floats, Ints
from skedge.traces.frame import check_frame
from skedge.traces.jobs_table import PS_DEMAND, WORKER_DEMAND, Counts, Range, draw_needs, jobs_table

CLASSES = {"0": 0, "1": 1, "2": 1, "3": 2}
"""Kind of a job by Google's scheduling class (PD-ORS Sec. V): 0 time-insensitive, 1 and 2 -sensitive, 3 -critical."""

SENSITIVE, CRITICAL = (0.01, 1.0), (4.0, 6.0)
"""theta2 of time-sensitive and of time-critical jobs [1/slot]; it is 0 for time-insensitive jobs."""


@dataclass(frozen=True, slots=True)
class ValueRanges:
    """The ranges of the uniform draws in PD-ORS Sec. V; bounds included.

    Attributes
    ----------
    epochs, samples
        E, K.
    gradient_mb
        g [MB].
    sample_slots
        tau [slots].
    ratio
        gamma, whole numbers.
    batch
        F.
    bandwidth_mbps
        b^(e) [Mbit/s]. Not given in the paper; the range of JSAC'22.
    internal_factor
        b^(i) / b^(e), >= 1. The paper only calls it large.
    worker_needs, ps_needs
        Demand by resource, whole numbers.
    height, target
        theta1, theta3 [slots].
    mix
        Shares of time-insensitive, time-sensitive and time-critical jobs; their sum is 1. ``classes``: by each job's
        scheduling class, which is the trace's `group` (:data:`CLASSES`).
    """

    epochs: Counts = (50, 200)
    samples: Counts = (20_000, 500_000)
    gradient_mb: Range = (30.0, 575.0)
    sample_slots: Range = (1e-5, 1e-4)
    ratio: Counts = (1, 10)
    batch: Counts = (1, 200)
    bandwidth_mbps: Range = (100.0, 5120.0)
    internal_factor: float = 20.0
    worker_needs: Mapping[str, Counts] = field(default_factory=lambda: WORKER_DEMAND)
    ps_needs: Mapping[str, Counts] = field(default_factory=lambda: PS_DEMAND)
    height: Range = (1.0, 100.0)
    target: Range = (1.0, 15.0)
    mix: tuple[float, float, float] | Literal["classes"] = (0.1, 0.55, 0.35)

    def __post_init__(self) -> None:
        if self.mix == "classes":
            return
        if min(self.mix) < 0 or abs(sum(self.mix) - 1) > 1e-9:
            raise TraceError(f"mix: {list(self.mix)}; shares of insensitive, sensitive, critical jobs have a sum of 1")


def value_jobs(
    trace: pl.DataFrame, rng: Generator, *, slot_s: float, ranges: ValueRanges | None = None
) -> pl.DataFrame:
    """Jobs of PD-ORS Sec. V: arrivals from `trace`, all other values drawn from `ranges`.

    Parameters
    ----------
    trace
        A trace frame; its durations are not used.
    rng
        Source of all randomness.
    slot_s
        Length of a slot [s].
    ranges
        None: the ranges of the paper.

    Returns
    -------
    polars.DataFrame
        A jobs table in the trace's order; a job has one chunk of K mini-batches, one per sample.
    """
    r = ranges or ValueRanges()
    n = len(check_frame(trace, "trace"))
    drawn: dict[str, NDArray[Any]] = {
        "epochs": rng.integers(*r.epochs, n, endpoint=True),
        "minibatches": rng.integers(*r.samples, n, endpoint=True),
        "gradient_mb": rng.uniform(*r.gradient_mb, n),
        "minibatch_s": slot_s * rng.uniform(*r.sample_slots, n),
        "ratio": rng.integers(*r.ratio, n, endpoint=True).astype(np.float64),
        "batch": rng.integers(*r.batch, n, endpoint=True),
        "bandwidth_mbps": rng.uniform(*r.bandwidth_mbps, n),
    }
    drawn |= draw_needs(rng, n, r.worker_needs, r.ps_needs)
    drawn["utility_height"], drawn["utility_target"] = rng.uniform(*r.height, n), rng.uniform(*r.target, n)
    drawn["utility_steepness"] = _steepness(_kinds(trace, r.mix, rng), rng)
    drawn["internal_mbps"] = r.internal_factor * drawn["bandwidth_mbps"]
    # at most F_i workers (M27)
    drawn["workers"] = np.minimum(drawn["batch"], trace["gpus"].to_numpy())
    return jobs_table(trace, {"chunks": np.ones(n, np.int64), **drawn})


def _kinds(trace: pl.DataFrame, mix: tuple[float, float, float] | Literal["classes"], rng: Generator) -> Ints:
    """Kind of each job: 0 time-insensitive, 1 time-sensitive, 2 time-critical, shape ``(jobs,)``."""
    if mix != "classes":
        # the sum may differ from 1 by rounding, which NumPy does not accept
        return rng.choice(3, len(trace), p=np.array(mix) / sum(mix))
    unknown = trace.filter(~pl.col("group").is_in(list(CLASSES)))["group"].head(1).to_list()
    if unknown:
        raise TraceError(f"mix: classes: group {unknown[0]!r} is no scheduling class; the trace must be Google's")
    return trace["group"].replace_strict(CLASSES, return_dtype=pl.Int64).to_numpy()


def _steepness(kind: Ints, rng: Generator) -> Floats:
    """Draw theta2 according to the kind of each job."""
    sensitive, critical = rng.uniform(*SENSITIVE, len(kind)), rng.uniform(*CRITICAL, len(kind))
    return np.choose(kind, [np.zeros(len(kind)), sensitive, critical])
