"""Comparisons: the same whatever runs at a time, intervals by the textbook, rates by the paper."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from skedge.compare import COLUMNS, Comparison, Estimate, compare, estimate, scenario_of
from skedge.core.errors import InputError, PolicyError, ScenarioError
from skedge.core.model import Cluster, Job, Server, job_table
from skedge.core.scenario import Jobs, Scenario
from skedge.run import run
from skedge.scenario_file import default_scenario, load_scenario
from skedge.testing import small_scenario

POLICIES = ("aonline", "srtf", "fifo")
contended = partial(small_scenario, jobs=10)


def two_jobs(seed: int) -> Scenario:
    """One worker; a job of 30 s at 0 and one of 10 s at 1 s (seed 0), or of 28 s (any other)."""
    cluster = Cluster([Server("e", capacity={"worker:gpu": 1, "ps:cpu": 1})])
    second = 28.0 if seed else 10.0
    jobs = [Job("long", 0.0, 1, 1, 1, 30.0), Job("short", 1.0, 1, 1, 1, second)]
    table, given = job_table(jobs)
    return Scenario(cluster, Jobs(table, cluster, given), seed=seed)


def test_a_comparison_is_the_same_however_many_processes_share_it() -> None:
    """Metrics, order, and the tables of the first seed's runs."""
    one, two = (compare(contended, POLICIES, [3, 4], processes=n) for n in (1, 2))
    assert two.metrics == one.metrics
    assert (two.policies, two.seeds) == (one.policies, one.seeds) == (POLICIES, (3, 4))
    for mine, theirs in zip(one.first, two.first, strict=True):
        assert mine.meta == theirs.meta
        assert all(mine.schedule.tables()[name].equals(table) for name, table in theirs.schedule.tables().items())


def test_a_comparison_holds_the_metrics_of_the_single_runs() -> None:
    """Nothing is added but jct_rate and bound_ratio."""
    comparison = compare(contended, POLICIES, [3, 4], processes=1)
    for policy in POLICIES:
        for i, seed in enumerate((3, 4)):
            told = dict(comparison.metrics[policy][i])
            del told["jct_rate"], told["bound_ratio"]
            assert told == run(contended(seed), policy).metrics
    assert [r.policy for r in comparison.first] == list(POLICIES)
    assert {r.scenario.seed for r in comparison.first} == {3}


def test_another_policy_beside_it_changes_nothing_for_a_policy() -> None:
    """Also where policies draw: each has a stream of its own."""
    alone = compare(contended, ["aonline:ps_choice=random"], [0, 1], processes=1)
    beside = compare(contended, ["fifo", "aonline:ps_choice=random"], [0, 1], processes=1)
    one, other = (c.metrics["aonline:ps_choice=random"] for c in (alone, beside))
    relative = {"jct_rate": 0, "bound_ratio": 0}
    assert [{**row, **relative} for row in one] == [{**row, **relative} for row in other]


def test_progress_is_told_each_policy_and_seed_once() -> None:
    """In whatever order they end."""
    told: list[tuple[str, int]] = []
    compare(contended, ["srtf", "fifo"], [5, 6], processes=1, progress=lambda *done: told.append(done))
    assert sorted(told) == [("fifo", 5), ("fifo", 6), ("srtf", 5), ("srtf", 6)]


def test_without_seeds_the_scenarios_own_is_taken(busy: Path) -> None:
    """It is told as the seed that was used."""
    comparison = compare(busy, ["srtf"], processes=1)
    assert comparison.seeds == (load_scenario(busy).seed,)


# --- rates


def test_the_jct_rate_is_total_jct_over_that_of_srtf_on_the_same_seed() -> None:
    """By hand, seed 0: SRTF lets the short job interrupt (JCT 40 + 10), FIFO does not (30 + 39): 69 / 50."""
    comparison = compare(two_jobs, ["fifo", "srtf"], [0, 1], processes=1)
    totals = {policy: [row["jct_total_s"] for row in rows] for policy, rows in comparison.metrics.items()}
    # seed 1: 28 s against the 29 s left, so it interrupts: 58 + 28, and 30 + 57 without
    assert totals == {"fifo": [69.0, 87.0], "srtf": [50.0, 86.0]}
    rates = {policy: [row["jct_rate"] for row in rows] for policy, rows in comparison.metrics.items()}
    assert rates == {"fifo": [69 / 50, 87 / 86], "srtf": [1.0, 1.0]}


def test_without_srtf_the_rate_is_relative_to_the_first_policy() -> None:
    """A_online's lanes prefer the short job too (HAPRF): 50 against FIFO's 69."""
    comparison = compare(two_jobs, ["fifo", "aonline"], [0], processes=1)
    assert comparison.metrics["fifo"][0]["jct_rate"] == 1.0
    assert comparison.metrics["aonline"][0]["jct_rate"] == 50 / 69


