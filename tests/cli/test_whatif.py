"""``skedge whatif`` in words: jobs that never complete are named and counted, and enter no sum."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.paths import CASES
from skedge.cli.whatif import drain, policy
from skedge.simulate import run


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines printed below the table."""
    lines = capsys.readouterr().out.splitlines()
    return lines[max(i for i, line in enumerate(lines) if line.startswith("└")) + 1 :]


def recorded(case: str, at: Path) -> Path:
    """The record of a case under FIFO."""
    run(CASES / f"{case}.yaml", "fifo").save(at / "run")
    return at / "run"


def test_what_never_completes_is_named_and_not_summed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drain("n0", folder=recorded("drain-strands-gang", tmp_path), at_s=50.0)
    assert said(capsys) == [
        "and 11 jobs more, which change no more than the last; --json shows all",
        "would never complete: 31 (gang, s00, s01, s02, s03, …)",
        "no job completes both with the change and without it, so there is no sum",
    ]


def test_an_only_server_that_is_out_is_said_to_be_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At 100 s it has failed; a forecast has it out of service to the end, and draining it changes nothing."""
    folder = recorded("drain-only-server", tmp_path)
    drain("n0", folder=folder, at_s=50.0)
    assert said(capsys)[0] == "would never complete: 1 (a)"
    policy("srtf", folder=folder, at_s=100.0)
    assert said(capsys)[:2] == [
        "never complete, with the change or without it: 1 (a)",
        "out of service now, and in both forecasts: n0",
    ]
