"""Arguments and options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ScenarioArgument = Annotated[str, typer.Argument(help="A scenario file (YAML), or a shipped one: demo, s1 to s4.")]
RunArgument = Annotated[Path, typer.Argument(help="A run folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SeedOption = Annotated[int | None, typer.Option(help="Seed instead of the scenario's.", min=0)]
RayOption = Annotated[
    str | None, typer.Option("--ray", help="Carry out the work on the existing Ray cluster at HOST:PORT.")
]
ResumeOption = Annotated[
    Path | None, typer.Option("--resume", help="Folder that keeps finished points; those in it are not computed again.")
]
