"""The live tutorial: it trains, a server is killed, and what it shows is printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from builders.tutorials import Tutorial

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "live.md"


def test_the_live_tutorial_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up, a job, a killed server, the whole record: every command succeeds and prints what the page shows."""
    program = tmp_path / "bin" / "skedge"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m skedge "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "100")

    def skedge(words: list[str]) -> str:
        done = subprocess.run([program, *words], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, f"skedge {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    try:
        assert Tutorial(PAGE, tmp_path, skedge).run() > 3
    finally:
        if (tmp_path / "skedge-state" / "supervisor.pid").exists():
            skedge(["down"])
