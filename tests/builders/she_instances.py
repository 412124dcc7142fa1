"""Random small scenarios for the batch schedulers: few servers, typed slots, jobs that contend for them."""

from __future__ import annotations

import numpy as np

from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import HOUR, SECOND

SLOT_S = HOUR // SECOND


def small(seed: int, *, jobs: int = 6, physics: Physics | None = None) -> Scenario:
    """Up to three edge servers with two types of each, with or without a cloud, `jobs` jobs of at most three chunks."""
    rng = np.random.default_rng(seed)
    servers = [_server(s, rng) for s in range(int(rng.integers(1, 4)))]
    cluster = Cluster([*servers, Server("cloud", "cloud")] if rng.integers(2) else servers)
    table, given_delays = job_table([_job(j, cluster, rng) for j in range(jobs)])
    colocation = "one_server" if rng.integers(3) else "cloud"
    physics = physics or Physics(slotted=True, colocation=colocation)  # type: ignore[arg-type]
    return Scenario(cluster, Jobs(table, cluster, given_delays), physics)


def _server(s: int, rng: np.random.Generator) -> Server:
    workers, ps = rng.integers(0, 4, 2), rng.integers(0, 3, 2)
    return Server(
        f"e{s}", capacity={f"worker:{k}": int(workers[k]) for k in (0, 1)} | {f"ps:{k}": int(ps[k]) for k in (0, 1)}
    )


def _job(j: int, cluster: Cluster, rng: np.random.Generator) -> Job:
    delays = {name: float(rng.integers(0, 10 if name == "cloud" else 4)) * SLOT_S for name in cluster.server_ids}
    return Job(
        id=str(j),
        arrival_s=float(rng.choice([0.0, 0.5, 1.0, 1.0, 2.0, 2.5, 3.0, 5.0])) * SLOT_S,
        epochs=1,
        chunks=int(rng.integers(1, 4)),
        minibatches=int(rng.integers(1, 9)),
        minibatch_s=float(rng.choice([0.25, 0.5, 0.7])) * SLOT_S,
        gradient_mb=float(rng.choice([0.0, 5.0])),
        bandwidth_mbps=5.0 * 16 / SLOT_S * float(rng.choice([1, 2, 4])),
        worker_type=str(rng.integers(2)),
        ps_type=str(rng.integers(2)),
        upload_s=delays,
    )
