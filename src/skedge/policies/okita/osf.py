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

from .dta import gather, share, transfer
from .pa import Rooms, Weights, fill, place, rooms
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
    parameters, data
        Bandwidth cost over the window, of the exchange of parameters and of transfers.
    """

    slots: int
    placement: SitePlacement
    parameters: float
    data: float

    @property
    def workers(self) -> int:
        """N."""
        return int(self.placement.workers.sum())

    @property
    def bandwidth(self) -> float:
        """Cost that OSF returns."""
        return self.parameters + self.data


@compiled
def window_length(chunks: float, rate: float, workers: int) -> int:
    """Slots of a plan, l = ceil(E M / (rho N)), at least 1; `chunks` is M, `workers` N."""
    return max(1, ceil_almost(chunks / rate / workers))


@compiled
def window_lengths(chunks: float, rate: float, slots: Ints) -> None:
    """Fill in l for N = 1, 2, ...; `chunks` is M."""
    for i in range(len(slots)):
        slots[i] = window_length(chunks, rate, i + 1)


def osf(sites: Sites, job: SiteJob, left: Ints, at: Rooms, count: int, slots: int) -> TentativePlan | None:
    """The plan of `count` workers for `slots` slots in what :func:`.pa.rooms` has found, None without room.

    The cost is that of PA over the window plus that of DTA over the window.
    """
    placement = place(sites, job, at, count)
    return None if placement is None else _plan(sites, job, left, slots, placement)


def every_plan(sites: Sites, job: SiteJob, left: Ints, weights: Weights) -> list[TentativePlan]:
    """The plans for N = 1, 2, ... as long as there are any, the job alone: the plain form, and what `explain` shows."""
    at, found = rooms(sites, job, left, sites.capacity, weights), []
    lengths = np.empty(job.most_workers(left), np.int64)
    window_lengths(float(left.sum()), job.rate, lengths)
    for count, slots in enumerate(lengths.tolist(), start=1):
        plan = osf(sites, job, left, at, count, slots)
        if plan is None:
            break
        found.append(plan)
    return found


def least(job: SiteJob, plans: list[TentativePlan], waited: int) -> TentativePlan | None:
    """Alg. 1 line 9 over all `plans`, for a job that has waited `waited` slots."""
    if not plans:
        return None
    costs = np.array([plan.bandwidth for plan in plans])
    slots = np.array([plan.slots for plan in plans])
    return plans[first_least(costs + job.latency.rise(waited + slots.min(), waited + slots))]


@compiled
def first_least(costs: Floats) -> int:
    """Index of the first cost that none is better than."""
    at = 0
    for i in range(1, len(costs)):
        if better(costs[i], costs[at]):
            at = i
    return at


class Search:
    """The best plans of one job at full capacities, for as long as the chunks that are left do not change.

    Parameters
    ----------
    left
        M_i^r, shape ``(sites,)``; not to be changed.
    """

    def __init__(self, sites: Sites, job: SiteJob, left: Ints, weights: Weights) -> None:
        self._of = (sites, job, left)
        self._at = rooms(sites, job, left, sites.capacity, weights)
        most = min(self._at.most, job.most_workers(left))
        self._slots = np.empty(most, np.int64)
        window_lengths(float(left.sum()), job.rate, self._slots)
        self._exchange, self._ps = np.full(most, np.inf), np.full(most, -1)
        self._data, self._bound = np.full(most, np.nan), np.zeros(most)
        self._plans: dict[int, TentativePlan] = {}
        if most > 0:
            sweep(*self._at, sites.cost, job.exchange_mb, self._exchange, self._ps)
            bounds(*self._at, self._ps, left, job.rate, self._slots, sites.least_cost, self._bound)

    def best(self, waited: int) -> TentativePlan | None:
        """The tentative plan of a job that has waited `waited` slots; None if it can never run."""
        if len(self._slots) == 0:
            return None
        sites, job, left = self._of
        fixed = self._exchange * self._slots + job.latency.rise(waited + self._slots.min(), waited + self._slots)
        at = cheapest(
            *self._at, self._ps, left, job.rate, self._slots, sites.donors, sites.cost, job.chunk_mb, fixed,
            self._bound, self._data,
        )  # fmt: skip
        if at not in self._plans:
            placement = fill(sites, job, self._at, at + 1, int(self._ps[at]))
            self._plans[at] = _plan(sites, job, left, int(self._slots[at]), placement)
        return self._plans[at]


def _plan(sites: Sites, job: SiteJob, left: Ints, slots: int, placement: SitePlacement) -> TentativePlan:
    moved = transfer(sites, left, placement.workers, job.rate, slots)
    return TentativePlan(slots, placement, slots * placement.cost, job.chunk_mb * moved.cost_per_mb)


@compiled
def sweep(
    order: Ints, room: Ints, beside: Ints, cost: Floats, exchange_mb: float, least: Floats, best_ps: Ints
) -> None:  # fmt: skip
    """PA for N = 1 .. len(least) at once: cost of a slot's exchange, and the PS site; of equal ones the last."""
    for ps in range(len(room)):
        if beside[ps] < 0:
            continue
        done, total = 0, 0.0
        for r in order[ps if len(order) > 1 else 0]:
            here = min(len(least) - done, beside[r] if r == ps else room[r])
            each = cost[r, ps] * exchange_mb
            for n in range(here):
                so_far = total + each * (n + 1)
                # as in PA, of equal costs the last PS site wins
                if not better(least[done + n], so_far):
                    least[done + n], best_ps[done + n] = so_far, ps
            done, total = done + here, total + each * here
            if done == len(least):
                break


