"""``skedge export``: a run in the formats of other tools."""

from __future__ import annotations

import os
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from skedge.core.errors import InputError
from skedge.export import batsim, chrome
from skedge.run import load_complete, new_folder, offers

from .console import out


class Format(StrEnum):
    """Formats to which a run can be exported."""

    batsim = "batsim"
    chrome = "chrome"


def export(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    form: Annotated[
        Format,
        typer.Option(
            "--format", help="batsim: a folder with jobs.csv, schedule.json; chrome: a JSON file for Perfetto."
        ),
    ],
    target: Annotated[Path, typer.Option("--out", help="The new folder or file.")],
) -> None:
    """Export a run for Evalys (Batsim's files), or for Perfetto (Chrome-trace JSON)."""
    run = load_complete(folder)
    if form is Format.batsim:
        if "typed slots" not in offers(run.scenario):
            raise InputError(f"{folder}: its servers have resources, but Batsim's files count worker slots")
        with new_folder(target) as inside:
            batsim.write(run.scenario, run.schedule, inside)
    else:
        if os.path.lexists(target):
            raise InputError(f"{target}: exists already; name a new file or remove it")
        aside = target.with_name(f".{target.name}.{os.getpid()}.partial")
        try:
            chrome.write(run.scenario, run.schedule, aside)
            aside.rename(target)
        except OSError as error:
            raise InputError(f"{target}: cannot be written: {error.strerror}") from error
        finally:
            with suppress(OSError):
                aside.unlink()
    out.print(f"written to {target}", soft_wrap=True)
