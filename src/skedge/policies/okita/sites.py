"""Okita's model: sites with resources, costs of bandwidth between them, jobs whose data lie at many sites."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from skedge.core.errors import ScenarioError
from skedge.core.model.cluster import Floats, Ints, check_transfer_cost
from skedge.core.model.latency import LatencyCost
from skedge.core.model.speed import ceil_almost


@dataclass(frozen=True, eq=False)
class Sites:
    """Sites with resources, and the cost of bandwidth between them. A site without capacity still has data.

    Attributes
    ----------
    capacity
        C_r^k, shape ``(sites, resources)``, finite, >= 0.
    cost
        q^{rr'}, of a MB from the row's site to the column's (O23), shape ``(sites, sites)``, finite, >= 0, 0 on the
        diagonal.
    asymmetric
        True if the two directions may differ. The exchange between a worker and its PS then pays the way from the
        worker to the PS, as Eq. (1) has it.

    Raises
    ------
    ScenarioError
        If an array is not of this shape or range; names the site and the value.
    """

    capacity: Floats
    cost: Floats
    asymmetric: bool = False

    def __post_init__(self) -> None:
        shape = self.capacity.shape
        if len(shape) != 2 or 0 in shape:
            raise ScenarioError(f"sites: capacity has shape {shape}; it takes an amount by site and resource")
        if self.cost.shape != (len(self.capacity),) * 2:
            raise ScenarioError(
                f"sites: cost has shape {self.cost.shape}; {shape[0]} sites take {shape[0]} x {shape[0]}"
            )
        for r, k in np.argwhere(~(np.isfinite(self.capacity) & (self.capacity >= 0))):
            raise ScenarioError(
                f"site {r}: capacity = {self.capacity[r, k]} in column {k}; it must be 0 or more, and finite"
            )
        check_transfer_cost(self.cost, [str(r) for r in range(len(self.cost))], asymmetric=self.asymmetric)

    def __len__(self) -> int:
        return len(self.capacity)

    @cached_property
    def mean_cost(self) -> Floats:
        """Mean cost of a MB to another site, shape ``(sites,)``; 0 for a single site."""
        return self.cost.sum(axis=1) / max(1, len(self) - 1)

    @cached_property
    def least_cost(self) -> Floats:
        """Least cost of a MB to another site, shape ``(sites,)``; 0 for a single site."""
        # a site is no way out of itself
        off_diagonal = self.cost + np.diag(np.full(len(self), np.inf))
        return np.asarray(off_diagonal.min(axis=1)) if len(self) > 1 else np.zeros(1)

    @cached_property
    def donors(self) -> Ints:
        """For each receiver, a row: all sites by the cost of a MB from them, ties by number (Alg. 3 line 4)."""
        # transposed: the cost is from the row to the column, and here a row is a receiver
        return np.argsort(self.cost.T, axis=1, kind="stable")


@dataclass(frozen=True)
class SiteJob:
    """A job as its user announces it; symbols and units in the package's table.

    Attributes
    ----------
    rate
        rho / E: chunks that a worker trains in a slot, for all epochs. At least 1: else rounding down can leave every
        site without a whole chunk, for ever (O11).
    data
        Chunks by site, of which some site has one.

    Raises
    ------
    ScenarioError
        If a value is out of its range; names the job, the field and what would be right.
    """

    id: int
    arrival: int
    rate: float
    chunk_mb: float
    exchange_mb: float
    data: tuple[int, ...]
    worker: tuple[float, ...]
    ps: tuple[float, ...]
    latency: LatencyCost

    def __post_init__(self) -> None:
        self._require("arrival", self.arrival >= 0, "0 or more")
        self._require("rate", math.isfinite(self.rate) and self.rate >= 1, "at least 1")
        for name in ("chunk_mb", "exchange_mb"):
            amount = getattr(self, name)
            self._require(name, math.isfinite(amount) and amount >= 0, "0 or more")
        self._require("data", all(chunks >= 0 for chunks in self.data), "0 or more chunks for each site")
        self._require("data", sum(self.data) > 0, "above 0 for some site: there is nothing to train")
        for name in ("worker", "ps"):
            amounts = getattr(self, name)
            self._require(name, all(math.isfinite(x) and x >= 0 for x in amounts), "0 or more for each resource")
        self._require("worker", sum(self.worker) > 0, "above 0 for some resource")
        self._require("ps", len(self.ps) == len(self.worker), "as many resources as worker")

    def _require(self, name: str, holds: bool, right: str) -> None:
        if not holds:
            raise ScenarioError(f"job {self.id}: {name} = {getattr(self, name)}; it must be {right}")

    def most_workers(self, left: Ints) -> int:
        """Workers that train the chunks `left` in one slot, ceil(E M / rho), at least 1: the largest useful N."""
        return max(1, int(ceil_almost(float(left.sum()) / self.rate)))

    @cached_property
    def chunks(self) -> Ints:
        """D_i^r as an array, shape ``(sites,)``."""
        return np.array(self.data, np.int64)

    @cached_property
    def demands(self) -> tuple[Floats, Floats]:
        """m_i and n_i as arrays, shape ``(resources,)``."""
        return np.array(self.worker, float), np.array(self.ps, float)


class SitePlacement(NamedTuple):
    """The placement of a job in a slot.

    Attributes
    ----------
    workers
        y_i^r, shape ``(sites,)``.
    ps
        The site r~ with s = 1.
    cost
        Cost of the exchange of parameters in one slot: sum of q^{r r~} pi y_r.
    """

    workers: Ints
    ps: int
    cost: float

    def demand(self, job: SiteJob) -> Floats:
        """Resources of the placement, m y + n s, shape ``(sites, resources)``."""
        worker, ps = job.demands
        demand = np.outer(self.workers, worker)
        demand[self.ps] += ps
        return demand


def check_job(sites: Sites, job: SiteJob) -> None:
    """Reject a job that is not made for these sites.

    Raises
    ------
    ScenarioError
        Naming what does not fit.
    """
    rows, columns = sites.capacity.shape
    if len(job.data) != rows:
        raise ScenarioError(f"job {job.id}: data at {len(job.data)} sites; there are {rows}")
    if len(job.worker) != columns:
        raise ScenarioError(f"job {job.id}: demands for {len(job.worker)} resources; the sites have {columns}")
