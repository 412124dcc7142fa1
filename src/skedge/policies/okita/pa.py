"""PA, Alg. 2 of Okita: the sites of N workers and the PS of a job in one slot.

For every site that can hold the PS, workers go to the sites in decreasing order of the metric Q, Eq. (6), as many as
each holds; the PS site of the lowest parameter exchange cost wins, of equal ones the last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from pydantic import Field

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.ties import GRAIN, SLACK, better
from skedge.core.policy import Params
from skedge.platform.jit import compiled

from .sites import SiteJob, SitePlacement, Sites, room


class Weights(Params):
    """Parameters of PA.

    Attributes
    ----------
    beta1, beta2, beta3
        Of what is free, of the distance and of the data left, in Eq. (6); the paper does not say which it used (O28).
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


class Rooms(NamedTuple):
    """What PA looks at, ready for any number of workers.

    Attributes
    ----------
    order
        Sites by decreasing Q, shape ``(1, sites)``; with `colocate` a row for each PS site.
    room
        Workers that each site holds, shape ``(sites,)``.
    beside
        The same beside the PS; -1 where the PS does not fit.
    """

    order: Ints
    room: Ints
    beside: Ints

    @property
    def most(self) -> int:
        """Most workers that can be placed with a PS; 0 if no site holds the PS, or no worker fits."""
        return int((self.room.sum() - self.room + self.beside)[self.beside >= 0].max(initial=0))


def terms(sites: Sites, job: SiteJob, left: Ints, free: Floats, weights: Weights) -> Terms:
    """Q's terms for a job with `left` chunks by site, shape ``(sites,)``, where `free` is to be had (U)."""
    # a resource that a site does not have counts as not free, and is not divided by 0
    part = np.divide(free, sites.capacity, out=np.zeros_like(free), where=sites.capacity > 0).mean(axis=1)
    remaining = np.divide(left, job.chunks, out=np.zeros(len(left)), where=job.chunks > 0)
    distance = -weights.beta2 * _scale(sites, job, weights) * sites.mean_cost
    return Terms(weights.beta1 * part, distance, weights.beta3 * remaining)


def rooms(sites: Sites, job: SiteJob, left: Ints, free: Floats, weights: Weights) -> Rooms:
    """Order and room of the sites for a job, for `free` of shape ``(sites, resources)``."""
    worker, ps = job.demands
    quality = terms(sites, job, left, free, weights).total[None, :]
    if weights.colocate:
        # D12: transposed, so that a row is a PS site and a column the workers' site
        quality = quality - weights.beta2 * _scale(sites, job, weights) * sites.cost.T
    # Alg. 2 line 8; of equal Q the lower site, rounding errors set aside
    order = np.argsort(-np.rint(quality * GRAIN), axis=1, kind="stable")
    # beside the PS there is room for fewer workers, so that site counts apart
    beside = np.where((free >= ps * (1 - SLACK)).all(axis=1), room(free - ps, worker), -1)
    return Rooms(order, room(free, worker), beside)


def place(sites: Sites, job: SiteJob, at: Rooms, count: int) -> SitePlacement | None:
    """PA for `count` workers, or None if they and the PS find no room."""
    costs = exchange_costs(sites, job, at, count)
    ps, best = -1, np.inf
    for site in np.flatnonzero(np.isfinite(costs)):
        # `not better`, so that a tie goes to the later site (the <= of Alg. 2 line 12)
        if not better(best, costs[site]):
            ps, best = int(site), float(costs[site])
    return None if ps < 0 else fill(sites, job, at, count, ps)


def exchange_costs(sites: Sites, job: SiteJob, at: Rooms, count: int) -> Floats:
    """Cost of a slot's parameter exchange by PS site, inf where `count` workers and the PS find no room."""
    costs = np.full(len(sites), np.inf)
    if at.room.sum() >= count:
        _exchange(at.order, at.room, at.beside, sites.cost, job.exchange_mb, count, costs)
    return costs


def fill(sites: Sites, job: SiteJob, at: Rooms, count: int, ps: int) -> SitePlacement:
    """Alg. 2 lines 9-11 for one PS site that has room."""
    workers = np.zeros(len(sites), np.int64)
    cost = fill_one(at.order, at.room, at.beside, sites.cost, job.exchange_mb, count, ps, workers)
    return SitePlacement(workers, ps, float(cost))


@compiled
def _exchange(
    order: Ints, room: Ints, beside: Ints, cost: Floats, exchange_mb: float, count: int, costs: Floats
) -> None:  # fmt: skip
    nowhere = np.empty(0, np.int64)
    for ps in range(len(room)):
        if beside[ps] >= 0:
            costs[ps] = fill_one(order, room, beside, cost, exchange_mb, count, ps, nowhere)


@compiled
def fill_one(
    order: Ints, room: Ints, beside: Ints, cost: Floats, exchange_mb: float, count: int, ps: int, workers: Ints
) -> float:  # fmt: skip
    """Cost of a slot's exchange with the PS at `ps`, inf without room; `workers` says where, if it has a length."""
    total = 0.0
    # with `colocate` the order of the sites depends on the PS site
    row = order[ps if len(order) > 1 else 0]
    for r in row:
        # Alg. 2, lines 9-11: as many as there is room for, beside the PS fewer
        here = min(count, beside[r] if r == ps else room[r])
        total += cost[r, ps] * exchange_mb * here
        if len(workers) > 0:
            workers[r] = here
        count -= here
        if count == 0:
            return total
    return np.inf


def _scale(sites: Sites, job: SiteJob, weights: Weights) -> float:
    """What multiplies a mean cost per MB in Q: pi, or what makes the largest 1."""
    largest = float(sites.mean_cost.max())
    if weights.normalise:
        return 1 / largest if largest > 0 else 0.0
    return job.exchange_mb
