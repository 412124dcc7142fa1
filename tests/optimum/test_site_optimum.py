"""Okita's problem (2): its optimum by trying everything, by both solvers, as runs; and its bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from builders.optimum import without
from builders.site_optimum import SLOT, tiny
from builders.sites import scenario_of
from builders.thorough import thorough_after
from golden import okita_cases
from reference.optimum_of_sites import least_cost
from skedge.comparison.compare import compare
from skedge.core.errors import InputError
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.latency import LatencyCost, Linear, Piecewise
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.optimum.linear import dual_value, relaxation_bound
from skedge.optimum.sites import alone as site_alone
from skedge.optimum.sites import problem as site_problem
from skedge.optimum.sites.alone import alone, cost_line
from skedge.optimum.sites.bounds import site_bounds
from skedge.optimum.sites.milp import SitePlan, site_program
from skedge.optimum.sites.planned import PlannedSites, without_cycles
from skedge.optimum.sites.problem import POLICIES, SOLVERS, optimum_of_sites
from skedge.optimum.sites.run_plans import plans_of_run
from skedge.optimum.sites.terms import cheapest_paths, site_terms
from skedge.policies.okita.sites import Sites
from skedge.scenario.save import save_scenario
from skedge.simulate import run
from skedge.testing import site_scenario, site_scenarios

pytest.importorskip("ortools")
pytest.importorskip("highspy")


@pytest.mark.parametrize("seed", thorough_after(10, range(20)))
def test_trying_everything_and_both_solvers_find_the_same_cost(seed: int) -> None:
    scenario = tiny(seed)
    least = least_cost(scenario)
    for solver in SOLVERS:
        found = optimum_of_sites(scenario, 20, [solver], ["okita"])
        assert found.value == pytest.approx(least, rel=1e-6), solver
        assert found.proved, (solver, found.value, found.bound)
        assert found.run.metrics["cost_total"] == found.value
        assert not found.run.verify()
    for bound in site_bounds(scenario, fast=False):
        assert bound.value <= least * (1 + 1e-9), bound


@pytest.mark.parametrize("seed", range(0, 24, 2))
def test_any_prices_bound_the_cost_of_one_job(seed: int) -> None:
    scenario = tiny(4 * seed + seed % 2)  # one job
    terms, rng = site_terms(scenario), np.random.default_rng(seed)
    assert terms is not None
    job, least = terms.jobs[0], least_cost(scenario)
    for _ in range(50):
        made = cost_line(terms, job, rng.normal(0.0, rng.uniform(0, 10), len(terms.capacity)))
        every = (
            job.latency(job.first + slots - 1) + made.base - made.fall * slots for slots in range(1, job.chunks + 1)
        )
        assert min(every) <= least * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_any_multipliers_bound_the_program(seed: int) -> None:
    scenario, rng = tiny(seed), np.random.default_rng(seed)
    terms = site_terms(scenario)
    assert terms is not None
    jobs = alone(terms)
    program = site_program(
        terms, jobs, [job.first + job.chunks + 3 for job in terms.jobs], may_be_late=[True] * len(jobs)
    )
    least = least_cost(scenario)
    for scale in (0.01, 0.1, 1.0):
        y = rng.normal(0.0, scale, len(program.rows.low))
        assert dual_value(program.cost, program.upper, program.rows, y) <= least * (1 + 1e-9)
    found = relaxation_bound(program.cost, program.upper, program.rows, 10)
    assert found is not None
    assert found <= least * (1 + 1e-9)


def test_of_two_jobs_for_one_worker_one_waits() -> None:
    """One site with one GPU, two jobs of one slot each, 10 a slot: 10 + 20; alone 20; in one pool 30."""
    scenario = one_site([Linear(10.0), Linear(10.0)])
    bounds = {bound.name: bound.value for bound in site_bounds(scenario, fast=False)}
    assert bounds["alone"] == pytest.approx(20)
    assert bounds["pooled"] == pytest.approx(30)
    found = optimum_of_sites(scenario, 5)
    assert found.value == 30
    assert found.proved


def test_a_job_past_its_deadline_may_end_whenever_it_likes() -> None:
    """Four jobs of one slot for one GPU, each 1 before slot 2 is over, 5 after it: 1 + 5 + 5 + 5."""
    found = optimum_of_sites(one_site([Piecewise(1.0, 5.0, 2.0)] * 4), 5)
    assert found.value == 16
    assert found.proved


def one_site(latencies: list[LatencyCost]) -> Scenario:
    """One site with one GPU, and for each latency a job of one chunk, which takes one slot."""
    cluster = Cluster([Server("s", capacity={"gpu": 1.0, "cpu": 9.0})], np.zeros((1, 1)))
    made = [
        Job(
            id=str(i), arrival_s=0.0, epochs=1, chunks=1, minibatches=1, minibatch_s=SLOT / SECOND, chunk_mb=1.0,
            exchange_mb=1.0, worker_needs={"gpu": 1.0}, ps_needs={"cpu": 1.0}, data={"s": 1}, latency=latency,
        )
        for i, latency in enumerate(latencies)
    ]  # fmt: skip
    table, given = job_table(made)
    return Scenario(cluster, Jobs(table, cluster, given), Physics(slot=SLOT, slotted=True), 0, "one-site")


def test_data_go_around_where_that_is_cheaper() -> None:
    """GPUs at c alone, the data at a: 9 directly, 2 + 3 over b, for each of 2 MB; and the run says so."""
    cost = np.array([[0.0, 2.0, 9.0], [2.0, 0.0, 3.0], [9.0, 3.0, 0.0]])
    cluster = Cluster([Server(name, capacity={"gpu": float(name == "c"), "cpu": 9.0}) for name in "abc"], cost)
    job = Job(
        id="j", arrival_s=0.0, epochs=1, chunks=1, minibatches=1, minibatch_s=SLOT / SECOND, chunk_mb=2.0,
        exchange_mb=1.0, worker_needs={"gpu": 1.0}, ps_needs={"cpu": 1.0}, data={"a": 1}, latency=Linear(1.0),
    )  # fmt: skip
    table, given = job_table([job])
    scenario = Scenario(cluster, Jobs(table, cluster, given), Physics(slot=SLOT, slotted=True), 0, "around")
    found = optimum_of_sites(scenario, 5, ["HiGHS"])
    assert found.value == 1 + 2 * (2 + 3)
    steps = found.run.schedule.uploads.select("from_site", pl.col("to_server").cast(pl.String)).rows()
    assert steps == [("a", "b"), ("b", "c")]


@pytest.mark.parametrize("case", ["DELAY", "MIGRATE", "DATA_TRANSFER", "PRIORITY", "FIT"])
def test_the_cases_worked_out_by_hand_are_no_better_than_the_optimum(case: str) -> None:
    """What Okita does there, followed by hand, is at least the optimum, which trying everything confirms for DELAY."""
    given = getattr(okita_cases, case)
    scenario = scenario_of(Sites(np.array(given.capacity, float), np.array(given.cost, float)), list(given.jobs))
    found = optimum_of_sites(scenario, 20)
    assert found.proved
    assert found.value <= (given.latency + given.bandwidth) * (1 + 1e-9)
    assert all(bound.value <= found.value * (1 + 1e-9) for bound in found.bounds)
    if case == "DELAY":
        assert found.value == pytest.approx(least_cost(scenario))


@pytest.mark.parametrize("seed", range(4))
def test_no_run_costs_less_than_the_optimum_nor_the_optimum_less_than_a_bound(seed: int) -> None:
    scenario = site_scenario(seed, sites=3, jobs=3)
    found = optimum_of_sites(scenario, 20)
    assert found.proved
    assert found.run.verify() == []
    for policy in POLICIES:
        assert run(scenario, policy).metrics["cost_total"] >= found.value * (1 - 1e-9), policy
    assert all(bound.value <= found.value for bound in found.bounds)


@pytest.mark.parametrize("scenario", site_scenarios(), ids=lambda scenario: f"{len(scenario.jobs)} jobs")
def test_no_run_at_any_size_costs_less_than_a_bound(scenario: Scenario) -> None:
    bounds = site_bounds(scenario, fast=len(scenario.jobs) > 20)
    assert {bound.name for bound in bounds} >= {"alone", "pooled"}
    for policy in POLICIES:
        done = run(scenario, policy)
        assert done.metrics["finished"] == len(scenario.jobs)
        assert done.metrics["cost_total"] >= max(bound.value for bound in bounds), policy


@pytest.mark.parametrize("seed", range(6))
def test_a_run_read_as_plans_is_a_point_of_the_program_that_costs_no_more(seed: int) -> None:
    scenario = site_scenario(seed, sites=4, jobs=5)
    terms, done = site_terms(scenario), run(scenario, "fifo")
    assert terms is not None
    plans = plans_of_run(terms, done)
    program = site_program(terms, alone(terms), [plan.last for plan in plans], may_be_late=[False] * len(plans))
    point, rows = program.point(plans), program.rows
    row = np.repeat(np.arange(len(rows.low)), np.diff(rows.start))
    reached = np.bincount(row, np.array(rows.value) * point[rows.column], len(rows.low))
    assert (reached <= np.array(rows.high) + 1e-6).all()
    assert (reached >= np.array(rows.low) - 1e-6).all()
    assert (point <= program.upper).all()
    assert program.cost @ point <= done.metrics["cost_total"] * (1 + 1e-9)
    again = run(scenario, PlannedSites(dict(enumerate(plans))))
    assert again.verify() == []
    assert again.metrics["cost_total"] == pytest.approx(program.cost @ point)


def test_a_plan_that_exchanges_chunks_over_ways_that_cost_nothing_is_carried_out() -> None:
    """Seen once in some 50 solutions of CP-SAT: as good as any other, and against M31 as planned."""
    scenario = tiny(13)
    moves = [(1, 0, 3), (0, 1, 1), (2, 1, 1), (2, 2, 2)]
    plan = SitePlan(2, {2: np.array([2, 1, 1])}, {2: 1}, {2: moves})
    done = run(scenario, PlannedSites({0: plan}))
    assert done.verify() == []
    assert done.metrics["cost_total"] == pytest.approx(least_cost(scenario))


@pytest.mark.parametrize("seed", range(50))
def test_moves_without_circles_leave_the_same_chunks_and_cost_no_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sites = int(rng.integers(2, 6))
    cost = rng.integers(0, 3, (sites, sites)) * (1 - np.eye(sites))
    way, over = cheapest_paths(cost)
    there = rng.integers(0, 9, sites)
    moves = [(int(a), int(b), int(rng.integers(1, 5))) for a, b in rng.integers(0, sites, (8, 2))]
    made = without_cycles(moves, over)
    left: set[int] = set()
    for source, target, chunks in made:
        assert chunks > 0
        assert target not in left, "what comes to a site comes before what leaves it"
        left.add(source)

    def after(steps: list[tuple[int, int, int]]) -> list[int]:
        kept = there.copy()
        for source, target, chunks in steps:
            kept[source] -= chunks
            kept[target] += chunks
        return kept.tolist()

    assert after(made) == after(moves)
    assert sum(n * cost[a, b] for a, b, n in made) <= sum(n * way[a, b] for a, b, n in moves) + 1e-9


def test_a_job_without_room_is_one_sentence() -> None:
    scenario = one_site([Linear(10.0)])
    big = replace(scenario, cluster=Cluster([Server("s", capacity={"gpu": 0.5, "cpu": 9.0})], np.zeros((1, 1))))
    assert site_bounds(big, fast=True) == []
    with pytest.raises(InputError, match="job '0' can never run: a worker and its PS have no room"):
        optimum_of_sites(big, 1)


def test_compare_sets_runs_at_sites_against_a_bound() -> None:
    scenario = site_scenario(0)
    both = compare(scenario, ["okita", "oasis"], processes=1)
    best = max(bound.value for bound in site_bounds(scenario, fast=True))
    for policy in both.policies:
        row = both.metrics[policy][0]
        assert row["bound_ratio"] == pytest.approx(row["cost_total"] / best)
        assert row["bound_ratio"] >= 1
    assert both.columns[:2] == ("cost_total", "bound_ratio")
    assert "of total cost" in both.bound_text


def test_the_command_keeps_a_run_at_sites_that_the_verifier_accepts(skedge: Callable[..., Any], tmp_path: Path) -> None:
    path = save_scenario(site_scenario(1, sites=3, jobs=3), tmp_path)
    said = skedge("optimum", path, "--time-limit", 20, "--out", tmp_path / "best", "--json")
    assert said.code == 0, said.err
    assert said.json["problem"] == "sites"
    assert said.json["proved"]
    assert skedge("verify", tmp_path / "best").code == 0


def test_a_missing_solver_is_one_sentence_at_sites(
    skedge: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_scenario(site_scenario(1, sites=3, jobs=3), tmp_path)
    without(monkeypatch, "ortools", "highspy")
    assert skedge("optimum", path, "--bounds").code == 0
    said = skedge("optimum", path, "--time-limit", 1)
    assert said.code == 1
    assert "pip install 'skedge[optimum]'" in said.words


def test_a_scenario_without_sites_has_no_such_problem(skedge: Callable[..., Any], busy: Path) -> None:
    said = skedge("optimum", busy, "--problem", "sites")
    assert said.code == 1
    assert "has no problem 'sites'" in said.words


def test_where_the_program_is_too_large_no_solver_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_problem, "MAX_VARIABLES", 10)
    found = optimum_of_sites(site_scenario(1, sites=3, jobs=3), 5)
    assert [attempt.message for attempt in found.attempts] == ["not asked: more than 10 variables"] * 2
    assert found.source in POLICIES
    assert not found.proved


def test_without_linear_programs_the_bound_is_lower_and_still_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = site_scenario(0, sites=4, jobs=5)
    whole = site_bounds(scenario, fast=True)[0]
    monkeypatch.setattr(site_alone, "_MAX_SIZE", 0)
    simple = site_bounds(scenario, fast=True)[0]
    assert 0 < simple.value < whole.value
    assert whole.value <= run(scenario, "okita").metrics["cost_total"]


STEEP = {
    "by direction": {},
    "exponential": {"latency": "exponential", "latency_tau": 20.0, "latency_rate": 30.0},
    "late": {"latency": "piecewise", "latency_early": 1.0, "latency_late": 1e12, "latency_deadline": 8.0},
}


@pytest.mark.parametrize("kind", STEEP)
@pytest.mark.parametrize("seed", range(8))
def test_no_run_costs_less_than_a_bound_where_floats_are_strained(kind: str, seed: int) -> None:
    """Costs that differ by direction; latency costs beside which the rest vanishes: the bound is still below."""
    made, rng = site_scenario(seed, sites=3, jobs=4), np.random.default_rng(seed)
    cost = rng.uniform(0.02, 0.2, (3, 3)) * (1 - np.eye(3))
    cluster = Cluster(list(made.cluster.servers), cost, asymmetric=True)
    frame = made.jobs.frame.with_columns(**{name: pl.lit(value) for name, value in STEEP[kind].items()})
    steep = replace(made, cluster=cluster, jobs=Jobs(frame, cluster))
    bounds = {bound.name: bound.value for bound in site_bounds(steep, fast=False)}
    assert {"alone", "pooled"} <= set(bounds)
    least = min(run(steep, policy).metrics["cost_total"] for policy in POLICIES)
    assert max(bounds.values()) <= least, bounds
