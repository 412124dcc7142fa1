"""A kernel driven by a script: events and orders by hand, and which rule refuses an order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from skedge.core.events import (
    CLOUD,
    Allocate,
    Dispatch,
    Event,
    Order,
    ps_in,
)
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster, Job, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.policy import BasePolicy, View

# lanes 0, 1 (gpu of s0), 2 (gpu of s1), 3 (tpu of s1); PS slots 0 (cpu of s0), 1 (cpu of s1), 2 (mem of s1)
A, B, C = range(3)
"""Three jobs of two chunks of 10 s and 2 MB; A arrives at 0, B at 1 s, C at 5 s. s0 stores 4 MB."""


S = 1_000_000


def scenario(*, cloud: bool = True, upload_s: float = 0.0, gradient_mb: float = 0.0) -> Scenario:
    edge = [
        Server("s0", capacity={"worker:gpu": 2, "ps:cpu": 1}, storage_mb=4.0),
        Server("s1", capacity={"worker:gpu": 1, "worker:tpu": 1, "ps:cpu": 1, "ps:mem": 1}),
    ]
    cluster = Cluster([*edge, Server("cloud", "cloud")] if cloud else edge)
    made: dict[str, Any] = {"minibatch_s": 1.0, "workers": 2, "chunk_mb": 2.0, "upload_edge_s": (upload_s, upload_s)}
    made["gradient_mb"] = gradient_mb
    jobs = [Job(name, arrival_s, 1, 2, 10, **made) for name, arrival_s in (("a", 0), ("b", 1), ("c", 5))]
    frame, given = job_table(jobs)
    return Scenario(cluster, Jobs(frame, cluster, given))


class Script(BasePolicy):
    """Answers the n-th event with the n-th list of orders."""

    name: ClassVar[str] = "script"

    def __init__(self, *answers: Iterable[Any]) -> None:
        super().__init__()
        self.answers = iter(answers)
        self.seen: list[View] = []

    def decide(self, event: Event, view: View) -> Iterable[Order]:
        self.seen.append(view)
        return next(self.answers, ())


def arrival(job: int) -> Event:
    return Event((0, S, 5 * S)[job], arrived=(job,))


def dispatch(job: int, *lanes: int) -> Dispatch:
    return Dispatch(job, np.array(lanes), 20 * S, np.zeros(len(lanes)), np.zeros(len(lanes), np.int64))


def again(job: int, chunks: tuple[int, ...], *lanes: int) -> Dispatch:
    return replace(dispatch(job, *lanes), chunks=chunks)


def allocate(job: int, *where: tuple[int, int], ps: int = CLOUD) -> Allocate:
    return Allocate(job, where, ps_in(ps))


def handled(kernel: Kernel, *events: Event) -> Kernel:
    for event in events:
        kernel.handle(event)
    return kernel


def after_arrivals(*orders: Any, cloud: bool = True) -> Kernel:
    """A and B arrive; the orders answer B's arrival."""
    return handled(Kernel(scenario(cloud=cloud), Script((), orders)), arrival(A), arrival(B))


def announced_end(kernel: Kernel, job: int) -> float:
    """When the workers that `job` holds now, all of which have begun, have done its announced work [µs]."""
    return kernel.now + kernel.engine.left_of(job, kernel.now) / int(kernel.engine.workers_held[job])