def test_a_policy_that_finishes_fewer_jobs_has_no_rate() -> None:
    """Totals of different jobs do not compare: None, and no interval either."""
    cluster = Cluster([Server("e", capacity={"worker:gpu": 1, "ps:cpu": 1}), Server("c", "cloud")])
    jobs = [Job("fits", 0.0, 1, 1, 1, 9.0), Job("big", 0.0, 1, 2, 1, 9.0, worker_type="gpu", workers=2, chunk_mb=8.0)]
    table, given = job_table(jobs)
    storage = Cluster([Server("e", capacity={"worker:gpu": 1, "ps:cpu": 1}, storage_mb=8.0), cluster.servers[1]])

    def scenario(seed: int) -> Scenario:
        return Scenario(storage, Jobs(table, storage, given), seed=seed)

    comparison = compare(scenario, ["srtf", "aonline:cloud=false"], [0], processes=1)
    assert comparison.metrics["aonline:cloud=false"][0]["rejected"] == 1
    assert comparison.metrics["aonline:cloud=false"][0]["jct_rate"] is None
    assert comparison.estimate("aonline:cloud=false", "jct_rate") is None
    assert comparison.estimate("srtf", "jct_rate") == Estimate(1.0)


# --- intervals


def test_the_interval_is_students_t_of_the_textbook() -> None:
    """Mean 6, s = 3.1623 of 2, 4, 6, 8, 10; t for 4 degrees is 2.776 (tables): 6 +- 2.776 * 3.1623 / sqrt(5)."""
    found = estimate(np.array([2.0, 4.0, 6.0, 8.0, 10.0]))
    assert found.mean == 6.0
    assert found.high == pytest.approx(6 + 2.776 * 10**0.5 / 5**0.5, abs=1e-3)
    assert found.low == pytest.approx(6 - 2.776 * 10**0.5 / 5**0.5, abs=1e-3)


def test_the_interval_of_two_values_has_one_degree_of_freedom() -> None:
    """t for 1 degree is 12.706 (tables): of 1 and 3, 2 +- 12.706 * 1.4142 / 1.4142."""
    found = estimate(np.array([1.0, 3.0]))
    assert (found.mean, found.low, found.high) == pytest.approx((2.0, -10.706, 14.706), abs=1e-3)


def test_one_seed_has_a_mean_and_no_interval() -> None:
    """There is nothing to estimate a spread from."""
    assert estimate(np.array([4.2])) == Estimate(4.2, None, None)


def test_equal_values_have_an_interval_of_no_width() -> None:
    """Nothing varies."""
    assert estimate(np.array([3.0, 3.0, 3.0])) == Estimate(3.0, 3.0, 3.0)


def test_intervals_of_95_percent_hold_the_mean_19_times_of_20() -> None:
    """2000 samples of 5 normal values: within four standard deviations of 0.95."""
    draws = np.random.default_rng(1).normal(10, 3, (2000, 5))
    held = np.mean([e.low <= 10 <= e.high for e in map(estimate, draws)])  # type: ignore[operator]
    assert held == pytest.approx(0.95, abs=4 * (0.95 * 0.05 / 2000) ** 0.5)


def test_the_estimate_of_a_comparison_is_over_its_seeds() -> None:
    """And None where a seed has no value."""
    rows = {"p": [{"x": 1.0, "y": 1.0}, {"x": 3.0, "y": None}]}
    comparison = Comparison(("p",), (0, 1), rows, ())
    assert comparison.estimate("p", "x") == estimate(np.array([1.0, 3.0]))
    assert comparison.estimate("p", "y") is None


# --- what is compared


def test_a_scenario_is_named_by_file_by_shipped_name_or_by_a_function(
    busy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of that name comes before a shipped one."""
    assert scenario_of(busy).jobs.ids == small_scenario(0).jobs.ids
    assert scenario_of(str(busy), 9).seed == 9
    assert scenario_of("demo", 9).jobs.frame.equals(default_scenario("demo", 9).jobs.frame)
    assert scenario_of(contended, 4).name == "small-4"
    monkeypatch.chdir(busy.parent)
    Path("demo").write_text(busy.read_text())
    try:
        assert scenario_of("demo").name == "small-0"
    finally:
        Path("demo").unlink()


def test_what_is_wrong_is_refused_before_a_run_has_begun() -> None:
    """The last policy's name is looked at before the first runs."""
    ran: list[int] = []

    def scenario(seed: int) -> Scenario:
        ran.append(seed)
        return contended(seed)

    for policies in (["srtf", "nope"], ["srtf", "aonline:q_mode=x"], ["srtf", "srtf"], []):
        with pytest.raises(PolicyError):
            compare(scenario, policies, [0], processes=1)
    with pytest.raises(InputError, match="processes"):
        compare(scenario, ["srtf"], [0], processes=0)
    assert ran == []
    with pytest.raises(ScenarioError, match=r"nosuch\.yaml"):
        compare("nosuch.yaml", ["srtf"], processes=1)


def test_every_column_shown_is_there_for_every_policy() -> None:
    """With None where it does not apply, such as alpha for gangs."""
    comparison = compare(contended, POLICIES, [0], processes=1)
    for policy in POLICIES:
        for column in COLUMNS:
            assert comparison.estimate(policy, column) is None or comparison.estimate(policy, column).mean >= 0  # type: ignore[union-attr]
