"""The glossary names classes that exist, and all public ones of the core, the simulator and the policy interface."""

from __future__ import annotations

import ast
import re

import pytest

from builders.paths import ROOT
from skedge.core.record.schedule import Schedule

PAGE = (ROOT / "docs" / "glossary.md").read_text("utf-8")
SOURCES = ROOT / "src" / "skedge"
COMPLETE = ("core", "sim")
"""Packages whose public classes are all on the page."""

LOWER = {*Schedule.names(), "train", "tests/docs/test_glossary.py"}
"""Names in code style that are no classes: tables of the record, a field of a job spec, this file."""


def classes() -> dict[str, tuple[str, ast.ClassDef]]:
    """The public classes of the package by name, each with its top folder."""
    return {
        node.name: (path.relative_to(SOURCES).parts[0], node)
        for path in SOURCES.rglob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }


def members(node: ast.ClassDef) -> set[str]:
    """Fields, methods and attributes of a class, without those that it inherits."""
    names = {child.name for child in node.body if isinstance(child, ast.FunctionDef)}
    for child in ast.walk(node):
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            names.add(child.target.id)
        if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
            names.add(child.attr)
    return names


CLASSES = classes()
NAMES = sorted(set(re.findall(r"`([^`]+)`", PAGE)) - LOWER)


@pytest.mark.parametrize("name", NAMES)
def test_each_name_in_code_style_is_there(name: str) -> None:
    owner, _, member = name.partition(".")
    assert owner in CLASSES
    assert not member or member in members(CLASSES[owner][1])


def test_no_public_class_of_core_and_sim_is_missing() -> None:
    public = {name for name, (folder, _) in CLASSES.items() if folder in COMPLETE}
    assert len(public) > 80
    assert public - set(NAMES) == set()


def test_a_term_is_explained_once() -> None:
    terms = [
        term
        for row in re.findall(r"^\| (\*\*.*?) \|", PAGE, re.MULTILINE)
        for term in re.findall(r"\*\*(.+?)\*\*", row)
    ]
    assert len(terms) == len(set(terms)) > 50


def test_a_planted_name_is_refused() -> None:
    with pytest.raises(AssertionError):
        test_each_name_in_code_style_is_there("Job.colour")
    with pytest.raises(AssertionError):
        test_each_name_in_code_style_is_there("Jobb")
