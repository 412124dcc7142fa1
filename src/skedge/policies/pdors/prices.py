"""Eqs. (12)-(14) of PD-ORS, shared with OASiS: prices Q(rho) = L (U/L)^(rho/C), their constants, what is allocated.

Constants are calibrated from a named set of jobs (the trace, or a window of history) before a run, and then frozen:
the same set of jobs always gives the same prices, and nothing that a run learns changes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from skedge.core.errors import PolicyError, ScenarioError
from skedge.core.model.cluster import Cluster, Floats, Ints
from skedge.core.model.speed import ceil_almost
from skedge.core.model.ties import SLACK
from skedge.core.policy import Params

from .job import Completion, TrainingJob, value

MIN_PRICE_RATIO = 1e-12
"""L is at least this part of the largest U: u_i(T - a_i) of a time-critical job can be 1e-40 (P6)."""


def _parse_numbers(value: object) -> object:
    try:
        return [float(text) for text in value.split(";")] if isinstance(value, str) else value
    except ValueError:
        raise ValueError("it must be numbers with semicolons between") from None


def _format_numbers(value: tuple[float, ...] | None) -> str | None:
    return None if value is None else ";".join(repr(x) for x in value)


def _check_source(value: str) -> str:
    if value != "trace" and not (value.startswith("file:") and value != "file:"):
        raise ValueError("it must be trace, or file:<a scenario file or jobs table>")
    return value


Numbers = Annotated[
    tuple[float, ...],
    BeforeValidator(_parse_numbers),
    PlainSerializer(_format_numbers, return_type=str, when_used="json"),
]
"""Numbers, in text joined by semicolons."""


class PrimalDualParams(Params):
    """Parameters of PD-ORS and OASiS.

    Attributes
    ----------
    levels
        N_q, work levels of the dynamic program; ``auto``: they follow the job (:func:`.job.levels_of`).
    completion
        The argument of u: ``end`` or ``index`` of the last slot.
    price_source
        The jobs that L, U and mu are calibrated from before the run: ``trace``, the scenario's own, or
        ``file:<path>``, those of another scenario file or jobs table: a window of history.
    low, high, mu
        The constants, frozen: L and mu of each group of machines (OASiS has two), U by group and resource, 0 for one
        that has no price; None: calibrated from `price_source`.
    """

    levels: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    completion: Completion = "end"
    price_source: Annotated[str, AfterValidator(_check_source)] = "trace"
    low: Numbers | None = None
    high: Numbers | None = None
    mu: Numbers | None = None

    @property
    def history(self) -> str:
        """The file of `price_source`, if constants are taken from it; empty for ``trace``, and if they are given."""
        from_file = self.low is None and self.price_source.startswith("file:")
        return self.price_source.removeprefix("file:") if from_file else ""

    @property
    def job_levels(self) -> int | None:
        """N_q of a :class:`.job.TrainingJob`."""
        return None if self.levels == "auto" else self.levels

    @model_validator(mode="after")
    def _complete(self) -> PrimalDualParams:
        names = [name for name in ("low", "high", "mu") if getattr(self, name) is not None]
        if len(names) in (1, 2):
            raise ValueError(f"low, high and mu go together; given is {' and '.join(names)}")
        if self.low is None or self.high is None:
            return self
        if not np.isfinite([*self.low, *self.high, *(self.mu or ())]).all():
            raise ValueError("low, high and mu must be finite numbers")
        if not self.low or len(self.high) % len(self.low) or not min(self.low) > 0:
            raise ValueError("low must be above 0, and high have as many resources for each low")
        by_group = np.array(self.high).reshape(len(self.low), -1)
        wrong = (by_group != 0) & ~(by_group > np.array(self.low)[:, None])
        if wrong.any():
            raise ValueError(f"U = {by_group[wrong][0]:g} is not above L; a price could not grow")
        return self


class CalibrationJobs(NamedTuple):
    """Demands and utilities of the jobs of a calibration, one row each.

    Attributes
    ----------
    demand
        alpha + beta (OASiS: alpha, or beta), shape ``(jobs, resources)``.
    best, worst
        Utility at the earliest possible end, and at the horizon.
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
        # Eq. (12) in logarithms, as L may be as little as 1e-12 of U (P6)
        low, priced = np.log(self.low)[:, None], self.high > 0
        span = np.log(self.high, out=np.zeros_like(self.high), where=priced) - low
        return np.where(priced, np.exp(low + share * span), 0.0)


