"""Points of a sweep that are kept: a sweep that was ended continues where it was, with the same results."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from skedge.comparison import points as points_module
from skedge.comparison.compare import compare
from skedge.core.errors import InputError, SkedgeError
from skedge.core.model.scenario import Scenario
from skedge.recorded_run import Run
from skedge.runs.result_cache import ResultCache
from skedge.runs.tasks import Executor, KeyedTask, key_of, run_tasks
from skedge.scenario.save import digest_of, save_scenario
from skedge.simulate import run
from skedge.studies import simulate
from skedge.studies.kinds.sweep import Simulation
from skedge.testing import small_scenario

Skedge = Callable[..., Any]
POLICIES = ("aonline", "srtf", "fifo")
contended = partial(small_scenario, jobs=6)


class Counted:
    """A run that counts how often it was made, and may stop after some."""

    def __init__(self, most: int = 1000, ended: BaseException | None = None) -> None:
        self.most, self.made, self.ended = most, 0, ended or SkedgeError("ended half-way")

    def __call__(self, scenario: Scenario, policy: str) -> Run:
        if self.made == self.most:
            raise self.ended
        self.made += 1
        return run(scenario, policy)


def test_a_comparison_that_was_ended_continues_with_the_runs_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = compare(contended, POLICIES, [3, 4], processes=1)
    given: dict[str, Any] = {"processes": 1, "resume": tmp_path / "kept"}
    monkeypatch.setattr(points_module, "run", first := Counted(4, KeyboardInterrupt("ended half-way")))
    with pytest.raises(KeyboardInterrupt, match="ended half-way"):
        compare(contended, POLICIES, [3, 4], **given)
    monkeypatch.setattr(points_module, "run", second := Counted())
    again = compare(contended, POLICIES, [3, 4], **given)
    assert (first.made, second.made) == (4, 2)
    assert (again.metrics, again.bound_text) == (plain.metrics, plain.bound_text)
    assert [one.jobs.equals(other.jobs) for one, other in zip(again.first_runs, plain.first_runs, strict=True)] == [
        True
    ] * 3
    monkeypatch.setattr(points_module, "run", third := Counted())
    compare(contended, POLICIES, [3, 4, 5], **given)
    assert third.made == 3, "a seed more is three runs more"


def test_a_failure_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cause gone, the policy is compared; the runs that ended well are not made again."""
    given: dict[str, Any] = {"processes": 1, "resume": tmp_path / "kept"}

    def broken(scenario: Scenario, policy: str) -> Run:
        if policy == "fifo" and scenario.seed == 4:
            raise ZeroDivisionError("for want of a nail")
        return run(scenario, policy)

    monkeypatch.setattr(points_module, "run", broken)
    first = compare(contended, POLICIES, [3, 4], **given)
    assert [(one.policy, one.seed) for one in first.failures] == [("fifo", 4)]
    monkeypatch.setattr(points_module, "run", counted := Counted())
    again = compare(contended, POLICIES, [3, 4], **given)
    assert (again.failures, again.policies, counted.made) == ((), POLICIES, 1)
    assert again.metrics == compare(contended, POLICIES, [3, 4], processes=1).metrics


def test_kept_runs_are_written_like_any_others(tmp_path: Path) -> None:
    kept, folders = tmp_path / "kept", (tmp_path / "a", tmp_path / "b", tmp_path / "c")
    for folder, given in zip(folders, ({}, {"resume": kept}, {"resume": kept}), strict=True):
        compare(contended, POLICIES[:2], [3, 4], processes=1, folder=folder, **given)
    first, *others = ({p.relative_to(f): p.read_bytes() for p in f.rglob("*") if p.is_file()} for f in folders)
    assert len(first) > 20
    assert others == [first, first]


@pytest.mark.parametrize(
    "damaged",
    [lambda kept: kept[:50], lambda _: b"", lambda _: b"garbage\n", lambda _: pickle.dumps({"a": 1})],
    ids=["cut", "empty", "garbage", "another"],
)
def test_a_kept_point_is_that_of_this_scenario_and_is_made_again_if_it_is_damaged(
    damaged: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"processes": 1, "resume": tmp_path / "kept"}
    files = [save_scenario(small_scenario(seed, jobs=6), tmp_path / str(seed)) for seed in (1, 2)]
    found = [compare(file, ["srtf"], **given).metrics for file in files]
    assert found[0] != found[1]
    for path in (tmp_path / "kept").iterdir():
        path.write_bytes(damaged(path.read_bytes()))
    monkeypatch.setattr(points_module, "run", counted := Counted())
    assert [compare(file, ["srtf"], **given).metrics for file in files] == found
    assert counted.made == 2


def test_equal_scenarios_have_equal_digests_and_others_have_not() -> None:
    assert digest_of(small_scenario(1)) == digest_of(small_scenario(1)) != digest_of(small_scenario(2))
    assert key_of("a", 1) == key_of("a", 1) != key_of("a", 1.0)


def test_a_folder_that_cannot_keep_points_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: finished points cannot be kept in it"):
        list(run_tasks([KeyedTask("key", abs, (1,))], Executor(1, cache=ResultCache(tmp_path / "file"))))


