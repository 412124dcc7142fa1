"""Comparisons: the same whatever runs at a time, intervals by the textbook, rates by the paper."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.random import Generator

from skedge.analysis.intervals import Estimate, bounded, estimate
from skedge.comparison.columns import COLUMNS
from skedge.comparison.compare import compare, compare_small
from skedge.comparison.comparison import Comparison, Times
from skedge.comparison.points import run_name
from skedge.core.errors import InputError, PolicyError, ScenarioError
from skedge.core.events import Event, Order
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.policy import View
from skedge.platform.jit import interpreted
from skedge.policies.gangs.srtf import Srtf
from skedge.policies.gangs.tiresias import Tiresias
from skedge.recorded_run import Run
from skedge.scenario.file import default_scenario, load_scenario, scenario_of
from skedge.scenario.save import save_scenario
from skedge.simulate import run
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
    for mine, theirs in zip(one.first_runs, two.first_runs, strict=True):
        assert mine.meta == theirs.meta
        assert all(mine.schedule.tables()[name].equals(table) for name, table in theirs.schedule.tables().items())


def test_small_scenarios_compared_together_are_compared_as_each_alone() -> None:
    """Metrics, bounds, violations, and the tables of the runs; progress counts each run and bound."""
    sources, done = [contended, two_jobs], []
    together = compare_small(sources, POLICIES, [3, 4], lambda policy, seed: done.append((policy, seed)))
    for source, found in zip(sources, together, strict=True):
        alone = compare(source, POLICIES, [3, 4], processes=1)
        assert (found.metrics, found.violations) == (alone.metrics, alone.violations)
        assert [one and one.bound.value for one in found.references] == [
            one and one.bound.value for one in alone.references
        ]
        for mine, theirs in zip(found.first_runs, alone.first_runs, strict=True):
            assert all(mine.schedule.tables()[name].equals(table) for name, table in theirs.schedule.tables().items())
    assert sorted(done) == sorted((what, seed) for what in (*POLICIES, "bound") for _ in sources for seed in (3, 4))


def test_interpreted_kernels_do_what_compiled_ones_do() -> None:
    """The tables of a run, row by row; afterwards kernels are compiled again."""
    compiled = run(contended(3), "aonline")
    with interpreted():
        same = run(contended(3), "aonline")
        assert same.verify() == []
    assert all(same.schedule.tables()[name].equals(table) for name, table in compiled.schedule.tables().items())


class Fewest(Srtf):
    """SRTF by another name, with a count of its decisions, which no run may find above 0 at its start."""

    name = "fewest"

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self.decided = 0

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        assert self.decided == 0
        super().start(cluster, physics, rng)

    def decide(self, event: Event, view: View) -> Iterable[Order]:  # type: ignore[override]
        self.decided += 1
        return super().decide(event, view)


@pytest.mark.parametrize("processes", [1, 2])
def test_policy_objects_and_classes_go_where_names_go(processes: int) -> None:
    """Every run gets a copy of the object; seeds may be a number."""
    mine = Fewest()
    given = [mine, "srtf", Tiresias, Srtf(sticky=True)]
    comparison = compare(contended, given, 2, processes=processes)
    assert comparison.policies == ("fewest", "srtf", "tiresias", "srtf:sticky=true")
    assert comparison.seeds == (0, 1)
    assert comparison.metrics["fewest"] == comparison.metrics["srtf"]
    assert mine.decided == 0
    assert comparison.violations == {policy: [[], []] for policy in comparison.policies}
    assert (
        compare(contended, ["srtf", "srtf:sticky=true"], [0, 1]).metrics["srtf:sticky=true"]
        == (comparison.metrics["srtf:sticky=true"])
    )


def test_what_is_no_policy_is_one_sentence() -> None:
    for wrong, says in (
        ([int], "policy 'int' has no"),
        ([Srtf(), "srtf"], "policies: 'srtf' is named twice"),
        ([], "policies: the list is empty"),
    ):
        with pytest.raises(PolicyError, match=says):
            compare(contended, wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="seeds: the list is empty"):
        compare(contended, ["srtf"], 0)


def test_a_run_takes_a_shipped_scenario_a_file_and_a_class(tmp_path: Path) -> None:
    """The same as the scenario and the object."""
    file = save_scenario(small_scenario(3), tmp_path / "s")
    expected = run(small_scenario(3), "srtf")
    for scenario, policy in ((file, Srtf), (str(file), Srtf()), (small_scenario(3), "srtf")):
        assert run(scenario, policy).schedule.tables()["runs"].equals(expected.schedule.tables()["runs"])
    assert run("demo", Srtf).scenario.name == default_scenario("demo").name


def test_a_comparison_as_a_frame_has_a_row_for_each_run() -> None:
    """Seconds are durations, the rest are numbers."""
    comparison = compare(contended, POLICIES, 2, processes=1)
    frame = comparison.to_frame()
    assert frame.select("policy", "seed").rows() == [(policy, seed) for policy in POLICIES for seed in (0, 1)]
    assert frame.schema["jct_mean"] == pl.Duration("us")
    assert frame["jct_mean"][0].total_seconds() == pytest.approx(
        comparison.metrics["aonline"][0]["jct_mean_s"], abs=1e-6
    )
    assert frame["preemptions"].to_list() == [
        row["preemptions"] for rows in comparison.metrics.values() for row in rows
    ]
    assert not [name for name in frame.columns if name.endswith("_s")]


def test_the_report_of_a_comparison_is_a_page() -> None:
    page = compare(contended, ["srtf", "fifo"], 1, processes=1).report("A <title>")
    assert page.startswith("<!doctype html>")
    assert "A &lt;title&gt;" in page


def test_a_second_comparison_is_in_the_folder_in_which_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes of the first one are used again; both folders have a file of the same name."""
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        file = save_scenario(small_scenario(seed), folder)
        monkeypatch.chdir(folder)
        assert compare(file.name, ["srtf", "fifo"], processes=2).seeds == (seed,)


