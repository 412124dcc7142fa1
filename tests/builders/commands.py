"""All commands of the command line, as click has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from skedge.cli.main import commands

Command = tuple[tuple[str, ...], Any]
"""The words that call a command or a group, and the click command itself."""


def every_command() -> list[Command]:
    """All commands and groups; a group comes before its own commands."""
    return list(_below(typer.main.get_command(commands), ()))


def _below(group: Any, words: tuple[str, ...]) -> Iterator[Command]:
    # the command itself, whose module a lazy one imports now
    group = getattr(group, "command", group)
    yield words, group
    for name, command in getattr(group, "commands", {}).items():
        yield from _below(command, (*words, name))
