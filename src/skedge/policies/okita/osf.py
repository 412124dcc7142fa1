"""OSF and the enumeration over N of Okita, Alg. 1 lines 4-10 and 32-38: a job's best plan for each N.

A plan keeps its workers and PS for l = ceil(E M / (rho N)) slots; it costs the exchange of parameters in all of them
and the transfers that its window needs (O13). The tentative plan is the one of the N with the least bandwidth cost plus
latency cost, the job alone at full capacities.

:func:`every_plan` calls PA and DTA for every N, as printed. :class:`Search` finds the same plan with less work:

- Neither Q nor the room of a site depends on N, so one pass over the sites in PA's order gives the parameter cost for
  every N: O(R (R + N)) for all of them instead of O(N R^2 + N R log R).
- What DTA costs has a simple lower bound: a chunk that leaves pays at least the cheapest way out of its site. DTA is
  run only for those N that the bound does not rule out.
- Bandwidth costs do not depend on the time: a job that waits keeps its tables, and only its latency costs change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import ceil_almost
from skedge.core.model.ties import better
from skedge.platform.jit import compiled

from .dta import gather, transfer, workloads
from .pa import SiteRooms, Weights, fill, place, site_rooms
from .sites import SiteJob, SitePlacement, Sites

_MARGIN = 4e-9
"""A plan whose bound is above the best by more than this, relatively, cannot win a tie."""


@dataclass(frozen=True, eq=False)
class TentativePlan:
    """A job with the same workers and PS for some slots.

    Attributes
    ----------
    slots
        l.
    placement
        y and s.
    parameter_cost, data_cost
        Bandwidth cost over the window, of the exchange of parameters and of transfers.
    """

    slots: int
    placement: SitePlacement
    parameter_cost: float
    data_cost: float

    @property
    def workers(self) -> int:
        """N."""
        return int(self.placement.workers.sum())

    @property
    def bandwidth(self) -> float:
        """Cost that OSF returns."""
        return self.parameter_cost + self.data_cost


@compiled
def window_length(chunks: float, rate: float, workers: int) -> int:
    """Slots of a plan, l = ceil(E M / (rho N)) of line 6, at least 1; `chunks` is M, `rate` rho / E, `workers` N."""
    # D9 (O12): rounding down at the sites is not allowed for, so a plan may need a slot more
    return max(1, ceil_almost(chunks / rate / workers))


@compiled
def window_lengths(chunks: float, rate: float, slots: Ints) -> None:
    """Fill in l for N = 1, 2, ...; `chunks` is M."""
    for i in range(len(slots)):
        slots[i] = window_length(chunks, rate, i + 1)


def osf(sites: Sites, job: SiteJob, left: Ints, rooms: SiteRooms, count: int, slots: int) -> TentativePlan | None:
    """OSF: the plan of N workers for l slots, None without room.

    Its cost is that of PA plus that of DTA, both over the window (O13).

    Parameters
    ----------
    sites, job
        Costs between the sites, and the job.
    left
        M_i^r, chunks, shape ``(sites,)``.
    rooms
        From :func:`.pa.site_rooms`, for U of line 32: full capacities for a tentative plan, Av for a migration.
    count, slots
        N and l, both at least 1.
    """
    placement = place(sites, job, rooms, count)
    return None if placement is None else _plan(sites, job, left, slots, placement)


def every_plan(sites: Sites, job: SiteJob, left: Ints, weights: Weights) -> list[TentativePlan]:
    """The plans for N = 1, 2, ... of the job alone, lines 5-8: the plain form, and what `explain` shows.

    Parameters
    ----------
    sites, job
        All sites at full capacity, and the job.
    left
        M_i^r, chunks, shape ``(sites,)``, of a sum above 0.
    weights
        Parameters of PA.
    """
    rooms, plans = site_rooms(sites, job, left, sites.capacity, weights), []
    lengths = np.empty(job.most_workers(left), np.int64)
    window_lengths(float(left.sum()), job.rate, lengths)
    for count, slots in enumerate(lengths.tolist(), start=1):
        plan = osf(sites, job, left, rooms, count, slots)
        # D7 (O26): a larger N finds no room either
        if plan is None:
            break
        plans.append(plan)
    return plans


def least_cost_plan(job: SiteJob, plans: list[TentativePlan], waited: int) -> TentativePlan | None:
    """Alg. 1 line 9: the cheapest of `plans` for a job that has waited `waited` slots; None if there are none."""
    if not plans:
        return None
    costs = np.array([plan.bandwidth for plan in plans])
    slots = np.array([plan.slots for plan in plans])
    # D8 (O24): latency costs as rises above the earliest end's, or all would be inf after 2,800 slots
    return plans[first_minimum(costs + job.latency.rise(waited + slots.min(), waited + slots))]


@compiled
def first_minimum(costs: Floats) -> int:
    """Index of the first cost that no other is better than: ties go to the smallest N (D8)."""
    best = 0
    for i in range(1, len(costs)):
        if better(costs[i], costs[best]):
            best = i
    return best


class Search:
    """The best plans of one job at full capacities, for as long as the chunks that are left do not change.

    Parameters
    ----------
    sites, job
        All sites at full capacity, and the job.
    left
        M_i^r, chunks, shape ``(sites,)``; not to be changed.
    weights
        Parameters of PA.
    """

    def __init__(self, sites: Sites, job: SiteJob, left: Ints, weights: Weights) -> None:
        self._problem = (sites, job, left)
        self._rooms = site_rooms(sites, job, left, sites.capacity, weights)
        max_workers = min(self._rooms.max_workers, job.most_workers(left))
        self._slots = np.empty(max_workers, np.int64)
        window_lengths(float(left.sum()), job.rate, self._slots)
        self._exchange, self._ps = np.full(max_workers, np.inf), np.full(max_workers, -1)
        self._data, self._bound = np.full(max_workers, np.nan), np.zeros(max_workers)
        self._plans: dict[int, TentativePlan] = {}
        if max_workers > 0:
            exchange_cost_by_count(self._rooms, sites.cost, job.exchange_mb, self._exchange, self._ps)
            bounds(self._rooms, self._ps, left, job.rate, self._slots, sites.least_cost, self._bound)

    def best(self, waited: int) -> TentativePlan | None:
        """The tentative plan of a job that has waited `waited` slots; None if it can never run."""
        if len(self._slots) == 0:
            return None
        sites, job, left = self._problem
        # all of line 9's cost but DTA's; of these only the latency depends on how long the job has waited
        fixed = self._exchange * self._slots + job.latency.rise(waited + self._slots.min(), waited + self._slots)
        index = cheapest(
            self._rooms, self._ps, left, job.rate, self._slots, sites.donors, sites.cost, job.chunk_mb, fixed,
            self._bound, self._data,
        )  # fmt: skip
        if index not in self._plans:
            placement = fill(sites, job, self._rooms, index + 1, int(self._ps[index]))
            self._plans[index] = _plan(sites, job, left, int(self._slots[index]), placement)
        return self._plans[index]


def _plan(sites: Sites, job: SiteJob, left: Ints, slots: int, placement: SitePlacement) -> TentativePlan:
    moved = transfer(sites, left, placement.workers, job.rate, slots)
    return TentativePlan(slots, placement, slots * placement.cost, job.chunk_mb * moved.cost_per_mb)


@compiled
def exchange_cost_by_count(
    rooms: SiteRooms, cost: Floats, exchange_mb: float, exchange: Floats, best_ps: Ints
) -> None:  # fmt: skip
    """PA for N = 1 .. len(exchange) at once: cost of a slot's exchange, and the PS site; of equal ones the last.

    Parameters
    ----------
    rooms
        Order and room of the sites; they do not depend on N.
    cost
        q, per MB from row to column, shape ``(sites, sites)``.
    exchange_mb
        pi_i, MB per slot.
    exchange, best_ps
        Filled, shape ``(N,)``: sum of q pi y in a slot, inf where N workers find no room, and r~.
    """
    order, room, room_with_ps = rooms
    for ps in range(len(room)):
        if room_with_ps[ps] < 0:
            continue
        # workers go to the sites in PA's order whatever N is, so one pass prices every N by its prefix
        n_placed, total = 0, 0.0
        for r in order[ps if len(order) > 1 else 0]:
            n_site = min(len(exchange) - n_placed, room_with_ps[r] if r == ps else room[r])
            unit_cost = cost[r, ps] * exchange_mb
            for n in range(n_site):
                cost_n = total + unit_cost * (n + 1)
                # as in PA, of equal costs the last PS site wins
                if not better(exchange[n_placed + n], cost_n):
                    exchange[n_placed + n], best_ps[n_placed + n] = cost_n, ps
            n_placed, total = n_placed + n_site, total + unit_cost * n_site
            if n_placed == len(exchange):
                break


@compiled
def _fill(order: Ints, room: Ints, room_with_ps: Ints, ps: int, count: int, workers: Ints) -> None:
    """PA lines 9-11 for a PS site and an N that are known to fit."""
    workers[:] = 0
    for r in order[ps if len(order) > 1 else 0]:
        workers[r] = min(count, room_with_ps[r] if r == ps else room[r])
        count -= workers[r]
        if count == 0:
            return


@compiled
def bounds(
    rooms: SiteRooms, best_ps: Ints, left: Ints, rate: float, slots: Ints, least_cost: Floats, bound: Floats
) -> None:  # fmt: skip
    """Lower bound of DTA's cost per MB for each N: each chunk that must leave takes the cheapest way out of its site.

    Parameters
    ----------
    rooms
        Order and room of the sites.
    best_ps
        PS site of each N, shape ``(N,)``.
    left
        M_i^r, chunks, shape ``(sites,)``.
    rate
        rho / E.
    slots
        l of each N, shape ``(N,)``.
    least_cost
        Least cost of a MB to another site, shape ``(sites,)``.
    bound
        Filled, shape ``(N,)``.
    """
    order, room, room_with_ps = rooms
    workers, trained = np.empty(len(room), np.int64), np.empty(len(room), np.int64)
    for i in range(len(bound)):
        _fill(order, room, room_with_ps, best_ps[i], i + 1, workers)
        workloads(left, workers, rate, slots[i], trained)
        moving_cost, untrained = 0.0, 0
        for r in range(len(left)):
            moving_cost += least_cost[r] * max(0, left[r] - trained[r])
            untrained += left[r] - trained[r]
        # every surplus chunk must leave only if the window trains all chunks (sum of left - trained is 0)
        bound[i] = moving_cost if untrained == 0 else 0.0


@compiled
def cheapest(
    rooms: SiteRooms, best_ps: Ints, left: Ints, rate: float, slots: Ints, donors: Ints, cost: Floats, chunk_mb: float,
    fixed: Floats, bound: Floats, data: Floats,
) -> int:  # fmt: skip
    """N - 1 of the first N that no other is better than (Alg. 1 line 9).

    Parameters
    ----------
    rooms, best_ps, left, rate, slots
        As in :func:`bounds`.
    donors, cost
        As in :class:`.sites.Sites`.
    chunk_mb
        delta_i, MB.
    fixed
        All of the cost but DTA's, shape ``(N,)``.
    bound
        From :func:`bounds`.
    data
        DTA's cost per MB where it has been computed, nan elsewhere, shape ``(N,)``; filled in where it is needed.
    """
    order, room, room_with_ps = rooms
    workers, trained = np.empty(len(room), np.int64), np.empty(len(room), np.int64)
    moves = np.empty((2 * len(room), 3), np.int64)
    limit, first = np.inf, int(np.argmin(fixed + chunk_mb * bound))
    total = np.full(len(fixed), np.inf)
    # the most promising N first: its cost rules out most of the others without DTA
    for step in range(-1, len(fixed)):
        i = first if step < 0 else step
        if fixed[i] + chunk_mb * bound[i] > limit + _MARGIN * abs(limit):
            continue
        if np.isnan(data[i]):
            _fill(order, room, room_with_ps, best_ps[i], i + 1, workers)
            workloads(left, workers, rate, slots[i], trained)
            # DTA of Alg. 3; kept, as it does not depend on how long the job has waited
            _, data[i] = gather(left - trained, donors, cost, moves)
        total[i] = fixed[i] + chunk_mb * data[i]
        limit = min(limit, total[i])
    return first_minimum(total)