def test_a_comparison_holds_the_metrics_of_the_single_runs() -> None:
    """Nothing is added but jct_rate and bound_ratio."""
    comparison = compare(contended, POLICIES, [3, 4], processes=1)
    for policy in POLICIES:
        for i, seed in enumerate((3, 4)):
            told = dict(comparison.metrics[policy][i])
            del told["jct_rate"], told["bound_ratio"]
            assert told == run(contended(seed), policy).metrics
    assert [r.policy for r in comparison.first_runs] == list(POLICIES)
    assert {r.scenario.seed for r in comparison.first_runs} == {3}


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
    assert sorted(told) == [(what, seed) for what in ("bound", "fifo", "srtf") for seed in (5, 6)]


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
    assert bounded(np.full(5, 0.1)) == Estimate(0.1, 0.1, 0.1)


def test_where_nothing_varies_a_comparison_has_no_interval() -> None:
    """There is no spread to estimate."""
    comparison = Comparison(("p",), tuple(range(5)), rows(p=[0.1] * 5), ())
    assert comparison.estimate("p", "jct_mean_s") == Estimate(0.1)


def test_intervals_of_95_percent_hold_the_mean_19_times_of_20() -> None:
    """2000 samples of 5 normal values: within four standard deviations of 0.95."""
    draws = np.random.default_rng(1).normal(10, 3, (2000, 5))
    held = np.mean([e.low <= 10 <= e.high for e in map(estimate, draws)])  # type: ignore[operator]
    assert held == pytest.approx(0.95, abs=4 * (0.95 * 0.05 / 2000) ** 0.5)


def test_bounded_metrics_have_intervals_within_their_values() -> None:
    """Student's t says that shares of 0, 0, 0, 0, 1 lie between -0.355 and 0.755; no share is negative."""
    values = np.array([0.0, 0.0, 0.0, 0.0, 1.0])
    assert estimate(values).low == pytest.approx(0.2 - 2.776 * 0.2, abs=1e-3)
    found = bounded(values)
    assert found.mean == 0.2
    assert 0 <= found.low < 0.2 < found.high <= 1  # type: ignore[operator]


def test_the_bootstrap_interval_of_many_values_is_that_of_the_normal_distribution() -> None:
    """Of 400 values the mean is normal: 1.96 standard errors on each side, to 15 % of that; and always the same."""
    values = np.random.default_rng(3).exponential(10, 400)
    found, error = bounded(values), 1.96 * values.std(ddof=1) / 20
    assert found == bounded(values)
    assert found.high - found.mean == pytest.approx(error, rel=0.15)  # type: ignore[operator]
    assert found.mean - found.low == pytest.approx(error, rel=0.15)  # type: ignore[operator]


@pytest.mark.parametrize("n", [1, 2, 4])
def test_fewer_than_5_values_have_a_mean_and_no_interval(n: int) -> None:
    assert bounded(np.arange(float(n))) == Estimate((n - 1) / 2)


def rows(**columns: list[float | None]) -> dict[str, list[dict[str, float | None]]]:
    """Metrics by policy of one column."""
    return {policy: [{"jct_mean_s": value} for value in values] for policy, values in columns.items()}


def test_the_estimate_of_a_comparison_is_over_its_seeds() -> None:
    """And None where a seed has no value."""
    comparison = Comparison(("p", "q"), (0, 1), rows(p=[1.0, 3.0], q=[1.0, None]), ())
    assert comparison.estimate("p", "jct_mean_s") == Estimate(2.0)
    assert comparison.estimate("q", "jct_mean_s") is None
    assert comparison.difference("q", "jct_mean_s") is None


