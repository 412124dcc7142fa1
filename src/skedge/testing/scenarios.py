"""Small seeded scenarios for each kind of cluster, for checking the contract."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.latency import Exponential, Linear, Piecewise
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.value import Sigmoid
from skedge.core.policy import Policy
from skedge.prepare import offers


def scenarios_for(policy: Policy) -> list[Scenario]:
    """The first of :func:`small_scenarios`, :func:`resource_scenarios`, :func:`site_scenarios` that fits the policy."""
    kinds = small_scenarios(), resource_scenarios(), site_scenarios()
    # Scenarios of a kind offer the same, so that the first decides.
    return next((kind for kind in kinds if policy.needs <= offers(kind[0])), kinds[0])


def small_scenarios() -> list[Scenario]:
    """Scenarios with typed slots: with and without a cloud, continuous and slotted, with estimation errors."""
    return [
        small_scenario(0),
        small_scenario(1, cloud=False),
        small_scenario(2, physics=Physics(slotted=True, slot=10_000_000)),
        small_scenario(3, physics=Physics(estimate_error=1.0, checkpoint_overhead=500_000)),
        small_scenario(4, physics=Physics(colocation="one_server", charge_upload=False)),
    ]


def small_scenario(seed: int, *, jobs: int = 25, cloud: bool = True, physics: Physics | None = None) -> Scenario:
    """A seeded scenario: a few servers with two worker types, and jobs that compete for them.

    Parameters
    ----------
    seed
        Draws servers and jobs; the scenario's own seed too.
    jobs
        Number of jobs, 0 or more.
    cloud
        Add a cloud.
    physics
        None: the default.
    """
    rng = np.random.default_rng(seed)
    servers = [
        Server(f"e{i}", capacity={"worker:a": int(a), "worker:b": int(b), "ps:p": 4})
        for i, (a, b) in enumerate(rng.integers(1, 4, (4, 2)))
    ]
    if cloud:
        servers.append(Server("cloud", "cloud"))
    cluster = Cluster(servers)
    table, delays = job_table([_small_job(i, rng) for i in range(jobs)])
    return Scenario(cluster, Jobs(table, cluster, delays), physics or Physics(), seed, f"small-{seed}")


def resource_scenarios() -> list[Scenario]:
    """Scenarios with resources: slotted and continuous, one and two kinds of rate, with estimation errors."""
    slot = 10_000_000
    exact = Physics(slotted=True, slot=slot, colocation="one_server", horizon=12 * slot)
    return [
        resource_scenario(0, physics=exact),
        resource_scenario(1, physics=replace(exact, slotted=False)),
        resource_scenario(2, physics=replace(exact, colocation="cloud")),
        resource_scenario(3, physics=replace(exact, estimate_error=1.0)),
        resource_scenario(4, physics=replace(exact, slotted=False, estimate_error=0.5, checkpoint_overhead=500_000)),
    ]


def resource_scenario(seed: int, *, physics: Physics, jobs: int = 20) -> Scenario:
    """A seeded scenario: a few servers with two resources, and jobs with utilities that compete for them."""
    rng = np.random.default_rng(seed)
    cluster = Cluster(
        [Server(f"m{i}", capacity={"gpu": float(gpu), "memory": 4.5}) for i, gpu in enumerate(rng.integers(2, 6, 5))]
    )
    table, delays = job_table([_resource_job(i, physics, rng) for i in range(jobs)])
    return Scenario(cluster, Jobs(table, cluster, delays), physics, seed, f"resources-{seed}")


def _resource_job(i: int, physics: Physics, rng: np.random.Generator) -> Job:
    slots = (physics.horizon or 0) // physics.slot
    arrival = rng.integers(slots) if physics.slotted else rng.uniform(0, slots)
    return Job(
        id=str(i),
        arrival_s=float(arrival) * physics.slot / 1e6,
        epochs=1,
        chunks=int(rng.integers(1, 7)),
        minibatches=int(rng.integers(5, 60)),
        minibatch_s=float(rng.uniform(0.2, 1)),
        gradient_mb=float(rng.uniform(1, 50)),
        bandwidth_mbps=400.0,
        internal_mbps=4000.0,
        batch=int(rng.integers(2, 9)),
        ratio=float(rng.choice([0.5, 1, 2.5])),
        worker_needs={"gpu": float(rng.integers(0, 3)), "memory": 0.3},
        ps_needs={"memory": float(rng.uniform(0.1, 0.5))},
        utility=Sigmoid(float(rng.uniform(1, 100)), float(rng.choice([0, 0.5, 4])), float(rng.uniform(1, 6))),
    )


def site_scenarios() -> list[Scenario]:
    """Scenarios with sites: few and many competing jobs, and each latency cost."""
    return [site_scenario(0), site_scenario(1, jobs=40), site_scenario(2, sites=1), site_scenario(3, sites=9)]


def site_scenario(seed: int, *, sites: int = 5, jobs: int = 20) -> Scenario:
    """A seeded scenario: a few sites, one of them without capacity, and jobs with data at most of them."""
    rng = np.random.default_rng(seed)
    gpus = rng.integers(2, 6, sites)
    # The second site, if there is one, has no GPU: jobs that need one must move the data away from there.
    gpus[1:2] = 0
    servers = [Server(f"m{i}", capacity={"gpu": float(gpu), "memory": 4.5}) for i, gpu in enumerate(gpus)]
    # Above the diagonal, then mirrored: symmetric costs, and none within a site.
    cost = np.triu(rng.uniform(0.02, 0.08, (sites, sites)), 1)
    cluster = Cluster(servers, cost + cost.T)
    table, delays = job_table([_site_job(i, cluster.server_ids, rng) for i in range(jobs)])
    physics = Physics(slotted=True, slot=_SITE_SLOT, horizon=12 * _SITE_SLOT)
    return Scenario(cluster, Jobs(table, cluster, delays), physics, seed, f"sites-{seed}")


_SITE_SLOT = 10_000_000


def _site_job(i: int, sites: list[str], rng: np.random.Generator) -> Job:
    data = rng.integers(0, 6, len(sites))
    # At least one chunk somewhere, as a job has data.
    data[rng.integers(len(sites))] += 1
    return Job(
        id=str(i),
        arrival_s=float(rng.integers(12) * _SITE_SLOT / 1e6),
        epochs=1,
        chunks=int(data.sum()),
        minibatches=10,
        minibatch_s=_SITE_SLOT / 1e7 / float(rng.uniform(1, 4)),
        chunk_mb=float(rng.uniform(2, 60)),
        exchange_mb=float(rng.uniform(3, 60)),
        worker_needs={"gpu": float(rng.integers(0, 3)), "memory": 0.3},
        ps_needs={"memory": float(rng.uniform(0.1, 0.5))},
        data=dict(zip(sites, data.tolist(), strict=True)),
        latency=_LATENCIES[i % 3],
    )


_LATENCIES = (Exponential(20.0), Linear(30.0, 50.0), Piecewise(20.0, 300.0, 4.0))


def _small_job(i: int, rng: np.random.Generator) -> Job:
    chunks = int(rng.integers(1, 7))
    return Job(
        id=str(i),
        arrival_s=float(rng.integers(0, 300)),
        epochs=int(rng.integers(1, 4)),
        chunks=chunks,
        minibatches=int(rng.integers(1, 20)),
        minibatch_s=float(rng.uniform(0.5, 3)),
        ps_update_s=0.05,
        gradient_mb=float(rng.uniform(1, 50)),
        bandwidth_mbps=400.0,
        worker_type=str(rng.choice(["a", "b"])),
        ps_type="p",
        # No more workers than chunks: each trains at least one.
        workers=int(rng.integers(1, chunks + 1)),
        chunk_mb=10.0,
        upload_edge_s=(0.0, 20.0),
        upload_cloud_s=(30.0, 60.0),
    )
