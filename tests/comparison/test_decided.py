"""What a comparison decides: nothing between different jobs, different clouds, or windows that are one."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from skedge.analysis.intervals import Estimate, bounded, estimate
from skedge.cli.tables import comparison_tables, demo_text
from skedge.comparison import MOST_SEEDS
from skedge.comparison.compare import compare, compare_small
from skedge.comparison.comparison import Comparison
from skedge.core.errors import InputError, PolicyError, SkedgeError
from skedge.core.model.cluster import Cluster, Job, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.optimum.problems import Reference
from skedge.optimum.types import Bound
from skedge.policies.gangs.srtf import Srtf
from skedge.scenario.save import save_scenario
from skedge.testing import small_scenario

Skedge = Callable[..., Any]
contended = partial(small_scenario, jobs=10)

DIFFERENT_JOBS = """
name: rate
seed: 1
slot: 1s
cluster:
  servers:
    - {id: n0, workers: {gpu: 2}, ps: {cpu: 4}, storage_mb: 100}
workload:
  jobs:
    - {id: bulky, arrival_s: 0, epochs: 1, chunks: 2, minibatches: 100, minibatch_s: 10, workers: 2, chunk_mb: 200}
    - {id: wide, arrival_s: 0, epochs: 1, chunks: 4, minibatches: 100, minibatch_s: 0.5, workers: 4, chunk_mb: 1}
"""


def of_values(seeds: int = 5, **columns: Any) -> Comparison:
    """A comparison of the mean JCT alone; other columns as mappings."""
    metrics = {
        policy: [{"jct_mean_s": v, "preemptions": 0, "rejected": 0} for v in values]
        for policy, values in columns.items()
    }
    return Comparison(tuple(columns), tuple(range(seeds)), metrics, ())


# --- jobs that differ


def test_policies_that_finish_different_jobs_have_no_rate_and_no_difference(
    skedge: Skedge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many jobs, but not the same ones; the table says of how many jobs a mean is."""
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(DIFFERENT_JOBS)
    words = ("compare", "s.yaml", "--policies", "srtf,aonline", "--seeds", 6, "--processes", 1)
    told = skedge(*words, "--json")
    assert told.code == 0
    assert [row["finished"] for row in told.json["metrics"]["aonline"]] == [1] * 6
    assert told.json["estimates"]["aonline"]["jct_rate"] is None
    assert told.json["differences"]["policies"]["aonline"] is None
    told = skedge(*words)
    assert "*" not in told.out.replace("no interval and no *", "")
    assert "1.67 min of 1 " in told.out
    assert "where two policies finished different jobs, there is no rate and no difference" in told.out
    assert "every seed gave the same runs" in told.out


def test_the_best_is_no_policy_that_finished_other_jobs() -> None:
    comparison = compare(twice_as_large, ["srtf", "aonline"], 5, processes=1)
    assert comparison.best("jct_mean_s") is None
    assert comparison.best_mean_policy in comparison.policies


LESS_WORK = (
    "preemptions", "migrations", "postponed_chunks", "uploaded_mb", "upload_jct_share", "makespan_s", "jct_mean_s",
    "cost_total", "training_time_p50_s",
)  # fmt: skip
"""Metrics that are lower where jobs were rejected."""


@pytest.mark.parametrize("same", [True, False], ids=["same", "different"])
def test_whoever_rejects_jobs_wins_nothing_by_having_less_to_do(same: bool) -> None:
    columns = (*LESS_WORK, "rejected", "utilisation_mean", "finished", "acceptance_share", "utility_total")
    metrics = {
        policy: [dict.fromkeys(columns, value + i * value / 10) for i in range(5)]
        for policy, value in (("picky", 1.0), ("srtf", 9.0))
    }
    finished = {"picky": ["a"] * 5, "srtf": ["a" if same else "b"] * 5}
    comparison = Comparison(("picky", "srtf"), tuple(range(5)), metrics, (), finished=finished)
    for column in LESS_WORK:
        assert comparison.best(column) == ("picky" if same else None), column
    assert comparison.best("utilisation_mean") == ("srtf" if same else None)
    assert comparison.best("rejected") == "picky"
    assert {comparison.best(column) for column in ("finished", "acceptance_share", "utility_total")} == {"srtf"}