def test_differences_are_taken_seed_by_seed_and_decide_what_means_cannot() -> None:
    """JCTs vary by 40 between seeds, but fifo is 2, 3, 2, 3, 2 behind: 2.4 +- 2.776 * 0.5477 / sqrt(5) = 0.680."""
    base = [10.0, 50.0, 20.0, 40.0, 30.0]
    behind = [b + d for b, d in zip(base, (2, 3, 2, 3, 2), strict=True)]
    comparison = Comparison(("fifo", "srtf"), tuple(range(5)), rows(fifo=behind, srtf=base), ())
    found = comparison.difference("fifo", "jct_mean_s")
    assert found is not None
    assert (found.mean, found.low, found.high) == pytest.approx((2.4, 1.720, 3.080), abs=1e-3)
    assert comparison.difference("srtf", "jct_mean_s") is None  # the reference
    assert comparison.best("jct_mean_s") == "srtf"
    assert comparison.estimate("srtf", "jct_mean_s").high > comparison.estimate("fifo", "jct_mean_s").low  # type: ignore[union-attr, operator]


@pytest.mark.parametrize(
    ("fifo", "best"),
    [
        ([12.0, 53.0, 19.0, 39.0, 32.0], None),  # ahead in two seeds of five: the interval holds 0
        ([10.0, 50.0, 20.0, 40.0, 30.0], None),  # the same
        ([9.0, 49.0, 19.0, 39.0, 28.5], "fifo"),  # 1 or 1.5 less in each seed
        ([9.0, 49.0, 19.0, 39.0, 29.0], None),  # 1 less in each seed: there is no spread to judge it by
        ([9.0, 49.0, 19.0, 39.0, None], None),
    ],
)
def test_a_policy_is_best_only_where_its_differences_to_all_others_are_decided(
    fifo: list[float | None], best: str | None
) -> None:
    comparison = Comparison(("fifo", "srtf"), tuple(range(5)), rows(fifo=fifo, srtf=[10.0, 50.0, 20.0, 40.0, 30.0]), ())
    assert comparison.best("jct_mean_s") == best


def test_with_fewer_than_5_seeds_nothing_is_decided() -> None:
    comparison = Comparison(("fifo", "srtf"), (0, 1), rows(fifo=[5.0, 5.0], srtf=[1.0, 1.0]), ())
    assert comparison.best("jct_mean_s") is None
    assert comparison.difference("fifo", "jct_mean_s") == Estimate(4.0)


# --- verification, run folders, times


def test_every_run_of_a_comparison_is_verified() -> None:
    comparison = compare(contended, POLICIES, [3, 4], processes=1)
    assert comparison.violations == {policy: [[], []] for policy in POLICIES}
    assert comparison.verified_text == "6 runs, every rule verified"
    assert compare(contended, ["fifo"], [3], processes=1, verify=False).verified_text == "not verified"


def test_a_run_that_breaks_a_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last run of seed 4 ends a second late: M8 among others."""

    def late(scenario: Scenario, policy: str) -> Run:
        made = run(scenario, policy)
        if scenario.seed != 4:
            return made
        last = pl.col("end") == pl.col("end").max()
        runs = made.schedule.runs.with_columns(end=pl.when(last).then(pl.col("end") + 10**6).otherwise(pl.col("end")))
        return replace(made, schedule=replace(made.schedule, runs=runs))

    monkeypatch.setattr("skedge.comparison.points.run", late)
    comparison = compare(contended, ["fifo"], [3, 4], processes=1)
    assert comparison.violations is not None
    assert comparison.violations["fifo"][0] == []
    assert "M8" in {found.rule for found in comparison.violations["fifo"][1]}
    assert comparison.verified_text.startswith("rules broken by fifo with seed 4: ")


def test_the_run_folders_of_a_comparison_are_those_of_its_runs(tmp_path: Path) -> None:
    """Written where they are made, by two processes."""
    compare(contended, ["srtf", "aonline:cloud=false"], [3, 4], processes=2, folder=tmp_path)
    names = {run_name(policy, seed) for policy in ("srtf", "aonline:cloud=false") for seed in (3, 4)}
    assert {path.name for path in tmp_path.iterdir()} == names
    loaded = Run.load(tmp_path / run_name("aonline:cloud=false", 4))
    assert loaded.metrics == run(contended(4), "aonline:cloud=false").metrics


def test_times_are_measured_for_every_run() -> None:
    times = compare(contended, ["fifo"], [3, 4], processes=1).times["fifo"]
    assert all(isinstance(one, Times) and one.run > 0 and one.verify > 0 for one in times)
    assert len(times) == 2


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
