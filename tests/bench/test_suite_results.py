"""The suite is frozen, a result is checked again from its records, and the leaderboard ranks results."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import polars as pl
import pytest
from typer.testing import CliRunner

from builders.paths import ROOT
from skedge.bench import suite
from skedge.bench.board import GROUPS, leaderboard
from skedge.bench.check import Result, check, read_result
from skedge.bench.result import measure, records_of
from skedge.bench.suite import SEEDS, SIZES, Task, frozen_table, hash_of, tasks
from skedge.cli.bench import bench
from skedge.core.errors import InputError, PolicyError, SkedgeError
from skedge.core.registry import registered

FEW = ("gangs-rigid", "sites-crowded", "resources-steady")
"""The scenarios of the tests: those that take a second each."""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with another package that registers the policy of the guide."""
    folder = tmp_path_factory.mktemp("plugin")
    info = folder / "elsewhere-2.1.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 2.1\n")
    info.joinpath("entry_points.txt").write_text("[skedge.policies]\nleast_loaded = least_loaded:LeastLoaded\n")
    shutil.copy(ROOT / "docs" / "examples" / "least_loaded.py", folder)
    return folder


@pytest.fixture(autouse=True, scope="module")
def fewer(plugin: Path) -> Any:
    """A suite of :data:`FEW` scenarios, with the plug-in installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(plugin)
        for module in ("result", "check"):
            patch.setattr(f"skedge.bench.{module}.tasks", lambda *of: [t for t in tasks(*of) if t.name in FEW])
        yield


@pytest.fixture(scope="module")
def measured(fewer: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result file of four policies, one of them the plug-in's."""
    out = tmp_path_factory.mktemp("measured") / "all.json"
    measure(["fifo", "srtf", "drf", "least_loaded"], "small", 1, out, processes=1)
    return out


@pytest.fixture
def copied(measured: Path, tmp_path: Path) -> Path:
    """A copy of the result file and its records, to tamper with."""
    shutil.copy(records_of(measured), tmp_path)
    return Path(shutil.copy(measured, tmp_path))


def test_the_small_scenarios_and_their_bounds_are_still_what_is_stored() -> None:
    """Computed anew at the first seed; a hash that differs means a new version of the suite."""
    for task in tasks("small"):
        anew, stored = task.compute_frozen(), task.frozen()
        assert (anew.hash, anew.bound) == (stored.hash, stored.bound), task
        assert anew.value == pytest.approx(stored.value, rel=1e-9), task


@pytest.mark.parametrize("name", FEW)
def test_the_scenarios_of_the_papers_sizes_have_the_stored_hashes(name: str) -> None:
    task = Task(name, "paper", 0)
    assert hash_of(task.scenario()) == task.frozen().hash


def test_the_suite_is_whole() -> None:
    """Twelve scenarios in the groups of the leaderboard, with all bounds; hashes differ."""
    every = [task for size in SIZES for task in tasks(size, SEEDS[size])]
    assert len(tasks("small")) == 12
    assert {task.group for task in every} == set(GROUPS)
    assert len({task.frozen().hash for task in every}) == len(every)
    assert all(task.frozen().value > 0 for task in every)


def test_what_is_to_be_stored_is_computed_for_each_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "tasks", lambda size, seeds: [Task("gangs-rigid", size, 0)])
    assert list(frozen_table(("small",))) == [(t := Task("gangs-rigid", "small", 0), asdict(t.frozen()))]


def test_scores_are_relative_to_the_bound_and_a_policy_that_does_not_fit_says_why(measured: Path) -> None:
    by_policy = {one.policy: {s.scenario: s for s in one.scores} for one in read_result(measured).policies}
    srtf, drf = by_policy["srtf"], by_policy["drf"]
    rigid, sites, utility = srtf["gangs-rigid"], srtf["sites-crowded"], drf["resources-steady"]
    assert rigid.value is not None
    assert rigid.score == rigid.bound / rigid.value
    assert (sites.score, sites.why, sites.record) == (None, "the policy needs typed slots", None)
    assert utility.value is not None
    assert utility.score == utility.value / utility.bound
    assert all(0 <= s.score <= 1 for of in by_policy.values() for s in of.values() if s.score is not None)


