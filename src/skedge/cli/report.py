"""``skedge report``: the report of recorded runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skedge.core.errors import InputError
from skedge.recorded_run import Run, load_complete, side_by_side
from skedge.recorded_run import report_of_runs as page_of
from skedge.report.pictures import HINT, can_draw
from skedge.report.plots import Plots
from skedge.runs.new_folder import new_folder

from .compare import check_report, write_page
from .console import out


def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders; several are compared.")],
    target: Annotated[Path, typer.Option("--out", help="Report file, replacing an earlier one.")] = Path("report.html"),
    pictures: Annotated[
        Path | None, typer.Option(help="New folder for lanes, jct and utilisation as SVG, PNG and PDF.")
    ] = None,
) -> None:
    """Draw recorded runs: one HTML page with metrics, lanes and charts, and the charts as pictures."""
    check_report(target, "--out")
    # before the runs are read, which may take long
    if pictures is not None and not can_draw():
        raise InputError(f"--pictures: {HINT.replace('PNG and PDF', 'pictures of runs')}")
    runs = [load_complete(folder) for folder in folders]
    title = f"skedge: {' and '.join(dict.fromkeys(run.scenario.name for run in runs))}"
    write_page(target, target, page_of(runs, title, f"skedge report {' '.join(map(str, folders))}"))
    out.print(f"report: {target}", soft_wrap=True)
    if pictures is not None:
        _draw(runs, pictures)


def _draw(runs: list[Run], folder: Path) -> None:
    """Write the charts of `runs` into a new folder."""
    with new_folder(folder) as temp_folder:
        for name, plot in Plots(side_by_side(runs)).charts().items():
            plot.save(temp_folder / name)
    out.print(f"pictures: {folder}", soft_wrap=True)
