"""Okita's problem (2) in the terms shared by its optimum and its bounds.

The rules (M26, M31 to M33) and their consequences:

- Data move instantly, at any time, and via other sites if that is cheaper: only the ends of a transfer matter, and a MB
  costs :attr:`SiteTerms.path_cost`, the cheapest way. So chunks may as well move just before they are trained.
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
    remote_room, local_room
        Most workers at an empty site while the PS is elsewhere, and beside the PS, but no more than its chunks need;
        `local_room` is -1 if the PS has no room. Shape ``(sites,)``.
    chunks_trained
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
    remote_room: Ints
    local_room: Ints
    chunks_trained: Ints
    latency: Callable[[int], float]

    @property
    def chunks(self) -> int:
        """All its chunks."""
        return int(self.data.sum())

    @property
    def room(self) -> Ints:
        """Most workers at the row's site with the PS at the column's, 0 if it cannot be; shape ``(sites, sites)``."""
        # off the diagonal the PS takes nothing at the workers' site
        room = np.repeat(self.remote_room[:, None], len(self.remote_room), axis=1)
        np.fill_diagonal(room, self.local_room)
        room[:, self.local_room < 0] = 0
        return room

    @property
    def cap(self) -> Ints:
        """Chunks that they train in a slot."""
        return np.asarray(self.chunks_trained[self.room])

    @cached_property
    def max_chunks(self) -> int:
        """Most chunks that it trains in a slot."""
        remote, local = self.chunks_trained[self.remote_room], self.chunks_trained[self.local_room.clip(0)]
        return int((remote.sum() - remote + local)[self.local_room >= 0].max(initial=0))

    @property
    def n_pairs(self) -> int:
        """Number of feasible pairs of a workers' site and the PS's site."""
        remote = self.remote_room > 0
        return int((remote.sum() - remote + (self.local_room > 0))[self.local_room >= 0].sum())


@dataclass(frozen=True, eq=False)
class SiteTerms:
    """The sites and the jobs.

    Attributes
    ----------
    capacity
        C, with the tolerance of M26, shape ``(sites, resources)``.
    cost
        q: cost of a MB from the row's site to the column's.
    path_cost
        The same by the cheapest way.
    """

    capacity: Floats
    cost: Floats
    path_cost: Floats
    jobs: tuple[SiteJobTerms, ...]


def site_terms(scenario: Scenario) -> SiteTerms | None:
    """The terms of a scenario of sites; None if some job can never run, so that no schedule finishes all jobs."""
    cluster = scenario.cluster
    capacity = cluster.amounts * (1 + FITS)
    jobs = tuple(_job(scenario, capacity, j) for j in range(len(scenario.jobs)))
    if any(job.max_chunks == 0 for job in jobs):
        return None
    return SiteTerms(capacity, cluster.site_cost, cheapest_paths(cluster.site_cost)[0], jobs)


def never_fits(scenario: Scenario) -> str | None:
    """The first job that has no room on the empty sites; None if there is none."""
    capacity = scenario.cluster.amounts * (1 + FITS)
    never_fitting = (name for j, name in enumerate(scenario.jobs.ids) if _job(scenario, capacity, j).max_chunks == 0)
    return next(never_fitting, None)


def cheapest_paths(cost: Floats) -> tuple[Floats, Ints]:
    """Cheapest ways between all sites, and the second site on each (Floyd and Warshall)."""
    path_cost, next_site = cost.copy(), np.tile(np.arange(len(cost)), (len(cost), 1))
    for k in range(len(cost)):
        detour = path_cost[:, k, None] + path_cost[k]
        # strictly: ways that cost the same stay direct, and rounding makes no cycles of ways that cost nothing
        shorter = detour < path_cost * (1 - 1e-12)
        path_cost, next_site = np.where(shorter, detour, path_cost), np.where(shorter, next_site[:, k, None], next_site)
    return path_cost, next_site


def _job(scenario: Scenario, capacity: Floats, j: int) -> SiteJobTerms:
    jobs, slot = scenario.jobs, scenario.physics.slot
    chunk_rate, arrival, latency = float(scenario.slot_chunks[j]) + 1e-9, int(jobs.arrival[j]), jobs.latency[j]
    assert latency is not None  # noqa: S101 - a job at sites has one
    data, worker, ps = jobs.data[j], jobs.worker_needs[j], jobs.ps_needs[j]
    # more workers than train all chunks in one slot are of no use
    max_workers = int(np.ceil(data.sum() / chunk_rate))
    fits = (capacity >= ps).all(axis=1)
    return SiteJobTerms(
        first=-(-arrival // slot),
        rate=chunk_rate,
        data=data,
        chunk_mb=float(jobs.chunk_mb[j]),
        exchange_mb=float(jobs.exchange_mb[j]),
        worker=worker,
        ps=ps,
        remote_room=_room(capacity, worker, max_workers),
        # the PS is taken off first: what is left is for the workers beside it
        local_room=np.where(fits, _room(capacity - ps, worker, max_workers), -1),
        chunks_trained=np.array([whole_chunks(chunk_rate, n) for n in range(max_workers + 1)]),
        latency=lambda last: latency(((last + 1) * slot - arrival) / slot),
    )


def _room(free: Floats, worker: Floats, max_workers: int) -> Ints:
    """Workers that fit at each site, at least 0 and at most `max_workers`."""
    # a resource that a worker does not take limits nothing, and would divide by 0
    needed = worker > 0
    fitting = np.floor((free[:, needed] / worker[needed]).min(axis=1) + 1e-9)
    return np.asarray(fitting.clip(0, max_workers), np.int64)
