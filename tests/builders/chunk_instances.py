"""Random scenarios so small that everything can be tried."""

from __future__ import annotations

import numpy as np

from reference.optimum_of_chunks import PlainJob
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.network import upload_row
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND


def tiny_scenario(seed: int, *, slotted: bool = True, most_jobs: int = 4, workers: int = 3) -> Scenario:
    """One or two servers with one type of worker, perhaps a cloud; slots of a second, p of 1 to 5 of them."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 3, rng.integers(1, 3))[:workers]
    servers = [Server(f"e{i}", capacity={"worker:gpu": int(n), "ps:cpu": 9}) for i, n in enumerate(counts)]
    if rng.random() < 0.6:
        servers.append(Server("cloud", "cloud"))
    cluster = Cluster(servers)
    table, given_delays = job_table([_job(i, rng) for i in range(rng.integers(1, most_jobs + 1))])
    physics = Physics(slotted=slotted, slot=SECOND)
    return Scenario(cluster, Jobs(table, cluster, given_delays), physics, seed, f"tiny-{seed}")


def _job(i: int, rng: np.random.Generator) -> Job:
    exchange_s = int(rng.integers(0, 2))  # a mini-batch takes 1 s, and `apart` more where zeta = 0
    return Job(
        id=str(i),
        arrival_s=float(rng.integers(0, 6)),
        epochs=1,
        chunks=int(rng.integers(1, 4)),
        minibatches=int(rng.integers(1, 4)),
        minibatch_s=1.0,
        gradient_mb=float(exchange_s),
        bandwidth_mbps=16.0,
        ps_type="cpu",
        workers=2,
        upload_edge_s=(0.0, 2.0),
        upload_cloud_s=(3.0, 8.0),
    )


def plain(scenario: Scenario) -> list[PlainJob]:
    """The same for the oracle: p from the paper's formula, the delays as they are drawn."""
    jobs = []
    for j, row in enumerate(scenario.jobs.frame.iter_rows(named=True)):
        delays = upload_row(scenario.delays, j) // SECOND
        r, exchange_s = int(row["arrival_s"]), int(row["gradient_mb"])
        cloud = scenario.cluster.cloud
        cloud_completion = None if cloud is None else r + int(delays[cloud]) + row["minibatches"]
        data_ready = tuple(r + int(delays[s]) for s in scenario.cluster.lane_server)
        jobs.append(PlainJob(r, row["chunks"], row["minibatches"] * (1 + exchange_s), data_ready, cloud_completion))
    return jobs