def test_a_study_carries_out_the_points_that_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {
        "cluster": {"servers": [{"id": "e", "workers": {"gpu": 2}, "ps": {"cpu": 1}}]},
        "workload": {
            "jobs": [{"id": "a", "arrival_s": 0, "epochs": 1, "chunks": 2, "minibatches": 5, "minibatch_s": 1}]
        },
    }
    asked = [Simulation(name, policy, 0, data, {"policy": policy}) for name, policy in (("x", "srtf"), ("y", "fifo"))]
    plain = simulate.run_simulations(asked, ("jct_mean_s",), lambda *_: None, Executor(1))
    where = Executor(1, cache=ResultCache(tmp_path / "kept"))
    simulate.run_simulations(asked[:1], ("jct_mean_s",), lambda *_: None, where)
    monkeypatch.setattr(simulate, "run", counted := Counted())
    assert simulate.run_simulations(asked, ("jct_mean_s",), lambda *_: None, where) == plain
    assert counted.made == 1


def test_commands_keep_points(small: Path, tmp_path: Path, skedge: Skedge) -> None:
    """The second answer is that of the first, without a new run."""
    kept = ("--resume", tmp_path / "kept")
    words = (
        "compare",
        small,
        "--policies",
        "srtf,fifo",
        "--seeds",
        1,
        "--report",
        tmp_path / "r.html",
        "--json",
        *kept,
    )
    first = skedge(*words)
    assert first.code == 0
    points = sorted((tmp_path / "kept").iterdir())
    assert (skedge(*words).json, len(points)) == (first.json, 4), (
        "two runs, and their bound on each of two worker types"
    )
    found = skedge("optimum", small, "--time-limit", 2, "--json", *kept)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()}
    assert skedge("optimum", small, "--time-limit", 2, "--json", *kept).json == found.json
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()} == times
    assert len(times) == 5


@pytest.mark.parametrize(
    ("most", "left"), [(0, "nothing was written"), (3, "3 finished points are kept in {kept}")], ids=["none", "some"]
)
def test_an_interrupted_sweep_says_how_many_points_are_kept_and_the_next_how_many_it_found(
    most: int, left: str, small: Path, tmp_path: Path, skedge: Skedge, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    words = ("compare", small, "--policies", "srtf,fifo", "--seeds", 2, "--processes", 1, "--resume", kept)
    shown = ("--report", tmp_path / "r.html")
    with monkeypatch.context() as patched:
        patched.setattr(points_module, "run", Counted(most, KeyboardInterrupt()))
        told = skedge(*words, *shown)
    assert (told.code, told.err.splitlines()[-1]) == (130, f"skedge: interrupted; {left.format(kept=kept)}")
    told = skedge(*words, *shown)
    assert told.code == 0
    assert told.err.splitlines() == [f"{most} of 4 runs found in {kept}"]
    points = len(list(kept.iterdir()))
    monkeypatch.setattr("skedge.comparison.compare.compare", interrupted)
    assert skedge(*words, *shown).words.endswith(f"{points} finished points are kept in {kept}")
    monkeypatch.undo()
    assert skedge(*words, *shown, "--json").err == "", "only the result, and errors"


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_single_point_is_carried_out_in_this_process() -> None:
    assert list(run_tasks([KeyedTask("a", os.getpid, ())], Executor(2))) == [os.getpid()]
    assert os.getpid() not in list(run_tasks([KeyedTask(key, os.getpid, ()) for key in "ab"], Executor(2)))


def test_a_study_without_simulated_runs_has_no_points(skedge: Skedge, tmp_path: Path) -> None:
    told = skedge("reproduce", "pdors", "fig5", "--out", tmp_path / "f", "--resume", tmp_path / "kept")
    assert (told.code, "pdors fig5: makes no runs, which --resume is for" in told.words) == (1, True)
    told = skedge("reproduce", "jsac22", "accuracy", "--out", tmp_path / "f", "--ray", "127.0.0.1:1")
    assert (told.code, "makes no simulated runs, which --ray is for" in told.words) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_a_single_result_is_made_once_and_kept(tmp_path: Path) -> None:
    made = list[int]()
    for _ in range(2):
        assert ResultCache(tmp_path).get_or_compute("one", lambda: made.append(1) or {"a": 1}) == {"a": 1}
    assert made == [1]


def following(n: int) -> list[KeyedTask]:
    """Two points that follow from 1 and 2, and one from 10."""
    return [KeyedTask(f"{n}-{k}", int, (10 * n + k,)) for k in range({1: 2, 2: 2, 10: 1}.get(n, 0))]


@pytest.mark.parametrize("processes", [1, 2])
def test_points_that_follow_from_results_are_carried_out_and_kept(processes: int, tmp_path: Path) -> None:
    points, all_of_them = [KeyedTask(str(n), int, (n,)) for n in (1, 2)], [1, 2, 10, 11, 20, 21, 100]
    for where in (Executor(processes), *(Executor(processes, cache=ResultCache(tmp_path)) for _ in range(2))):
        assert sorted(run_tasks(points, where, next_tasks=following)) == all_of_them
    assert len(list(tmp_path.iterdir())) == len(all_of_them)
    for lost in (["1", "2-1"], ["10-0"], ["2", "10-0"]):
        for key in lost:
            (tmp_path / key).unlink()
        assert (
            sorted(run_tasks(points, Executor(processes, cache=ResultCache(tmp_path)), next_tasks=following))
            == all_of_them
        )