def twice_as_large(seed: int) -> Scenario:
    """A job that fits the store of no chunk policy, and one that no gang of it fits."""
    cluster = Cluster([Server("e", capacity={"worker:gpu": 2, "ps:cpu": 4}, storage_mb=100.0)])
    jobs = [
        Job("bulky", 0.0, 1, 2, 100, 10.0 + seed, workers=2, chunk_mb=200.0),
        Job("wide", 0.0, 1, 4, 100, 0.5, workers=4, chunk_mb=1.0),
    ]
    table, given = job_table(jobs)
    return Scenario(cluster, Jobs(table, cluster, given), seed=seed)


# --- intervals


def test_a_difference_that_is_none_is_equal_and_has_no_star() -> None:
    base = [10.0, 50.0, 20.0, 40.0, 30.0]
    comparison = of_values(srtf=base, same=base, ahead=[v - 1 for v in base])
    assert comparison.is_equal("same", "jct_mean_s")
    assert comparison.difference("same", "jct_mean_s") == Estimate(0.0)
    assert (comparison.sign("same", "jct_mean_s"), comparison.best("jct_mean_s")) == (0, None)
    assert comparison.difference("ahead", "jct_mean_s") == Estimate(-1.0), "one number five times has no spread"


def test_a_difference_of_rounding_is_none() -> None:
    base = np.array([0.1, 0.7, 0.2, 0.3, 0.9])
    comparison = of_values(srtf=base.tolist(), other=(base * 3 / 3 + 1e-16).tolist())
    assert comparison.is_equal("other", "jct_mean_s")


def test_more_resamples_of_one_window_do_not_make_its_interval_narrower() -> None:
    """Of normal values around 50 with deviation 3, whatever their number; of samples it shrinks with the root."""
    draws = np.random.default_rng(2).normal(50, 3, 1000)
    few, many = (estimate(draws[:n], of_one=True) for n in (20, 1000))
    assert many.high - many.mean == pytest.approx(1.96 * 3, rel=0.1)  # type: ignore[operator]
    assert few.high - few.mean == pytest.approx(2.09 * 3, rel=0.5)  # type: ignore[operator]
    assert estimate(draws).high - many.mean == pytest.approx(1.96 * 3 / 1000**0.5, rel=0.1)  # type: ignore[operator]
    spread = bounded(draws[:5], of_one=True)
    assert spread == estimate(draws[:5], of_one=True)
    half = 2.776 * draws[:5].std(ddof=1) * 1.2**0.5
    assert (spread.low, spread.high) == pytest.approx((spread.mean - half, spread.mean + half), rel=1e-3)


@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (lambda rng: rng.normal(10, 3, 200), 10.0),
        (lambda rng: rng.exponential(10, 200), 10.0),
        (lambda rng: rng.lognormal(0, 1, 400), np.exp(0.5)),
    ],
    ids=["normal", "exponential", "lognormal"],
)
def test_intervals_of_five_windows_of_a_trace_hold_the_true_mean_19_times_of_20(
    draw: Callable[[np.random.Generator], Any], mean: float
) -> None:
    """A trace, and four windows drawn from it again: does the interval hold the mean that the trace was drawn with?"""
    rng = np.random.default_rng(11)
    held = 0
    for _ in range(2000):
        trace = draw(rng)
        windows = (trace, *(rng.choice(trace, len(trace)) for _ in range(4)))
        interval = bounded(np.array([window.mean() for window in windows]), of_one=True)
        held += interval.low <= mean <= interval.high  # type: ignore[operator]
    assert held / 2000 == pytest.approx(0.95, abs=0.04)


