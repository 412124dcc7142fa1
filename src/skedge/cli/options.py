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
    str | None, typer.Option("--ray", help="Address of an existing Ray cluster that does the work instead.")
]
ResumeOption = Annotated[
    Path | None, typer.Option("--resume", help="Folder of finished points: kept there, and not made again.")
]
