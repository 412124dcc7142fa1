"""The stages of a round: they add up, and a real round on Ray has them all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skedge.core.errors import TrainingError
from skedge.live.cluster.round_profile import RoundProfile, by_stage, profile_rounds
from skedge.live.coordinator.timed_trainer import STAGES, RoundSpans, TimedRound, stage_times, window_stage_times
from skedge.live.worker.answer_schemas import checked
from skedge.live.worker.program import Program

WORKERS: list[dict[str, Any]] = [
    {"call_s": 7.0, "receive_s": 0.5, "stage_s": {"deserialize": 1.0, "compute": 3.0, "serialize": 1.5}},
    {"call_s": 6.0, "receive_s": 0.25, "stage_s": {"deserialize": 1.0, "compute": 2.0, "serialize": 1.75}},
]
"""The second worker is the first to end, one second before the other."""

UPDATE = {"call_s": 4.0, "receive_s": 0.5, "stage_s": {"deserialize": 1.0, "update": 1.5, "serialize": 0.25}}
SPANS = RoundSpans(gradients=8.0, update=5.0, checkpoint=2.0, journal=0.5, whole=17.0)


def test_a_round_is_divided_as_its_processes_and_its_trainer_have_measured() -> None:
    """By hand: 17 s, of which the trainer's own work is what is left of all others."""
    assert stage_times(SPANS, WORKERS, UPDATE) == {
        "request": 17.0 - 8.0 - 5.0 - 2.0 - 0.5,
        "broadcast": 0.5 + (8.0 - 7.0) + (6.0 - 0.25 - 4.75),
        "deserialize": 1.0,
        "compute": 2.0,
        "gradient copy": 1.75,
        "barrier": 1.0,
        "send": 0.25 + (5.0 - 4.0) + (4.0 - 0.5 - 2.75),
        "PS deserialize": 1.0,
        "update": 1.5,
        "PS serialize": 0.25,
        "checkpoint": 2.0,
        "journal": 0.5,
    }


@pytest.mark.parametrize("workers", [WORKERS, WORKERS[:1], [*WORKERS, {**WORKERS[0], "call_s": 7.5}]])
def test_the_stages_of_a_round_add_up_to_it(workers: list[dict[str, Any]]) -> None:
    stages = stage_times(SPANS, workers, UPDATE)
    assert tuple(stages) == STAGES
    assert sum(stages.values()) == pytest.approx(SPANS.whole)
    assert min(stages.values()) >= 0


def timed(whole: float, checkpoint: float = 0.0) -> TimedRound:
    """A round of which half is computation, and a quarter communication each way."""
    stages = dict.fromkeys(STAGES, 0.0) | {"compute": whole / 2, "broadcast": whole / 4, "send": whole / 4}
    return TimedRound(whole + checkpoint, stages | {"checkpoint": checkpoint}, 64)


def test_the_table_adds_up_and_a_slow_round_does_not_count() -> None:
    """The middle half of 1, 2, 3, 4 and 100 s is 2, 3 and 4 s; one checkpoint of 5 s is 1 s a round."""
    rounds = [timed(3), timed(100), timed(1), timed(4, checkpoint=5.0), timed(2)]
    stage_s, round_s = by_stage(rounds)
    profile = RoundProfile("m", 10, 2, False, 64, 5, stage_s, round_s, plain_s=0.5, ddp_s=None)
    assert (stage_s["compute"], stage_s["send"], stage_s["checkpoint"]) == (1.5, 0.75, 1.0)
    assert profile.sum_s == profile.round_s == 4.0
    assert (profile.samples_per_s, profile.over_plain, profile.over_ddp) == (16.0, 8.0, None)


def test_a_single_round_is_its_own_median() -> None:
    assert by_stage([timed(8)])[1] == sum(by_stage([timed(8)])[0].values()) == 8.0


