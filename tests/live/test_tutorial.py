"""The live tutorial, as a notebook: it trains, a server is killed, and what it shows is printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from builders.paths import ROOT
from builders.tutorials import carried_out


@pytest.mark.thorough
def test_the_live_tutorial_does_what_it_says(tmp_path: Path) -> None:
    """Up, a job, a killed server, the whole record: every command succeeds and prints what the page shows."""
    try:
        assert carried_out(ROOT / "docs" / "tutorials" / "live.md", tmp_path) > 3
    finally:
        if (tmp_path / "skedge-state" / "supervisor.pid").exists():
            subprocess.run([sys.executable, "-m", "skedge", "down"], cwd=tmp_path, timeout=240, check=True)