def calibrate(jobs: CalibrationJobs, capacity: Floats, horizon: int, factor: float) -> Prices:
    """U^r, mu and L, Eq. (13), (14), for one group of machines.

    Parameters
    ----------
    jobs
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
    need = jobs.worker_slots * jobs.demand.sum(axis=1)
    relevant = need > 0
    if not relevant.any():
        raise ScenarioError("prices: no job to calibrate from; give the jobs of the trace, or of a window of history")
    if not capacity.any():
        return Prices(np.ones(len(capacity)), np.zeros_like(capacity), ())
    demand, best = jobs.demand[relevant], jobs.best[relevant, None]
    # Eq. (13); P5: the maximum over the jobs that use the resource, or no price
    high = np.divide(best, demand, out=np.zeros_like(demand), where=demand > 0).max(axis=0)
    # P7: the largest mu that the condition under (14) asks for, so that it holds for every job
    mu = float((horizon * capacity.sum() / need[relevant]).max())
    # Eq. (14); P6: not below 1e-12 of U, so that U / L stays a float
    low = max(float((jobs.worst[relevant] / (factor * mu * need[relevant])).min()), MIN_PRICE_RATIO * float(high.max()))
    for r in np.flatnonzero(high):
        if high[r] <= low:
            raise ScenarioError(
                f"prices: U = {high[r]:.6g} of resource {r} is not above L = {low:.6g}, so its price would not grow; "
                "the jobs that use it must be worth something if they are complete as early as can be"
            )
    machines = len(capacity)
    return Prices(np.full(machines, low), np.tile(high, (machines, 1)), (mu,))


def pdors_prices(
    jobs: Sequence[TrainingJob], capacity: Floats, horizon: int, completion: Completion = "end"
) -> Prices:  # fmt: skip
    """U^r, mu and L of PD-ORS, Eq. (13), (14).

    Parameters
    ----------
    jobs
        The jobs of the trace, or of a window of history (P8).
    capacity
        C_h^r, shape ``(machines, resources)``.
    horizon
        T [slots].
    completion
        The argument of u: ``end`` or ``index`` of the last slot.

    Raises
    ------
    ScenarioError
        As :func:`.prices.calibrate`.
    """
    check_cluster(capacity, horizon, jobs)
    demand = np.array([sum(job.demands) for job in jobs]).reshape(len(jobs), capacity.shape[1])
    # P4: u of the least duration; (13) subtracts a_i from it once more
    best = np.array([value(job, job.arrival + job.shortest(job.internal), completion) for job in jobs])
    worst = np.array([value(job, horizon, completion) for job in jobs])
    # ceil(E K (tau + 2 g gamma / (b^(e) F))) of (14): worker-slots at the slower rate
    slots = np.array([float(ceil_almost(job.work * job.external)) for job in jobs])
    return calibrate(CalibrationJobs(demand, best, worst, slots), capacity, horizon, factor=2)


def split(machines: int) -> Ints:
    """The machines that host workers where a machine hosts only one kind: 0, 2, 4, ...; the others host PSs."""
    return np.arange(0, machines, 2)


def frozen_prices(policy: str, params: PrimalDualParams, cluster: Cluster, groups: int) -> Prices:
    """The constants in `params` by machine; groups of machines alternate, as in :func:`split`.

    Parameters
    ----------
    policy
        Its name, for messages.
    params
        Parameters with `low`, `high` and `mu` set.
    cluster
        Servers and resources.
    groups
        Number of groups: 1, or 2 for OASiS.

    Raises
    ------
    PolicyError
        If they are for another number of groups or resources.
    """
    resources = len(cluster.resources)
    if params.low is None or params.high is None or params.mu is None:
        raise ValueError(f"{policy}: its constants are not set; give them, or take calibrated(scenario)")
    if len(params.low) != groups:
        raise PolicyError(f"{policy}: low has {len(params.low)} numbers; it must have {groups}")
    high = np.array(params.high).reshape(groups, -1)
    if high.shape[1] != resources:
        resource_names = ", ".join(cluster.resources)
        raise PolicyError(f"{policy}: high is of {high.shape[1]} resources; the servers have {resource_names}")
    group = np.arange(len(cluster.servers)) % groups
    return Prices(np.array(params.low)[group], high[group], tuple(params.mu))


class PricedLoads:
    """The allocated resources of every slot, and their prices; arrays of shape ``(slots, machines, resources)``.

    Parameters
    ----------
    capacity
        C_h^r, shape ``(machines, resources)``.
    horizon
        Number of slots.
    prices
        The frozen constants.

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
        """C - rho of `slot`, shape ``(machines, resources)``; never below 0."""
        return np.maximum(self.capacity - self.load[slot], 0.0)

    def take(self, slot: int, machines: Ints, amount: Floats) -> None:
        """Allocate `amount`, shape ``(len(machines), resources)``, and set the prices anew (Alg. 1 line 3).

        A load within 1e-9 of the capacity is the capacity.
        """
        load, limit = self.load[slot, machines] + amount, self.capacity[machines]
        full = load > limit * (1 - SLACK)
        self.load[slot, machines] = np.where(full, limit, load)
        self.price[slot] = self.prices.at(self.load[slot], self.capacity)

    @property
    def value(self) -> float:
        """Sum over t, h, r of p C: the part of the dual objective (10) that is not payoff."""
        return float((self.price * self.capacity).sum())


def check_cluster(capacity: Floats, horizon: int, jobs: Sequence[TrainingJob]) -> None:
    """Reject an empty cluster, and jobs that are not made for it.

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