def test_the_interval_of_windows_is_cut_where_the_metric_ends() -> None:
    """No time is negative, no share above 1; what may be negative is not cut."""
    values = np.array([0.1, 0.9, 0.2, 0.95, 0.9])
    whole, share = estimate(values, of_one=True), bounded(values, of_one=True, limits=(0.0, 1.0))
    assert (whole.low < 0, whole.high > 1) == (True, True)  # type: ignore[operator]
    assert (share.low, share.mean, share.high) == (0.0, whole.mean, 1.0)
    assert bounded(values, of_one=True).high == whole.high
    assert bounded(values - 0.5, of_one=True).low == pytest.approx(whole.low - 0.5)  # type: ignore[operator]
    rows = {"srtf": [{"jct_mean_s": v, "utilisation_mean": v, "cloud_share": v, "bound_ratio": 1 + v} for v in values]}
    comparison = Comparison(("srtf",), tuple(range(5)), rows, (), seeding="resampled")
    found = [comparison.estimate("srtf", column) for column in rows["srtf"][0]]
    assert [one and one.low for one in found] == [0.0, 0.0, 0.0, 1.0], "no policy beats a bound"
    assert [one and one.high for one in found[:3]] == [whole.high, 1.0, 1.0]


def test_the_rate_of_windows_decides_no_more_than_their_difference() -> None:
    """A_online is ahead in four windows and equal in one: neither is decided."""
    base, ahead = [100.0, 110.0, 90.0, 105.0, 95.0], [99.0, 108.0, 89.9, 102.0, 95.0]
    metrics = {
        policy: [{"jct_mean_s": v, "jct_rate": v / to} for v, to in zip(values, base, strict=True)]
        for policy, values in (("srtf", base), ("aonline", ahead))
    }
    comparison = Comparison(("srtf", "aonline"), tuple(range(5)), metrics, (), seeding="resampled")
    rate, less = comparison.estimate("aonline", "jct_rate"), comparison.difference("aonline", "jct_mean_s")
    assert rate is not None
    assert less is not None
    assert rate.low < 1 < rate.high  # type: ignore[operator]
    assert less.sign == comparison.sign("aonline", "jct_rate", to="srtf") == 0


@pytest.mark.filterwarnings("error")
def test_values_that_are_nearly_equal_warn_nobody() -> None:
    """SciPy warns that BCa is degenerate."""
    for values in ([1.0, 1.0, 1.0, 1.0, 1.0 + 1e-15], [0.0, 0.0, 0.0, 0.0, 1.0], [5e-324, 0, 0, 0, 0]):
        found = bounded(np.array(values))
        assert found.low is not None
        assert min(values) <= found.low <= found.high <= max(values)  # type: ignore[operator]


def test_jobs_that_are_the_same_for_every_seed_are_no_samples(tmp_path: Path) -> None:
    """Seeds draw upload delays around them: no interval, and no star, however many there are."""
    text = DIFFERENT_JOBS.replace("chunk_mb: 200", "upload_edge_s: [1, 500]").replace(
        "workers: 4, chunk_mb: 1", "workers: 2, upload_edge_s: [1, 500]"
    )
    (tmp_path / "s.yaml").write_text(text)
    comparison = compare(tmp_path / "s.yaml", ["srtf", "fifo"], 6, processes=1)
    assert len({row["jct_mean_s"] for row in comparison.metrics["fifo"]}) > 1
    assert comparison.seeding == "same"
    found = comparison.estimate("fifo", "jct_mean_s"), comparison.difference("fifo", "jct_mean_s")
    assert [one and one.low for one in found] == [None, None]
    assert "the jobs are the same for every seed" in comparison.interval_text
    assert comparison.best("jct_mean_s") is None


