"""The pictures of the model are what skedge runs today."""

from __future__ import annotations

import re
import sys

import pytest

from builders.paths import ROOT

DOCS = ROOT / "docs"


def test_the_pictures_are_drawn_again_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python docs/tools/pictures.py` changes nothing."""
    monkeypatch.syspath_prepend(DOCS / "tools")
    from pictures import drawn

    kept = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "pictures").glob("*.svg")}
    assert drawn() == kept
    sys.modules.pop("pictures")


def test_the_page_shows_every_picture_and_names_only_rules_that_there_are() -> None:
    page = (DOCS / "model-in-pictures.md").read_text(encoding="utf-8")
    rules = set(re.findall(r"^\*\*(M\d+)\*\*", (DOCS / "model.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"\(pictures/([\w.]+)\)", page)) == {path.name for path in (DOCS / "pictures").glob("*.svg")}
    assert len(rules) == 41
    assert set(re.findall(r"\bM\d+\b", page)) <= rules


def test_every_picture_is_made_by_a_command_that_is_named() -> None:
    """`make pictures` makes it, or a benchmark whose command stands on the page; figures of studies have their own."""
    tool = (DOCS / "tools" / "screenshots.py").read_text(encoding="utf-8")
    for page in (ROOT / "README.md", *DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md")):
        text = page.read_text(encoding="utf-8")
        for picture in re.findall(r"!\[[^\]]*\]\((?!https?:)([^)]+)\)", text):
            path = (page.parent / picture).resolve()
            assert path.is_file(), f"{page.name}: {picture}"
            drawn = path.parent == DOCS / "pictures" or f'"{path.name}"' in tool
            options = f"--figure {path.relative_to(ROOT)}", f"--out {path.parent.relative_to(ROOT)}`"
            assert drawn or any(option in text for option in options), f"{page.name}: {picture}"


def test_the_worked_example_of_the_model_is_the_record_of_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The six rows in docs/model.md, in minutes."""
    monkeypatch.syspath_prepend(DOCS / "tools")
    from pictures import LANE, ran

    run = ran("lane", LANE, "aonline")
    rows = [
        f"| {run.scenario.jobs.ids[row['job']]} | {row['chunk']} | {row['start'] / 60e6:g} | {row['end'] / 60e6:g} "
        f"| {row['work']:g} | {'yes' if row['preempted'] else 'no'} |"
        for row in run.schedule.runs.sort("start").iter_rows(named=True)
    ]
    assert "\n".join(rows) in (DOCS / "model.md").read_text(encoding="utf-8")
    sys.modules.pop("pictures")
