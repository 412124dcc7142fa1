"""The tutorials do what they say and print what they show; the live one is in tests/live."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from joblib.externals.loky import get_reusable_executor

from builders.paths import ROOT
from builders.tutorials import Block, Tutorial, blocks, same
from skedge.cli import console

PAGES = ROOT / "docs" / "tutorials"
HERE = sorted(page.name for page in PAGES.glob("*.md") if page.name != "live.md")


@pytest.mark.parametrize("name", HERE)
def test_a_tutorial_prints_what_it_shows(
    name: str, skedge: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command and every block of Python runs, in order, in one folder."""

    def command(words: list[str]) -> str:
        said = skedge(*words)
        assert said.code == 0, f"skedge {' '.join(words)}: {said.err}"
        return str(said.out)

    monkeypatch.chdir(tmp_path)
    get_reusable_executor().shutdown()  # processes of an earlier test have its folder as theirs
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(console.out, "width", 100)
    assert Tutorial(PAGES / name, tmp_path, command).run() > 2


def test_what_is_shown_may_leave_parts_out_and_nothing_else() -> None:
    assert same("a  1\nb …\n", "a  1  \nb 2\n\n")
    assert same("first\n…\nlast", "first\nx\ny\nlast\n")
    assert not same("a 1\n", "a 2\n")
    assert not same("a 1\n", "a 1\nb\n")


def test_blocks_are_found_with_their_lines_and_titles() -> None:
    page = 'Text\n\n```sh\nskedge policies\n```\n\n```yaml title="a.yaml"\nx: 1\n```\n'
    assert list(blocks(page)) == [Block(3, "sh", None, "skedge policies\n"), Block(7, "yaml", "a.yaml", "x: 1\n")]


@pytest.mark.parametrize("page", ["```console\n$ ls\n```\n", "```text\nnever printed\n```\n", "```sh\nfalse\n```\n"])
def test_a_block_that_cannot_be_carried_out_is_an_error(page: str, tmp_path: Path) -> None:
    """A language that is not known, an output without a command, a command that fails."""
    (tmp_path / "page.md").write_text(page, encoding="utf-8")
    with pytest.raises(AssertionError):
        Tutorial(tmp_path / "page.md", tmp_path, " ".join).run()
