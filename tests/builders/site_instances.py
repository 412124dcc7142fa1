"""Random instances of Okita's model: small ones in numbers that floats hold exactly, and larger ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

from skedge.core.model.latency import Exponential, LatencyCost, Linear, Piecewise
from skedge.policies.okita.sites import SiteJob, Sites


def draw_sites(rng: Generator, *, exact: bool = True, asymmetric: bool = False) -> Sites:
    """A few sites, some without one resource or any; in the first a worker and a PS of every drawn job fit."""
    count, resources = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    capacity = rng.integers(0, 7, (count, resources)).astype(float)
    capacity[0] = 8
    if not exact:
        capacity *= rng.uniform(0.9, 1.1)
    cost = rng.integers(0, 13, (count, count)) / 4 if exact else rng.uniform(0.02, 0.08, (count, count))
    cost = np.triu(cost, 1)
    cost = cost + (np.tril(rng.integers(0, 13, (count, count)) / 4, -1) if asymmetric else cost.T)
    return Sites(capacity, cost, asymmetric)


def draw_latency(rng: Generator) -> LatencyCost:
    tau = float(rng.integers(1, 30))
    kind = rng.integers(3)
    if kind == 0:
        return Exponential(tau)
    return Linear(tau, float(rng.integers(3))) if kind == 1 else Piecewise(tau, tau + 50, float(rng.integers(1, 5)))


def draw_jobs(rng: Generator, sites: Sites, count: int, *, fits: bool = True) -> list[SiteJob]:
    """Jobs that arrive close together; without `fits` some need more than any site has."""
    resources = sites.capacity.shape[1]
    jobs = []
    for number in range(count):
        worker: Any = rng.integers(0, 4, resources)
        ps: Any = rng.integers(0, 4 if fits else 9, resources)
        worker[rng.integers(resources)] = rng.integers(1, 4)
        data: Any = rng.integers(0, 9, len(sites))
        data[rng.integers(len(sites))] += 1
        jobs.append(
            SiteJob(
                id=number, arrival=int(rng.integers(0, 4)), rate=float(rng.integers(4, 15)) / 4,
                chunk_mb=float(rng.integers(0, 4)), exchange_mb=float(rng.integers(0, 6)),
                data=tuple(data.tolist()), worker=tuple(worker.tolist()), ps=tuple(ps.tolist()),
                latency=draw_latency(rng),
            )
        )  # fmt: skip
    return jobs
