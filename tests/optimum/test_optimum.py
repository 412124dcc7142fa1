"""Exact optima: by trying everything, by both solvers, as runs; and the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.chunk_instances import plain, tiny_scenario
from builders.optimum import tiny_utility, without
from builders.thorough import thorough_after, thorough_except
from reference.optimum_of_chunks import least_total
from reference.optimum_of_utility import most_utility
from skedge.comparison.compare import compare
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.model.value import Sigmoid
from skedge.optimum.chunks.bounds import chunk_bounds
from skedge.optimum.chunks.problem import SOLVERS as CHUNK_SOLVERS
from skedge.optimum.chunks.problem import optimum_of_chunks
from skedge.optimum.pools.pools import pools
from skedge.optimum.problems import PROBLEMS, Reference, covering_problems, parts, reference, reference_of
from skedge.optimum.types import Bound, best_bound
from skedge.optimum.utility.bounds import utility_bounds
from skedge.optimum.utility.columns_lp import columns, dual
from skedge.optimum.utility.counts import most_completed
from skedge.optimum.utility.job_slots import job_slots
from skedge.optimum.utility.problem import SOLVERS as UTILITY_SOLVERS
from skedge.optimum.utility.problem import optimum_of_utility
from skedge.recorded_run import Run
from skedge.scenario.save import save_scenario
from skedge.simulate import run
from skedge.testing import resource_scenario, resource_scenarios, site_scenario, small_scenario

pytest.importorskip("ortools")
pytest.importorskip("highspy")


@pytest.mark.parametrize("seed", thorough_after(4, range(12)))
def test_trying_everything_and_both_solvers_find_the_same_total(seed: int) -> None:
    scenario = tiny_scenario(seed, most_jobs=3)
    least = least_total(plain(scenario))
    for solver in CHUNK_SOLVERS:
        found = optimum_of_chunks(scenario, 20, [solver], ["aonline"])
        assert found.proved, (solver, found.value, found.bound)
        assert found.value == pytest.approx(least), solver
        assert found.run.metrics["jct_total_s"] == found.value
        assert not found.run.verify()


@pytest.mark.parametrize("seed", thorough_after(1, range(4)))
def test_solvers_improve_on_a_poor_start(seed: int) -> None:
    """From A_online without the cloud, which is rarely optimal, both come to the same value, bounds below it."""
    scenario = small_scenario(seed, jobs=6, physics=Physics(slotted=True, slot=20 * SECOND))
    found = [optimum_of_chunks(scenario, 20, [solver], ["aonline:cloud=false"]) for solver in CHUNK_SOLVERS]
    assert found[0].proved
    assert found[1].value >= found[0].value >= best_bound(chunk_bounds(scenario, "chunks"), "lower").value
    assert found[1].bound.value <= found[0].value
    assert not found[0].run.verify()


def test_continuous_time_is_solved_by_intervals() -> None:
    """Times are whole microseconds there; slots are not."""
    scenario = small_scenario(1, jobs=8)
    found = optimum_of_chunks(scenario, 20)
    assert found.proved
    assert found.value <= min(run(scenario, p).metrics["jct_total_s"] for p in ("aonline", "aonline:cloud=false"))


def test_what_cannot_be_carried_out_leaves_the_best_run() -> None:
    """Storage for one chunk: the plan of two chunks on the edge at once breaks M17, and is not taken."""
    servers = [Server("e", capacity={"worker:gpu": 2, "ps:cpu": 2}, storage_mb=1.0), Server("c", "cloud")]
    cluster = Cluster(servers)
    table, given = job_table(
        [Job("a", 0, 1, 2, 3, 1.0, ps_type="cpu", chunk_mb=1.0, upload_cloud_s=(10.0, 10.0))]
    )  # fmt: skip
    scenario = Scenario(cluster, Jobs(table, cluster, given))
    found = optimum_of_chunks(scenario, 5)
    assert not found.run.verify()
    assert found.source.startswith("aonline")
    assert found.bound.value <= 3.0 < found.value
    assert not found.proved


@pytest.mark.parametrize("seed", thorough_except([2, 3], [1, 2, 3, 4, 6, 7]))
def test_trying_everything_and_both_solvers_find_the_same_utility(seed: int) -> None:
    scenario = tiny_utility(seed)
    most = most_utility(scenario)
    for solver in UTILITY_SOLVERS:
        found = optimum_of_utility(scenario, 20, [solver])
        assert found.value == pytest.approx(most, abs=1e-4), solver
        assert found.bound.value >= most - 1e-4
        assert not found.run.verify()
    assert all(bound.value >= most for bound in utility_bounds(scenario))


@pytest.mark.parametrize("seed", range(5))
def test_no_run_is_worth_more_than_a_bound(seed: int) -> None:
    scenarios = [*resource_scenarios(), resource_scenario(seed + 10, physics=resource_scenarios()[0].physics, jobs=40)]
    scenario = scenarios[seed]
    bounds = utility_bounds(scenario)
    for policy in ("pdors", "fifo", "drf", "oasis"):
        assert run(scenario, policy).metrics["utility_total"] <= min(b.value for b in bounds), policy


@pytest.mark.parametrize("seed", thorough_except([1, 3], range(6)))
def test_no_schedule_completes_more_jobs_than_the_bound(seed: int) -> None:
    """Where every job is worth 1, the most utility is the largest number of jobs; all schedules are tried."""
    scenario = tiny_utility(seed, flat=True)
    most = most_completed(scenario)
    assert most is not None
    assert round(most_utility(scenario)) <= most


def test_capacity_and_the_time_left_bound_the_number_of_jobs() -> None:
    """One GPU, five slots, jobs of two slots each: of six at 0 two are complete in time, and a half; of those that come
    in slot 3 one is, and of those in slot 4 none can be. Without a horizon nothing bounds them."""
    slot = 10 * SECOND
    cluster = Cluster([Server("m", capacity={"gpu": 1.0, "cpu": 9.0})])
    fields: dict[str, Any] = {
        "batch": 1, "worker_needs": {"gpu": 1.0}, "ps_needs": {"cpu": 1.0}, "epochs": 1, "chunks": 1,
        "minibatches": 20, "minibatch_s": 1.0, "utility": Sigmoid(2, 0, 1),
    }  # fmt: skip

    def most(*slots: int, horizon: int | None = 5 * slot) -> int | None:
        table, given = job_table([Job(str(i), 10.0 * at, **fields) for i, at in enumerate(slots)])
        physics = Physics(slotted=True, slot=slot, horizon=horizon)
        return most_completed(Scenario(cluster, Jobs(table, cluster, given), physics))

    assert most(0, 0, 0, 0, 0, 0) == 2
    assert most(3, 3, 3) == 1
    assert most(0, 3, 3, 3) == 2, "two slots are left for those that come late"
    assert most(4, 4) == 0
    assert most(0, horizon=None) is None


@pytest.mark.parametrize("seed", thorough_except([2], [1, 2, 3, 4]))
def test_any_prices_bound_the_utility(seed: int) -> None:
    scenario, rng = tiny_utility(seed), np.random.default_rng(seed)
    jobs = job_slots(scenario)
    assert jobs is not None
    most = most_utility(scenario)
    for _ in range(50):
        price = rng.exponential(rng.uniform(0, 10), (jobs.utility.shape[1], len(jobs.capacity)))
        assert dual(jobs, price).value >= most * (1 - 1e-9)


def test_columns_price_what_is_scarce() -> None:
    """One machine with one GPU, one slot, two jobs of a slot each, worth 3 and 5: alone 8, together 5."""
    slot = 10 * SECOND
    cluster = Cluster([Server("m", capacity={"gpu": 1.0, "cpu": 9.0})])
    fields: dict[str, Any] = {
        "batch": 1,
        "worker_needs": {"gpu": 1.0},
        "ps_needs": {"cpu": 1.0},
        "epochs": 1,
        "chunks": 1,
        "minibatches": 10,
        "minibatch_s": 1.0,
    }
    jobs = [Job(str(i), 0, utility=Sigmoid(2 * u, 0, 1), **fields) for i, u in enumerate((3.0, 5.0))]
    table, given = job_table(jobs)
    scenario = Scenario(cluster, Jobs(table, cluster, given), Physics(slotted=True, slot=slot, horizon=slot))
    terms = job_slots(scenario)
    assert terms is not None
    found = columns(terms)
    assert found is not None
    assert found[0] == pytest.approx(5, rel=1e-6)
    assert [b.value for b in utility_bounds(scenario)] == pytest.approx([8, 5], rel=1e-6)


def test_the_best_bound_is_the_largest_or_the_smallest() -> None:
    bounds = [Bound("a", 1.0, 0.0), Bound("b", 3.0, 0.0), Bound("c", 2.0, 0.0)]
    assert best_bound(bounds, "lower").name == "b"
    assert best_bound(bounds, "higher").name == "a"


def test_a_run_is_set_against_the_narrowest_problem_that_covers_it() -> None:
    scenario = small_scenario(0)
    assert covering_problems(scenario, run(scenario, "aonline").schedule) == ("chunks", "work")
    assert covering_problems(scenario, run(scenario, "srtf").schedule) == ("work",)
    resources = resource_scenario(0, physics=resource_scenarios()[0].physics)
    assert covering_problems(resources, run(resources, "pdors").schedule) == ("utility",)


def test_compare_sets_all_runs_against_one_bound() -> None:
    scenario = small_scenario(0)
    both = compare(scenario, ["aonline", "srtf"], processes=1)
    to = reference(scenario, ["work"])
    assert to is not None
    for policy in both.policies:
        row = both.metrics[policy][0]
        assert row["bound_ratio"] == row["jct_total_s"] / to.bound.value >= 1
    assert "'work'" in both.bound_text
    alone = compare(scenario, ["aonline"], processes=1)
    assert alone.metrics["aonline"][0]["bound_ratio"] < both.metrics["aonline"][0]["bound_ratio"]


@pytest.mark.parametrize("covered", [("chunks", "work"), ("gangs", "work"), ("work",)])
def test_a_reference_is_the_sum_of_its_parts(covered: tuple[str, ...]) -> None:
    """Those on each worker type that jobs ask for; the bounds on the whole differ in the last bits."""
    several = 0
    for seed in range(12):
        scenario = small_scenario(seed)
        several += parts(scenario) > 1
        assert parts(scenario) == len(pools(scenario, "work"))
        found, whole = reference(scenario, covered), PROBLEMS[covered[0]].bounds(scenario, True)
        if not whole:
            assert found is None or found.problem != covered[0]
            continue
        assert found is not None
        best = best_bound(whole, "lower")
        assert (found.problem, found.bound.name) == (covered[0], best.name)
        assert found.bound.value == pytest.approx(best.value, rel=1e-12)
    assert several > 3


def test_a_reference_without_parts_is_computed_at_once() -> None:
    scenario = resource_scenario(1, physics=resource_scenarios()[0].physics)
    assert parts(scenario) == 1
    found, whole = reference(scenario, ["utility"]), PROBLEMS["utility"].bounds(scenario, True)
    assert found is not None
    assert found.bound.value == best_bound(whole, "higher").value


def test_parts_of_which_one_has_no_bound_have_none() -> None:
    known = "work", [Bound("alone", 2.0, 0.5), Bound("srpt", 3.0, 0.5)]
    other = "work", [Bound("alone", 4.0, 0.25)]
    assert reference_of([known, other]) == Reference("work", "jct_total_s", "lower", Bound("alone", 6.0, 0.75))
    assert reference_of([known, None]) is None


def test_compare_by_utility_divides_the_bound_by_the_value() -> None:
    scenario = resource_scenario(1, physics=resource_scenarios()[0].physics)
    found = compare(scenario, ["pdors", "fifo"], processes=1)
    bound = min(b.value for b in utility_bounds(scenario))
    for policy in found.policies:
        row = found.metrics[policy][0]
        assert row["bound_ratio"] == pytest.approx(bound / row["utility_total"])
    assert found.columns[:2] == ("utility_total", "bound_ratio")


def test_a_utility_of_the_index_of_the_last_slot_has_no_ratio_to_a_bound_on_that_of_its_end() -> None:
    """u is larger at the index, so the bound does not hold for it; the optimum compares END times."""
    scenario = resource_scenario(1, physics=resource_scenarios()[0].physics)
    rows = compare(scenario, ["pdors:completion=index"], processes=1).metrics["pdors:completion=index"]
    assert rows[0]["bound_ratio"] is None
    best = optimum_of_utility(scenario, 0, [], ["pdors:completion=index"])
    assert best.value < rows[0]["utility_total"]
    assert best.value <= best.bound.value


def test_where_a_job_is_rejected_there_is_no_ratio_of_jct() -> None:
    scenario = small_scenario(0, cloud=False)
    assert compare(scenario, ["fifo"], processes=1).metrics["fifo"][0]["bound_ratio"] is None or (
        run(scenario, "fifo").metrics["rejected"] == 0
    )


Command = Callable[..., Any]


def test_the_command_keeps_a_run_that_the_verifier_accepts(skedge: Command, tmp_path: Path) -> None:
    path = save_scenario(small_scenario(0, jobs=6), tmp_path)
    said = skedge("optimum", path, "--time-limit", 20, "--out", tmp_path / "best", "--json")
    assert said.code == 0, said.err
    assert said.json["proved"]
    assert said.json["gap"] == 0
    assert said.json["value"] == pytest.approx(said.json["bound"]["value"])
    kept = Run.load(tmp_path / "best")
    assert kept.metrics["jct_total_s"] == said.json["value"]
    assert skedge("verify", tmp_path / "best").code == 0


def test_the_command_says_optimal_only_where_it_is_proved(skedge: Command, tmp_path: Path) -> None:
    easy = skedge("optimum", save_scenario(small_scenario(0, jobs=6), tmp_path / "easy"), "--time-limit", 20)
    assert ": optimal" in easy.out
    hard = small_scenario(0, cloud=False)
    said = skedge("optimum", save_scenario(hard, tmp_path / "hard"), "--time-limit", 0.2)
    assert ": optimal" not in said.out
    assert "gap " in said.out


def test_bounds_alone_take_no_solver(skedge: Command, busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "ortools", "highspy")
    said = skedge("optimum", busy, "--bounds", "--json")
    assert said.code == 0
    assert {b["name"] for b in said.json["bounds"]} == {"alone", "prices"}
    assert skedge("optimum", busy, "--problem", "work").code == 0


def test_a_missing_solver_is_one_sentence(skedge: Command, busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "ortools", "highspy")
    said = skedge("optimum", busy, "--time-limit", 1)
    assert said.code == 1
    assert "pip install 'skedge[optimum]'" in said.words


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--problem", "jsac"), "known are chunks, gangs, work, fractional, utility, sites"),
        (("--problem", "utility"), "has no problem 'utility'"),
    ],
)
def test_a_wrong_problem_is_told(skedge: Command, busy: Path, words: tuple[str, str], part: str) -> None:
    said = skedge("optimum", busy, *words)
    assert said.code == 1
    assert part in said.words


def test_bounds_alone_have_no_schedule_to_keep(skedge: Command, busy: Path, tmp_path: Path) -> None:
    said = skedge("optimum", busy, "--bounds", "--out", tmp_path / "x")
    assert said.code == 1
    assert "no schedule to write" in said.words
    assert not (tmp_path / "x").exists()


def test_every_problem_has_a_metric_that_runs_have() -> None:
    resources = resource_scenario(0, physics=resource_scenarios()[0].physics)
    slotted = small_scenario(0, physics=Physics(slotted=True, slot=10 * SECOND))
    suited = {"aonline": slotted, "pdors": resources, "okita": site_scenario(0)}
    for problem in PROBLEMS.values():
        policy, scenario = next(item for item in suited.items() if problem.applies(item[1]))
        assert run(scenario, policy).metrics[problem.metric] is not None
