"""Where the project lies, and other people's traces beside it, which tests skip where they are absent."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT.parent / "shared" / "traces"

CASES = ROOT / "tests" / "data" / "cases"
"""Small scenarios, each of which was answered wrongly once."""
