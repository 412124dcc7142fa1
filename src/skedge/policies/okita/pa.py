"""PA, Alg. 2 of Okita: the sites of N workers and the PS of a job in one slot.

For every site that can hold the PS, workers go to the sites in decreasing order of the metric Q, Eq. (6), as many as
each holds; the PS site of the lowest parameter exchange cost wins, of equal ones the last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from pydantic import Field

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import max_units
from skedge.core.model.ties import GRAIN, SLACK, better
from skedge.core.policy import Params
from skedge.platform.jit import compiled

from .sites import SiteJob, SitePlacement, Sites


class Weights(Params):
    """Parameters of PA.

    Attributes
    ----------
    beta1, beta2, beta3
        Weights of the free resources, the distance and the data left in Eq. (6); the paper does not say which it used
        (O28).
    normalise, colocate
        D11, D12.
    """

    beta1: float = Field(1.0, ge=0)
    beta2: float = Field(1.0, ge=0)
    beta3: float = Field(1.0, ge=0)
    normalise: bool = False
    colocate: bool = False


class Terms(NamedTuple):
    """The three terms of Q, Eq. (6), with their signs and factors, by site; Q is their sum."""

    free: Floats
    distance: Floats
    data: Floats

    @property
    def total(self) -> Floats:
        """Q without regard to the PS."""
        return self.free + self.distance + self.data


class SiteRooms(NamedTuple):
    """Order and room of the sites for one job: all that PA needs for any number of workers.

    Attributes
    ----------
    order
        Sites by decreasing Q, shape ``(1, sites)``; with `colocate` a row for each PS site.
    room
        A_i^r for r != r~: workers that each site holds, shape ``(sites,)``.
    room_with_ps
        A_i^r for r = r~: workers that it holds beside the PS; -1 where the PS does not fit (D10, O16).
    """

    order: Ints
    room: Ints
    room_with_ps: Ints

    @property
    def max_workers(self) -> int:
        """Most workers that can be placed with a PS; 0 if no site holds the PS, or no worker fits."""
        return int((self.room.sum() - self.room + self.room_with_ps)[self.room_with_ps >= 0].max(initial=0))


def terms(sites: Sites, job: SiteJob, left: Ints, free: Floats, weights: Weights) -> Terms:
    """The three terms of Q, Eq. (6), by site.

    Parameters
    ----------
    sites, job
        Capacities and costs, and the job.
    left
        M_i^r, chunks, shape ``(sites,)``.
    free
        U, shape ``(sites, resources)``.
    weights
        Parameters of PA.
    """
    # D11 (O19): 0/0 is 0 in both terms
    # a resource that a site does not have counts as not free, and is not divided by 0
    free_share = np.divide(free, sites.capacity, out=np.zeros_like(free), where=sites.capacity > 0).mean(axis=1)
    remaining = np.divide(left, job.chunks, out=np.zeros(len(left)), where=job.chunks > 0)
    distance = -weights.beta2 * _scale(sites, job, weights) * sites.mean_cost
    return Terms(weights.beta1 * free_share, distance, weights.beta3 * remaining)


def site_rooms(sites: Sites, job: SiteJob, left: Ints, free: Floats, weights: Weights) -> SiteRooms:
    """Order and room of the sites for a job: PA lines 4-8 for all PS sites at once.

    Parameters
    ----------
    sites, job, left, free, weights
        As in :func:`terms`.
    """
    worker, ps = job.demands
    quality = terms(sites, job, left, free, weights).total[None, :]
    if weights.colocate:
        # D12: transposed, so that a row is a PS site and a column the workers' site
        quality = quality - weights.beta2 * _scale(sites, job, weights) * sites.cost.T
    # line 8; Q that differ by rounding alone are equal, and of equal Q the lower site goes first (D13)
    order = np.argsort(-np.rint(quality * GRAIN), axis=1, kind="stable")
    # beside the PS there is room for fewer workers, so that site counts apart
    room_with_ps = np.where((free >= ps * (1 - SLACK)).all(axis=1), max_units(free - ps, worker), -1)
    # line 6; a resource that a worker does not need does not limit (D10, O16)
    return SiteRooms(order, max_units(free, worker), room_with_ps)


def place(sites: Sites, job: SiteJob, rooms: SiteRooms, count: int) -> SitePlacement | None:
    """PA for N workers, or None if they and the PS find no room.

    Parameters
    ----------
    sites, job
        Costs between the sites, and the job.
    rooms
        From :func:`site_rooms`.
    count
        N, at least 1.
    """
    costs = exchange_costs(sites, job, rooms, count)
    ps, best = -1, np.inf
    for site in np.flatnonzero(np.isfinite(costs)):
        # `not better`, so that a tie goes to the later site (the <= of Alg. 2 line 12)
        if not better(best, costs[site]):
            ps, best = int(site), float(costs[site])
    return None if ps < 0 else fill(sites, job, rooms, count, ps)


def exchange_costs(sites: Sites, job: SiteJob, rooms: SiteRooms, count: int) -> Floats:
    """Cost of a slot's parameter exchange by PS site, shape ``(sites,)``; inf where the workers find no room.

    Parameters
    ----------
    sites, job, rooms, count
        As in :func:`place`.
    """
    costs = np.full(len(sites), np.inf)
    if rooms.room.sum() >= count:
        _exchange(rooms.order, rooms.room, rooms.room_with_ps, sites.cost, job.exchange_mb, count, costs)
    return costs


def fill(sites: Sites, job: SiteJob, rooms: SiteRooms, count: int, ps: int) -> SitePlacement:
    """Alg. 2 lines 9-11 for one PS site.

    Parameters
    ----------
    sites, job, rooms, count
        As in :func:`place`.
    ps
        r~; the workers must find room with the PS there.
    """
    workers = np.zeros(len(sites), np.int64)
    cost = fill_one(rooms.order, rooms.room, rooms.room_with_ps, sites.cost, job.exchange_mb, count, ps, workers)
    return SitePlacement(workers, ps, float(cost))


@compiled
def _exchange(
    order: Ints, room: Ints, room_with_ps: Ints, cost: Floats, exchange_mb: float, count: int, costs: Floats
) -> None:  # fmt: skip
    no_output = np.empty(0, np.int64)
    for ps in range(len(room)):
        if room_with_ps[ps] >= 0:
            costs[ps] = fill_one(order, room, room_with_ps, cost, exchange_mb, count, ps, no_output)


@compiled
def fill_one(
    order: Ints, room: Ints, room_with_ps: Ints, cost: Floats, exchange_mb: float, count: int, ps: int, workers: Ints
) -> float:  # fmt: skip
    """Alg. 2 lines 9-13: cost of a slot's exchange with the PS at `ps`, inf without room.

    Parameters
    ----------
    order, room, room_with_ps
        As in :class:`SiteRooms`.
    cost
        q, per MB from row to column, shape ``(sites, sites)``.
    exchange_mb
        pi_i, MB per slot.
    count, ps
        N and r~.
    workers
        Filled with y, shape ``(sites,)``, unless it is empty.
    """
    total = 0.0
    # with `colocate` the order of the sites depends on the PS site
    row = order[ps if len(order) > 1 else 0]
    for r in row:
        # line 10: as many as there is room for, beside the PS fewer
        n_site = min(count, room_with_ps[r] if r == ps else room[r])
        total += cost[r, ps] * exchange_mb * n_site
        if len(workers) > 0:
            workers[r] = n_site
        count -= n_site
        if count == 0:
            return total
    return np.inf


def _scale(sites: Sites, job: SiteJob, weights: Weights) -> float:
    """Factor of a mean cost per MB in Q: pi_i, or with `normalise` 1 over the largest mean cost (D11, O19)."""
    largest = float(sites.mean_cost.max())
    if weights.normalise:
        return 1 / largest if largest > 0 else 0.0
    return job.exchange_mb