def test_a_table_is_resampled_by_every_seed_but_its_own(tmp_path: Path) -> None:
    file = save_scenario(contended(3), tmp_path)
    comparison = compare(file, ["srtf", "fifo"], 5, processes=1)
    assert comparison.seeds == (3, 4, 5, 6, 7)
    assert comparison.seeding == "resampled"
    alone = compare(contended(3), ["srtf", "fifo"], processes=1)
    for policy in comparison.policies:
        assert comparison.metrics[policy][0]["jct_total_s"] == alone.metrics[policy][0]["jct_total_s"]
    assert len({row["makespan_s"] for row in comparison.metrics["srtf"]}) == 5
    assert "resampled" in comparison.interval_text or "blocks of consecutive arrivals" in comparison.interval_text
    assert comparison.violations == {policy: [[]] * 5 for policy in comparison.policies}
    kept = compare(file, ["srtf", "fifo"], 5, processes=1, resume=tmp_path / "kept")
    assert kept.metrics == comparison.metrics
    assert kept.seeding == "resampled"


def test_seeds_by_number_are_those_of_the_command(skedge: Skedge, tmp_path: Path) -> None:
    file = save_scenario(contended(3), tmp_path / "s")
    told = skedge(
        "compare", file, "--policies", "fifo", "--seeds", 2, "--report", tmp_path / "r.html", "--processes", 1, "--json"
    )
    assert told.json["seeds"] == [3, 4]
    assert compare(str(file), ["fifo"], 2, processes=1).metrics == told.json["metrics"]


@pytest.mark.parametrize("seeds", [MOST_SEEDS + 1, 10**8, -1])
def test_a_number_of_seeds_that_no_machine_carries_out_is_refused_at_once(seeds: int, skedge: Skedge) -> None:
    with pytest.raises(InputError, match=f"seeds: {seeds}; there must be from 1 to 10,000"):
        compare(contended, ["fifo"], seeds)
    assert skedge("demo", "--seeds", seeds).code == 2
    assert skedge("compare", "demo", "--seeds", seeds).code == 2
    assert skedge("reproduce", "jsac22", "fig3", "--seeds", seeds).code == 2


def test_the_comparisons_of_the_demo_refuse_such_a_number_too() -> None:
    with pytest.raises(InputError, match="seeds: 100000000; there must be from 1 to 10,000"):
        compare_small(["demo"], ["fifo"], range(10**8))


# --- the cloud


def with_cloud(seed: int) -> Scenario:
    """One worker, and a cloud that is as near; three jobs of 10 s and a bit arrive together."""
    cluster = Cluster([Server("e", capacity={"worker:gpu": 1, "ps:cpu": 1}), Server("cloud", "cloud")])
    jobs = [Job(name, 0.0, 1, 1, 1, 10.0 + (seed + i) % 5) for i, name in enumerate("abc")]
    table, given = job_table(jobs)
    return Scenario(cluster, Jobs(table, cluster, given), seed=seed)


def test_nothing_is_decided_between_those_with_and_those_without_the_cloud() -> None:
    """A_online wins by being there: it is no star; the table has its share."""
    comparison = compare(with_cloud, ["aonline", "aonline:cloud=false", "srtf"], 5, processes=1)
    assert comparison.groups == [("aonline:cloud=false", "srtf"), ("aonline",)]
    less = comparison.difference("aonline", "jct_mean_s")
    assert less is not None
    assert less.sign == -1
    assert (comparison.sign("aonline", "jct_mean_s"), comparison.best("jct_mean_s")) == (0, None)
    text = shown(comparison)
    assert "*" not in text
    assert "cloud" in text
    assert any(
        note.startswith("aonline may use the cloud, which has neither an end nor a price; aonline:cloud=false, srtf")
        for note in comparison.texts
    )


def test_policies_with_the_same_right_to_the_cloud_are_decided() -> None:
    comparison = compare(with_cloud, ["fifo:rule=earliest_server", "aonline", "srtf:allow_cloud=true"], 5, processes=1)
    assert len(comparison.groups) == 1
    assert not [note for note in comparison.texts if "may use the cloud" in note]


def test_without_use_of_the_cloud_nobody_is_apart() -> None:
    """All jobs find an idle worker on the edge."""
    comparison = compare(partial(small_scenario, jobs=2), ["aonline", "srtf"], 1, processes=1)
    used = any(row["cloud_share"] for rows in comparison.metrics.values() for row in rows)
    assert len(comparison.groups) == (2 if used else 1)


