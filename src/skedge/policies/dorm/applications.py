"""Input and output of Dorm's program: applications, bounds, shares and partitions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.policies.drf.progressive_filling import progressive_filling


class Applications(NamedTuple):
    """Applications, in the order of their arrival.

    Attributes
    ----------
    worker, ps
        alpha and beta, shape ``(applications, resources)``; a row has something above 0.
    ratio
        gamma: workers per PS, shape ``(applications,)``.
    max_workers
        n_i: most workers, >= 1, shape ``(applications,)``.
    workers, servers
        Workers and PSs now, shape ``(applications, machines)``.
    """

    worker: Floats
    ps: Floats
    ratio: Floats
    max_workers: Ints
    workers: Ints
    servers: Ints

    @property
    def survivors(self) -> np.ndarray:
        """Mask of the applications that have workers now, shape ``(applications,)``."""
        return np.asarray(self.workers.any(axis=1))


class Bounds(NamedTuple):
    """Bounds of one solution: `loss` of the sum of differences of shares, `changed` of the number of r_i."""

    loss: float
    changed: int


class PartitionProblem(NamedTuple):
    """The input of one solution.

    Attributes
    ----------
    apps, bounds
        The applications, and the bounds of the solution.
    capacity
        Shape ``(machines, resources)``.
    dominant, fair
        From :func:`fair_shares`: dominant resource and shat_i of each application.
    """

    apps: Applications
    capacity: Floats
    bounds: Bounds
    dominant: Ints
    fair: Floats

    @property
    def price(self) -> Floats:
        """Utilisation that a unit of each resource adds, 1 / C^r, shape ``(resources,)``; 0 for an absent one."""
        total = self.capacity.sum(axis=0)
        return np.asarray(1 / np.where(total > 0, total, np.inf))

    @property
    def share_of_piece(self) -> Floats:
        """Share of its dominant resource that a worker and a PS of each application are, ``(2, applications)``."""
        rows, needs = np.arange(len(self.dominant)), np.stack([self.apps.worker, self.apps.ps])
        return np.asarray(needs[:, rows, self.dominant] / _pooled(self.capacity)[self.dominant])


class Partition(NamedTuple):
    """A partition, and a bound of the best one.

    Attributes
    ----------
    workers, servers
        Workers and PSs, shape ``(applications, machines)``.
    use
        Its utilisation, a sum over the resources.
    bound
        Upper bound of the utilisation of every partition.
    """

    workers: Ints
    servers: Ints
    use: float
    bound: float


def problem(apps: Applications, capacity: Floats, bounds: Bounds) -> PartitionProblem:
    """The problem of `apps` on machines of `capacity`."""
    return PartitionProblem(apps, capacity, bounds, *fair_shares(apps, capacity))


def fair_shares(apps: Applications, capacity: Floats) -> tuple[Ints, Floats]:
    """Dominant resource of each application, and its share shat_i of it under DRF on the pooled capacity.

    The dominant resource is that of gamma workers and their PS.
    """
    total, safe = capacity.sum(axis=0), _pooled(capacity)
    # D3: fixed by gamma workers and their PS, as the dominant resource of the workers at hand is not linear in w and s
    dominant = ((apps.worker + apps.ps / apps.ratio[:, None]) / safe).argmax(axis=1)
    # DRF pools the machines: shat_i is a share, whether or not it can be placed
    pooled = total[None, :].copy()
    counts = progressive_filling(apps.worker, apps.ps, apps.ratio, apps.max_workers, pooled, safe)
    return dominant, shares(apps, *counts, dominant, safe)


def _pooled(capacity: Floats) -> Floats:
    """C^r, shape ``(resources,)``; infinite for a resource that no machine has now, of which any share is 0."""
    total = capacity.sum(axis=0)
    return np.asarray(np.where(total > 0, total, np.inf))


def shares(apps: Applications, workers: Ints, servers: Ints, dominant: Ints, total: Floats) -> Floats:
    """s_i, shape ``(applications,)``.

    Parameters
    ----------
    apps
        The applications.
    workers, servers
        Workers and PSs, shape ``(applications, machines)``.
    dominant
        Dominant resource of each application.
    total
        C^r, shape ``(resources,)``, > 0 for every dominant resource.
    """
    rows = np.arange(len(dominant))
    used = workers.sum(axis=1) * apps.worker[rows, dominant] + servers.sum(axis=1) * apps.ps[rows, dominant]
    return np.asarray(used / total[dominant])
