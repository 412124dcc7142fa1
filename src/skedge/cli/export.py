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
from skedge.prepare import offers
from skedge.recorded_run import load_complete
from skedge.runs.new_folder import new_folder

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
        # before the folder is begun
        if "typed slots" not in offers(run.scenario):
            raise InputError(f"{folder}: its servers have resources, but Batsim's files count worker slots")
        with new_folder(target) as temp_folder:
            batsim.write(run.scenario, run.schedule, temp_folder)
    else:
        if os.path.lexists(target):
            raise InputError(f"{target}: exists already; name a new file or remove it")
        # hidden and beside the target, renamed when it is complete
        temp_file = target.with_name(f".{target.name}.{os.getpid()}.partial")
        try:
            chrome.write(run.scenario, run.schedule, temp_file)
            temp_file.rename(target)
        except OSError as error:
            raise InputError(f"{target}: cannot be written: {error.strerror}") from error
        finally:
            with suppress(OSError):
                temp_file.unlink()
    out.print(f"written to {target}", soft_wrap=True)