def test_a_policy_that_declares_nothing_is_judged_by_its_record() -> None:
    metrics = {name: [{"jct_mean_s": 1.0, "cloud_share": share}] for name, share in (("mine", 0.5), ("other", 0.0))}
    assert Comparison(("mine", "other"), (0,), metrics, ()).groups == [("other",), ("mine",)]


# --- what no number says


def test_where_nothing_contends_it_is_said() -> None:
    def idle(seed: int) -> Scenario:
        cluster = Cluster([Server("e", capacity={"worker:gpu": 4, "ps:cpu": 4})])
        jobs = [Job(name, 100.0 * i, 1, 1, 1, 10.0 + seed) for i, name in enumerate("abc")]
        table, given = job_table(jobs)
        return Scenario(cluster, Jobs(table, cluster, given), seed=seed)

    assert any("no job ever waited" in text for text in compare(idle, ["srtf", "fifo"], 2, processes=1).texts)
    assert not any("no job ever waited" in text for text in compare(contended, ["srtf", "fifo"], 2, processes=1).texts)


def test_the_share_of_uploads_in_the_jct_is_said() -> None:
    comparison = compare(contended, ["srtf", "fifo"], 2, processes=1)
    shares = [comparison.estimate(policy, "upload_jct_share").mean for policy in comparison.policies]  # type: ignore[union-attr]
    assert min(shares) > 0
    assert any(f"{max(shares):.1%}" in text and "waiting for uploads" in text for text in comparison.texts)


def test_the_bound_is_said_only_where_a_ratio_to_it_is_shown() -> None:
    """A utility of 0 has no ratio, and a policy that has none with one seed shows none."""
    bounds = (Reference("utility", "utility_total", "higher", Bound("alone", 9.0, 0.0)),) * 2

    def text(**ratios: list[float | None]) -> str:
        rows = {policy: [{"utility_total": 0.0, "bound_ratio": ratio} for ratio in of] for policy, of in ratios.items()}
        return Comparison(tuple(rows), (0, 1), rows, (), bounds).bound_text

    assert text(fifo=[None, 2.0], drf=[None, None]) == ""
    assert text(fifo=[1.5, 2.0], drf=[None, None]).startswith("bound: relative to the best bound that holds")


def test_a_median_at_the_horizon_is_a_bound_from_below() -> None:
    rows = {
        policy: [{"utility_total": 1.0, "training_time_p50_s": 288000.0 - less, "censored_share": share}] * 5
        for policy, less, share in (("srtf", 0.0, 0.5), ("pdors", 1.0, 0.4))
    }  # fmt: skip
    comparison = Comparison(("srtf", "pdors"), tuple(range(5)), rows, ())
    assert comparison.cell("srtf", "training_time_p50_s") == {
        "mean": 288000.0, "low": None, "high": None, "censored": True
    }  # fmt: skip
    assert "censored" not in (comparison.cell("pdors", "training_time_p50_s") or {})
    assert comparison.sign("pdors", "training_time_p50_s") == 0


# --- failures


class Breaks(Srtf):
    """SRTF that fails where the third job arrives, of seed 1 alone."""

    name = "breaks"

    def decide(self, event: Any, view: Any) -> Any:
        if view.arrived >= 3 and self.rng.bit_generator.seed_seq.entropy[0] == 1:  # type: ignore[attr-defined]
            raise ZeroDivisionError("of the third job")
        return super().decide(event, view)


@pytest.mark.parametrize("processes", [1, 2])
def test_the_failure_of_a_policy_leaves_the_others(processes: int) -> None:
    both = compare(contended, ["fifo", Breaks(), "srtf"], 3, processes=processes)
    alone = compare(contended, ["fifo", "srtf"], 3, processes=1)
    assert (both.policies, both.metrics, both.violations) == (alone.policies, alone.metrics, alone.violations)
    assert [(one.policy, one.seed, one.text) for one in both.failures] == [
        ("breaks", 1, "ZeroDivisionError: of the third job")
    ]
    assert both.texts[0] == (
        "breaks failed and is left out, with 1 of 3 seeds (seed 1: ZeroDivisionError: of the third job)"
    )
    assert "in decide" in both.failures[0].trace


