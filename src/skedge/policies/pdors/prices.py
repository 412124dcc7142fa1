"""What PD-ORS and OASiS share: prices Q(rho) = L (U/L)^(rho/C), in logarithms, and what is allocated.

Constants are calibrated from a named set of jobs (the trace, or a window of history) before a run, and then frozen:
the same set of jobs always gives the same prices, and nothing that a run learns changes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skedge.core.errors import ScenarioError
from skedge.core.model import Floats, Ints

from .job import TrainingJob

LEAST = 1e-12
"""L is at least this part of the largest U: u_i(T - a_i) of a time-critical job can be 1e-40 (P6)."""


class Stakes(NamedTuple):
    """What the jobs of a calibration ask for and are worth; one row each.

    Attributes
    ----------
    demand
        alpha + beta (OASiS: alpha, or beta), shape ``(jobs, resources)``.
    best, worst
        Utility if it ends as early as can be, and at the horizon.
    worker_slots
        ceil(E K x^(e)).
    """

    demand: Floats
    best: Floats
    worst: Floats
    worker_slots: Floats


@dataclass(frozen=True)
class Prices:
    """Constants of the price functions, by machine and resource [utility per unit of the resource and slot].

    Attributes
    ----------
    low
        L by machine, shape ``(machines,)``.
    high
        U^r by machine, shape ``(machines, resources)``; 0 for a resource that no job of the calibration uses: it is
        never priced (P5).
    mu
        The scaling factors, one for each group of machines that was calibrated by itself.
    """

    low: Floats
    high: Floats
    mu: tuple[float, ...]

    def at(self, load: Floats, capacity: Floats) -> Floats:
        """Prices at the given load, Eq. (12).

        Parameters
        ----------
        load, capacity
            Shape ``(..., machines, resources)`` and ``(machines, resources)``; 0 <= load <= capacity.

        Returns
        -------
        L at load 0, U at full load (and where there is no capacity), 0 for resources that are not priced.
        """
        share = np.divide(load, capacity, out=np.ones_like(load), where=capacity > 0)
        low, priced = np.log(self.low)[:, None], self.high > 0
        span = np.log(self.high, out=np.zeros_like(self.high), where=priced) - low
        return np.where(priced, np.exp(low + share * span), 0.0)


def calibrate(stakes: Stakes, capacity: Floats, horizon: int, factor: float) -> Prices:
    """U^r, mu and L, Eq. (13), (14), for one group of machines.

    Parameters
    ----------
    stakes
        The jobs; those with no demand at all are left out.
    capacity
        Shape ``(machines, resources)``.
    horizon
        T [slots].
    factor
        The number before mu in L: 2 in PD-ORS, 4 in OASiS.

    Returns
    -------
    The constants; no resource has a price where the machines have no capacity at all.

    Raises
    ------
    ScenarioError
        If no job is given, or the U of a resource is not above L.
    """
    need = stakes.worker_slots * stakes.demand.sum(axis=1)
    asks = need > 0
    if not asks.any():
        raise ScenarioError("prices: no job to calibrate from; give the jobs of the trace, or of a window of history")
    if not capacity.any():
        return Prices(np.ones(len(capacity)), np.zeros_like(capacity), ())
    demand, best = stakes.demand[asks], stakes.best[asks, None]
    high = np.divide(best, demand, out=np.zeros_like(demand), where=demand > 0).max(axis=0)
    # P7: the largest mu that the condition under (14) asks for, so that it holds for every job
    mu = float((horizon * capacity.sum() / need[asks]).max())
    low = max(float((stakes.worst[asks] / (factor * mu * need[asks])).min()), LEAST * float(high.max()))
    for r in np.flatnonzero(high):
        if high[r] <= low:
            raise ScenarioError(
                f"prices: U = {high[r]:.6g} of resource {r} is not above L = {low:.6g}, so its price would not grow; "
                "the jobs that use it must be worth something if they are complete as early as can be"
            )
    machines = len(capacity)
    return Prices(np.full(machines, low), np.tile(high, (machines, 1)), (mu,))


class Ledger:
    """What is allocated in every slot, and the price of it; all arrays have shape ``(slots, machines, resources)``.

    Attributes
    ----------
    capacity
        C_h^r, shape ``(machines, resources)``.
    load
        rho_h^r[t].
    price
        p_h^r[t].
    """

    def __init__(self, capacity: Floats, horizon: int, prices: Prices) -> None:
        self.capacity, self.prices = capacity, prices
        self.load = np.zeros((horizon, *capacity.shape))
        self.price = prices.at(self.load, capacity)

    def free(self, slot: int) -> Floats:
        """What is left in `slot`: never below 0."""
        return np.maximum(self.capacity - self.load[slot], 0.0)

    def take(self, slot: int, machines: Ints, amount: Floats) -> None:
        """Allocate `amount`, shape ``(len(machines), resources)``, and set the prices anew (Alg. 1 line 3).

        A load within 1e-9 of the capacity is the capacity.
        """
        load, limit = self.load[slot, machines] + amount, self.capacity[machines]
        full = load > limit * (1 - 1e-9)
        self.load[slot, machines] = np.where(full, limit, load)
        self.price[slot] = self.prices.at(self.load[slot], self.capacity)

    @property
    def value(self) -> float:
        """Sum over t, h, r of p C: the part of the dual objective (10) that is not payoff."""
        return float((self.price * self.capacity).sum())


def check_cluster(capacity: Floats, horizon: int, jobs: Sequence[TrainingJob]) -> None:
    """Refuse a cluster that is none, and jobs that are not made for it.

    Raises
    ------
    ScenarioError
        Naming what does not fit.
    """
    if capacity.ndim != 2 or 0 in capacity.shape or not np.isfinite(capacity).all() or (capacity < 0).any():
        raise ScenarioError(f"capacity: shape {capacity.shape}; it takes an amount, 0 or more, by machine and resource")
    if horizon < 1:
        raise ScenarioError(f"horizon = {horizon} slots; it must be 1 or more")
    for job in jobs:
        if len(job.worker) != capacity.shape[1]:
            raise ScenarioError(
                f"job {job.id}: demands for {len(job.worker)} resources; the machines have {capacity.shape[1]}"
            )
        if job.arrival >= horizon:
            raise ScenarioError(f"job {job.id}: arrival = {job.arrival}; the last slot is {horizon - 1}")
