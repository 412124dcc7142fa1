"""Other windows of a measured workload: its jobs in moving blocks, drawn by a seed.

A trace is one window of a cluster's life, and a seed that only draws upload delays around it gives no second one. A
moving-block bootstrap (Künsch 1989; in its circular form Politis and Romano 1992) makes windows that are alike: blocks
of jobs that follow each other, each with the time to the job before it, put together in a new order. Bursts within a
block and everything of a job stay; which blocks come, and how often, is drawn (ADR 38).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.random import default_rng

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.scenario import Jobs, Scenario

from .file import Source, scenario_form, scenario_of, shipped

_STREAM = 20
"""Random stream of a seed; :mod:`.jobs` and :mod:`.cluster_draw` have the others."""


class Origin(NamedTuple):
    """Origin of a scenario's jobs.

    Attributes
    ----------
    seed
        The scenario's own seed; 0 for a function of the seed.
    measured
        Its jobs are those of a trace or of a jobs table, at whatever seed.
    """

    seed: int
    measured: bool


def origin_of(source: Source) -> Origin:
    """The origin of the jobs of a source; no job is made.

    Raises
    ------
    ScenarioError
        If the file is wrong.
    """
    if isinstance(source, Scenario):
        return Origin(source.seed, measured=False)
    if callable(source):
        return Origin(0, measured=False)
    by_name = isinstance(source, str) and not source.endswith((".yaml", ".yml")) and not Path(source).exists()
    form = scenario_form(shipped(str(source)) if by_name else Path(source))
    return Origin(form.seed, form.workload.trace is not None or form.workload.table is not None)


def window_of(source: Source, seed: int | None, origin: Origin) -> Scenario:
    """The scenario at `seed`; measured jobs are resampled unless it is the scenario's own seed."""
    scenario = scenario_of(source, seed)
    return resampled(scenario, scenario.seed) if is_resampled(origin, seed) else scenario


def is_resampled(origin: Origin, seed: int | None) -> bool:
    """Whether :func:`window_of` resamples the jobs."""
    return origin.measured and seed not in (None, origin.seed)


def resampled(scenario: Scenario, seed: int) -> Scenario:
    """The scenario with as many jobs, drawn from its own by `seed` in blocks of consecutive arrivals.

    Of n jobs a block has about the square root of n; it begins at any job with equal probability, and the first job
    follows the last one, after the mean time between two arrivals. The first job arrives when the first one does. A job
    that is drawn again gets an id of its own, and with it upload delays of its own.
    """
    jobs = scenario.jobs
    n = len(jobs)
    # the root of n rounded up: blocks long enough to keep a burst together, and enough blocks to be drawn from
    block = math.isqrt(max(n - 1, 0)) + 1
    rows = _blocks(n, block, seed)
    arrival = _arrivals(jobs.frame["arrival_s"].cast(pl.Float64).to_numpy(), rows)
    ids = _unique_ids(jobs.ids, rows)
    frame = jobs.frame[rows].with_columns(pl.Series("id", ids), pl.Series("arrival_s", arrival))
    fixed_delays = _fixed_delays_of(jobs.fixed_delays, jobs.ids, rows, ids)
    source: dict[str, Any] = {**scenario.source, "resampled": {"seed": seed, "block": block}}
    return replace(scenario, jobs=Jobs(frame, scenario.cluster, fixed_delays), source=source)


def _blocks(n: int, block: int, seed: int) -> Ints:
    """The jobs of the window, as rows of the original."""
    first = default_rng([seed, _STREAM]).integers(n, size=-(-n // block)) if n else np.zeros(0, np.int64)
    # circular: a block that reaches the last job continues with the first, so each job is drawn with equal probability
    rows: Ints = ((first[:, None] + np.arange(block)) % max(n, 1)).ravel()[:n]
    return rows


def _arrivals(arrival: Floats, rows: Ints) -> Floats:
    """Arrivals [s] of these rows one after the other, each as long after the one before as it was; to the µs."""
    if not len(rows):
        return arrival
    gap = np.diff(arrival, prepend=arrival[0])
    # from the last job to the first one, which the circle puts behind it: no measurement has this gap
    gap[0] = gap[1:].mean() if len(gap) > 1 else 0.0
    since = np.cumsum(gap[rows])
    return np.round(arrival[0] + since - since[0], 6)


def _unique_ids(ids: list[str], rows: Ints) -> list[str]:
    """The ids of these rows; a job that comes again has a number after its id that no other job has."""
    used, times, own = set(ids), dict[str, int](), list[str]()
    for row in rows.tolist():
        name = ids[row]
        if name in times:
            # a job of the trace may itself be called name.2
            times[name] = next(i for i in range(times[name] + 1, len(used) + 2) if f"{name}.{i}" not in used)
            name = f"{name}.{times[name]}"
            used.add(name)
        else:
            times[name] = 1
        own.append(name)
    return own


def _fixed_delays_of(
    fixed_delays: Mapping[str, Mapping[str, float]], ids: list[str], rows: Ints, own: list[str]
) -> dict[str, Mapping[str, float]]:
    """Upload delays fixed in advance, by the jobs' new ids."""
    pairs = ((name, ids[row]) for name, row in zip(own, rows.tolist(), strict=True))
    return {name: fixed_delays[before] for name, before in pairs if before in fixed_delays}
