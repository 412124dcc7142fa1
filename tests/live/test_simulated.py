"""The live part in deterministic simulation: invariants hold with faults, and planted bugs break them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from builders.paths import ROOT
from simulated.__main__ import main, shrunk
from simulated.campaign import Outcome, run_plan
from simulated.faults import Fault
from simulated.head import PLAIN
from simulated.plans import plan_of
from simulated.planted import PLANTED, Planted
from skedge.live.coordinator.report import Report
from skedge.live.world.training_facts import AWAY, BACK, TrainingFacts

SEEDS, BLOCK = 200, 5
"""Seeds with which the invariants must hold, and how many a test runs."""

MOST = 2000
"""Seeds within which a planted bug must be found."""

KEPT = (211, 258, 315, 320, 384, 448, 526, 561, 620, 747, 1258, 1475, 1531, 1684, 3109, 3647, 4231, 5220, 5606, 5995)
"""Seeds from 200 on that have found bugs, of the product, its verifier or the simulation."""

SAME = (3, 11, 19)
"""Seeds that are run in other processes as well."""


def digest_of(outcome: Outcome) -> str:
    return f"{outcome.plan.seed} {outcome.broken} {outcome.history.digest}"


def test_a_seed_makes_the_same_history_in_other_processes() -> None:
    """Also where sets have another order."""
    code = f"""
from simulated.__main__ import main, shrunk
from simulated.campaign import run_plan
from simulated.plans import plan_of
for seed in {SAME}:
    outcome = run_plan(plan_of(seed))
    print(seed, outcome.broken, outcome.history.digest)
"""
    path = os.pathsep.join([str(ROOT / "tests"), *filter(None, sys.path)])
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert texts == {"".join(digest_of(run_plan(plan_of(seed))) + "\n" for seed in SAME)}


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_the_invariants_hold(first: int) -> None:
    """The command ``python -m simulated SEED`` tells more of a seed that fails here."""
    outcomes = [run_plan(plan_of(seed)) for seed in range(first, first + BLOCK)]
    assert [(one.plan.seed, one.what) for one in outcomes if one.broken] == []
    assert all(one.ended or not one.plan.jobs for one in outcomes), "the jobs of each seed have left"


@pytest.mark.parametrize("seed", KEPT)
def test_the_invariants_hold_with_seeds_that_have_found_bugs(seed: int) -> None:
    assert run_plan(plan_of(seed)).what == ""


@pytest.mark.parametrize("planted", [pytest.param(planted, id=name) for name, planted in PLANTED.items()])
def test_a_planted_bug_is_found(planted: Planted) -> None:
    assert planted.found_with(MOST) is not None


def test_a_job_waits_for_a_storage_that_is_away_and_its_status_says_so() -> None:
    """Its checkpoints can neither be written nor read for a minute, from a time on at which it trains."""
    plan = plan_of(3, "lanes")
    job = plan.jobs[0] | {"chunks": 2, "epochs": 3, "minibatches": 5}
    job["train"] = {"factory": "m:f", "args": {"job": job["name"]}}
    away = Fault("storage broken", "controller", 12.0, None, 60.0)
    plan = replace(plan, policy="fifo", jobs=(job,), faults=(away,), cancelled=frozenset(), cordons=0, head=PLAIN)
    states = set[bool]()
    shipped = TrainingFacts.note

    def note(facts: TrainingFacts, report: Report) -> None:
        shipped(facts, report)
        if report.what in (AWAY, BACK):
            states.add(report.job in facts.without_storage)

    for seed in range(3):
        outcome = run_plan(replace(plan, seed=seed), [lambda: mock.patch.object(TrainingFacts, "note", note)])
        assert (outcome.what, set(outcome.ended.values())) == ("", {"finished"})
    assert states == {True, False}


def test_a_plan_that_fails_is_shrunk_to_what_fails() -> None:
    """What was not flushed is lost with the power: it takes a fault."""
    planted = PLANTED["commits of the journal are not flushed"]
    seed = planted.found_with(MOST)
    assert seed is not None
    plan = planted.plan(seed)
    small = shrunk(plan, [planted.plant])
    assert planted.finds(small)
    assert 1 <= len(small.faults) < len(plan.faults)
    assert len(small.jobs) <= len(plan.jobs)


def test_a_seed_is_run_with_the_source_code_of_a_commit(capfd: pytest.CaptureFixture[str]) -> None:
    if subprocess.run(["git", "rev-parse"], cwd=ROOT, capture_output=True, check=False).returncode:  # noqa: S607
        pytest.skip("this is no checkout")
    assert main(["3", "--at", "HEAD"]) == 0
    assert capfd.readouterr().out.endswith("all invariants hold\n")
    assert main(["3", "--at", "no-such-commit"]) == 2
    assert "no-such-commit" in capfd.readouterr().err


def test_the_command_says_what_holds_and_notes_the_seeds_that_were_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chrome, progress = tmp_path / "trace.json", tmp_path / "progress"
    assert main(["3", "--without", "0,1", "--chrome", str(chrome)]) == 0
    assert capsys.readouterr().out.endswith("all invariants hold\n")
    events = json.loads(chrome.read_text(encoding="utf-8"))
    rows = {(event["pid"], event["tid"]) for event in events}
    begun, ended = ({event["id"]: event for event in events if event["ph"] == phase} for phase in ("s", "f"))
    assert len(ended) > 100
    assert all(begun[number]["ts"] <= end["ts"] for number, end in ended.items()), "no message comes before it is sent"
    assert {(begun[number]["pid"], end["pid"]) for number, end in ended.items()} >= {
        ("controller", "coordinator"), ("coordinator", "controller"), ("coordinator", "ps/e0/0")
    }  # fmt: skip
    assert {("controller", "main"), ("coordinator", "news"), ("ps/e0/0", "load")} <= rows
    assert main(["3:4", "--progress", str(progress)]) == 0
    assert "1 of 1 seeds" in capsys.readouterr().out
    assert main(["3:4", "--progress", str(progress)]) == 0
    assert capsys.readouterr().out == "1 seeds, 0 broken: []\n", "it is not run again"
    assert json.loads(progress.read_text(encoding="utf-8")) == [3, ""]