def test_results_of_two_measurements_differ_in_the_machine_alone(measured: Path, tmp_path: Path) -> None:
    """The records, too, byte by byte."""
    again = tmp_path / "again.json"
    measure(["fifo", "srtf", "drf", "least_loaded"], "small", 1, again, processes=1)
    one, other = (json.loads(path.read_text()) for path in (measured, again))
    assert set(one.pop("machine")) == set(other.pop("machine")) >= {"cpu_s", "cores"}
    assert one == other
    with ZipFile(records_of(measured)) as first, ZipFile(records_of(again)) as second:
        assert {i.filename: i.CRC for i in first.infolist()} == {i.filename: i.CRC for i in second.infolist()}


def test_a_result_is_checked_without_the_package_of_its_policy(
    measured: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(plugin)])
    assert "least_loaded" not in registered()
    assert [one.policy for one in check(measured).policies] == ["fifo", "srtf", "drf", "least_loaded"]


def edited(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The result file with a change."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


def at(content: dict[str, Any], policy: int, scenario: int) -> dict[str, Any]:
    """A score of a result file."""
    found: dict[str, Any] = content["policies"][policy]["scores"][scenario]
    return found


TAMPERED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "score": (lambda c: at(c, 0, 0).update(score=1.0), "fifo on gangs-rigid, seed 0: score is 1.0; by the record"),
    "value": (lambda c: at(c, 0, 0).update(value=1.0), "value is 1.0; by the record it is"),
    "bound": (lambda c: at(c, 0, 0).update(bound=9e9), "bound is 9000000000.0; by the record"),
    "metric": (lambda c: at(c, 0, 0).update(metric="makespan_s"), "metric is 'makespan_s'"),
    "unrecorded": (lambda c: at(c, 1, 1).update(score=1.0), "srtf on sites-crowded, seed 0: score is 1.0 without"),
    "its bound": (lambda c: at(c, 1, 1).update(bound=1.0), "bound is 1.0; the suite's is"),
    "other record": (
        lambda c: at(c, 0, 0).update(record=at(c, 1, 0)["record"]),
        "fifo on gangs-rigid, seed 0: the record is of policy srtf",
    ),
    "other name": (lambda c: c["policies"][3].update(policy="tiresias"), "the record is of policy least_loaded"),
    "other parameters": (lambda c: c["policies"][1].update(policy="srtf:sticky=true"), "the record is of policy srtf"),
    "size": (lambda c: c.update(size="tiny"), "size is 'tiny'; a suite has small, paper, large"),
    "seeds": (lambda c: c.update(seeds=9), "seeds is 9; at size small it is 1 to 3"),
    "other scenario": (
        lambda c: at(c, 2, 1).update(record=at(c, 2, 2)["record"]),
        "the scenario is not the one of suite 1 at size small",
    ),
    "outside": (lambda c: at(c, 0, 0).update(record="../../etc"), "record '../../etc': is not in the zip file"),
    "suite": (lambda c: c.update(suite=2), "suite is 2; this skedge reads suite 1"),
    "fewer": (lambda c: c["policies"][0]["scores"].pop(), "fifo does not have the 3 scores of the suite"),
    "extra": (lambda c: c.update(note="x"), "is not a result file: note"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_tampered_result_is_refused_in_one_sentence(what: str, copied: Path) -> None:
    change, message = TAMPERED[what]
    with pytest.raises(SkedgeError) as refused:
        check(edited(copied, change))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert str(copied) in str(refused.value)


def test_a_tampered_record_is_refused(copied: Path, tmp_path: Path) -> None:
    """A job that is said to be done an hour earlier."""
    folder = tmp_path / "unpacked"
    with ZipFile(records_of(copied)) as packed:
        packed.extractall(folder)
    table = folder / "fifo" / "gangs-rigid-seed0" / "tables" / "jobs.parquet"
    earlier = pl.read_parquet(table).with_columns(pl.col("completion") - 1_000_000)
    earlier.write_parquet(table)
    shutil.make_archive(str(records_of(copied).with_suffix("")), "zip", folder)
    with pytest.raises(SkedgeError, match=r"fifo on gangs-rigid, seed 0: .* the record breaks M"):
        check(copied)


def test_records_that_are_missing_are_an_error(copied: Path) -> None:
    records_of(copied).unlink()
    with pytest.raises(InputError, match="the records cannot be read"):
        check(copied)


def test_the_leaderboard_has_the_policy_of_another_package_and_needs_no_network(measured: Path) -> None:
    of_two_seeds = read_result(measured).model_copy(update={"seeds": 2})
    page = leaderboard([of_two_seeds])
    assert "<th>least_loaded</th><td>elsewhere 2.1</td>" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "<script" not in page
    assert leaderboard([of_two_seeds]) == page


def test_the_leaderboard_ranks_by_the_mean_score() -> None:
    """Two policies of made-up scores: the higher mean first; one without a mean has no rank."""
    scores = {"a": [0.2, 0.8], "b": [0.6, 0.6], "c": [1.0, None]}
    page = leaderboard([result_of(scores)])
    rows = [page.index(f"<td class=number>{rank}</td><th>{name}") for rank, name in ((1, "b"), (2, "a"), ("–", "c"))]
    assert rows == sorted(rows)
    assert "<td class=number>0.500</td><td class=number>0.200</td><td class=number>0.800</td>" in page


def test_means_have_as_many_digits_as_part_the_ranks() -> None:
    """Two ranks never look alike; equal means share a rank."""
    page = leaderboard([result_of({"a": [0.5, 0.5], "b": [0.5, 0.50004], "c": [0.1, 0.1], "d": [0.5, 0.5]})])
    for rank, name, mean in ((1, "b", "0.50002"), (2, "a", "0.50000"), (2, "d", "0.50000"), (4, "c", "0.10000")):
        assert f"<td class=number>{rank}</td><th>{name}</th><td>p 1</td><td class=number>{mean}</td>" in page


def test_a_leaderboard_is_of_more_than_one_seed_where_there_are_bounds_for_more() -> None:
    with pytest.raises(InputError, match="of one seed, which ranks by chance; give skedge bench --seeds 3"):
        leaderboard([result_of({"a": [0.5, 0.5]}, seeds=1)])
    assert "Of one seed: others may rank otherwise" in leaderboard([result_of({"a": [0.5]}, "large", 1)])


def result_of(scores: dict[str, list[float | None]], size: str = "small", seeds: int = 2) -> Result:
    """A result of these scores on two scenarios of one group."""
    task = {"group": "lanes", "seed": 0, "metric": "jct_total_s", "value": 1.0, "bound": 1.0}
    policies = [
        {
            "policy": name,
            "package": "p",
            "version": "1",
            "scores": [{**task, "scenario": f"s{i}", "score": score} for i, score in enumerate(of)],
        }
        for name, of in scores.items()
    ]
    return Result.model_validate(
        {"format": 1, "suite": 1, "size": size, "seeds": seeds, "skedge": "1", "policies": policies, "machine": {}}
    )


def test_results_that_cannot_be_ranked_together_are_refused() -> None:
    one = result_of({"a": [1.0, 1.0]})
    with pytest.raises(InputError, match="several settings \\(paper with seeds 2, small with seeds 2\\)"):
        leaderboard([one, result_of({"b": [1.0, 1.0]}, "paper")])
    with pytest.raises(InputError, match="policy 'a' of p 1 is in the results twice"):
        leaderboard([one, one])


def test_wrong_input_is_refused_before_any_run(tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    for size, seeds, message in (("tiny", 1, "size 'tiny' is unknown"), ("large", 2, "bounds are proved for 1 to 1")):
        with pytest.raises(InputError, match=message):
            measure(["fifo"], size, seeds, out)
    with pytest.raises(PolicyError, match="name each once"):
        measure(["fifo", "fifo"], "small", 1, out)
    with pytest.raises(InputError, match=r"a result file ends in \.json"):
        measure(["fifo"], "small", 1, tmp_path / "r.txt")
    with pytest.raises(InputError, match="is not a folder"):
        measure(["fifo"], "small", 1, tmp_path / "no" / "r.json")
    out.touch()
    with pytest.raises(InputError, match="exists already"):
        measure(["fifo"], "small", 1, out)


def test_the_commands_run_check_and_rank(tmp_path: Path) -> None:
    """`run` may be left out."""
    out, page = tmp_path / "r.json", tmp_path / "board.html"
    for args in (
        ["fifo", "--out", str(out), "--processes", "1"],
        ["check", str(out)],
        ["board", str(out), "--out", str(page)],
    ):
        done = CliRunner().invoke(bench, args, catch_exceptions=False)
        assert done.exit_code == 0, done.output
    assert "<th>fifo</th>" in page.read_text()