def test_the_stages_of_a_window_add_up_to_its_rounds() -> None:
    """Three rounds in 9 s, of which the process has measured 6 s; a checkpoint of 1.5 s, reports of 0.3 s."""
    own = {"deserialize": 0.3, "compute": 4.5, "gradient copy": 0.0, "update": 1.2, "pace": 0.6}
    stage_s = window_stage_times({"rounds": 3, "stage_s": own}, [], (9.0, 1.5, 0.3))
    assert set(stage_s) == set(STAGES)
    assert sum(stage_s.values()) == pytest.approx(3.0)
    assert (stage_s["compute"], stage_s["checkpoint"], stage_s["send"]) == pytest.approx((1.5, 0.5, 0.0))
    assert stage_s["request"] == pytest.approx((9.0 - 6.0 - 1.8) / 3)


def test_what_the_first_worker_does_is_part_of_what_the_parameter_server_waits_for() -> None:
    """Of the 8 s that it waits, workers compute 4 and 6 s, so that 2 s are the way there and back."""
    own = {"broadcast": 1.0, "barrier": 8.0, "update": 1.0}
    workers = [{"stage_s": {"compute": seconds}} for seconds in (6.0, 4.0)]
    stage_s = window_stage_times({"rounds": 2, "stage_s": own}, workers, (12.0, 0.0, 0.0))
    assert sum(stage_s.values()) == pytest.approx(6.0)
    assert (stage_s["compute"], stage_s["barrier"], stage_s["send"]) == (2.0, 1.0, 1.0)


@pytest.mark.parametrize("stage_s", [{}, {"deserialize": 0.1, "compute": 0.1}, WORKERS[0]["stage_s"] | {"compute": -1}])
def test_the_process_of_a_job_cannot_answer_with_other_stages(stage_s: dict[str, float]) -> None:
    """Its code could send what it likes in place of an answer."""
    facts = {"chunk": 0, "step": 0, "loss": 1.0, "samples": 1, "module": "m", "device": "cpu"}
    assert checked("gradient", facts | {"stage_s": WORKERS[0]["stage_s"]})["stage_s"] == WORKERS[0]["stage_s"]
    with pytest.raises(ValueError, match=r"answers 'gradient' with a wrong stage_s\."):
        checked("gradient", facts | {"stage_s": stage_s})


def test_a_program_that_cannot_be_trained_is_named(tmp_path: Path) -> None:
    """In plain PyTorch already, before an engine is started."""
    program = Program("no.such.module:f", {}, 1, 1, 8)
    with pytest.raises(TrainingError, match=r"'broken' in plain PyTorch, processes: 1: .*No module named 'no'"):
        profile_rounds({"broken": program}, [1], 5, tmp_path, print)


def test_a_real_round_is_measured_by_stage() -> None:
    """Through Ray, by the trainer of jobs: every stage of computing and of communication took time."""
    command = ["profile", "--round", "--parameters", "0.1M", "--workers", "1", "--rounds", "5", "--json"]
    # a process of its own: another test's cluster may be connected to this one
    done = subprocess.run([sys.executable, "-m", "skedge", *command], capture_output=True, text=True, check=True)
    colocated, apart = json.loads(done.stdout)["rounds"]
    for row in (colocated, apart):
        assert (row["workers"], row["samples"]) == (1, 32)
        assert row["rounds"] >= 5, "rounds of a window count together"
        assert row["parameters"] == pytest.approx(100_000, rel=0.01)
        assert min(row["stage_s"].values()) >= 0
        assert row["stage_s"]["barrier"] == 0, "one worker waits for no other"
        assert row["plain_s"] > 0
        assert row["ddp_s"] is None
    assert (colocated["colocated"], apart["colocated"]) == (True, False)
    assert set(STAGES) - took(apart) <= {"barrier", "send", "checkpoint", "journal"}
    assert took(colocated) - {"checkpoint", "journal"} == {
        "request", "deserialize", "compute", "gradient copy", "update",
    }  # fmt: skip


def took(row: dict[str, Any]) -> set[str]:
    """The stages that have taken time."""
    return {stage for stage, seconds in row["stage_s"].items() if seconds > 0}
