"""``skedge reproduce PAPER --readings``: search for the joint reading of a paper, then make its figures under both."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from skedge.runs.result_cache import ResultCache
from skedge.runs.tasks import Executor, key_of
from skedge.studies.claims import ClaimJudge
from skedge.studies.paper_page import read_search, write_search
from skedge.studies.reading import Reading, reading_of
from skedge.studies.runner import RunContext
from skedge.studies.search import SearchResult, search
from skedge.studies.study import SEARCHED, study_files

from .console import err
from .figures import FigureSelection, create_folder, run_all_figures
from .progress import progress

if TYPE_CHECKING:
    from pathlib import Path

_QUICK_BUDGET = 2
"""Selections that are tried under ``--quick``."""


def run_readings(selection: FigureSelection, trace: Path | None, ray: str | None, *, as_json: bool) -> None:
    """Search unless that is done, say what was found, and make all figures of the paper.

    Parameters
    ----------
    selection
        The folder, the seeds and the paper.
    trace
        Google's table of jobs; None: claims about its arrivals are left out.
    ray
        Address of a Ray cluster for simulated runs; None: this machine.
    as_json
        Print JSON.
    """
    paper = str(selection.paper)
    reading = reading_of(paper)
    create_folder(selection.folder)
    budget = min(reading.budget, _QUICK_BUDGET) if selection.quick else reading.budget
    result = _search(paper, reading, budget, selection, trace, ray, quiet=as_json)
    best_selection = reading.selection("plain") | dict(result.best.changes)
    if best_selection != reading.selection("joint"):
        changes = ", ".join(f"{name} = {value}" for name, value in result.best.changes) or "the plain one"
        err.print(f"the best reading of the search is not the joint one of {paper}'s file: {changes}", soft_wrap=True)
    run_all_figures(selection, trace, ray, as_json=as_json)


def _search(
    paper: str,
    reading: Reading,
    budget: int,
    selection: FigureSelection,
    trace: Path | None,
    ray: str | None,
    *,
    quiet: bool,
) -> SearchResult:
    """The search's result; what the folder has of an earlier search, also of one that was ended, is not judged again.

    Parameters
    ----------
    paper, reading
        The paper, and its choices.
    budget
        Most selections to try.
    selection
        The folder.
    trace, ray, quiet
        As :func:`run_readings` has them; `quiet`: no progress is shown.
    """
    file = selection.folder / f"search-{paper}.json"
    unfinished_file = file.with_suffix(".unfinished.json")
    # what decides a verdict: neither the joint values, nor the time that a figure takes, nor the budget
    joint_apart = reading.model_dump(
        mode="json", exclude={"choices": {"__all__": {"joint"}}, "impossible": True, "budget": True}
    )
    contents = [{k: v for k, v in c.items() if k != "minutes"} for c in study_files() if c["paper"] == paper]
    key = key_of(
        json.dumps([joint_apart, contents, selection.quick]), trace.read_bytes() if trace is not None else None
    )
    earlier_results = [content for name in (file, unfinished_file) if (content := read_search(name)) is not None]
    earlier_verdicts = {
        attempt.changes: attempt.verdicts
        for result, result_key in earlier_results
        if result_key == key
        for attempt in result.attempts
    }
    verdicts_folder = selection.folder / ".search"
    create_folder(verdicts_folder)
    with progress(quiet=quiet) as bar:
        task = bar.add_task(f"readings of {paper}", total=budget, at="plain")
        executor = Executor(-1, ray, ResultCache(selection.folder / ".points"))
        judge = ClaimJudge(
            paper,
            RunContext(trace, executor, verdicts_folder, bar),
            lambda name: bar.update(task, at=name),
            seeds=1 if selection.quick else SEARCHED,
        )

        def keep(result: SearchResult) -> None:
            write_search(unfinished_file, result, key)
            bar.update(task, completed=len(result.attempts))

        result = search(reading, judge, budget, earlier_verdicts, keep)
    write_search(file, result, key)
    unfinished_file.unlink(missing_ok=True)
    return result
