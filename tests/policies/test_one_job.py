"""With one job on an empty cluster every policy gives what its formula gives; all numbers are worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any, Literal

import numpy as np
import pytest

from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.latency import Linear
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.model.value import Sigmoid
from skedge.recorded_run import Run
from skedge.simulate import run

SLOT = 10 * SECOND
ARRIVAL, DELAY, DELAY_CLOUD = 4, 7, 30
P = {0: 40, 1: 20}
"""A chunk by zeta [s]: 2 epochs of 5 mini-batches of 1.5 + 0.5 s; 2 s more for 2 x 2 MB at 16 Mbit/s (Eq. (1))."""


def slots_job(**changes: Any) -> Job:
    """Four chunks; a gang of two."""
    job = Job(
        "a", arrival_s=ARRIVAL, epochs=2, chunks=4, minibatches=5, minibatch_s=1.5, ps_update_s=0.5, gradient_mb=2,
        bandwidth_mbps=16, worker_type="gpu", ps_type="cpu", workers=2, upload_edge_s=(DELAY, DELAY),
        upload_cloud_s=(DELAY_CLOUD, DELAY_CLOUD),
    )  # fmt: skip
    return replace(job, **changes)


def ran(policy: str, servers: list[Server], job: Job, physics: Physics, cost: np.ndarray | None = None) -> Run:
    cluster = Cluster(servers, cost)
    table, given = job_table([job])
    result = run(Scenario(cluster, Jobs(table, cluster, given), physics), policy)
    assert result.verify() == []
    assert result.jobs["state"].to_list() == ["finished"]
    return result


def completion(result: Run) -> float:
    """[s]."""
    return float(result.jobs["completion"][0]) / SECOND


EDGE = [Server("e", capacity={"worker:gpu": 3, "ps:cpu": 2})]
"""Three workers, so that a gang of two fits and four chunks take two rounds."""
READY = ARRIVAL + DELAY


def on_slots(seconds: float) -> float:
    """The next boundary."""
    return 10 * ceil(seconds / 10)


# Whatever Q is, chunks spread over the three lanes and one has two of them; zeta = 0 on the edge (M10).
ONE_BY_ONE = {
    f"aonline{mode}": READY + 2 * P[0]
    for mode in ("", ":q_mode=eq5", ":q_mode=fractional", ":preempt_running=false", ":cloud=false")
}
GANGS = ("srtf", "srtf:placement=literal", "tiresias", "tiresias:limit_s=100,knob=1", "fifo", "fifo:backfill=true",
         "fifo:rule=earliest_server")  # fmt: skip
WIDE = ("drf", "preemptive")


@pytest.mark.parametrize("colocation", ["cloud", "one_server"])
@pytest.mark.parametrize("policy", [*ONE_BY_ONE, *GANGS, *WIDE])
def test_on_one_server_in_continuous_time(policy: str, colocation: Literal["cloud", "one_server"]) -> None:
    """A_online: 4 + 7 + 2 p. A gang of two: 4 + 7 + 4 p / 2. DRF and Preemptive give all three: 4 + 7 + 4 p / 3."""
    result = ran(policy, EDGE, slots_job(), Physics(colocation=colocation))
    work = 4 * P[int(colocation == "one_server")]
    expected = ONE_BY_ONE.get(policy, READY + work / (2 if policy in GANGS else 3))
    assert completion(result) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("colocation", ["cloud", "one_server"])
@pytest.mark.parametrize("policy", [*ONE_BY_ONE, *GANGS, *WIDE])
def test_on_one_server_in_slots_of_10_s(policy: str, colocation: Literal["cloud", "one_server"]) -> None:
    """Seen at 10, data there a slot later; all in whole slots: 20 + 2 x 40; gangs 20 + 80 or 40; wide 20 + 60 or 30."""
    result = ran(policy, EDGE, slots_job(), Physics(slotted=True, slot=SLOT, colocation=colocation))
    work = 4 * P[int(colocation == "one_server")]
    seen = on_slots(ARRIVAL) + on_slots(DELAY)
    expected = seen + (2 * P[0] if policy in ONE_BY_ONE else on_slots(work / (2 if policy in GANGS else 3)))
    assert completion(result) == expected


CLOUD = [Server("e", capacity={"worker:gpu": 0, "ps:cpu": 2}), Server("c", "cloud")]


@pytest.mark.parametrize("policy", ["aonline", *GANGS, *WIDE])
def test_in_the_cloud_where_the_edge_has_no_worker(policy: str) -> None:
    """zeta = 1 there. A worker for each chunk: 4 + 30 + 20; a gang of two: 4 + 30 + 4 x 20 / 2."""
    result = ran(policy, CLOUD, slots_job(), Physics())
    assert completion(result) == ARRIVAL + DELAY_CLOUD + (2 * P[1] if policy in GANGS else P[1])


@pytest.mark.parametrize("slotted", [False, True])
@pytest.mark.parametrize(
    ("colocation", "policy", "chunks", "tau", "work"),
    [
        ("cloud", "batch", 4, 80, 4 * 40 / 3),  # 6 slots with three workers; tau = 1: no data, 2, 4: too short
        ("one_server", "batch", 4, 40, 4 * 20 / 3),  # 3 slots; tau = 2 is too short
        ("cloud", "batchsche", 1, 40, 40),  # one chunk: 4 slots
        ("one_server", "batchsche", 1, 20, 20),  # 2 slots; the data are there at 11
    ],
)
def test_batches_begin_at_the_first_interval_that_is_long_enough(
    colocation: Literal["cloud", "one_server"], policy: str, chunks: int, tau: int, work: float, slotted: bool
) -> None:
    """At no load nothing has a price: the earliest plan with d <= tau_i = 1, 2, 4, 8 slots whose data are there."""
    physics = Physics(slotted=slotted, slot=SLOT, colocation=colocation)
    result = ran(policy, EDGE, slots_job(chunks=chunks, workers=1), physics)
    assert completion(result) == pytest.approx(tau + (on_slots(work) if slotted else work), abs=1e-6)


# -- servers with resources --------------------------------------------------------------------------------------------

MACHINES = [Server(name, capacity={"gpu": 8.0, "memory": 8.0}) for name in ("m0", "m1")]


def resource_job(workers: int) -> Job:
    """40 samples of 2 s without communication, at most `workers` workers: 80 worker-seconds."""
    return Job(
        "a", arrival_s=ARRIVAL, epochs=2, chunks=4, minibatches=5, minibatch_s=2.0, batch=workers, ratio=2.0,
        worker_needs={"gpu": 1.0}, ps_needs={"memory": 1.0}, utility=Sigmoid(100.0, 2.0, 3.0),
    )  # fmt: skip


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("policy", ["drf", "pdors", "oasis", "optimus", "dorm", "fifo"])
def test_on_servers_with_resources(policy: str, workers: int) -> None:
    """Seen at 10, 80 worker-seconds with the most workers: 8 slots with 1, 2 with 4; FIFO with as many as it draws."""
    physics = Physics(slotted=True, slot=SLOT, colocation="one_server", horizon=20 * SLOT)
    result = ran(policy, MACHINES, resource_job(workers), physics)
    if policy == "fifo":
        workers = int(result.schedule.runs["workers"].sum())
    assert completion(result) == 10 + on_slots(80 / workers)


# -- sites -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["okita", "okita:colocate=true", "drf", "oasis", "fifo"])
def test_at_sites(policy: str) -> None:
    """A worker trains 2 of the 8 chunks in a slot, 3 fit where they lie: 2 slots from 10 on; FIFO as it draws."""
    sites = [Server("s0", capacity={"gpu": 3.0, "memory": 1.0}), Server("s1", capacity={"gpu": 0.0, "memory": 1.0})]
    job = Job(
        "a", arrival_s=ARRIVAL, epochs=1, chunks=8, minibatches=10, minibatch_s=0.5, chunk_mb=1.0, exchange_mb=1.0,
        worker_needs={"gpu": 1.0}, ps_needs={"memory": 1.0}, data={"s0": 8, "s1": 0}, latency=Linear(1000.0, 0.0),
    )  # fmt: skip
    physics = Physics(slotted=True, slot=SLOT, horizon=20 * SLOT)
    result = ran(policy, sites, job, physics, np.array([[0.0, 0.05], [0.05, 0.0]]))
    workers = int(result.schedule.runs["workers"].max()) if policy == "fifo" else 3
    assert completion(result) == 10 + 10 * ceil(8 / (2 * workers))
