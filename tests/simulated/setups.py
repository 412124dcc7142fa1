"""What a service is set up with, drawn from the seed: a cluster, its physics, the policies that serve it, and its jobs.

Four kinds: ``lanes``, with three policies on edge slots and a cloud; ``slots``, with all policies on slots, and what
goes with slots alone (no cloud, storage, tenants, bounded lag); ``resources``; and ``sites``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Any

import numpy as np

from skedge.core.model.cluster import Cluster, Physics, Server, job_table
from skedge.core.model.job_fields import Floats
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.sharing import Sharing, Tenant
from skedge.core.model.time import SECOND

KINDS: Mapping[str, float] = MappingProxyType({"lanes": 0.35, "slots": 0.3, "resources": 0.18, "sites": 0.17})
"""Kinds of set-up, each with its probability."""

HORIZON_S = 300
"""Horizon of the policies that plan [s]; jobs that are submitted after it are rejected."""

SHARING = ("fifo", "fifo:backfill=true", "srtf", "tiresias:limit_s=3")
"""Policies that know tenants."""

ON_SLOTS = (
    *SHARING, "fifo:rule=earliest_server", "srtf:placement=keep_running", "drf", "preemptive", "batch:T=3", "batchsche",
    "aonline", "aonline:preempt_running=false",
)  # fmt: skip
"""Policies on slots, whether there is a cloud or not."""

WITH_CLOUD = ("srtf:allow_cloud=true", "tiresias:allow_cloud=true,limit_s=3", "fifo:allow_cloud=true")
"""Policies that are others if there is a cloud."""

ON_RESOURCES = (
    "fifo", "drf", "dorm", "optimus", "pdors:low=1e-6,high=40;20,mu=2000",
    "oasis:low=1e-6;1e-6,high=40;40;0;40,mu=2000;2000",
)  # fmt: skip
"""Policies on servers with resources; the constants of prices are about those that such jobs would give."""

AT_SITES = ("okita", "okita:conflict=cheaper", "fifo", "drf", "oasis:low=1e-6,high=1800;900,mu=1000")
"""Policies at sites."""

REJECTING = ("pdors", "oasis")
"""Policies that may reject jobs that fit the cluster: those that they do not value enough."""

Spec = Callable[[Random, int], dict[str, Any]]
"""Draws the spec of the job of a number."""


@dataclass(frozen=True)
class Setup:
    """What a service is set up with.

    Attributes
    ----------
    kind
        One of :data:`KINDS`.
    servers, costs, sharing, physics
        As of a scenario.
    policies
        Those of which one serves the cluster.
    spec
        Draws a job.
    """

    kind: str
    servers: tuple[Server, ...]
    policies: tuple[str, ...]
    spec: Spec
    costs: Floats | None = None
    sharing: Sharing | None = None
    physics: Physics = field(default_factory=lambda: Physics(slot=SECOND))

    def cluster(self) -> Cluster:
        """The cluster."""
        return Cluster(list(self.servers), self.costs, sharing=self.sharing)

    def scenario(self) -> Scenario:
        """The cluster and its physics, without jobs."""
        cluster = self.cluster()
        table, listed = job_table([])
        return Scenario(cluster, Jobs(table, cluster, listed), self.physics)

    def edge(self) -> list[Server]:
        """The servers but the cloud."""
        return [server for server in self.servers if server.kind != "cloud"]

    def victims(self) -> tuple[str, ...]:
        """Names of the processes to which faults happen."""
        agents = [f"agent/{server.id}" for server in self.servers]
        warm = [(server, round(server.capacity.get("ps:cpu", 1))) for server in self.edge()]
        return (
            "controller", "coordinator", "job_code", *agents,
            *(f"ps/{server.id}/{number}" for server, n in warm for number in range(n)),
        )  # fmt: skip


def setup_of(seed: int, kind: str | None = None) -> Setup:
    """The set-up of a seed, drawn from a stream of its own: what else is drawn does not depend on it.

    `kind`: one of :data:`KINDS`; None: it is drawn.
    """
    random = Random(f"{seed} setup")  # noqa: S311 - no secret
    (drawn_kind,) = random.choices(list(KINDS), list(KINDS.values()))
    return _KINDS[kind or drawn_kind](random)


def _train(name: str, **args: str) -> dict[str, Any]:
    return {"factory": "m:f", "args": {"job": name, **args}}


def _lanes(_: Random) -> Setup:
    servers = (
        Server("e0", capacity={"worker:gpu": 2, "ps:cpu": 2}),
        Server("e1", capacity={"worker:gpu": 2, "ps:cpu": 1}),
        Server("cloud", "cloud"),
    )
    return Setup("lanes", servers, ("fifo", "srtf", "aonline"), _job_on_lanes)


def _job_on_lanes(random: Random, number: int) -> dict[str, Any]:
    chunks, epochs, minibatches = random.randint(1, 3), random.randint(1, 3), random.randint(2, 5)
    name, args = f"j{number}", dict[str, str]()
    if random.random() < 0.1:
        at = f"{random.randrange(chunks)} {random.randrange(epochs * minibatches)}"
        args = {"misbehaves": "raises", "during": "gradient", "at": at}
    return {
        "name": name,
        "epochs": epochs,
        "minibatches": minibatches,
        "chunks": chunks,
        "minibatch_s": 0.1,
        "upload_edge_s": [0.2, 0.5],
        "upload_cloud_s": [5, 9],
        "resources": {"workers": min(chunks, 2), "worker_type": "gpu", "ps_type": "cpu"},
        "utility": {"height": 9, "steepness": 0.1, "target": 40},
        "train": _train(name, **args),
    }


def _slots(random: Random) -> Setup:
    """Two edge servers, with or without a cloud; those without have a PS for each lane, which A_online needs."""
    cloud, old = random.random() < 0.7, random.random() < 0.3
    storage_mb = random.choice((None, None, None, 12.0)) if cloud else None
    workers = {"worker:gpu": 2.0, **({"worker:old": 1.0} if old else {})}
    servers = [
        Server("e0", capacity={**workers, "ps:cpu": 2 + old}, storage_mb=storage_mb),
        Server("e1", capacity={"worker:gpu": 2, "ps:cpu": 1 if cloud else 2}, storage_mb=storage_mb),
        *([Server("cloud", "cloud")] if cloud else ()),
    ]
    overhead = random.choice((0, 0, SECOND // 2))
    physics = Physics(
        slot=SECOND,
        data=random.choice(("kept", "kept", "last_place")),
        colocation=random.choice(("cloud", "one_server")),
        checkpoint_overhead=overhead,
    )
    sharing = _sharing(random) if random.random() < 0.25 else None
    policies = SHARING if sharing is not None else (*ON_SLOTS, *(WITH_CLOUD if cloud else ()))
    # half of one worker is none: no tenant asks for an old one
    types = ("gpu", "gpu", "old") if old and sharing is None else ("gpu",)

    def spec(random: Random, number: int) -> dict[str, Any]:
        chunks, worker_type = random.randint(1, 4), random.choice(types)
        most = 1 if worker_type == "old" else 2 if sharing else 3
        share = {"tenant": random.choice(("red", "blue")), "priority": random.randint(0, 2)} if sharing else {}
        lag = {"max_lag": random.randint(1, 2)} if not overhead and random.random() < 0.2 else {}
        return {
            **_job(random, number), **share, **lag,
            "chunks": chunks,
            "upload_edge_s": [0.2, 0.5],
            "upload_cloud_s": [2, 5],
            "chunk_mb": random.choice((0.0, 1.0, 2.0)),
            "gradient_mb": random.choice((0.0, 1.0)),
            "bandwidth_mbps": 400.0,
            "resources": {
                "workers": min(chunks, random.randint(1, most)), "worker_type": worker_type, "ps_type": "cpu",
            },
        }  # fmt: skip

    return Setup("slots", tuple(servers), policies, spec, sharing=sharing, physics=physics)


def _sharing(random: Random) -> Sharing:
    tenants = {"red": Tenant(2.0), "blue": Tenant(1.0, random.choice((0.5, 1.0)))}
    return Sharing(tenants, random.choice((0.0, 2.0)), random.choice((None, 0, 1, 2)), random.choice((None, 10.0)))


def _resources(random: Random) -> Setup:
    n = random.randint(2, 3)
    servers = tuple(Server(f"e{i}", capacity={"gpu": float(random.randint(2, 4)), "cpu": 8.0}) for i in range(n))
    physics = Physics(
        slot=SECOND,
        data=random.choice(("kept", "kept", "last_place")),
        colocation=random.choice(("cloud", "one_server")),
        horizon=HORIZON_S * SECOND,
    )
    return Setup("resources", servers, ON_RESOURCES, _job_on_resources, physics=physics)


def _job_on_resources(random: Random, number: int) -> dict[str, Any]:
    batch = random.randint(1, 4)
    return {
        **_job(random, number),
        "chunks": batch + random.randint(0, 2),
        "batch": batch,
        "ratio": random.choice((1, 2)),
        "upload_edge_s": [0.2, 0.5],
        "gradient_mb": random.choice((0.0, 1.0)),
        "bandwidth_mbps": 400.0,
        "worker_needs": {"gpu": 1, "cpu": random.randint(0, 2)},
        "ps_needs": {"cpu": 1},
    }


def _sites(random: Random) -> Setup:
    n = random.randint(2, 3)
    servers = tuple(Server(f"e{i}", capacity={"gpu": float(random.randint(2, 4)), "cpu": 8.0}) for i in range(n))
    upper = np.triu(np.array([[random.uniform(0.1, 2.0) for _ in range(n)] for _ in range(n)]), 1)
    physics = Physics(slot=SECOND, slotted=True, horizon=HORIZON_S * SECOND)

    def spec(random: Random, number: int) -> dict[str, Any]:
        # a worker trains one chunk a slot at least
        job = {**_job(random, number), "epochs": 1}
        homes = random.sample([server.id for server in servers], random.randint(1, n))
        latency = {"kind": "linear", "tau": random.uniform(0.5, 20.0)}
        return {
            **job,
            "data": {home: random.randint(1, 3) for home in homes},
            "chunk_mb": random.choice((0.1, 1.0)),
            "exchange_mb": random.choice((0.0, 2.0)),
            "worker_needs": {"gpu": 1, "cpu": random.randint(0, 2)},
            "ps_needs": {"cpu": 1},
            "latency": latency,
        }

    return Setup("sites", servers, AT_SITES, spec, costs=upper + upper.T, physics=physics)


def _job(random: Random, number: int) -> dict[str, Any]:
    """What a job has on each cluster; some may wait, or run, for a while only."""
    name, limits = f"j{number}", dict[str, float]()
    if random.random() < 0.08:
        limits["max_wait_s"] = random.uniform(1.0, 30.0)
    if random.random() < 0.08:
        limits["max_run_time_s"] = random.uniform(0.5, 8.0)
    return {
        "name": name, **limits,
        "epochs": random.randint(1, 2),
        "minibatches": random.randint(2, 4),
        "minibatch_s": 0.1,
        "utility": {"height": random.uniform(1.0, 50.0), "steepness": 0.1, "target": 40},
        "train": _train(name),
    }  # fmt: skip


_KINDS: Mapping[str, Callable[[Random], Setup]] = MappingProxyType(
    {"lanes": _lanes, "slots": _slots, "resources": _resources, "sites": _sites}
)
