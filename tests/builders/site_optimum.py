"""Tiny scenarios at sites."""

from __future__ import annotations

import numpy as np

from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.latency import Exponential, LatencyCost, Linear, Piecewise
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND

SLOT = 10 * SECOND


def tiny(seed: int) -> Scenario:
    """Two or three sites, one or two jobs of a few chunks; ways around may be cheaper than the direct one."""
    rng = np.random.default_rng(seed)
    sites, jobs = [(2, 1), (3, 1), (2, 2), (2, 2)][seed % 4]
    servers = [Server(f"s{r}", capacity={"gpu": float(rng.integers(1, 4)), "cpu": 3.0}) for r in range(sites)]
    cost = np.triu(rng.integers(0, 9, (sites, sites)) / 4, 1)
    cluster = Cluster(servers, cost + cost.T)
    latencies: list[LatencyCost] = [
        Exponential(float(rng.integers(1, 9)), 0.5), Linear(float(rng.integers(1, 9)), 3.0),
        Piecewise(1.0, float(rng.integers(2, 30)), 2.0),
    ]  # fmt: skip
    made = []
    for i in range(jobs):
        data = rng.integers(0, 3 if jobs == 2 else 4, sites)
        data[rng.integers(sites)] += 1
        made.append(
            Job(
                id=str(i), arrival_s=float(rng.integers(0, 4)) * 5.0, epochs=1, chunks=int(data.sum()), minibatches=2,
                minibatch_s=5.0 / float(rng.choice([1.0, 1.5, 2.0, 2.4])), chunk_mb=float(rng.integers(0, 4)),
                exchange_mb=float(rng.integers(0, 5)), worker_needs={"gpu": 1.0, "cpu": float(rng.integers(0, 2))},
                ps_needs={"cpu": float(rng.integers(1, 3))},
                data={f"s{r}": int(n) for r, n in enumerate(data)}, latency=latencies[int(rng.integers(3))],
            )
        )  # fmt: skip
    table, given = job_table(made)
    return Scenario(cluster, Jobs(table, cluster, given), Physics(slot=SLOT, slotted=True), seed, f"tiny-{seed}")
