"""What Dorm's program is given and what it gives: applications, bounds, shares and partitions."""

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
    most
        n_i: most workers, >= 1, shape ``(applications,)``.
    workers, servers
        What each has now, shape ``(applications, machines)``.
    """

    worker: Floats
    ps: Floats
    ratio: Floats
    most: Ints
    workers: Ints
    servers: Ints

    @property
    def survivors(self) -> np.ndarray:
        """Which have something now, shape ``(applications,)``."""
        return np.asarray(self.workers.any(axis=1))


class Bounds(NamedTuple):
    """Bounds of one solution: `loss` of the sum of differences of shares, `changed` of the number of r_i."""

    loss: float
    changed: int


class PartitionProblem(NamedTuple):
    """One solution's input.

    Attributes
    ----------
    capacity
        Shape ``(machines, resources)``.
    dominant, fair
        As of :func:`fair_shares`.
    """

    apps: Applications
    capacity: Floats
    bounds: Bounds
    dominant: Ints
    fair: Floats

    @property
    def price(self) -> Floats:
        """What a unit of each resource adds to the utilisation, shape ``(resources,)``."""
        total = self.capacity.sum(axis=0)
        return np.asarray(1 / np.where(total > 0, total, np.inf))

    @property
    def share_of_piece(self) -> Floats:
        """Share of its dominant resource that a worker and a PS of each application are, ``(2, applications)``."""
        at, needs = np.arange(len(self.dominant)), np.stack([self.apps.worker, self.apps.ps])
        return np.asarray(needs[:, at, self.dominant] / self.capacity.sum(axis=0)[self.dominant])


class Partition(NamedTuple):
    """A partition, and what is known of the best one.

    Attributes
    ----------
    workers, servers
        Workers and PSs, shape ``(applications, machines)``.
    use
        Its utilisation, a sum over the resources.
    bound
        No partition's utilisation is above it.
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
    total = capacity.sum(axis=0)
    safe = np.where(total > 0, total, np.inf)
    dominant = ((apps.worker + apps.ps / apps.ratio[:, None]) / safe).argmax(axis=1)
    pooled = total[None, :].copy()
    counts = progressive_filling(apps.worker, apps.ps, apps.ratio, apps.most, pooled, safe)
    return dominant, shares(apps, *counts, dominant, total)


def shares(apps: Applications, workers: Ints, servers: Ints, dominant: Ints, total: Floats) -> Floats:
    """s_i of workers and PSs by machine, shape ``(applications,)``."""
    rows = np.arange(len(dominant))
    used = workers.sum(axis=1) * apps.worker[rows, dominant] + servers.sum(axis=1) * apps.ps[rows, dominant]
    return np.asarray(used / total[dominant])
