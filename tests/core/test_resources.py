"""Servers with resources instead of slots: the model, the kernel's ledger, and work that has no slack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skedge.core.errors import OrderError, ScenarioError
from skedge.core.events import Allocate, Event, Order, WakeAt
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster, Job, Physics, Placement, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.speed import ceil_almost
from skedge.core.model.time import SECOND
from skedge.core.model.value import Sigmoid
from skedge.core.policy import BasePolicy, View
from skedge.sim.world import SimulatedWorld

SLOT = 3600 * SECOND
SLOTTED = Physics(slotted=True, slot=SLOT, colocation="one_server", horizon=20 * SLOT)
JOB = Job(
    "a", 0.0, epochs=1, chunks=1, minibatches=100, minibatch_s=36.0, gradient_mb=10.0, bandwidth_mbps=100.0,
    internal_mbps=1000.0, batch=10, ratio=2.0, worker_needs={"gpu": 1, "memory": 0.1}, ps_needs={"memory": 0.3},
    utility=Sigmoid(10.0, 0.5, 3.0),
)  # fmt: skip


def system(*jobs: Job, servers: int = 2, physics: Physics = SLOTTED) -> Scenario:
    cluster = Cluster([Server(f"m{i}", capacity={"gpu": 4, "memory": 1.3}) for i in range(servers)])
    return Scenario(cluster, Jobs(job_table(jobs)[0], cluster), physics)


class Scripted(BasePolicy):
    """Gives the job, slot by slot, what it is told to."""

    name: ClassVar[str] = "scripted"

    def __init__(self, *slots: tuple[Placement, Any]) -> None:
        super().__init__()
        self.slots, self.events = slots, list[Event]()

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        self.events.append(event)
        now = view.now // SLOT
        if 0 in view.active.tolist() and now < len(self.slots):
            yield Allocate(0, *self.slots[now])
            yield WakeAt((now + 1) * SLOT)


def played(scenario: Scenario, *slots: tuple[Placement, Any]) -> Kernel:
    kernel = Kernel(scenario, Scripted(*slots))
    world = SimulatedWorld(kernel)
    drive_to_end(kernel, world)
    kernel.validate_state()
    kernel.runs = world.runs()  # type: ignore[attr-defined]
    return kernel


def test_a_cluster_has_its_resources_as_a_table() -> None:
    cluster = Cluster([Server("a", capacity={"gpu": 4}), Server("b", capacity={"memory": 0.5, "gpu": 1})])
    assert cluster.resources == ("gpu", "memory")
    assert cluster.amounts.tolist() == [[4, 0], [1, 0.5]]
    assert cluster.lanes == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"worker_needs": {"tpu": 1}},
            r"worker_needs.tpu = 1.0; it must be of a resource that a server has",
        ),
        ({"ps_needs": {}}, r"ps_needs.\* = 0.0; it must be above 0 for one of gpu, memory"),
        ({"internal_mbps": 99.0}, "internal_mbps = 99.0; it must be at least bandwidth_mbps"),
    ],
)
def test_wrong_jobs_are_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=rf"jobs\[0\] \(id 'a'\): {said}"):
        system(replace(JOB, **wrong))


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("worker_needs.gpu", -1.0, "worker_needs.gpu = -1.0; it must be a number from 0 to 1e"),
        ("ratio", 0.0, "ratio = 0.0; it must be a number from 1e-09"),
        ("batch", 0, "batch = 0; it must be a whole number, at least 1"),
    ],
)
def test_wrong_rows_of_a_table_are_named(column: str, value: float, said: str) -> None:
    """A table of jobs is made by others too, without a Job."""
    table = job_table([JOB])[0].with_columns(pl.lit(value).alias(column))
    with pytest.raises(ScenarioError, match=rf"jobs\[0\] \(id 'a'\): {said}"):
        Jobs(table, system(JOB).cluster)


def test_the_least_that_a_job_can_say_of_each_field_is_taken() -> None:
    """A batch of 1, the internal rate equal to the external one, needs of 0 beside one above it."""
    least = replace(JOB, batch=1, internal_mbps=100.0, gradient_mb=0.0, worker_needs={"gpu": 1, "memory": 0.0})
    jobs = system(least).jobs
    assert (jobs.batch.tolist(), jobs.worker_needs.tolist()) == ([1], [[1.0, 0.0]])
    table = job_table([least])[0].with_columns(pl.lit(1).alias("batch"))
    assert Jobs(table, system(JOB).cluster).batch.tolist() == [1]


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ([Server("a", capacity={"gpu": 1}), Server("c", "cloud")], "a cloud does not go with resources such as 'gpu'"),
    ],
)
def test_wrong_servers_are_named(cluster: list[Server], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        Cluster(cluster)


def test_a_horizon_is_whole_slots() -> None:
    with pytest.raises(ScenarioError, match="horizon: 5400 s; it must be a whole number of slots of 3600 s"):
        Physics(horizon=5400 * SECOND)


def test_work_is_samples_times_seconds_each_by_hand() -> None:
    """External: 36 + 16 * 10 * (2 / 10) / 100 = 36.32 s, internal 36.032 s, 100 of them; 2e-9 less, rounded down."""
    assert system(JOB).announced_work.tolist() == [[3_631_999_992, 3_603_199_992]]
    twice = system(JOB, physics=replace(SLOTTED, speedup=2.0))
    assert twice.announced_work.tolist() == [[1_815_999_996, 1_801_599_996]]


@pytest.mark.parametrize(
    ("where", "ps", "rule", "said"),
    [
        (((0, 5),), ((1, 3),), "M26", "is given 5 of gpu on 'm0'; 4 are free"),
        (((0, 4),), ((0, 4),), "M26", "is given 1.6 of memory on 'm0'; 1.3 are free"),
        (((0, 4), (1, 4)), ((0, 3),), "M28", "is given 3 PSs for 8 workers; 2 workers a PS take 4"),
        (((0, 11),), ((0, 6),), "M27", "has a batch of 10; 11 workers are given"),
        (((0, 1),), (), "M5", "is given no PS"),
        (((0, 1), (0, 1)), ((0, 1),), "M4", "each server must be listed once"),
        (((0, 1),), ((7, 1),), "M1", "servers are numbered 0 to 1"),
        (((0, 1),), 0, "M12", r"an allocation has \(place, PSs\) pairs"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_rule(where: Placement, ps: Any, rule: str, said: str) -> None:
    with pytest.raises(OrderError, match=said) as refused:
        played(system(JOB), (where, ps))
    assert refused.value.rule == rule


def test_all_of_a_server_can_be_given_whatever_floats_make_of_it() -> None:
    """4 workers of 0.1 and 3 PSs of 0.3 are 1.3, in floats 1.2999999999999998 or 1.3000000000000003."""
    kernel = played(system(JOB), (((0, 4),), ((0, 3),)))
    assert kernel.books.pool is not None
    assert kernel.books.pool.free.tolist() == kernel.books.pool.capacity.tolist()


def test_the_record_counts_pss_by_server() -> None:
    """3.632 worker-hours with 2 workers: two slots; in the second the PSs stand elsewhere."""
    kernel = played(system(JOB), (((0, 1),), ((0, 1), (1, 2))), (((0, 3),), ((1, 2),)))
    tables = kernel.record.schedule(kernel.runs)  # type: ignore[attr-defined]
    assert tables.ps.drop("slot").rows() == [
        (0, "m0", 1, 0, SLOT), (0, "m1", 2, 0, SLOT), (0, "m1", 2, SLOT, 2 * SLOT),
    ]  # fmt: skip
    assert tables.ps["slot"].is_null().all()
    assert tables.jobs["completion"].to_list() == [2 * SLOT]


def test_one_server_with_all_workers_and_pss_is_quicker() -> None:
    """Internal: 3603.2 s with one worker are 2 slots, but 1 slot where nothing is sent; external takes 2 with 36.32."""
    free = replace(JOB, internal_mbps=np.inf)
    inside = played(system(free), (((0, 1),), ((0, 1),)))
    outside = played(system(free), (((0, 1),), ((1, 1),)), (((0, 1),), ((1, 1),)))
    assert [k.runs["end"].max() // SLOT for k in (inside, outside)] == [1, 2]  # type: ignore[attr-defined]
    assert inside.runs["colocated"].all()  # type: ignore[attr-defined]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_plan_without_slack_is_done_in_its_last_slot(seed: int) -> None:
    """Samples such that so many workers, inside and outside in turn, do them in whole slots with nothing to spare.

    Planners take 1e-9 of a worker above a whole number for float noise.
    """
    rng = np.random.default_rng(seed)
    tau, slots = float(rng.choice([1e-10, 3e-11, 0.07, 1 / 3])), int(rng.integers(1, 8))
    job = replace(
        JOB, minibatch_s=tau * 3600, gradient_mb=float(rng.choice([0, 1e-7, 3e-7])), ratio=float(rng.choice([1, 3])),
        bandwidth_mbps=float(rng.uniform(100, 5120)), internal_mbps=1e5,
    )  # fmt: skip
    scenario = system(job)
    x = [float(scenario.jobs.minibatch_seconds(colocated=zeta)[0]) / 3600 for zeta in (False, True)]
    plan = [(int(rng.integers(1, 4)), bool(rng.integers(2))) for _ in range(slots)]
    samples = int(sum(w / x[inside] for w, inside in plan) * (1 + 0.8e-9))
    last = samples - sum(w / x[inside] for w, inside in plan[:-1])
    w, inside = plan[-1]
    if samples < 1 or ceil_almost(last * x[inside]) != w:
        return
    placed = [(((0, w),), ((0 if inside else 1, 3),)) for w, inside in plan]
    kernel = played(system(replace(job, minibatches=samples)), *placed)
    assert kernel.runs["end"].max() <= slots * SLOT  # type: ignore[attr-defined]


def test_a_server_out_of_service_has_nothing_to_give_and_takes_what_stands_there() -> None:
    kernel = Kernel(system(JOB), Scripted((((0, 1),), ((1, 1),))))
    kernel.handle(Event(0, arrived=(0,)))
    with pytest.raises(OrderError, match=r"\[M25\] job 'a' is given 'm1', which is out of service"):
        kernel.handle(Event(1, servers=((1, "cordoned"),)))
    assert kernel.policy.events[-1].interrupted == (0,)  # type: ignore[attr-defined]
    assert kernel.view.free.tolist() == [[4, 1.3], [0, 0]]
    kernel.handle(Event(2, servers=((1, ""),)))
    assert kernel.view.free.tolist() == [[3, pytest.approx(1.2)], [4, 1.0]]
