"""``skedge demo``: what a newcomer runs first.

The other processes start before anything large is imported here: that takes as long there, at the same time.
"""

from __future__ import annotations

import os.path
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skedge.comparison import MOST_SEEDS
from skedge.core.errors import RunFolderError
from skedge.platform.signals import deferred_signals
from skedge.report.write import write_report
from skedge.runs.parallel import prestarted_workers

from .compare import DEMO_POLICIES, comparison_fields, exit_on_failures
from .console import out, print_json
from .options import JsonOption

if TYPE_CHECKING:
    from skedge.comparison.comparison import Comparison
    from skedge.recorded_run import Run

DEMO = {"rigid": "demo", "divisible": "demo-divisible"}
"""Shipped scenarios of the demo, by what they assume about the same jobs."""


def demo(
    folder: Annotated[Path, typer.Option("--out", help="Folder for the runs and reports.")] = Path("skedge-demo"),
    seed: Annotated[int | None, typer.Option(help="First seed instead of the scenario's.", min=0)] = None,
    seeds: Annotated[
        int, typer.Option(help="Number of seeds; runs and pictures are of the first.", min=1, max=MOST_SEEDS)
    ] = 5,
    as_json: JsonOption = False,
) -> None:
    """Run Philly-like traces, their jobs rigid and divisible, under six policies: a table and reports, in a minute."""
    if os.path.lexists(folder) and not _is_demo(folder):
        raise RunFolderError(f"{folder}: exists and is not an earlier demo; name another folder with --out")
    n_runs = len(DEMO_POLICIES) * len(DEMO) * seeds
    with prestarted_workers("skedge.comparison.compare", n_runs, -1, use_this_process=True):
        _run_demo(folder, seed, seeds, as_json=as_json)


def _is_demo(folder: Path) -> bool:
    """Whether `folder` contains only the output of a demo, so that it may be replaced."""
    # an earlier demo, also of a version with one kind of jobs alone
    parts = [folder / kind for kind in DEMO] if (folder / "rigid").is_dir() else [folder]
    if len(parts) > 1 and {entry.name for entry in folder.iterdir()} != set(DEMO):
        return False
    return all(_is_part(part) for part in parts)


def _is_part(folder: Path) -> bool:
    """Whether `folder` contains only a report and run folders."""
    if not (folder / "report.html").is_file():
        return False
    return all(entry.name == "report.html" or (entry / "run.json").is_file() for entry in folder.iterdir())


def _run_demo(folder: Path, seed: int | None, seeds: int, *, as_json: bool) -> None:
    """Compare the demo's policies on its scenarios; write `folder` and print a table, or JSON."""
    with deferred_signals():  # a second, in this process and in those that have been started, side by side
        from skedge.comparison.compare import compare_small  # noqa: PLC0415
        from skedge.runs.meta import folder_name  # noqa: PLC0415
        from skedge.runs.new_folder import new_folder  # noqa: PLC0415
        from skedge.runs.tasks import Executor, KeyedTask, run_tasks  # noqa: PLC0415
        from skedge.scenario.file import default_scenario  # noqa: PLC0415

        from .progress import run_progress  # noqa: PLC0415
        from .tables import demo_tables, demo_text  # noqa: PLC0415

    sources = list(DEMO.values())
    first = default_scenario(sources[0]).seed if seed is None else seed
    with new_folder(folder, replacing=True) as temp_folder:
        with run_progress((len(DEMO_POLICIES) + 1) * len(DEMO) * seeds, "running", quiet=as_json) as on_run:
            results = compare_small(sources, DEMO_POLICIES, range(first, first + seeds), on_run)
            comparisons = dict(zip(DEMO, results, strict=True))
        tasks = [
            KeyedTask(kind, _write, (temp_folder / kind, comparison, f"skedge demo: {kind} jobs"))
            for kind, comparison in comparisons.items()
        ]
        for _ in run_tasks(tasks, Executor(use_this_process=True)):
            pass
    if as_json:
        print_json({kind: comparison_fields(comparison) for kind, comparison in comparisons.items()})
    else:
        for table in demo_tables(comparisons, out.width):
            out.print(table)
        out.print(demo_text(comparisons), soft_wrap=True)
        example = comparisons["rigid"].first_runs[0]
        _print_hints(folder, folder / "rigid" / folder_name(example.policy), example)
    exit_on_failures(*comparisons.values())


def _write(folder: Path, comparison: Comparison, title: str) -> None:
    """Write the runs and the report of one scenario of the demo into a new folder, in any process."""
    from skedge.runs.meta import folder_name  # noqa: PLC0415 - not before the processes have started

    folder.mkdir()
    for policy, result in zip(comparison.policies, comparison.first_runs, strict=True):
        run_folder = folder / folder_name(policy)
        run_folder.mkdir()
        result.write(run_folder)
    write_report(folder / "report.html", comparison.report(title, "skedge demo"))


def _print_hints(folder: Path, run_folder: Path, result: Run) -> None:
    """Print where the pictures are, and the command that explains a job of the run in `run_folder`."""
    pictures = " ".join(str(folder / kind / "report.html") for kind in DEMO)
    out.print(f"the pictures:  {pictures}", soft_wrap=True)
    out.print(f"why a job is where it is:  {_program()} explain {run_folder} {_example_job(result)}", soft_wrap=True)


def _program() -> str:
    """The command to call skedge: its name, or its path if the name is not on PATH."""
    # a virtual environment that is not activated
    return "skedge" if shutil.which("skedge") else sys.argv[0]


def _example_job(result: Run) -> str:
    """The job that postponed the most chunks of other jobs, as an example worth explaining."""
    harm = result.schedule.decisions.select("job", "postponed").group_by("job").sum().sort("postponed", "job")
    return str(result.scenario.jobs.ids[int(harm["job"][-1]) if len(harm) else 0])
