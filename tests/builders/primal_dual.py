"""A system of servers with resources, and one job for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.model.value import Sigmoid

SLOT = 3600 * SECOND


HOURLY = Physics(slotted=True, colocation="one_server", horizon=20 * SLOT)


def one(**fields: Any) -> Job:
    """Half an hour of a worker for a sample: 8 samples are 4 worker-slots."""
    job = Job(
        "a", 0.0, 1, 1, 8, 1800.0, batch=4, ratio=2.0, worker_needs={"gpu": 1}, ps_needs={"gpu": 1},
        utility=Sigmoid(10.0, 0.0, 0.0),
    )  # fmt: skip
    return replace(job, **fields)


def system(*jobs: Job, gpus: tuple[float, ...] = (12.0, 12.0), physics: Physics = HOURLY) -> Scenario:
    cluster = Cluster([Server(f"m{i}", capacity={"gpu": n}) for i, n in enumerate(gpus)])
    return Scenario(cluster, Jobs(job_table(jobs)[0], cluster), physics)
