"""OASiS: online scheduling of training jobs with workers and PSs on separate machines (Bao et al., INFOCOM'18).

**Problem.** As PD-ORS (:mod:`.pdors`), but a machine hosts workers or PSs, never both, so communication is always
external. Maximise the total utility of the admitted jobs.

**Algorithm.** Alg. 1-3 in :mod:`.admission`. In a slot, w = ceil(v x^(e)) workers go to the machines where a worker is
cheapest, s = max(1, ceil(w / gamma)) PSs to those where a PS is; with counts as the only unknowns that is the optimum.

**Guarantee.** 2 alpha-competitive with alpha = max(1, ln U_1/L_1, ln U_2/L_2), as recalled from the paper.

**Deviations**, for the comparison with PD-ORS, whose authors gave each kind half of the machines:

- D1 PSs by the job's ratio instead of its bandwidth, and the global batch F as the limit of workers.
- D2 Work in levels that follow the job (:mod:`.levels`) instead of data chunks x epochs: with one rate, x^(e), a level
  is what a worker does in a slot, and nothing is lost by counting so.
- D3 Prices of each side are calibrated on its own machines: L has 4 eta, eta over the capacity of the side.

**Complexity.** O(T (H log H + V' H)) a job, and the dynamic program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from skedge.core.errors import PolicyError, ScenarioError
from skedge.core.events import Event, Order
from skedge.core.jit import compiled
from skedge.core.model import Cluster, Floats, Ints, Physics
from skedge.core.policy import Basis, Params, View
from skedge.core.speed import ceil_almost, servers_for
from skedge.policies.common.round_robin import split
from skedge.policies.okita.driver import SiteDriver, site_jobs, sites_of
from skedge.policies.pdors.admission import Admission, Completion, SlotPlan, value
from skedge.policies.pdors.job import TrainingJob
from skedge.policies.pdors.policy import PrimalDual, PrimalDualParams
from skedge.policies.pdors.prices import Prices, Stakes, calibrate, check_cluster

from .at_sites import SiteOasis, SiteOasisParams, site_prices

if TYPE_CHECKING:
    from numpy.random import Generator

    from skedge.core.scenario import Scenario


def oasis_prices(
    jobs: Sequence[TrainingJob], capacity: Floats, horizon: int, completion: Completion = "end"
) -> Prices:  # fmt: skip
    """U_1, L_1, eta_1 for the machines of workers and U_2, L_2, eta_2 for those of PSs.

    Raises
    ------
    ScenarioError
        As :func:`.pricing.calibrate`, or if there are not two machines.
    """
    check_cluster(capacity, horizon, jobs)
    if len(capacity) < 2:
        raise ScenarioError("1 machine; workers and PSs stand on separate ones, so it takes 2")
    hosts = np.isin(np.arange(len(capacity)), split(len(capacity)))
    best = np.array([value(job, job.arrival + job.shortest(job.external), completion) for job in jobs])
    worst = np.array([value(job, horizon, completion) for job in jobs])
    slots = np.array([float(ceil_almost(job.work * job.external)) for job in jobs])
    low, high = np.empty(len(capacity)), np.empty(capacity.shape)
    mu: list[float] = []
    for kind, side in enumerate((hosts, ~hosts)):
        demand = np.array([job.demands[kind] for job in jobs]).reshape(len(jobs), capacity.shape[1])
        prices = calibrate(Stakes(demand, best, worst, slots), capacity[side], horizon, factor=4)
        low[side], high[side] = prices.low, prices.high
        mu += prices.mu
    return Prices(low, high, tuple(mu))


class Oasis(Admission):
    """OASiS on a cluster; see :class:`.admission.Admission` for the parameters."""

    def rates(self, job: TrainingJob) -> tuple[float, ...]:
        """Always external."""
        return (job.external,)

    def slot_costs(self, job: TrainingJob) -> Floats:
        """theta(t, v), exact."""
        needs = self.levels(job).workers(job.external)
        workers = np.array([0, *(max(1, ceil_almost(w)) for w in needs[1:].tolist())], np.int64)
        self._counts = np.stack([workers, [0, *(servers_for(w, job.ratio) for w in workers[1:].tolist())]])
        slots, most = self.horizon - job.arrival, len(workers) - 1
        theta = np.zeros((slots, most + 1))
        hosts = split(len(self.ledger.capacity))
        self._sides = (hosts, np.setdiff1d(np.arange(len(self.ledger.capacity)), hosts))
        for t in range(slots):
            for kind, side in enumerate(self._sides):
                cheap, room, price = self._offers(job, job.arrival + t, kind, side)
                for v in range(1, most + 1):
                    theta[t, v] += fill(int(self._counts[kind, v]), cheap, room, price, np.empty(0, np.int64))
        return theta

    def placement(self, job: TrainingJob, slot: int, step: int, cost: float) -> SlotPlan:
        """The cheapest machines of each side."""
        found = np.zeros((2, len(self.ledger.capacity)), np.int64)
        for kind, side in enumerate(self._sides):
            cheap, room, price = self._offers(job, slot, kind, side)
            taken = np.zeros(len(side), np.int64)
            fill(int(self._counts[kind, step]), cheap, room, price, taken)
            found[kind, side] = taken
        at = np.flatnonzero(found.any(axis=0))
        machines, workers, pss = (tuple(x.tolist()) for x in (at, *found[:, at]))
        levels = int(self.levels(job).steps[step])
        return SlotPlan(slot, levels, "external", machines, workers, pss, cost)

    def _offers(self, job: TrainingJob, slot: int, kind: int, side: Ints) -> tuple[Ints, Ints, Floats]:
        """Of the machines of a side: order by price, then number; how many each can hold; price of one."""
        demand = job.demands[kind]
        asked = demand > 0
        price = self.ledger.price[slot][side] @ demand
        free = self.ledger.free(slot)[side][:, asked]
        room = np.floor((free / demand[asked]).min(axis=1) + 1e-9).astype(np.int64)
        return np.argsort(price, kind="stable"), room, price


class OasisParams(PrimalDualParams):
    """Parameters of OASiS, besides those of :class:`.primal_dual.PrimalDualParams`.

    Attributes
    ----------
    split_sites
        At sites: workers at every other site, the first included, and PSs at the others. On servers with resources the
        two kinds are always apart.
    """

    split_sites: bool = False


class OasisPolicy(PrimalDual):
    """OASiS: jobs admitted by primal-dual prices; workers and PSs on separate servers."""

    name: ClassVar[str] = "oasis"
    Parameters: ClassVar[type[Params]] = OasisParams
    needs: ClassVar[frozenset[str]] = frozenset({"resources with a utility of every job, or sites", "a horizon"})
    groups: ClassVar[int] = 2

    def calibrated(self, scenario: Scenario) -> OasisPolicy:
        """As :meth:`.PrimalDual.calibrated`; at sites by :func:`.site_oasis.site_prices`."""
        if scenario.cluster.transfer_cost is None or self.params.low is not None:
            return cast("OasisPolicy", super().calibrated(scenario))
        sites = sites_of(scenario.cluster)
        prices = site_prices(site_jobs(scenario), sites, scenario.physics.slots or 1)
        constants = {"low": (float(prices.low[0]),), "high": tuple(prices.high[0].tolist()), "mu": prices.mu}
        return OasisPolicy(**{**self.params.model_dump(), **constants})

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        self.at_sites, split_sites = None, self.params.split_sites
        if cluster.transfer_cost is None:
            if split_sites:
                raise PolicyError("oasis: split_sites=true goes with sites; on servers both kinds are always apart")
            super().start(cluster, physics, rng)
            return
        Basis.start(self, cluster, physics, rng)
        prices = self._prices(cluster, groups=1)
        given = {} if self.params.levels == "auto" else {"levels": self.params.levels}
        params = SiteOasisParams(split_sites=split_sites, **given)
        self.at_sites = SiteDriver(SiteOasis(sites_of(cluster), physics.slots or 1, prices, params), physics)

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """As :meth:`.PrimalDual.decide`; at sites slot by slot."""
        return super().decide(event, view) if self.at_sites is None else self.at_sites.decide(event, view)

    def terms(self, job: int, view: View) -> Mapping[str, Any] | None:
        """What the policy saw of `job`."""
        return super().terms(job, view) if self.at_sites is None else self.at_sites.terms(job, view)

    def calibrate(self, jobs: Sequence[TrainingJob], capacity: Floats, horizon: int) -> Prices:
        """A price function for the machines of workers, another for those of PSs."""
        return oasis_prices(jobs, capacity, horizon, self.params.completion)

    def admission(self, capacity: Floats, horizon: int, prices: Prices) -> Admission:
        """Alg. 1-3, each kind on its machines."""
        return Oasis(capacity, horizon, prices, self.params.completion)


@compiled
def fill(count: int, order: Ints, room: Ints, price: Floats, taken: Ints) -> float:
    """Cost of `count` pieces, the cheapest first, inf if there is no room; `taken` says where, if it has a length."""
    cost = 0.0
    for h in order:
        here = min(count, room[h])
        cost += here * price[h]
        if len(taken) > 0:
            taken[h] = here
        count -= here
        if count == 0:
            return cost
    return np.inf
