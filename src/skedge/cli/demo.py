"""``skedge demo``: what a newcomer runs first; the process beside this one starts before anything large is imported."""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import Annotated

import typer

from skedge.comparison import MOST_SEEDS
from skedge.core.errors import RunFolderError
from skedge.runs.parallel import started_ahead

from .demo_cases import DEMO, DEMO_POLICIES


def demo(
    folder: Annotated[Path, typer.Option("--out", help="Folder for the runs and reports.")] = Path("skedge-demo"),
    seed: Annotated[int | None, typer.Option(help="First seed instead of the scenario's.", min=0)] = None,
    seeds: Annotated[
        int, typer.Option(help="Number of seeds; runs and pictures are of the first.", min=1, max=MOST_SEEDS)
    ] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run Philly-like traces, their jobs rigid and divisible, under six policies: a table and reports, in a minute."""
    if os.path.lexists(folder) and not _is_demo(folder):
        raise RunFolderError(f"{folder}: exists and is not an earlier demo; name another folder with --out")
    with started_ahead("skedge.cli.demo_runs", len(DEMO_POLICIES) * len(DEMO) * seeds, -1, joining=True):
        from .demo_runs import carry_out_demo  # noqa: PLC0415 - takes a second to import, here and there side by side

        carry_out_demo(folder, seed, seeds, as_json=as_json)


def _is_demo(folder: Path) -> bool:
    """Whether `folder` contains only the output of a demo, so that it may be replaced."""
    parts = [folder / kind for kind in DEMO] if (folder / "rigid").is_dir() else [folder]
    if len(parts) > 1 and {entry.name for entry in folder.iterdir()} != set(DEMO):
        return False
    return all(_is_part(part) for part in parts)


def _is_part(folder: Path) -> bool:
    if not (folder / "report.html").is_file():
        return False
    return all(entry.name == "report.html" or (entry / "run.json").is_file() for entry in folder.iterdir())
