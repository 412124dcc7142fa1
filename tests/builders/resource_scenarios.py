"""Small seeded scenarios on servers with resources, for the policies that run there."""

from __future__ import annotations

import numpy as np

from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.model.value import Sigmoid

SLOT = 3600 * SECOND
RESOURCES = ("gpu", "cpu", "memory")


def resource_scenario(
    seed: int, *, jobs: int = 12, servers: int = 4, slotted: bool = True, estimate_error: float = 0.0
) -> Scenario:
    """Jobs of 1 to some tens of worker-slots that contend for a few servers, by PD-ORS' ranges scaled down."""
    rng = np.random.default_rng(seed)
    cluster = Cluster(
        [
            Server(f"m{i}", capacity=dict(zip(RESOURCES, (int(rng.integers(4, 12)), 40.0, 90.5), strict=True)))
            for i in range(servers)
        ]
    )
    table, _ = job_table([_job(i, rng) for i in range(jobs)])
    physics = Physics(
        slotted=slotted, slot=SLOT, colocation="one_server", horizon=20 * SLOT, estimate_error=estimate_error
    )
    return Scenario(cluster, Jobs(table, cluster), physics, seed, f"resources-{seed}")


def _job(i: int, rng: np.random.Generator) -> Job:
    return Job(
        id=str(i),
        arrival_s=float(rng.integers(0, 10) * 3600),
        epochs=int(rng.integers(1, 5)),
        chunks=1,
        minibatches=int(rng.integers(500, 3000)),
        minibatch_s=float(rng.uniform(1, 20)),
        gradient_mb=float(rng.uniform(30, 575)),
        bandwidth_mbps=float(rng.uniform(100, 1000)),
        internal_mbps=20000.0,
        batch=int(rng.integers(1, 60)),
        ratio=float(rng.uniform(1, 6)),
        worker_needs=dict(zip(RESOURCES, map(float, rng.integers([0, 1, 2], [3, 8, 20])), strict=True)),
        ps_needs=dict(zip(RESOURCES[1:], map(float, rng.integers([1, 2], [8, 20])), strict=True)),
        utility=Sigmoid(float(rng.uniform(1, 100)), float(rng.uniform(0, 4)), float(rng.uniform(1, 15))),
    )


def resource_scenarios() -> list[Scenario]:
    """Slotted and continuous, announced and mis-estimated."""
    return [
        resource_scenario(0),
        resource_scenario(1, jobs=20, servers=2),
        resource_scenario(2, slotted=False),
        resource_scenario(3, estimate_error=0.5),
    ]
