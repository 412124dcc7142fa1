"""Arguments and options shared by several commands, and options that a command receives as one object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

ScenarioArgument = Annotated[
    str, typer.Argument(help="A scenario file (YAML), or a shipped one: demo, demo-divisible, s1 to s4.")
]
RunArgument = Annotated[Path, typer.Argument(help="A run folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
StateOption = Annotated[
    Path, typer.Option("--state", envvar="SKEDGE_STATE", help="Folder of the service's state: journal, chunks, logs.")
]
JobArgument = Annotated[str, typer.Argument(help="A job's name.")]
ServerArgument = Annotated[str, typer.Argument(help="A server's name.")]
SeedOption = Annotated[int | None, typer.Option(help="Seed instead of the scenario's.", min=0)]
RayOption = Annotated[
    str | None, typer.Option("--ray", help="Carry out the work on the existing Ray cluster at HOST:PORT, or auto.")
]
ResumeOption = Annotated[
    Path | None, typer.Option("--resume", help="Folder that keeps finished points; those in it are not computed again.")
]
STATE = Path("skedge-state")
"""Default of :data:`StateOption`."""


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one option per field in place of each parameter that is a dataclass."""
    # annotations are strings, which typer would look up in the wrong module
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    @wraps(command)
    def ungrouped(**values: Any) -> None:
        for name, group in groups.items():
            # a field that is missing keeps the default of its class
            values[name] = group(**{f.name: values.pop(f.name) for f in fields(group) if f.name in values})
        command(**values)

    options = [
        option
        for parameter in signature(command).parameters.values()
        for option in _options_of(parameter, hints[parameter.name])
    ]
    # typer reads the options from these two
    ungrouped.__signature__ = signature(command).replace(parameters=options)  # type: ignore[attr-defined]
    ungrouped.__annotations__ = {option.name: option.annotation for option in options}
    return ungrouped


def _options_of(parameter: Parameter, hint: Any) -> Iterator[Parameter]:
    """The parameters that typer sees in place of `parameter`."""
    if not is_dataclass(hint):
        yield parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hint)
        return
    hints = get_type_hints(hint, include_extras=True)
    for f in fields(hint):
        default = Parameter.empty if f.default is MISSING else f.default
        yield Parameter(f.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[f.name])
