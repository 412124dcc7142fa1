"""The fractional flow time of ILP (4): by hand, against trying everything, and below every schedule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from builders.chunk_instances import plain, tiny_scenario
from builders.thorough import thorough_after
from reference.fractional_flow import least_fractional_flow
from reference.optimum_of_chunks import least_total
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.network import upload_row
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.optimum.chunks.bounds import chunk_bounds
from skedge.optimum.chunks.fractional import fractional_bounds
from skedge.optimum.problems import parts, problem_of
from skedge.optimum.types import sum_bounds
from skedge.simulate import run
from skedge.testing import small_scenario

SLOTTED = Physics(slotted=True, slot=SECOND)


def bound(scenario: Scenario) -> float:
    (only,) = fractional_bounds(scenario)
    return only.value


def scenario_of(workers: int, *jobs: Job, cloud: bool = False) -> Scenario:
    edge = Server("e", capacity={"worker:gpu": workers, "ps:cpu": 9})
    cluster = Cluster([edge, Server("c", "cloud")] if cloud else [edge])
    table, given = job_table(jobs)
    return Scenario(cluster, Jobs(table, cluster, given), SLOTTED)


def job(name: str, arrival: float, chunks: int, minibatches: int, **more: object) -> Job:
    fields = {"epochs": 1, "minibatch_s": 1.0, "ps_type": "cpu", **more}
    return Job(id=name, arrival_s=arrival, chunks=chunks, minibatches=minibatches, **fields)  # type: ignore[arg-type]


def test_a_chunk_costs_the_mean_of_its_slots() -> None:
    """2 chunks of 3 slots on 2 workers from 0 on: each has the mean of 1, 2, 3, over D = 2. A job alone: 2 in all."""
    assert bound(scenario_of(2, job("a", 0, 2, 3))) == pytest.approx(2)


def test_the_lighter_job_goes_first() -> None:
    """One worker. a: 2 chunks of 2 slots, b: 1 of 1. A unit of a weighs 1/4, of b 1: b at 1, a at 2, 3, 4, 5."""
    assert bound(scenario_of(1, job("a", 0, 2, 2), job("b", 0, 1, 1))) == pytest.approx(1 + 14 / 4)


def test_the_cloud_takes_what_would_wait() -> None:
    """3 chunks of 1 slot, one worker, the cloud from slot 2 on: at 1, 2, and in the third slot, on either."""
    far = {"upload_cloud_s": (2.0, 2.0)}
    assert bound(scenario_of(1, job("a", 0, 3, 1, **far), cloud=True)) == pytest.approx((1 + 2 + 3) / 3)
    assert bound(scenario_of(0, job("a", 0, 3, 1, **far), cloud=True)) == pytest.approx(3)


def test_communication_is_left_out() -> None:
    """Of a mini-batch of 1 s and as much for 2 q / b only the first counts: zeta = 1."""
    apart = {"gradient_mb": 1.0, "bandwidth_mbps": 16.0}
    assert bound(scenario_of(1, job("a", 0, 1, 2, **apart))) == pytest.approx((1 + 2) / 2)


@pytest.mark.parametrize("seed", thorough_after(12, range(40)))
def test_it_is_the_optimum_of_the_integer_program(seed: int) -> None:
    """Trying every y of ILP (4), whole chunks in whole slots, finds nothing better and nothing worse."""
    scenario = tiny_scenario(seed, most_jobs=2)
    jobs = plain(scenario)
    lengths = [int(n) // SECOND for n in scenario.true_chunk_time[:, 1]]
    cloud, arrival = scenario.cluster.cloud, scenario.jobs.arrival // SECOND
    ready = [
        None if cloud is None else int(arrival[j] + upload_row(scenario.delays, j)[cloud] // SECOND)
        for j in range(len(jobs))
    ]
    least = least_fractional_flow(jobs, lengths, ready)
    assert bound(scenario) == pytest.approx(float(least), rel=1e-6)
    assert bound(scenario) <= least <= least_total(jobs)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cloud", [True, False])
def test_no_schedule_of_chunks_is_below_it(seed: int, cloud: bool) -> None:
    """Nor is the bound of schedules, which counts the last slot of a job, not the mean of its slots."""
    scenario = small_scenario(seed, jobs=12, cloud=cloud, physics=Physics(slotted=True, slot=10 * SECOND))
    value = bound(scenario)
    assert value <= max(b.value for b in chunk_bounds(scenario, "chunks"))
    for policy in ("aonline", "aonline:q_mode=fractional"):
        assert value <= run(scenario, policy).metrics["jct_total_s"]


def test_worker_types_add_up() -> None:
    scenario = small_scenario(1, jobs=12, physics=Physics(slotted=True, slot=10 * SECOND))
    assert parts(scenario) > 1
    (whole,) = sum_bounds([fractional_bounds(scenario, part) for part in range(parts(scenario))])
    assert whole.value == pytest.approx(bound(scenario))


def test_it_is_a_problem_of_slotted_time_alone() -> None:
    scenario = scenario_of(1, job("a", 0, 1, 1))
    assert problem_of(scenario, "fractional")[1].metric == "jct_total_s"
    with pytest.raises(Exception, match="has no problem 'fractional'"):
        problem_of(replace(scenario, physics=Physics()), "fractional")


def test_a_job_that_can_never_run_leaves_no_bound() -> None:
    assert fractional_bounds(scenario_of(0, job("a", 0, 1, 1))) == []


def test_slots_of_a_late_arrival_begin_at_the_next_boundary() -> None:
    """An arrival at 0.5 s, a slot from 1 to 2: 1.5 s."""
    assert bound(scenario_of(1, job("a", 0.5, 1, 1))) == pytest.approx(1.5)
    assert np.isclose(bound(scenario_of(1, job("a", 0.5, 1, 1, upload_edge_s=(0.5, 0.5)))), 2.5)
