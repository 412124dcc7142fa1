"""Okita's problem (2) in the terms shared by its optimum and its bounds.

The rules (M26, M31 to M33) and their consequences:

- Data move instantly, at any time, and via other sites if that is cheaper: only the ends of a transfer matter, and a MB
  costs :attr:`SiteTerms.way`, the cheapest way. So chunks may as well move just before they are trained.
- In a slot y workers at a site train at most floor(rho y / E) chunks; how many workers a job can have there depends on
  whether its PS is there too: :attr:`SiteJobTerms.room`.
- The latency cost of a job is a number for each slot that may be its last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.scenario import Scenario
from skedge.core.model.speed import whole_chunks
from skedge.core.model.ties import FITS


@dataclass(frozen=True, eq=False)
class SiteJobTerms:
    """A job.

    Attributes
    ----------
    first
        First slot in which it can be trained.
    rate
        rho / E, chunks that a worker trains in a slot, with the tolerance of M33.
    data
        D^r: its chunks by site, shape ``(sites,)``.
    chunk_mb, exchange_mb
        delta, pi.
    worker, ps
        m, n: demands of a worker and of the PS, shape ``(resources,)``.
    apart, beside
        Most workers at an empty site while the PS is elsewhere, and beside the PS, but no more than its chunks need;
        `beside` is -1 if the PS has no room. Shape ``(sites,)``.
    trains
        Chunks that 0, 1, ... workers train in a slot at a site.
    latency
        Latency cost if the given slot is its last.
    """

    first: int
    rate: float
    data: Ints
    chunk_mb: float
    exchange_mb: float
    worker: Floats
    ps: Floats
    apart: Ints
    beside: Ints
    trains: Ints
    latency: Callable[[int], float]

    @property
    def chunks(self) -> int:
        """All its chunks."""
        return int(self.data.sum())

    @property
    def room(self) -> Ints:
        """Most workers at the row's site with the PS at the column's, 0 if it cannot be; shape ``(sites, sites)``."""
        room = np.repeat(self.apart[:, None], len(self.apart), axis=1)
        np.fill_diagonal(room, self.beside)
        room[:, self.beside < 0] = 0
        return room

    @property
    def cap(self) -> Ints:
        """Chunks that they train in a slot."""
        return np.asarray(self.trains[self.room])

    @cached_property
    def most(self) -> int:
        """Most chunks that it trains in a slot."""
        apart, beside = self.trains[self.apart], self.trains[self.beside.clip(0)]
        return int((apart.sum() - apart + beside)[self.beside >= 0].max(initial=0))

    @property
    def pairs(self) -> int:
        """Number of feasible pairs of a workers' site and the PS's site."""
        apart = self.apart > 0
        return int((apart.sum() - apart + (self.beside > 0))[self.beside >= 0].sum())


@dataclass(frozen=True, eq=False)
class SiteTerms:
    """The sites and the jobs.

    Attributes
    ----------
    capacity
        C, with the tolerance of M26, shape ``(sites, resources)``.
    cost
        q: cost of a MB from the row's site to the column's.
    way, over
        The same by the cheapest way, and the second site on it; shape ``(sites, sites)``.
    """

    capacity: Floats
    cost: Floats
    way: Floats
    over: Ints
    jobs: tuple[SiteJobTerms, ...]

    def path(self, source: int, target: int) -> list[tuple[int, int]]:
        """The steps of the cheapest way."""
        steps, at = [], source
        while at != target:
            steps.append((at, int(self.over[at, target])))
            at = steps[-1][1]
        return steps


def site_terms(scenario: Scenario) -> SiteTerms | None:
    """The terms of a scenario of sites; None if some job can never run, so that no schedule finishes all jobs."""
    cluster = scenario.cluster
    capacity = cluster.amounts * (1 + FITS)
    jobs = tuple(_job(scenario, capacity, j) for j in range(len(scenario.jobs)))
    if any(job.most == 0 for job in jobs):
        return None
    return SiteTerms(capacity, cluster.site_cost, *ways(cluster.site_cost), jobs)


def never_fits(scenario: Scenario) -> str | None:
    """The first job that has no room on the empty sites; None if there is none."""
    capacity = scenario.cluster.amounts * (1 + FITS)
    for j, name in enumerate(scenario.jobs.ids):
        if _job(scenario, capacity, j).most == 0:
            return str(name)
    return None


def ways(cost: Floats) -> tuple[Floats, Ints]:
    """Cheapest ways between all sites, and the second site on each (Floyd and Warshall)."""
    way, over = cost.copy(), np.tile(np.arange(len(cost)), (len(cost), 1))
    for k in range(len(cost)):
        through = way[:, k, None] + way[k]
        better = through < way * (1 - 1e-12)
        way, over = np.where(better, through, way), np.where(better, over[:, k, None], over)
    return way, over


def _job(scenario: Scenario, capacity: Floats, j: int) -> SiteJobTerms:
    jobs, slot = scenario.jobs, scenario.physics.slot
    rate, arrival, f = float(scenario.slot_chunks[j]) + 1e-9, int(jobs.arrival[j]), jobs.latency[j]
    assert f is not None  # noqa: S101 - a job at sites has one
    data, worker, ps = jobs.data[j], jobs.worker_needs[j], jobs.ps_needs[j]
    enough = int(np.ceil(data.sum() / rate))
    fits = (capacity >= ps).all(axis=1)
    return SiteJobTerms(
        first=-(-arrival // slot),
        rate=rate,
        data=data,
        chunk_mb=float(jobs.chunk_mb[j]),
        exchange_mb=float(jobs.exchange_mb[j]),
        worker=worker,
        ps=ps,
        apart=_room(capacity, worker, enough),
        # the PS is taken off first: what is left is for the workers beside it
        beside=np.where(fits, _room(capacity - ps, worker, enough), -1),
        trains=np.array([whole_chunks(rate, n) for n in range(enough + 1)]),
        latency=lambda last: f(((last + 1) * slot - arrival) / slot),
    )


def _room(free: Floats, worker: Floats, enough: int) -> Ints:
    """Workers that fit at each site, at least 0 and at most `enough`."""
    asked = worker > 0
    most = np.floor((free[:, asked] / worker[asked]).min(axis=1) + 1e-9)
    return np.asarray(most.clip(0, enough), np.int64)
