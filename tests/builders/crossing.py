"""Random small scenarios whose servers fail, for each feature, and what is wrong with a run of a policy on one.

A cell is a policy and a feature. Instances are drawn by seed; most servers fail several times, often all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator

from skedge.core.model import Cluster, Job, Physics, Server, job_table
from skedge.core.scenario import Jobs, Scenario
from skedge.core.sharing import Sharing, Tenant
from skedge.core.time import SECOND

POLICIES = (
    "aonline", "aonline:cloud=false", "aonline:preempt_running=false", "aonline:q_mode=eq5",
    "aonline:q_mode=fractional,ps_choice=random", "srtf", "srtf:placement=keep_running", "srtf:allow_cloud=true",
    "srtf:sticky=true", "tiresias:limit_s=60", "tiresias:knob=2", "fifo", "fifo:backfill=true",
    "fifo:rule=earliest_server", "drf", "preemptive", "batch", "batch:price_norm=none,T=20",
    "batch:literal_cost_d=true,order=shortest,T=5", "batch:cloud_capacity=2,strict_upload=false", "batchsche",
    "batchsche:tie=earliest,cloud_capacity=0",
)  # fmt: skip
"""Policies on servers with slots, in their variants; on others no server fails in a simulation."""

SHARES = ("srtf", "tiresias", "fifo")
"""Policies that keep to tenants and priority classes."""


class Draw:
    """What is drawn for an instance; a feature changes it before the scenario is made."""

    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, np.random.default_rng(seed)
        rng = self.rng
        self.cloud = False
        self.storage: list[float | None] = [None] * int(rng.integers(1, 4))
        slotted = bool(rng.integers(2))
        self.physics: dict[str, Any] = {
            "slotted": slotted,
            "slot": int(rng.choice([1, 5])) * SECOND,
            "data": str(rng.choice(["kept", "last_place"])),
            "colocation": str(rng.choice(["cloud", "one_server"])),
            "checkpoint_overhead": int(rng.choice([0, 1_500_000])),
            "mtbf": int(rng.integers(15, 120)) * SECOND,
            "mttr": int(rng.integers(1, 60)) * SECOND,
        }
        self.sharing: Sharing | None = None
        self.jobs = [self._job(i) for i in range(int(rng.integers(2, 8)))]

    def _job(self, number: int) -> dict[str, Any]:
        rng, chunks = self.rng, int(self.rng.integers(1, 6))
        return {
            "id": f"j{number}", "arrival_s": float(rng.integers(0, 120)), "epochs": int(rng.integers(1, 4)),
            "chunks": chunks, "minibatches": int(rng.integers(1, 12)), "minibatch_s": float(rng.uniform(0.5, 2)),
            "ps_update_s": 0.05, "gradient_mb": float(rng.uniform(1, 30)), "bandwidth_mbps": 400.0,
            "worker_type": str(rng.choice(["a", "a", "b"])), "ps_type": str(rng.choice(["p", "p", "q"])),
            "workers": int(rng.integers(1, chunks + 1)), "chunk_mb": float(rng.choice([0, 10])),
            "upload_edge_s": (0.0, 8.0), "upload_cloud_s": (10.0, 40.0),
        }  # fmt: skip

    def scenario(self) -> Scenario:
        """The scenario of the instance."""
        rng = np.random.default_rng([self.seed, 1])
        servers = [_server(f"e{i}", storage, rng) for i, storage in enumerate(self.storage)]
        servers += [Server("cloud", "cloud")] * self.cloud
        cluster = Cluster(servers, sharing=self.sharing)
        table, given = job_table([Job(**job) for job in self.jobs])
        return Scenario(cluster, Jobs(table, cluster, given), Physics(**self.physics), self.seed, "crossing")


def _server(name: str, storage: float | None, rng: Generator) -> Server:
    a, b, p, q = (int(n) for n in rng.integers((1, 0, 1, 0), (4, 3, 5, 3)))
    return Server(name, capacity={"worker:a": a, "worker:b": b, "ps:p": p, "ps:q": q}, storage_mb=storage)


def _plain(_draw: Draw) -> None:
    """Servers fail, and nothing else."""


def _cloud(draw: Draw) -> None:
    draw.cloud = True


def _storage(draw: Draw) -> None:
    draw.storage = [float(draw.rng.integers(2, 8)) * 10 for _ in draw.storage]
    for job in draw.jobs:
        job["chunk_mb"] = float(draw.rng.choice([0, 4, 10, 25]))
    draw.cloud = bool(draw.rng.integers(2))


def _sharing(draw: Draw) -> None:
    rng = draw.rng
    tenants = {"red": Tenant(2.0), "blue": Tenant(1.0, float(rng.choice([0.5, 1.0])))}
    bound = [None, 0, 1, 2][int(rng.integers(4))]
    ageing = [None, 30.0][int(rng.integers(2))]
    draw.sharing = Sharing(tenants, float(rng.choice([0, 10])), bound, ageing)
    for job in draw.jobs:
        job["tenant"], job["priority"] = str(rng.choice(["red", "blue", "default"])), int(rng.integers(0, 3))


def _lag(draw: Draw) -> None:
    for job in draw.jobs:
        job["max_lag"] = int(draw.rng.integers(1, 3))


def _estimates(draw: Draw) -> None:
    draw.physics["estimate_error"] = float(draw.rng.choice([0.3, 1.0]))
    draw.cloud = bool(draw.rng.integers(2))


def _batches(draw: Draw) -> None:
    """Jobs that arrive together, in slotted time with a cloud or without."""
    draw.physics["slotted"], draw.cloud = True, bool(draw.rng.integers(2))
    for job in draw.jobs:
        job["arrival_s"] = float(draw.rng.choice([0, 20, 60]))


def _all(draw: Draw) -> None:
    """Any of those that go with all policies, together."""
    for feature in (_cloud, _storage, _estimates, _batches):
        if draw.rng.integers(2):
            feature(draw)


Feature = Callable[[Draw], None]
FEATURES: dict[str, Feature] = {
    "plain": _plain, "sharing": _sharing, "cloud": _cloud, "storage": _storage, "lag": _lag, "estimates": _estimates,
    "batches": _batches, "streamed": _all, "quick": _all, "all": _all,
}  # fmt: skip


def instance(feature: str, seed: int) -> Scenario:
    """The scenario of a feature by seed."""
    draw = Draw(seed)
    FEATURES[feature](draw)
    return draw.scenario()
