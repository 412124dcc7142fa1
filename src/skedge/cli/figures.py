"""``skedge reproduce all``: every figure of the papers, in one folder that is continued where it stopped."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from skedge.core.errors import InputError, SkedgeError
from skedge.report.pictures import HINT, can_draw
from skedge.runs.background import background_process
from skedge.runs.new_folder import new_folder
from skedge.runs.result_cache import ResultCache
from skedge.runs.tasks import Executor
from skedge.studies.kinds.ratio import Ratio
from skedge.studies.kinds.ratios import Ratios
from skedge.studies.overview import finish, is_finished, key_of_study, write_overview
from skedge.studies.page import judged_again, write_findings
from skedge.studies.runner import RunContext, findings
from skedge.studies.study import Study, all_studies

from .console import duration, err, out, print_json, print_table
from .progress import progress

_SOLVE_S = 1.0
"""Limit of the solvers under ``--quick`` [s]."""


@dataclass(frozen=True)
class FigureSelection:
    """The folder of all figures, the seeds, and which studies are run.

    Attributes
    ----------
    folder
        New, or to continue.
    seeds
        Number of seeds; None: until the claims are decided.
    quick, trained
        Whether they are run quickly, and whether those that train are run, too.
    paper
        The paper whose studies are run; None: all.
    """

    folder: Path
    seeds: int | None
    quick: bool
    trained: bool
    paper: str | None = None


def run_all_figures(selection: FigureSelection, trace: Path | None, ray: str | None, *, as_json: bool) -> None:
    """Run all studies that are not finished, the short ones first; the page with all verdicts follows each.

    Those that train take the time that their jobs take and little of the processors, so the simulated ones are begun
    beside them.

    Parameters
    ----------
    selection
        The folder, the seeds and the studies.
    trace
        Google's table of jobs; None: studies of its arrivals are not run.
    ray
        Address of a Ray cluster for simulated runs; None: this machine.
    as_json
        Print JSON.
    """
    studies = [_quick_study(study) if selection.quick else study for study in all_studies()]
    selected_papers = {selection.paper} if selection.paper is not None else {study.paper for study in studies}
    missing = {
        study.name: reason
        for study in studies
        if study.paper in selected_papers and (reason := _missing_requirement(study, selection, trace)) is not None
    }
    # short ones first: most verdicts are there after a small part of the time
    selected_studies = sorted(
        (study for study in studies if study.name not in missing and study.paper in selected_papers),
        key=lambda study: study.minutes,
    )
    trained = [study for study in selected_studies if study.trained]
    simulated = [study for study in selected_studies if not study.trained]
    create_folder(selection.folder)
    with progress(quiet=as_json) as bar:
        context = RunContext(trace, Executor(-1, ray), selection.folder, bar)
        task = bar.add_task("figures", total=len(selected_studies), at="")
        started_at, minutes_done = time.monotonic(), 0.0

        def show_study(study: Study) -> None:
            minutes_left = sum(s.minutes for s in selected_studies) - minutes_done
            bar.update(
                task, at=f"{study.name}; {_time_left(time.monotonic() - started_at, minutes_done, minutes_left)}"
            )

        def record_study(study: Study, *, ran: bool) -> None:
            nonlocal minutes_done
            minutes_done += study.minutes if ran else 0.0
            bar.update(task, advance=1)
            write_overview(selection.folder, studies, missing)

        if trained:
            # real training leaves processors idle, which simulations can use
            with background_process(_run_in_background, simulated, selection, trace, ray):
                _run(trained, selection, context, show_study, record_study)
        _run(simulated, selection, context, show_study, record_study)
    # nothing continues from them once every study is finished
    shutil.rmtree(selection.folder / ".points", ignore_errors=True)
    _show(selection.folder, selected_studies, missing, _StudyTimes(selection.folder).by_study, as_json=as_json)


def judge_figures(folder: Path, *, as_json: bool) -> None:
    """Judge again what a folder of figures holds, and write all its pages, without a run.

    Raises
    ------
    InputError
        If the folder has no figure, or one that cannot be read.
    """
    studies, missing, judged_studies = all_studies(), dict[str, str](), list[Study]()
    for study in studies:
        if not (folder / study.name / "results.json").is_file():
            continue
        results = judged_again(study, folder / study.name)
        if results is None:
            missing[study.name] = "its setting has changed since"
        else:
            write_findings(results, folder / study.name)
            judged_studies.append(study)
    if not judged_studies:
        raise InputError(f"{folder}: holds no figure; skedge reproduce all --out {folder} makes them")
    write_overview(folder, studies, missing)
    _show(folder, judged_studies, missing, _StudyTimes(folder).by_study, as_json=as_json)


def _run(
    studies: Sequence[Study],
    selection: FigureSelection,
    settings: RunContext,
    on_start: Callable[[Study], None],
    on_end: Callable[..., None],
) -> None:
    for study in studies:
        on_start(study)
        used_trace = settings.trace if study.with_trace else None
        on_end(study, ran=_run_study(study, selection, replace(settings, trace=used_trace)))


def _run_in_background(
    studies: Sequence[Study], selection: FigureSelection, trace: Path | None, ray: str | None
) -> None:
    """Run studies in a process of their own, until it is ended."""
    parent = os.getppid()

    def check_parent(_: Study) -> None:
        # a process whose parent was killed belongs to another one
        if os.getppid() != parent:
            sys.exit()  # the command has ended

    with progress(quiet=True) as bar, suppress(SkedgeError):  # what fails here will fail again in the command
        context = RunContext(trace, Executor(-1, ray), selection.folder, bar)
        _run(studies, selection, context, check_parent, lambda *_, **__: None)


def _run_study(study: Study, selection: FigureSelection, settings: RunContext) -> bool:
    """Run a study unless it is finished; returns whether it was run."""
    folder, key = selection.folder / study.name, key_of_study(study, selection.seeds, settings.trace)
    # the key has the study, the seeds and the trace: a changed study is run again
    if is_finished(folder, key):
        return False
    points = selection.folder / ".points"  # one folder, as studies share points: of two figures of one setting
    started_at = time.monotonic()
    with new_folder(folder, replacing=True) as temp_folder:
        study_settings = replace(settings, where=replace(settings.where, cache=ResultCache(points)), folder=temp_folder)
        results = findings(study, selection.seeds, study_settings)
        write_findings(results, temp_folder)
        finish(temp_folder, key)
    _StudyTimes(selection.folder).add(study.name, time.monotonic() - started_at)
    return True


def _quick_study(study: Study) -> Study:
    """The study with one seed, and with little time for solvers."""
    settings = study.settings
    if isinstance(settings, Ratio | Ratios):
        settings = settings.model_copy(update={"solve_s": min(settings.solve_s, _SOLVE_S)})
    # stated for all seeds
    minutes = study.minutes / study.seeds
    return study.model_copy(update={"settings": settings, "minutes": minutes, "seeds": 1, "cap": 1})


def _missing_requirement(study: Study, selection: FigureSelection, trace: Path | None) -> str | None:
    """Why a study is not run, in words; None if it is."""
    if study.trained and not selection.trained:
        return "it trains for real"
    if study.trained and (find_spec("torch") is None or find_spec("ray") is None):
        return "it trains for real, which needs the extra `live`"
    if isinstance(study.settings, Ratio | Ratios) and find_spec("highspy") is None:
        return "it needs the extra `optimum`"
    if study.with_trace and trace is None:
        return "it needs Google's table of jobs, `--trace FILE`"
    return None


def _time_left(elapsed: float, minutes_done: float, minutes_left: float) -> str:
    """The time left in words, from the stated minutes of the studies and the time that those run now have taken."""
    # the stated minutes are another machine's: scaled by how long those so far took here
    minute = elapsed / minutes_done if minutes_done > 0 else 60.0
    return f"about {duration(minute * minutes_left)} left"


def create_folder(folder: Path) -> None:
    """Make a folder, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: no folder can be made there: {error.strerror}") from error


