"""Forecasts start from what is really trained, whatever speed a job was announced with."""

from __future__ import annotations

import numpy as np
import pytest

from skedge.core.events import Event, LaneFacts
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.prepare import prepare_policy
from skedge.sim.failures import world_of
from skedge.sim.trained import believe_trained
from skedge.sim.what_if import Present


def begun(policy: str, *chunks: int, workers: int = 1) -> Kernel:
    """Jobs of so many chunks, 10 s each as announced, that have arrived at 0 on a server with so many workers."""
    cluster = Cluster([Server("e0", capacity={"worker:gpu": workers, "ps:cpu": 4})])
    table, _ = job_table([Job(f"j{i}", 0.0, 1, n, 10, 1.0, workers=1) for i, n in enumerate(chunks)])
    scenario = Scenario(cluster, Jobs(table, cluster), Physics())
    kernel = Kernel(scenario, prepare_policy(policy, scenario))
    world = world_of(kernel)
    while (event := world.next_event()) is not None and event.time == 0:
        for order in kernel.handle(event):
            world.perform(order)
    return kernel


def foreseen(kernel: Kernel, now_s: float, shares: dict[int, list[float]]) -> dict[int, float]:
    """Completions foreseen at a time from what is trained [s]."""
    present = Present(kernel, round(now_s * SECOND)).copy()
    believe_trained(present.kernel, {job: np.array(of) for job, of in shares.items()}, present.now)
    return {job: end / SECOND for job, end in present.run_out().completions.items()}


@pytest.mark.parametrize("policy", ["fifo", "preemptive", "aonline"])
def test_a_job_slower_than_announced_is_not_foreseen_complete(policy: str) -> None:
    """Announced 10 s; after 9 s a tenth is trained: 9 s are left at the announced speed, not 1 s."""
    kernel = begun(policy, 1)
    assert foreseen(kernel, 9, {0: [0.1]}) == {0: pytest.approx(18)}
    assert foreseen(kernel, 20, {0: [0.1]}) == {0: pytest.approx(29)}


@pytest.mark.parametrize("policy", ["fifo", "preemptive", "aonline"])
def test_the_measured_speed_and_the_trained_share_are_both_used(policy: str) -> None:
    """After 9 s a tenth is trained and the speed is a ninth of the announced one: 81 s are left."""
    kernel = begun(policy, 1)
    kernel.handle(Event(9 * SECOND, measured=((0, 9.0),)))
    assert foreseen(kernel, 9, {0: [0.1]}) == {0: pytest.approx(90)}


def test_what_waits_behind_a_slow_job_begins_later() -> None:
    """The second job waits for the first, of which half is trained at 9 s: 5 s, then 10 s."""
    assert foreseen(begun("fifo", 1, 1), 9, {0: [0.5], 1: [0.0]}) == {0: pytest.approx(14), 1: pytest.approx(24)}


def test_chunks_that_take_their_lane_in_turn_are_counted_together() -> None:
    """Three chunks on one lane, of which one is trained, one half and one a fifth: 13 s are left."""
    kernel = begun("aonline", 3)
    believed = kernel.belief
    shares = {0: [1.0, 0.5, 0.2]}
    # the completion of the first chunk is a fact that the kernel has
    one = np.array([10 * SECOND]), np.array([0]), np.array([0])
    kernel.handle(Event(10 * SECOND, chunks=LaneFacts(*one)))
    assert believed.waiting[0] == 1
    assert foreseen(kernel, 10, shares) == {0: pytest.approx(23)}


def test_the_kernel_itself_is_not_changed() -> None:
    """Only the copy that the forecast is made on."""
    kernel = begun("aonline", 1)
    before = kernel.belief.rows.copy()
    foreseen(kernel, 9, {0: [0.1]})
    assert (kernel.belief.rows == before).all()
