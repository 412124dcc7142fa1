"""What the documents on the papers name exists: every test of the errata, every function of papers.md."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.paths import ROOT

ERRATA = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
JSAC, SHE = ERRATA.split("\n# Errata of She et al.\n")
PDORS = (ROOT / "docs" / "errata-pdors.md").read_text(encoding="utf-8")
OKITA = (ROOT / "docs" / "errata-okita.md").read_text(encoding="utf-8")
PAPERS = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")

NAMED_TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", ERRATA + PDORS + OKITA)))
NAMED_CODE = sorted(set(re.findall(r"`([a-z_]+(?:\.[a-z_0-9]+)+):([\w.]+)`", PAPERS)))


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


@pytest.mark.parametrize(("letter", "part", "end"), [("E", JSAC, "## Not in the list"), ("B", SHE, "## Not in this")])
def test_every_erratum_names_a_test(letter: str, part: str, end: str) -> None:
    """Each section E1, E2, ... (B1, B2, ...) is numbered in order and has at least one."""
    sections = re.split(r"^### ", part.split(end, maxsplit=1)[0], flags=re.MULTILINE)[1:]
    assert len(sections) > 10
    assert [section.split(" ")[0] for section in sections] == [f"{letter}{n}" for n in range(1, len(sections) + 1)]
    assert all("::test_" in section for section in sections)


@pytest.mark.parametrize(
    ("letter", "part", "rest", "last"), [("J", JSAC, "## Not in the list", 29), ("H", SHE, "## Not in this list", 25)]
)
def test_every_entry_of_the_readers_list_is_accounted_for(letter: str, part: str, rest: str, last: int) -> None:
    """J1 to J29 (H1 to H25), each in a heading or among those that change nothing."""
    headings = " ".join(re.findall(r"^### .*$", part, flags=re.MULTILINE))
    said = headings + part.split(rest)[1].split("## What does hold", maxsplit=1)[0]
    assert set(numbers(letter, said)) == set(range(1, last + 1))


def numbers(letter: str, text: str) -> Iterator[int]:
    """All numbers of entries in `text`: J5, and of a range J5-J7 those between."""
    for first, last in re.findall(rf"\b{letter}(\d+)(?:-{letter}(\d+))?\b", text):
        yield from range(int(first), int(last or first) + 1)


def test_every_entry_on_pdors_is_accounted_for() -> None:
    """P1 to P29, each in the first column of the table or among those that change nothing."""
    table, rest = PDORS.split("## What does hold")[0].split("\nP27 ")
    firsts = " ".join(re.findall(r"^\| ([P\d, ]+) \|", table, flags=re.MULTILINE))
    assert sorted(int(n) for n in re.findall(r"P(\d+)", f"{firsts} P27 {rest}")) == list(range(1, 30))


def test_every_entry_on_okita_is_accounted_for() -> None:
    """O1 to O28, each in the first column of the table or among those that change nothing."""
    table, rest = OKITA.split("## What does hold")[0].split("\nO14 ")
    firsts = " ".join(re.findall(r"^\| (O\d+) \|", table, flags=re.MULTILINE))
    assert sorted(int(n) for n in re.findall(r"O(\d+)", f"{firsts} O14 {rest}")) == list(range(1, 29))


@pytest.mark.parametrize(
    ("letter", "errata"), [("J", ERRATA), ("H", ERRATA), ("P", PDORS), ("O", OKITA)], ids=["J", "H", "P", "O"]
)
def test_code_cites_only_entries_that_the_errata_have(letter: str, errata: str) -> None:
    """J and H numbers in the sources are in docs/errata.md, P in errata-pdors.md, O in errata-okita.md."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    cited = {n for text in texts for n in numbers(letter, text)}
    assert len(cited) > 10
    assert cited <= set(numbers(letter, errata))


def test_every_name_in_the_table_of_the_papers_links_to_its_file() -> None:
    linked = re.findall(r"\[`([a-z_.0-9]+):[\w.]+`\]\(\.\./src/skedge/([^)]*)\)", PAPERS)
    assert len(linked) == len(re.findall(r"`[a-z_]+(?:\.[a-z_0-9]+)+:[\w.]+`", PAPERS)) > 100
    assert [path for _, path in linked] == [module.replace(".", "/") + ".py" for module, _ in linked]
    assert all((ROOT / "src" / "skedge" / path).is_file() for _, path in linked)
