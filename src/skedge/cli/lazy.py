"""Commands whose modules are imported when they are called, and groups of commands."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from skedge.platform.signals import deferred_signals


class LazyCommand(TyperCommand):
    """A command, or a group of commands, whose module is imported when it is called; before that it has only a help."""

    def __init__(self, name: str, target: str, about: str) -> None:
        super().__init__(name, help=about, rich_markup_mode=None)
        self.target = target

    @cached_property
    def command(self) -> Any:
        """The command itself."""
        module, _, attribute = self.target.partition(":")
        # some modules catch all exceptions while they are imported, and would swallow an interrupt
        with deferred_signals():
            entry = getattr(import_module(f"skedge.cli.{module}"), attribute)
        if isinstance(entry, typer.Typer):
            return typer.main.get_command(entry)
        # with a single command, typer makes that command of it, not a group
        wrapper = typer.Typer(add_completion=False, rich_markup_mode=None)
        wrapper.command(self.name)(entry)
        return typer.main.get_command(wrapper)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Make the context of the real command: both parsing and invoking a command start here."""
        return self.command.make_context(*args, **kwargs)


def command_group(about: str, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """A group of commands, which shows its help if none is named."""
    group = typer.Typer(cls=cls, help=about, no_args_is_help=True, rich_markup_mode=None, add_completion=False)

    # with a callback, a group of a single command stays a group
    @group.callback()
    def begin() -> None: ...

    return group
