"""``skedge profile --round``: what its options take, and what it shows of a measurement."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skedge.cli import profile_round
from skedge.cli.profile_round import sizes_of, workers_of
from skedge.live.cluster.round_profile import RoundProfile
from skedge.live.coordinator.timed_trainer import STAGES

Skedge = Callable[..., Any]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--round", "--parameters", "0.1X"), "--parameters: '0.1X'; write numbers from 1k to 200M, as 0.1M,1M,20M"),
        (("--round", "--parameters", "1M,,2M"), "--parameters: ''"),
        (("--round", "--parameters", "10"), "--parameters: '10'"),
        (("--round", "--parameters", "1000M"), "--parameters: '1000M'"),
        (("--round", "--workers", "0"), "--workers: '0'; write numbers from 1 to 64, as 1,2,4"),
        (("--round", "--workers", "1,two"), "--workers: 'two'"),
        (("--round", "--workers", "²"), "--workers: '²'"),
        (("--round", "--rounds", "0"), "--rounds"),
        (("--round", "--ray", "127.0.0.1:1"), "--ray does not work with --round"),
        (("--round", "--load", "2"), "--load does not work with --round"),
        (("--round", "--minibatches", "2"), "--minibatches does not work with --round"),
        (("live-demo", "--round", "--parameters", "1M"), "--parameters does not work with a scenario"),
        (("live-demo", "--workers", "2"), "--workers works only with --round"),
        (("live-demo", "--rounds", "2"), "--rounds works only with --round"),
        ((), "name a scenario whose jobs are measured, or measure a round by stage: --round"),
        (("no-such-scenario", "--round"), "no-such-scenario"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_measured(
    words: tuple[str, ...], message: str, skedge: Skedge
) -> None:
    told = skedge("profile", *words)
    assert told.code != 0
    assert message in " ".join(told.words.split())


def test_a_folder_that_cannot_be_made_is_refused(skedge: Skedge, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = skedge("profile", "--round", "--out", tmp_path / "file" / "new")
    assert told.code != 0
    assert "cannot be written" in told.words


def test_sizes_are_numbers_with_k_or_m() -> None:
    assert sizes_of("0.1M, 20k,1500") == {"0.1M": 100_000, "20k": 20_000, "1500": 1_500}
    assert workers_of("1, 64") == [1, 64]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[RoundProfile]:
    """Two measurements of one model, which stand in for those of an engine."""
    stages = dict.fromkeys(STAGES, 0.001)
    profiles = [
        RoundProfile("1M", 1_000_001, 1, False, 32, 50, stages, 0.012, 0.004, None),
        RoundProfile("1M", 1_000_001, 2, False, 64, 50, stages | {"barrier": 0.005}, 0.016, 0.008, 0.002),
    ]
    monkeypatch.setattr("skedge.live.cluster.round_profile.profile_rounds", lambda *_: profiles)
    return profiles


def test_the_table_has_a_row_for_each_stage_and_the_ratios(skedge: Skedge, measured: list[RoundProfile]) -> None:
    del measured
    out = skedge("profile", "--round", "--parameters", "1M", "--workers", "1,2").out
    rows = {line.rsplit(maxsplit=2)[0].strip(): line.split()[-2:] for line in out.splitlines() if line.strip()}
    assert set(STAGES) <= set(rows)
    assert rows["barrier"] == ["1.0", "5.0"]
    assert rows["sum"] == ["12.0", "16.0"]
    assert rows["round in DDP over gloo"] == ["–", "2.0"]
    assert "3.0 x" in out
    assert "8.0 x" in out


def test_json_and_the_folder_have_all_numbers(skedge: Skedge, measured: list[RoundProfile], tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    told = skedge("profile", "--round", "--out", tmp_path / "new", "--json").json
    assert [row["workers"] for row in told["rounds"]] == [1, 2]
    assert told["rounds"][1]["over_ddp"] == pytest.approx(8.0)
    assert told["rounds"][0]["sum_s"] == pytest.approx(measured[0].round_s)
    assert json.loads((tmp_path / "new" / "round.json").read_text(encoding="utf-8")) == told["rounds"]
    svg = (tmp_path / "new" / "round.svg").read_text(encoding="utf-8")
    assert all(f">{name}</text>" in svg for name in (*STAGES, *profile_round._BASELINES, "1M parameters"))
