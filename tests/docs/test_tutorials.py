"""The tutorials, as notebooks, do what they say and print what they show; the live one is in tests/live."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbclient.exceptions import CellExecutionError

from builders.paths import ROOT
from builders.thorough import thorough_except
from builders.tutorials import carried_out, maker, same

PAGES = ROOT / "docs" / "tutorials"
HERE = sorted(page.name for page in PAGES.glob("*.md") if page.name != "live.md")


@pytest.mark.parametrize("name", thorough_except(["a-policy.md", "first-run.md"], HERE))
def test_a_tutorial_prints_what_it_shows(name: str, tmp_path: Path) -> None:
    """Every command and every block of Python runs, in order, in one folder."""
    assert carried_out(PAGES / name, tmp_path) > 2


def test_what_is_shown_may_leave_parts_out_and_nothing_else() -> None:
    assert same("a  1\nb …\n", "a  1  \nb 2\n\n")
    assert same("first\n…\nlast", "first\nx\ny\nlast\n")
    assert not same("a 1\n", "a 2\n")
    assert not same("a 1\n", "a 1\nb\n")


def test_blocks_become_cells_with_what_they_print() -> None:
    page = 'See [here](there.md).\n\n```sh\nls\n```\n\n```text\na.yaml\n```\n\n```yaml title="a.yaml"\nx: 1\n```\nEnd\n'
    text, command, file, end = maker().notebook(page)["cells"]
    assert text["source"] == "See here."
    assert (command["source"], command["outputs"][0]["text"]) == ("%%sh\nls", "a.yaml\n")
    assert (file["source"], file["outputs"]) == ("%%writefile a.yaml\nx: 1", [])
    assert end["source"] == "End"


@pytest.mark.parametrize("page", ["```console\n$ ls\n```\n", "```text\nnever printed\n```\n", "```\nls\n```\n"])
def test_a_block_that_is_no_cell_is_an_error(page: str) -> None:
    """A language that is not known, none at all, or an output without a command."""
    with pytest.raises(ValueError, match="line 1"):
        maker().notebook(page)


def test_a_command_that_fails_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\nfalse\n```\n", encoding="utf-8")
    with pytest.raises(CellExecutionError):
        carried_out(page, tmp_path)


def test_an_output_that_differs_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\necho a\n```\n\n```text\nb\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="printed"):
        carried_out(page, tmp_path)


def test_the_tool_writes_a_notebook_for_every_page(tmp_path: Path) -> None:
    maker().write(tmp_path / "new")
    assert {path.stem for path in (tmp_path / "new").glob("*.ipynb")} == {path.stem for path in PAGES.glob("*.md")}
