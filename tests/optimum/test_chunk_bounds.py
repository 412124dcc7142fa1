"""Bounds on the total JCT: by hand, against one another, and against every run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from builders.chunk_instances import plain, tiny_scenario
from builders.thorough import thorough_after
from reference.optimum_of_chunks import least_total
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.optimum.chunks.bounds import chunk_bounds, grid
from skedge.optimum.pools.flow import transport
from skedge.optimum.pools.pools import JobPool, pools
from skedge.optimum.pools.prices import Grid, improve, value
from skedge.optimum.pools.simple import alone, srpt
from skedge.simulate import run
from skedge.testing import small_scenario


def scenario_of(jobs: list[Job], workers: int, *, cloud: bool = False, physics: Physics | None = None) -> Scenario:
    servers = [Server("e", capacity={"worker:gpu": workers, "ps:cpu": 9})]
    cluster = Cluster([*servers, Server("c", "cloud")] if cloud else servers)
    table, given = job_table(jobs)
    return Scenario(cluster, Jobs(table, cluster, given), physics or Physics())


def job(name: str, arrival: float, chunks: int, minibatches: int, **more: object) -> Job:
    fields = {"epochs": 1, "minibatch_s": 1.0, "ps_type": "cpu", **more}
    return Job(id=name, arrival_s=arrival, chunks=chunks, minibatches=minibatches, **fields)  # type: ignore[arg-type]


def bounds(scenario: Scenario, family: str = "chunks") -> dict[str, float]:
    return {b.name: b.value for b in chunk_bounds(scenario, family)}  # type: ignore[arg-type]


def test_alone_counts_the_chunks_of_the_fullest_worker() -> None:
    """5 chunks of 3 s on 2 workers: one has three of them, 9 s; divided work needs 15 / 2."""
    scenario = scenario_of([job("a", 0, 5, 3)], 2)
    assert bounds(scenario)["alone"] == pytest.approx(9)
    assert bounds(scenario, "work")["alone"] == pytest.approx(7.5)


def test_alone_takes_the_cloud_where_that_is_sooner() -> None:
    """4 s on each of 10 chunks on one worker take 40 s; the cloud takes 5 s of upload and 4."""
    scenario = scenario_of([job("a", 2, 10, 4, upload_cloud_s=(5.0, 5.0))], 1, cloud=True)
    assert bounds(scenario)["alone"] == pytest.approx(9)


def test_srpt_is_by_hand() -> None:
    """Work 6 at 0 and 2 at 1 on one worker: done at 3 and 8, JCTs 2 and 8. On a machine twice as fast: 1 + 4."""
    jobs = [job("a", 0, 1, 6), job("b", 1, 1, 2)]
    assert srpt(pools(scenario_of(jobs, 1), "chunks")) == pytest.approx(10 * SECOND)
    assert srpt(pools(scenario_of(jobs, 2), "chunks")) == pytest.approx(5 * SECOND)


def test_srpt_says_nothing_where_work_can_leave() -> None:
    assert srpt(pools(scenario_of([job("a", 0, 1, 6)], 1, cloud=True), "chunks")) is None


def test_in_slotted_time_bounds_end_on_boundaries() -> None:
    """Work of 3 s in slots of 2 s, seen at the boundary at 2 s after an arrival at 1: done at 6, JCT 5."""
    scenario = scenario_of([job("a", 1, 1, 3)], 1, physics=Physics(slotted=True, slot=2 * SECOND))
    assert bounds(scenario)["alone"] == pytest.approx(5)
    assert bounds(scenario)["srpt"] == pytest.approx(5)


def test_at_no_price_every_job_is_alone() -> None:
    for pool in pools(small_scenario(0), "chunks"):
        edges = grid(pool)
        assert value(pool, Grid(edges, np.zeros(len(edges) - 1))).value == pytest.approx(alone([pool]))


def test_a_price_is_paid_for_the_cheapest_time() -> None:
    """One job, 2 s of work from 0 on, prices 1, 3, 0 per second: now 2 + 4, until 3: 3 + 1, later no better."""
    pool = pools(scenario_of([job("a", 0, 1, 2)], 1), "chunks")[0]
    edges = np.array([0.0, 1.0, 2.0, 3.0]) * SECOND
    bought = value(pool, Grid(edges, np.array([1.0, 3.0, 0.0])))
    assert bought.value == pytest.approx((3 + 1 - (1 + 3 + 0)) * SECOND)
    assert bought.time == pytest.approx(np.array([1.0, 0.0, 1.0]) * SECOND)


def brute(pool: JobPool, g: Grid, steps: int) -> float:
    """L(b) by trying every completion on a fine raster and sorting the prices before it."""
    fine = np.linspace(g.edges[0], g.edges[-1] * 3, steps + 1)
    width, middle = fine[1] - fine[0], (fine[:-1] + fine[1:]) / 2
    place = np.searchsorted(g.edges, middle) - 1
    price = np.where(place < len(g.price), np.append(g.price, 0.0)[np.minimum(place, len(g.price))], 0.0)
    total = -pool.lanes * float(g.price @ np.diff(g.edges))
    for j in range(len(pool.jobs)):
        best, need = pool.cloud_jct[j], pool.work[j] / pool.rate[j] / width
        first = int(np.ceil((pool.release[j] - fine[0]) / width))
        for end in range(first + int(np.ceil(max(need, pool.min_time[j] / width))), steps):
            if fine[end] - pool.arrival[j] >= best:
                break
            cheapest = np.sort(price[first:end])
            paid = cheapest[: int(need)].sum() + (need % 1) * cheapest[min(int(need), len(cheapest) - 1)]
            best = min(best, fine[end] - pool.arrival[j] + pool.rate[j] * paid * width)
        total += best
    return total


@pytest.mark.parametrize("seed", range(6))
def test_what_jobs_buy_is_what_trying_all_completions_finds(seed: int) -> None:
    """Whole seconds, so that a raster of seconds has the best completions."""
    scenario = tiny_scenario(seed, most_jobs=3)
    rng = np.random.default_rng(seed)
    for pool in pools(scenario, "chunks"):
        edges = np.arange(0.0, 41.0) * SECOND
        prices = Grid(edges, np.repeat(rng.uniform(0, 2, 10), 4) * (rng.random(40) < 0.7))
        assert value(pool, prices).value == pytest.approx(brute(pool, prices, 120 * 4), rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_no_bound_is_above_the_least_total_of_all_schedules(seed: int) -> None:
    scenario = tiny_scenario(seed, most_jobs=3)
    least = least_total(plain(scenario))
    assert all(bound <= least for bound in bounds(scenario).values()), bounds(scenario)


@pytest.mark.parametrize("seed", range(10))
def test_any_prices_give_a_bound(seed: int) -> None:
    scenario, rng = tiny_scenario(seed), np.random.default_rng(seed)
    least = least_total(plain(scenario)) * SECOND
    for _ in range(50):
        edges = np.sort(rng.uniform(0, 30, 12)) * SECOND
        edges[0] = 0
        total = sum(
            value(pool, Grid(edges, rng.exponential(rng.uniform(0, 1), 11))).value for pool in pools(scenario, "chunks")
        )
        assert total <= least * (1 + 1e-9)


POLICIES = ("aonline", "aonline:q_mode=fractional", "srtf", "tiresias", "fifo", "drf", "batch", "preemptive")


@pytest.mark.parametrize("seed", thorough_after(2, range(4)))
@pytest.mark.parametrize("physics", ["continuous", "slotted", "one_server", "overhead"])
def test_no_run_beats_a_bound(seed: int, physics: str) -> None:
    """Runs that dispatch are held to both families, the others to that of all schedules."""
    setting = {
        "continuous": Physics(),
        "slotted": Physics(slotted=True, slot=10 * SECOND),
        "one_server": Physics(colocation="one_server", slotted=True, slot=5 * SECOND),
        "overhead": Physics(checkpoint_overhead=SECOND, estimate_error=0.5),
    }[physics]
    scenario = small_scenario(seed, jobs=12, physics=setting)
    of = {family: bounds(scenario, family) for family in ("chunks", "work")}
    for policy in POLICIES:
        result = run(scenario, policy)
        assert not result.verify(limit=1)
        if result.metrics["finished"] < len(scenario.jobs):
            continue
        held = [of["work"], *([of["chunks"]] if policy.startswith("aonline") else [])]
        for found in held:
            assert max(found.values()) <= result.metrics["jct_total_s"], (policy, found)


@pytest.mark.parametrize("cloud", [True, False])
def test_prices_are_at_least_the_simple_bounds(cloud: bool) -> None:
    for seed in range(5):
        found = bounds(small_scenario(seed, cloud=cloud))
        assert found["prices"] >= max(found["alone"], found.get("srpt", 0.0))


def test_the_dual_of_the_flow_is_at_least_its_optimum() -> None:
    """The Lagrangian charges completions where the program charges mean times: (1e-6: the tolerance of HiGHS)."""
    scenario = small_scenario(1, jobs=10, physics=Physics(slotted=True, slot=10 * SECOND))
    for pool in pools(scenario, "chunks"):
        edges = np.arange(pool.release.min(), pool.release.max() + pool.work.sum(), pool.step)
        optimum, dual = transport(pool, edges)
        assert value(pool, Grid(edges, dual)).value >= optimum * (1 - 1e-6)


def test_improved_prices_never_give_less_than_the_first() -> None:
    for pool in pools(small_scenario(3, cloud=False), "work"):
        edges = grid(pool, 100)
        zero = Grid(edges, np.zeros(len(edges) - 1))
        best, kept = improve(pool, zero, 50)
        assert best > value(pool, zero).value
        assert best == value(pool, kept).value


def test_faster_workers_make_the_bound_smaller() -> None:
    scenario = small_scenario(0, cloud=False)
    faster = replace(scenario, physics=Physics(speedup=1.5))
    assert bounds(faster)["prices"] < bounds(scenario)["prices"]


def test_a_job_that_can_never_run_leaves_no_bound() -> None:
    scenario = scenario_of([job("a", 0, 1, 1)], 0)
    assert bounds(scenario) == {}


def test_help_from_the_edge_is_paid_for() -> None:
    """4 s of work, a worker at once, the cloud after 3 s: with 3 s of help done at 4 s, without at 7 s.

    At 1/2 a second the help of 3 s is still worth it: 4 + 1.5; at 2 a second it is not: 7. Alone on the edge it takes 4
    s, and pays 2 or 8.
    """
    jobs = [job("a", 0, 1, 4, upload_cloud_s=(3.0, 3.0))]
    pool = pools(scenario_of(jobs, 1, cloud=True), "work")[0]
    edges = np.array([0.0, 10.0]) * SECOND
    assert pool.cloud_jct == pytest.approx([4 * SECOND])
    for price, waits in ((0.5, 5.5), (2.0, 7.0)):
        bought = value(pool, Grid(edges, np.array([price])))
        assert bought.value == pytest.approx((waits - 10 * price) * SECOND)
