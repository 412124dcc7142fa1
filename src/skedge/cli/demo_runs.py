"""The runs of ``skedge demo``, its folders and what it prints."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import polars as pl

from skedge.compare import compare_small
from skedge.comparison.comparison import Comparison
from skedge.report.build import write_report
from skedge.run import Run, new_folder
from skedge.runs.meta import folder_name
from skedge.runs.sweep import Point, Where, carry_out
from skedge.scenario.file import default_scenario

from .compared import counted, fail_on_broken, numbers
from .console import out, print_json
from .demo_cases import DEMO, DEMO_POLICIES
from .tables import demo_tables, demo_text


def carry_out_demo(folder: Path, seed: int | None, seeds: int, *, as_json: bool) -> None:
    """Compare the demo's policies on its scenarios; write `folder` and print a table, or JSON."""
    sources = list(DEMO.values())
    first = default_scenario(sources[0]).seed if seed is None else seed
    with new_folder(folder, replacing=True) as inside:
        with counted((len(DEMO_POLICIES) + 1) * len(DEMO) * seeds, "running", quiet=as_json) as done:
            compared = compare_small(sources, DEMO_POLICIES, range(first, first + seeds), done)
            found = dict(zip(DEMO, compared, strict=True))
        parts = [Point(kind, _write, (inside / kind, one, f"skedge demo: {kind} jobs")) for kind, one in found.items()]
        for _ in carry_out(parts, Where(joining=True)):
            pass
    if as_json:
        print_json({kind: numbers(comparison) for kind, comparison in found.items()})
    else:
        for table in demo_tables(found, out.width):
            out.print(table)
        out.print(demo_text(found), soft_wrap=True)
        _print_hints(folder, found["rigid"].first_runs[0])
    fail_on_broken(*found.values())


def _write(folder: Path, comparison: Comparison, title: str) -> None:
    folder.mkdir()
    for policy, result in zip(comparison.policies, comparison.first_runs, strict=True):
        made = folder / folder_name(policy)
        made.mkdir()
        result.write(made)
    write_report(folder / "report.html", comparison.report(title, "skedge demo"))


def _print_hints(folder: Path, result: Run) -> None:
    pictures = " ".join(str(folder / kind / "report.html") for kind in DEMO)
    out.print(f"the pictures:  {pictures}", soft_wrap=True)
    a_run = folder / "rigid" / folder_name(result.policy)
    out.print(f"why a job is where it is:  {_program()} explain {a_run} {_interesting(result)}", soft_wrap=True)


def _program() -> str:
    """How to call skedge: by name, or by its path if the name is not on PATH."""
    return "skedge" if shutil.which("skedge") else sys.argv[0]


def _interesting(result: Run) -> str:
    """The job that postponed the most chunks of other jobs, as an example worth explaining."""
    harm = result.schedule.decisions.group_by("job").agg(pl.col("postponed").sum()).sort("postponed", "job")
    return str(result.scenario.jobs.ids[int(harm["job"][-1]) if len(harm) else 0])
