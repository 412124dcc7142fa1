"""Tiny scenarios with utilities, and a table without some rows."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.model.value import Sigmoid


def tiny_utility(seed: int, *, flat: bool = False) -> Scenario:
    """Two machines, three jobs, four slots; a worker takes a unit of memory and some GPUs.

    With `flat` every job is worth 1 whenever it is complete.
    """
    rng, slot = np.random.default_rng(seed), 10 * SECOND
    cluster = Cluster([Server(f"m{i}", capacity={"gpu": float(rng.integers(1, 3)), "memory": 4.0}) for i in range(2)])
    jobs = [
        Job(
            id=str(i),
            arrival_s=float(rng.integers(0, 3) * 10),
            epochs=1,
            chunks=1,
            minibatches=int(rng.integers(4, 30)),
            minibatch_s=1.0,
            gradient_mb=float(rng.integers(0, 3)),
            bandwidth_mbps=16.0,
            batch=2,
            ratio=float(rng.choice([0.5, 1, 2])),
            worker_needs={"gpu": float(rng.integers(0, 2)), "memory": 1.0},
            ps_needs={"memory": float(rng.integers(1, 3)) / 2},
            utility=Sigmoid(float(rng.integers(1, 50)), float(rng.choice([0, 0.5, 4])), float(rng.integers(1, 4))),
        )
        for i in range(3)
    ]
    if flat:
        jobs = [replace(job, utility=Sigmoid(2, 0, 1)) for job in jobs]
    table, given = job_table(jobs)
    physics = Physics(slotted=True, slot=slot, colocation="one_server", horizon=4 * slot)
    return Scenario(cluster, Jobs(table, cluster, given), physics, seed, f"tiny-{seed}")


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As if these packages were not installed."""
    for name in [n for n in sys.modules if n.partition(".")[0] in names]:
        monkeypatch.delitem(sys.modules, name)
    for name in names:
        # an import of it, by whatever statement or function, is refused
        monkeypatch.setitem(sys.modules, name, None)
