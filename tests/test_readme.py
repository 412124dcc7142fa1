"""The README shows what its commands really print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.console import Console

from skedge import cli, console

README = Path(__file__).parents[1] / "README.md"


def block(name: str) -> list[str]:
    """Lines of a marked block of the README."""
    match = re.search(rf"<!-- {name} -->\n```\n(.*?)\n```\n<!-- /{name} -->", README.read_text(), re.DOTALL)
    assert match is not None
    return match[1].split("\n")


@pytest.mark.parametrize("policy", cli.DEMO_POLICIES)
def test_the_demo_table_of_the_readme_is_what_demo_prints(policy: str, demo_lines: list[str]) -> None:
    """Each policy's line in the README is a line of the table of `skedge demo`."""
    (shown,) = [line for line in block("demo") if line.split()[0] == policy]
    assert shown in demo_lines


@pytest.fixture(scope="module")
def demo_lines() -> list[str]:
    comparison = cli.compare("demo", cli.DEMO_POLICIES, [None])
    screen = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    screen.print(console.comparison_table(comparison))
    return [line.rstrip() for line in screen.export_text().split("\n")]
