"""OASiS on servers with resources: its prices, and the cost of a slot with workers and PSs on separate machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from skedge.core.errors import ScenarioError
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import ceil_almost, max_units, servers_for
from skedge.platform.jit import compiled
from skedge.policies.pdors.admission import Admission, SlotPlan
from skedge.policies.pdors.job import Completion, TrainingJob, value
from skedge.policies.pdors.policy import PrimalDual
from skedge.policies.pdors.prices import CalibrationJobs, Prices, PrimalDualParams, calibrate, check_cluster, split


def oasis_prices(
    jobs: Sequence[TrainingJob], capacity: Floats, horizon: int, completion: Completion = "end"
) -> Prices:  # fmt: skip
    """U_1, L_1, eta_1 for the machines of workers and U_2, L_2, eta_2 for those of PSs.

    Parameters
    ----------
    jobs
        The jobs of the trace, or of a window of history.
    capacity
        Shape ``(machines, resources)``, at least two machines.
    horizon
        T [slots].
    completion
        The argument of u: ``end`` or ``index`` of the last slot.

    Raises
    ------
    ScenarioError
        As :func:`~skedge.policies.pdors.prices.calibrate`, or if there are not two machines.
    """
    check_cluster(capacity, horizon, jobs)
    if len(capacity) < 2:
        raise ScenarioError("the cluster has 1 machine; workers and PSs are on separate ones, so it needs at least 2")
    hosts = np.isin(np.arange(len(capacity)), split(len(capacity)))
    best = np.array([value(job, job.arrival + job.shortest(job.external), completion) for job in jobs])
    worst = np.array([value(job, horizon, completion) for job in jobs])
    slots = np.array([float(ceil_almost(job.work * job.external)) for job in jobs])
    low, high = np.empty(len(capacity)), np.empty(capacity.shape)
    mu: list[float] = []
    # D3: the two sides share nothing, so each has its own U, L and eta, over its own capacity
    for kind, side in enumerate((hosts, ~hosts)):
        demand = np.array([job.demands[kind] for job in jobs]).reshape(len(jobs), capacity.shape[1])
        prices = calibrate(CalibrationJobs(demand, best, worst, slots), capacity[side], horizon, factor=4)
        low[side], high[side] = prices.low, prices.high
        mu += prices.mu
    return Prices(low, high, tuple(mu))


class Oasis(Admission):
    """OASiS on a cluster; see :class:`~skedge.policies.pdors.admission.Admission` for the parameters."""

    def rates(self, job: TrainingJob) -> tuple[float, ...]:
        """x^(e) alone: no machine holds workers and PSs, so communication is always external."""
        return (job.external,)

    def slot_costs(self, job: TrainingJob) -> Floats:
        """theta(t, v), exact: with counts as the only unknowns the cheapest machines of each side are the optimum."""
        # D1: PSs by the job's ratio; the steps of the levels keep w within the global batch F
        needs = self.levels(job).workers(job.external)
        # level 0 takes nothing, not even the PS that max(1, .) would give it
        workers = np.array([0, *(max(1, ceil_almost(w)) for w in needs[1:].tolist())], np.int64)
        self._counts = np.stack([workers, [0, *(servers_for(w, job.ratio) for w in workers[1:].tolist())]])
        slots = self.horizon - job.arrival
        theta = np.zeros((slots, len(workers)))
        hosts = split(len(self.loads.capacity))
        self._sides = (hosts, np.setdiff1d(np.arange(len(self.loads.capacity)), hosts))
        for t in range(slots):
            # workers and PSs are on different machines: the cost of a slot is the sum of two independent ones
            for kind, side in enumerate(self._sides):
                add_costs(self._counts[kind], *self._offers(job, job.arrival + t, kind, side), theta[t])
        return theta

    def placement(self, job: TrainingJob, slot: int, step: int, cost: float) -> SlotPlan:
        """The cheapest machines of each side, as priced by :meth:`slot_costs`.

        Parameters
        ----------
        job, slot, step, cost
            As in :meth:`skedge.policies.pdors.admission.Admission.placement`.
        """
        counts = np.zeros((2, len(self.loads.capacity)), np.int64)
        for kind, side in enumerate(self._sides):
            cheap, room, price = self._offers(job, slot, kind, side)
            placed = np.zeros(len(side), np.int64)
            fill(int(self._counts[kind, step]), cheap, room, price, placed)
            counts[kind, side] = placed
        used = np.flatnonzero(counts.any(axis=0))
        machines, workers, pss = (tuple(x.tolist()) for x in (used, *counts[:, used]))
        levels = int(self.levels(job).steps[step])
        return SlotPlan(slot, levels, "external", machines, workers, pss, cost)

    def _offers(self, job: TrainingJob, slot: int, kind: int, side: Ints) -> tuple[Ints, Ints, Floats]:
        """The machines of a side by price, then number; the pieces that each holds; the price of one piece."""
        demand = job.demands[kind]
        price = self.loads.price[slot][side] @ demand
        # a stable order: of equal prices the lower machine first
        return np.argsort(price, kind="stable"), max_units(self.loads.free(slot)[side], demand), price


class OasisOnResources(PrimalDual):
    """OASiS on servers with resources."""

    name: ClassVar[str] = "oasis"
    groups: ClassVar[int] = 2

    def __init__(self, params: PrimalDualParams) -> None:
        self.params = params

    def calibrate(self, jobs: Sequence[TrainingJob], capacity: Floats, horizon: int) -> Prices:
        """A price function for the machines of workers, another for those of PSs."""
        return oasis_prices(jobs, capacity, horizon, self.params.completion)

    def admission(self, capacity: Floats, horizon: int, prices: Prices) -> Admission:
        """Alg. 1-3, each kind on its machines."""
        return Oasis(capacity, horizon, prices, self.params.completion)


@compiled
def fill(count: int, order: Ints, room: Ints, price: Floats, placed: Ints) -> float:
    """Cost of `count` pieces on the cheapest machines, inf if there is no room.

    Parameters
    ----------
    count
        Workers or PSs, at least 0.
    order
        Machines by price.
    room, price
        Pieces that each machine holds, and the price of one, shape ``(machines,)``.
    placed
        Filled with the pieces of each machine, unless it is empty.
    """
    cost = 0.0
    for h in order:
        n_machine = min(count, room[h])
        cost += n_machine * price[h]
        if len(placed) > 0:
            placed[h] = n_machine
        count -= n_machine
        if count == 0:
            return cost
    return np.inf


@compiled
def add_costs(counts: Ints, order: Ints, room: Ints, price: Floats, theta: Floats) -> None:
    """Add the cost of each work level's workers or PSs on the cheapest machines.

    Parameters
    ----------
    counts
        Workers or PSs by work level, shape ``(levels + 1,)``; level 0 has none.
    order, room, price
        As in :func:`fill`.
    theta
        theta(t, .), shape ``(levels + 1,)``; changed from level 1 on.
    """
    unplaced = np.empty(0, np.int64)
    for v in range(1, len(counts)):
        theta[v] += fill(counts[v], order, room, price, unplaced)