@compiled
def _fill(order: Ints, room: Ints, beside: Ints, ps: int, count: int, workers: Ints) -> None:
    workers[:] = 0
    for r in order[ps if len(order) > 1 else 0]:
        workers[r] = min(count, beside[r] if r == ps else room[r])
        count -= workers[r]
        if count == 0:
            return


@compiled
def bounds(
    order: Ints, room: Ints, beside: Ints, best_ps: Ints, left: Ints, rate: float, slots: Ints, least_cost: Floats,
    bound: Floats,
) -> None:  # fmt: skip
    """For each N at most what DTA costs per MB: what must leave, by the cheapest way out of its site."""
    workers, trained = np.empty(len(room), np.int64), np.empty(len(room), np.int64)
    for i in range(len(bound)):
        _fill(order, room, beside, best_ps[i], i + 1, workers)
        share(left, workers, rate, slots[i], trained)
        leaves, stays = 0.0, 0
        for r in range(len(left)):
            leaves += least_cost[r] * max(0, left[r] - trained[r])
            stays += left[r] - trained[r]
        # every surplus chunk must leave only if the window trains all chunks (sum of left - trained is 0)
        bound[i] = leaves if stays == 0 else 0.0


@compiled
def cheapest(
    order: Ints, room: Ints, beside: Ints, best_ps: Ints, left: Ints, rate: float, slots: Ints, donors: Ints,
    cost: Floats, chunk_mb: float, fixed: Floats, bound: Floats, data: Floats,
) -> int:  # fmt: skip
    """N - 1 of the first N that no other is better than.

    `fixed` is all of the cost but DTA's; `data` is DTA's cost per MB where it has been computed, nan elsewhere, and is
    filled in where it is needed.
    """
    workers, trained = np.empty(len(room), np.int64), np.empty(len(room), np.int64)
    moves = np.empty((2 * len(room), 3), np.int64)
    limit, first = np.inf, int(np.argmin(fixed + chunk_mb * bound))
    total = np.full(len(fixed), np.inf)
    # the most promising N first: its cost rules out most of the others without DTA
    for turn in range(-1, len(fixed)):
        i = first if turn < 0 else turn
        if fixed[i] + chunk_mb * bound[i] > limit + _MARGIN * abs(limit):
            continue
        if np.isnan(data[i]):
            _fill(order, room, beside, best_ps[i], i + 1, workers)
            share(left, workers, rate, slots[i], trained)
            # DTA of Alg. 3; kept, as it does not depend on how long the job has waited
            _, data[i] = gather(left - trained, donors, cost, moves)
        total[i] = fixed[i] + chunk_mb * data[i]
        limit = min(limit, total[i])
    return first_least(total)
