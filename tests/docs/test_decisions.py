"""Decisions are numbered, and what cites them by number cites one that there is."""

from __future__ import annotations

import re

from builders.paths import ROOT

HEADING = re.compile(r"^## ADR (\d+) \(\d{4}-\d{2}\): \S.*$", re.MULTILINE)
CITED = re.compile(r"\bADR (\d+)\b")
NUMBERS = [int(number) for number in HEADING.findall((ROOT / "docs" / "decisions.md").read_text("utf-8"))]


def test_decisions_are_numbered_from_the_oldest_without_a_gap() -> None:
    headings = re.findall(r"^## .*$", (ROOT / "docs" / "decisions.md").read_text("utf-8"), re.MULTILINE)
    assert list(range(1, len(headings) + 1)) == NUMBERS


def test_every_decision_that_is_cited_is_there() -> None:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
    cited = {(str(path.relative_to(ROOT)), int(n)) for path in files for n in CITED.findall(path.read_text("utf-8"))}
    assert {path for path, _ in cited} >= {"src/skedge/scenario/resampled.py", "docs/service.md"}
    assert [(path, n) for path, n in sorted(cited) if n not in NUMBERS] == []
