"""Jobs of Okita's evaluation, made from a trace's arrivals: data at many sites, resource needs, latency costs.

All values are drawn column by column from one generator, in the order of :class:`SiteRanges`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import polars as pl
from numpy.random import Generator

from skedge.core.model.cluster import Ints
from skedge.core.model.job_fields import DATA
from skedge.core.model.latency import parameter_names
from skedge.traces.frame import check_frame
from skedge.traces.jobs_table import PS_DEMAND, WORKER_DEMAND, Counts, Range, draw_needs, jobs_table


@dataclass(frozen=True, slots=True)
class SiteRanges:
    """The ranges of the uniform draws in Okita Sec. V-B; bounds included.

    Attributes
    ----------
    site_chunks
        D_i^r, number of chunks at each site.
    job_chunks
        If given, instead: numbers of chunks of a job, one of them drawn, spread evenly over the sites: which of them
        have one more than the others is drawn.
    chunk_mb
        delta_i [MB].
    slot_chunks
        rho_i / E_i: chunks that one worker trains per slot, >= 1 (O11).
    exchange_mb
        pi_i [MB per slot].
    worker_needs, ps_needs
        Demand by resource, whole numbers.
    latency
        Kind of latency cost function.
    tau, rate, base
        Parameters of the exponential and the linear function; the rate is 0.25 in the paper.
    early, late, deadline
        Parameters of the piecewise function: tau_1, tau_2, c.
    """

    site_chunks: Counts = (10, 20)
    job_chunks: Sequence[int] = ()
    chunk_mb: Range = (20.0, 60.0)
    slot_chunks: Range = (5.0, 15.0)
    exchange_mb: Range = (30.0, 575.0)
    worker_needs: Mapping[str, Counts] = field(default_factory=lambda: WORKER_DEMAND)
    ps_needs: Mapping[str, Counts] = field(default_factory=lambda: PS_DEMAND)
    latency: Literal["exponential", "linear", "piecewise"] = "exponential"
    tau: Range = (20.0, 100.0)
    rate: Range = (0.25, 0.25)
    base: Range = (50.0, 200.0)
    early: Range = (20.0, 100.0)
    late: Range = (300.0, 400.0)
    deadline: Range = (3.0, 5.0)


def site_jobs(
    trace: pl.DataFrame, rng: Generator, sites: Sequence[str], *, slot_s: float, ranges: SiteRanges | None = None
) -> pl.DataFrame:
    """Jobs of Okita Sec. V-B: arrivals from `trace`, all other values drawn from `ranges`.

    Parameters
    ----------
    trace
        A trace frame; its durations are not used.
    rng
        Source of all randomness.
    sites
        Names of the sites.
    slot_s
        Length of a slot [s].
    ranges
        None: the ranges of the paper.

    Returns
    -------
    polars.DataFrame
        A jobs table in the trace's order, with one epoch and one mini-batch per chunk, because only rho / E matters.
    """
    r = ranges or SiteRanges()
    n = len(check_frame(trace, "trace"))
    data = _even_data(rng, r.job_chunks, n, len(sites)) if r.job_chunks else _data(rng, r.site_chunks, n, len(sites))
    drawn: dict[str, object] = {
        "chunks": data.sum(axis=1),
        "chunk_mb": rng.uniform(*r.chunk_mb, n),
        # a chunk is one mini-batch of one epoch (below), so it takes a slot over rho / E
        "minibatch_s": slot_s / rng.uniform(*r.slot_chunks, n),
        "exchange_mb": rng.uniform(*r.exchange_mb, n),
    }
    drawn |= draw_needs(rng, n, r.worker_needs, r.ps_needs)
    drawn["latency"] = pl.Series([r.latency]).new_from_index(0, n)
    for name in parameter_names(r.latency):
        low, high = getattr(r, name)
        drawn[f"latency_{name}"] = rng.uniform(low, high, n)
    drawn |= {DATA + site: data[:, i] for i, site in enumerate(sites)}
    unit_columns = dict.fromkeys(("epochs", "minibatches", "workers", "bandwidth_mbps"), np.ones(n, np.int64))
    return jobs_table(trace, unit_columns | drawn)


def _data(rng: Generator, site_chunks: Counts, jobs: int, sites: int) -> Ints:
    """Chunks by job and site, each drawn by itself."""
    return rng.integers(*site_chunks, (jobs, sites), endpoint=True)


def _even_data(rng: Generator, job_chunks: Sequence[int], jobs: int, sites: int) -> Ints:
    """Chunks by job and site: a total drawn for each job, spread evenly."""
    total = rng.choice(np.array(job_chunks, np.int64), jobs)
    # a random order of the sites for each job: the first ones have a chunk more
    order = rng.permuted(np.tile(np.arange(sites), (jobs, 1)), axis=1)
    return (total // sites)[:, None] + (order < (total % sites)[:, None])
