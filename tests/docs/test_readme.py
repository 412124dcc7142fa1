"""The README shows what its commands really print."""

from __future__ import annotations

import re

import pytest
from rich.console import Console

from builders.paths import ROOT
from skedge.cli import tables
from skedge.cli.compare import DEMO_POLICIES
from skedge.cli.demo import DEMO
from skedge.comparison.compare import compare

README = ROOT / "README.md"


def block(name: str) -> list[str]:
    """Lines of a marked block of the README."""
    match = re.search(rf"<!-- {name} -->\n```\n(.*?)\n```\n<!-- /{name} -->", README.read_text(), re.DOTALL)
    assert match is not None
    return match[1].split("\n")


@pytest.mark.parametrize("policy", DEMO_POLICIES)
def test_the_demo_table_of_the_readme_is_what_demo_prints(policy: str, demo_lines: list[str]) -> None:
    """Each policy's line in the README is a line of the table of `skedge demo`."""
    (shown,) = [line for line in block("demo") if line.split()[0] == policy]
    assert shown in demo_lines


def test_what_the_demo_says_of_its_assumptions_stands_in_the_readme(demo_lines: list[str]) -> None:
    """What rigid and divisible jobs assume, who is equal, and that every rule is verified; lines may be broken."""
    said = [line for line in demo_lines if line.startswith(("rigid:", "divisible:"))]
    assert len(said) == 4
    shown = " ".join(block("demo"))
    assert all(line in shown for line in said)


@pytest.fixture(scope="module")
def demo_lines() -> list[str]:
    comparisons = {kind: compare(name, DEMO_POLICIES, 5) for kind, name in DEMO.items()}
    screen = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for table in tables.demo_tables(comparisons, screen.width):
        screen.print(table)
    screen.print(tables.demo_text(comparisons), soft_wrap=True)
    return [line.rstrip() for line in screen.export_text().split("\n")]
