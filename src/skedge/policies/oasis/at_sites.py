"""OASiS in Okita's model: a job's whole schedule is made on arrival, at prices for every resource, site and slot.

A price grows with what is booked (:class:`skedge.policies.pdors.prices.PricedLoads`), the work of a job is spread
over the slots by Alg. 3 (:func:`skedge.policies.pdors.admission.prefix_table`), and the completion of the least latency
cost plus price is taken. In its slots the job stands as planned, and DTA moves the data that each needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydantic import Field

from skedge.core.errors import ScenarioError
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import max_units, whole_chunks
from skedge.core.model.ties import NOISE, SLACK, TOLERANCE
from skedge.core.policy import Params
from skedge.platform.jit import compiled
from skedge.policies.okita.dta import transfer
from skedge.policies.okita.sites import SiteJob, SitePlacement, Sites
from skedge.policies.okita.slots import Decision, Progress, SiteScheduler, site_jobs, sites_of
from skedge.policies.pdors.admission import prefix_table
from skedge.policies.pdors.prices import MIN_PRICE_RATIO, CalibrationJobs, PricedLoads, Prices, calibrate, split

if TYPE_CHECKING:
    from skedge.core.model.scenario import Scenario


class SiteOasisParams(Params):
    """Parameters of OASiS in Okita's model.

    Attributes
    ----------
    levels
        N_q, the wanted number of work levels; 50 also stands for OASiS's ``auto``, as no job is rejected here.
    split_sites
        D5.
    """

    levels: int = Field(50, ge=1)
    split_sites: bool = True


class BookedSlot(NamedTuple):
    """One slot of a plan: workers y by site, and the site of the PS."""

    workers: Ints
    ps: int


def site_prices(jobs: Sequence[SiteJob], sites: Sites, horizon: int) -> Prices:
    """U^r, mu and L, from the jobs of the trace or of a window of history; OASiS's 4 before mu.

    U^r: per unit that a worker and a PS take, what ending as early as can be saves. A resource whose U is not above L,
    because only jobs of far smaller stakes use it, has no price; it still limits. Where no job saves anything by ending
    before the horizon nothing has a price.

    Raises
    ------
    ScenarioError
        If there is no job.
    """
    demand = np.array([sum(job.demands) for job in jobs]).reshape(len(jobs), sites.capacity.shape[1])
    best = np.array([job.latency.rise(1, np.array(horizon - job.arrival)) for job in jobs], float)
    if len(jobs) > 0 and best.max() <= 0:
        return Prices(np.ones(len(sites)), np.zeros_like(sites.capacity), ())
    high = np.divide(best[:, None], demand, out=np.zeros_like(demand), where=demand > 0).max(axis=0, initial=0.0)
    # a resource whose U is this small would have no price function above L; demand 0 leaves it unpriced
    demand[:, high <= MIN_PRICE_RATIO * high.max()] = 0.0
    slots = np.array([float(job.most_workers(job.chunks)) for job in jobs])
    return calibrate(CalibrationJobs(demand, best, np.zeros(len(jobs)), slots), sites.capacity, horizon, factor=4)


def site_constants(scenario: Scenario) -> dict[str, tuple[float, ...]]:
    """L, U and mu from the jobs of `scenario`, as parameters."""
    prices = site_prices(site_jobs(scenario), sites_of(scenario.cluster), scenario.physics.slots or 1)
    return {"low": (float(prices.low[0]),), "high": tuple(prices.high[0].tolist()), "mu": prices.mu}


class SiteOasis(SiteScheduler):
    """OASiS in Okita's model: a plan is made on arrival and followed slot by slot.

    Parameters
    ----------
    sites
        Capacities and costs.
    horizon
        T, the slots of the books to begin with (D9).
    prices
        The frozen constants.
    params
        See :class:`SiteOasisParams`.
    """

    def __init__(
        self, sites: Sites, horizon: int, prices: Prices, params: SiteOasisParams | None = None
    ) -> None:  # fmt: skip
        super().__init__(sites)
        self.params = params or SiteOasisParams()
        self.loads = PricedLoads(sites.capacity, horizon, prices)
        self.plans: dict[int, dict[int, BookedSlot]] = {}
        self._hosts = hosts(len(sites), split_sites=self.params.split_sites)

    def arrive(self, job: SiteJob) -> None:
        """As :meth:`~skedge.policies.okita.slots.SiteScheduler.arrive`, and the job's schedule is made."""
        super().arrive(job)
        if not self._plan(self.active[job.id], job.arrival):
            self.give_up(job.id)

    def decide(self, slot: int) -> list[Decision]:
        """Follow the plans; work left undone at the end of a plan, as a site was out of service, is planned again."""
        decisions = []
        for progress in self.active.values():
            # the plan is over and the job is not: a site was out of service, so the rest is planned anew
            if slot > max(self.plans[progress.job.id]):
                self._plan(progress, slot)
            booked = self.plans[progress.job.id].get(slot)
            if booked is None:
                decisions.append(Decision(progress.job.id, "delay", progress.left))
                continue
            # D8: the plan ignores bandwidth; what it costs is known only when the data move
            cost = progress.job.exchange_mb * float(self.sites.cost[:, booked.ps] @ booked.workers)
            moved = transfer(self.sites, progress.left, booked.workers, progress.job.rate)
            decisions.append(
                Decision(progress.job.id, "run", progress.left, SitePlacement(booked.workers, booked.ps, cost), moved)
            )
        return decisions

    def _plan(self, progress: Progress, start: int) -> bool:
        """Plan and book the remaining work from a slot on; false if no empty slot holds any of it."""
        job = progress.job
        empty = self._offer(job, self.sites.capacity, np.zeros_like(self.sites.capacity))
        # D7: a level must fit into one slot of empty sites, or no slot could do any work
        quantum = min(-(-int(progress.left.sum()) // self.params.levels), empty.chunks(job.rate))
        if quantum == 0:
            return False
        # D4, D9: no job is rejected here, so the books grow until the work fits in
        while (plan := self._schedule_within(progress, start, quantum)) is None:
            self.loads = doubled_loads(self.loads)
        self.plans[job.id] = plan
        # prices rise with what is booked, as in step 3 of Alg. 1
        for slot, booked in plan.items():
            demand = SitePlacement(booked.workers, booked.ps, 0.0).demand(job)
            self.loads.take(slot, np.arange(len(self.sites)), demand)
        return True

    def _schedule_within(self, progress: Progress, start: int, quantum: int) -> dict[int, BookedSlot] | None:
        """The schedule by slot, in levels of `quantum` chunks; None if the books cannot hold it."""
        job, levels = progress.job, -(-int(progress.left.sum()) // quantum)
        slots = range(start, len(self.loads.load))
        # the books know nothing of sites out of service, so the capacity in service limits them too
        in_service = self.sites.capacity
        offers = [self._offer(job, np.minimum(self.loads.free(t), in_service), self.loads.price[t]) for t in slots]
        theta = np.full((len(offers), levels + 1), np.inf)
        for offer, costs in zip(offers, theta, strict=True):
            slot_costs(offer.order, offer.room, offer.price, offer.fixed, quantum, job.rate, costs)
        total, last = np.empty_like(theta), np.empty(theta.shape, np.int64)
        prefix_table(theta, np.arange(levels + 1), total, last)
        plan, left = {}, levels
        # from the last slot back: `last` tells what a slot does, the rest is left to the slots before it
        for offset in range(self._end(job, start, total[:, -1]), -1, -1):
            if last[offset, left] > 0:
                plan[start + offset] = offers[offset].booked(int(last[offset, left]) * quantum, job.rate)
                left -= int(last[offset, left])
        return plan or None

    def _end(self, job: SiteJob, start: int, cost: Floats) -> int:
        """Slots from `start` to the end of the cheapest completion, -1 if there is none; a later one must be better."""
        # D4: u = f(T - a) - f(x), so the largest u less cost is the least f(x) plus cost, whatever T is
        rise = job.latency.rise(1, start - job.arrival + np.arange(1, len(cost) + 1))
        best, end = np.inf, -1
        for offset in np.flatnonzero(np.isfinite(cost)):
            if end < 0 or cost[offset] + rise[offset] < best - TOLERANCE * abs(best):
                best, end = cost[offset] + rise[offset], int(offset)
        return end

    def _offer(self, job: SiteJob, free: Floats, price: Floats) -> Offer:
        """One slot as the job sees it."""
        worker, ps = job.demands
        worker_price, hosts = price @ worker, self._hosts
        worker_room = np.where(hosts[0], max_units(free, worker), 0)
        # the PS comes out of its site's room, so a site that holds it has room for fewer workers
        room_with_ps = np.where(hosts[0], max_units(np.maximum(free - ps, 0.0), worker), 0)
        # D6: a site may hold the PS only if some worker still finds room with the PS there
        ps_sites = (
            hosts[1] & (free >= ps * (1 - SLACK)).all(axis=1) & (worker_room.sum() - worker_room + room_with_ps > 0)
        )
        if not ps_sites.any():
            return Offer(np.empty(0, np.int64), worker_room, worker_price, np.inf, -1)
        ps_site = int(np.argmin(np.where(ps_sites, price @ ps, np.inf)))
        worker_room[ps_site] = room_with_ps[ps_site]
        return Offer(
            np.argsort(worker_price, kind="stable"), worker_room, worker_price, float(price[ps_site] @ ps), ps_site
        )


class Offer(NamedTuple):
    """A slot as one job sees it.

    Attributes
    ----------
    order
        Sites by the price of a worker.
    room, price
        Workers that each site holds, and what one costs.
    fixed, ps
        Price of the PS and its site; inf and -1 where there is no room.
    """

    order: Ints
    room: Ints
    price: Floats
    fixed: float
    ps: int

    def chunks(self, rate: float) -> int:
        """Most chunks that can be trained; 0 without room for a PS."""
        return sum(whole_chunks(rate, int(y)) for y in self.room) if self.ps >= 0 else 0

    def booked(self, chunks: int, rate: float) -> BookedSlot:
        """The workers that train `chunks`."""
        workers = np.zeros(len(self.room), np.int64)
        slot_cost(self.order, self.room, self.price, chunks, rate, workers)
        return BookedSlot(workers, self.ps)


def hosts(sites: int, *, split_sites: bool) -> np.ndarray:
    """Masks of the sites that may hold workers and of those that may hold a PS (D5), shape ``(2, sites)``.

    Parameters
    ----------
    sites
        Number of sites.
    split_sites
        False: every site may hold both.

    Raises
    ------
    ScenarioError
        If there is no site for one of the kinds.
    """
    if not split_sites:
        return np.ones((2, sites), np.bool_)
    if sites < 2:
        raise ScenarioError(
            f"oasis: {sites} site; workers and PSs stand at separate ones, which takes 2 or more; "
            "with split_sites=false they share"
        )
    for_workers = np.isin(np.arange(sites), split(sites))
    return np.stack([for_workers, ~for_workers])


def doubled_loads(loads: PricedLoads) -> PricedLoads:
    """Twice as many slots, with the same load and prices (D9)."""
    slots = len(loads.load)
    doubled = PricedLoads(loads.capacity, 2 * slots, loads.prices)
    doubled.load[:slots], doubled.price[:slots] = loads.load, loads.price
    return doubled


@compiled
def slot_costs(
    order: Ints, room: Ints, price: Floats, fixed: float, quantum: int, rate: float, theta: Floats
) -> None:  # fmt: skip
    """theta(t, v) for all levels v of a slot; inf where they find no room.

    Parameters
    ----------
    order, room, price, fixed
        As in :class:`Offer`.
    quantum, rate
        Chunks of a level, and rho / E.
    theta
        Filled, shape ``(levels + 1,)``.
    """
    theta[0] = 0.0
    nowhere = np.empty(0, np.int64)
    for v in range(1, len(theta)):
        theta[v] = fixed + slot_cost(order, room, price, v * quantum, rate, nowhere)
        # more chunks find no room either: the other levels stay inf
        if theta[v] == np.inf:
            return


@compiled
def slot_cost(order: Ints, room: Ints, price: Floats, chunks: int, rate: float, workers: Ints) -> float:
    """Price of the workers that train `chunks`, the cheapest first; inf if they find no room.

    Parameters
    ----------
    order, room, price
        As in :class:`Offer`.
    chunks, rate
        Chunks to train in the slot, and rho / E.
    workers
        Filled with the workers by site, unless it is empty.
    """
    cost = 0.0
    for r in order:
        # D7: a site trains whole chunks, floor(rate y), so the quotient may be a worker short
        count = min(room[r], int(np.ceil(chunks / rate - NOISE)))
        while count < room[r] and whole_chunks(rate, count) < chunks:
            count += 1
        cost += count * price[r]
        if len(workers) > 0:
            workers[r] = count
        chunks -= whole_chunks(rate, count)
        if chunks <= 0:
            return cost
    return np.inf
