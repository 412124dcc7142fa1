"""What the documents on the papers name exists: every test of the errata, every function of papers.md."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ERRATA = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
PDORS = (ROOT / "docs" / "errata-pdors.md").read_text(encoding="utf-8")
PAPERS = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")

NAMED_TESTS = sorted(set(re.findall(r"`(tests/\w+\.py)::(\w+)`", ERRATA + PDORS)))
NAMED_CODE = sorted(set(re.findall(r"`([a-z_]+(?:\.[a-z_]+)+):([\w.]+)`", PAPERS)))


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("file", "test"), NAMED_TESTS, ids=[test for _, test in NAMED_TESTS])
def test_every_test_that_the_errata_name_exists(file: str, test: str) -> None:
    """`file::test` is a test function of that file."""
    assert test.startswith("test_")
    assert test in functions(ROOT / file)


@pytest.mark.parametrize(("module", "name"), NAMED_CODE, ids=[f"{m}:{n}" for m, n in NAMED_CODE])
def test_every_name_in_the_table_of_the_papers_can_be_imported(module: str, name: str) -> None:
    """`module:name` below skedge."""
    found = importlib.import_module(f"skedge.{module}")
    for part in name.split("."):
        found = getattr(found, part)


def test_every_erratum_names_a_test() -> None:
    """Each section E1, E2, ... is numbered in order and has at least one."""
    sections = re.split(r"^### ", ERRATA.split("## Not in the list")[0], flags=re.MULTILINE)[1:]
    assert [section.split(" ")[0] for section in sections] == [f"E{n}" for n in range(1, len(sections) + 1)]
    assert all("::test_" in section for section in sections)


def test_every_entry_of_the_readers_list_is_accounted_for() -> None:
    """J1 to J29, each in a heading or among those that change nothing."""
    headings = " ".join(re.findall(r"^### .*$", ERRATA, flags=re.MULTILINE))
    rest = ERRATA.split("## Not in the list")[1].split("## What does hold")[0]
    assert {int(n) for n in re.findall(r"J(\d+)", headings + rest)} == set(range(1, 30))


def test_every_entry_on_pdors_is_accounted_for() -> None:
    """P1 to P29, each in the first column of the table or among those that change nothing."""
    table, rest = PDORS.split("## What does hold")[0].split("\nP27 ")
    firsts = " ".join(re.findall(r"^\| ([P\d, ]+) \|", table, flags=re.MULTILINE))
    assert sorted(int(n) for n in re.findall(r"P(\d+)", f"{firsts} P27 {rest}")) == list(range(1, 30))


@pytest.mark.parametrize(("letter", "errata"), [("J", ERRATA), ("P", PDORS)], ids=["J", "P"])
def test_code_cites_only_entries_that_the_errata_have(letter: str, errata: str) -> None:
    """Every J number in the sources is in docs/errata.md, every P number in docs/errata-pdors.md."""
    number = rf"\b{letter}(\d+)\b"
    cited = {n for path in (ROOT / "src").rglob("*.py") for n in re.findall(number, path.read_text(encoding="utf-8"))}
    assert cited
    assert cited <= set(re.findall(number, errata))