class _StudyTimes:
    """Duration of each study [s], in a file beside the results, which stay equal from run to run."""

    def __init__(self, folder: Path) -> None:
        self.path = path = folder / "times.json"
        self.by_study: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def add(self, name: str, seconds: float) -> None:
        """Note a study's time."""
        self.by_study[name] = round(seconds, 1)
        temp_file = self.path.with_suffix(f".{os.getpid()}.partial")  # the process beside reads the file, too
        temp_file.write_text(json.dumps(self.by_study, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        temp_file.replace(self.path)


def _show(
    folder: Path,
    studies: Sequence[Study],
    missing: Mapping[str, str],
    seconds: Mapping[str, float],
    *,
    as_json: bool,
) -> None:
    results = {
        study.name: json.loads((folder / study.name / "results.json").read_text(encoding="utf-8")) for study in studies
    }
    if as_json:
        verdicts = {name: result["verdict"] for name, result in results.items()}
        print_json({"folder": str(folder), "verdicts": verdicts, "seconds": dict(seconds), "not_run": dict(missing)})
    else:
        rows = (
            (name, result["verdict"], str(len(result["seeds"])), str(result["runs"]), duration(seconds.get(name, 0.0)))
            for name, result in results.items()
        )
        print_table(("study", "verdict", "seeds", "runs", "time"), rows)
        for name, reason in missing.items():
            out.print(f"{name} was not run: {reason}", soft_wrap=True)
        out.print(f"all verdicts: {folder / 'index.md'}; a figure: {folder / 'NAME' / 'report.html'}", soft_wrap=True)
        if not can_draw():
            err.print(HINT, style="dim", soft_wrap=True)
    if any(_has_violations(result) for result in results.values()):
        raise typer.Exit(1)


def _has_violations(result: Mapping[str, Any]) -> bool:
    return bool(result["violations"])