def test_where_every_policy_fails_the_first_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError, match="of the third job"):
        compare(contended, [Breaks()], 3, processes=1)


def test_a_failure_is_in_the_answers_of_the_command(
    skedge: Skedge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that does not go with the scenario: the others are shown, and the exit status is 1."""
    monkeypatch.chdir(tmp_path)
    file = save_scenario(contended(3), tmp_path / "s")
    words = ("compare", file, "--policies", "fifo,pdors", "--seeds", 1, "--processes", 1)
    told = skedge(*words, "--json")
    assert told.code == 1
    assert list(told.json["metrics"]) == ["fifo"]
    (failed,) = told.json["failed"]
    assert (failed["policy"], failed["seed"], failed["error"]) == ("pdors", 3, "PolicyError")
    told = skedge(*words, "--out", "o")
    assert told.code == 1
    assert "pdors failed and is left out, with 1 of 1 seed (seed 3: " in " ".join(told.out.split())
    assert "pdors, seed 3: " in told.words
    assert json.loads(Path("o/comparison.json").read_text())["failed"] == [failed]
    with pytest.raises(PolicyError):
        compare(str(file), ["pdors"], 1)


def test_what_this_machine_fails_at_is_no_failure_of_a_policy() -> None:
    class Full(Srtf):
        name = "full"

        def decide(self, event: Any, view: Any) -> Any:
            raise MemoryError

    with pytest.raises(MemoryError):
        compare(contended, [Full(), "srtf"], 1, processes=1)
    assert issubclass(PolicyError, SkedgeError)


# --- tables


def shown(comparison: Comparison, width: int = 80) -> str:
    """The tables as a terminal of this width shows them."""
    console = Console(width=width, highlight=False, markup=False)
    with console.capture() as found:
        for table in comparison_tables(comparison, width):
            console.print(table)
    return found.get()


NINE = (
    "aonline", "aonline:cloud=false", "srtf", "tiresias", "fifo", "fifo:rule=earliest_server",
    "srtf:placement=keep_running,sticky=true", "tiresias:knob=8", "drf",
)  # fmt: skip


def test_nine_policies_fit_80_columns_and_no_value_is_cut() -> None:
    """Long names are folded, and columns that do not fit stand below."""
    values = [
        {
            "jct_mean_s": 123_456.0 + 7 * i, "jct_rate": 1.23, "bound_ratio": 1234.5, "jct_p99_s": 1e6,
            "preemptions": 12345, "migrations": 12345, "utilisation_mean": 1.0, "cloud_share": 0.123, "rejected": 123,
            "finished": 37, "jobs": 160, "finished_after_horizon": 12345,
        }
        for i in range(5)
    ]  # fmt: skip
    metrics = {
        policy: [row | {"jct_mean_s": row["jct_mean_s"] + n * (1 + i)} for i, row in enumerate(values)]
        for n, policy in enumerate(NINE)
    }
    comparison = Comparison(NINE, tuple(range(5)), metrics, ())
    for width in (80, 60, 40):
        text = shown(comparison, width)
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= max(width, 50)
        for value in ("34.3 h of 37", "12,345", "11.6 d", "100.0%", "1234.5", "after T", "rejected"):
            assert value in text, f"{value} at {width}"
    assert "fifo:rule=earliest_server " in shown(comparison)


def test_the_demo_says_what_is_equal_among_those_with_the_same_right_to_the_cloud() -> None:
    metrics = {
        name: [{"jct_mean_s": 100.0, "cloud_share": share}]
        for name, share in (("a", 0.0), ("b", 0.0), ("c", 0.5))
    }  # fmt: skip
    comparison = Comparison(("a", "b", "c"), (0,), metrics, ())
    assert "equal within 1 %: a, b\n" in demo_text({"rigid": comparison})
