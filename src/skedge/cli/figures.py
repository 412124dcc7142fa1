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
from rich.table import Table

from skedge.core.errors import InputError, SkedgeError
from skedge.report.pictures import HINT, can_draw
from skedge.run import new_folder
from skedge.runs.beside import beside
from skedge.runs.kept import Kept
from skedge.runs.sweep import Where
from skedge.studies.kinds.ratio import Ratio
from skedge.studies.kinds.ratios import Ratios
from skedge.studies.overview import finish, is_finished, key_of_study, write_overview
from skedge.studies.page import write_findings
from skedge.studies.runner import RunContext, findings
from skedge.studies.study import Study, all_studies

from .console import duration, err, out, print_json
from .progress import progress

_SOLVE_S = 1.0
"""Limit of the solvers under ``--quick`` [s]."""


@dataclass(frozen=True)
class Chosen:
    """The folder of all figures, the seeds, and which studies are run: quickly, with or without those that train."""

    folder: Path
    seeds: int | None
    quick: bool
    trained: bool


def every_figure(chosen: Chosen, trace: Path | None, ray: str | None, *, as_json: bool) -> None:
    """Run all studies that are not finished, the short ones first; the page with all verdicts follows each.

    Those that train take the time that their jobs take and little of the processors, so the simulated ones are begun
    beside them.
    """
    studies = [_quick(study) if chosen.quick else study for study in all_studies()]
    missing = {study.name: why for study in studies if (why := _missing(study, chosen, trace)) is not None}
    asked = sorted((study for study in studies if study.name not in missing), key=lambda study: study.minutes)
    trained = [study for study in asked if study.trained]
    simulated = [study for study in asked if not study.trained]
    _make(chosen.folder)
    with progress(quiet=as_json) as bar:
        whole = bar.add_task("figures", total=len(asked), at="")
        began, done = time.monotonic(), 0.0

        def say(study: Study) -> None:
            left = sum(one.minutes for one in asked) - done
            bar.update(whole, at=f"{study.name}; {_left(time.monotonic() - began, done, left)}")

        def note(study: Study, *, ran: bool) -> None:
            nonlocal done
            done += study.minutes if ran else 0.0
            bar.update(whole, advance=1)
            write_overview(chosen.folder, studies, missing)

        if trained:
            with beside(_begin, simulated, chosen, trace, ray):
                _run(trained, chosen, RunContext(trace, Where(-1, ray), chosen.folder, bar), say, note)
        _run(simulated, chosen, RunContext(trace, Where(-1, ray), chosen.folder, bar), say, note)
    shutil.rmtree(chosen.folder / ".points", ignore_errors=True)
    _show(chosen.folder, asked, missing, _Seconds(chosen.folder).by_study, as_json=as_json)


def _run(
    studies: Sequence[Study], chosen: Chosen, how: RunContext, say: Callable[[Study], None], note: Callable[..., None]
) -> None:
    for study in studies:
        say(study)
        note(study, ran=_one(study, chosen, replace(how, trace=how.trace if study.with_trace else None)))


def _begin(studies: Sequence[Study], chosen: Chosen, trace: Path | None, ray: str | None) -> None:
    """Run studies in a process of their own, until it is ended."""
    parent = os.getppid()

    def say(_: Study) -> None:
        if os.getppid() != parent:
            sys.exit()  # the command that wanted the figures has ended

    with progress(quiet=True) as bar, suppress(SkedgeError):  # what fails here will fail again in the command
        _run(studies, chosen, RunContext(trace, Where(-1, ray), chosen.folder, bar), say, lambda *_, **__: None)


def _one(study: Study, chosen: Chosen, how: RunContext) -> bool:
    """Run a study unless it is finished; returns whether it was run."""
    folder, key = chosen.folder / study.name, key_of_study(study, chosen.seeds, how.trace)
    if is_finished(folder, key):
        return False
    points = chosen.folder / ".points"  # one folder, as studies share points: of two figures of one setting
    began = time.monotonic()
    with new_folder(folder, replacing=True) as inside:
        kept = replace(how, where=replace(how.where, kept=Kept(points)), folder=inside)
        found = findings(study, chosen.seeds, kept)
        write_findings(found, inside)
        finish(inside, key)
    _Seconds(chosen.folder).add(study.name, time.monotonic() - began)
    return True


def _quick(study: Study) -> Study:
    """The study with one seed, without hypotheses and with little time for solvers."""
    settings = study.settings
    if isinstance(settings, Ratio | Ratios):
        settings = settings.model_copy(update={"solve_s": min(settings.solve_s, _SOLVE_S)})
    minutes = study.minutes / study.seeds
    return study.model_copy(update={"settings": settings, "hypotheses": [], "minutes": minutes, "seeds": 1, "cap": 1})


def _missing(study: Study, chosen: Chosen, trace: Path | None) -> str | None:
    """Why a study is not run, in words; None if it is."""
    if study.trained and not chosen.trained:
        return "it trains for real"
    if study.trained and (find_spec("torch") is None or find_spec("ray") is None):
        return "it trains for real, which needs the extra `live`"
    if isinstance(study.settings, Ratio | Ratios) and find_spec("highspy") is None:
        return "it needs the extra `optimum`"
    if study.with_trace and trace is None:
        return "it needs Google's table of jobs, `--trace FILE`"
    return None


def _left(elapsed: float, done: float, left: float) -> str:
    """The time left in words, from the stated minutes of the studies and the time that those run now have taken."""
    minute = elapsed / done if done > 0 else 60.0
    return f"about {duration(minute * left)} left"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: no folder can be made there: {error.strerror}") from error


class _Seconds:
    """How long each study took [s], kept in a file beside the results: times are not the same again."""

    def __init__(self, folder: Path) -> None:
        self.path = path = folder / "times.json"
        self.by_study: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def add(self, name: str, seconds: float) -> None:
        """Note a study's time."""
        self.by_study[name] = round(seconds, 1)
        aside = self.path.with_suffix(f".{os.getpid()}.partial")  # the process beside reads the file, too
        aside.write_text(json.dumps(self.by_study, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        aside.replace(self.path)


def _show(
    folder: Path,
    studies: Sequence[Study],
    missing: Mapping[str, str],
    seconds: Mapping[str, float],
    *,
    as_json: bool,
) -> None:
    results = {
        one.name: json.loads((folder / one.name / "results.json").read_text(encoding="utf-8")) for one in studies
    }
    if as_json:
        verdicts = {name: of["verdict"] for name, of in results.items()}
        print_json({"folder": str(folder), "verdicts": verdicts, "seconds": dict(seconds), "not_run": dict(missing)})
    else:
        table = Table("study", "verdict", "seeds", "runs", "time")
        for name, of in results.items():
            table.add_row(name, of["verdict"], str(len(of["seeds"])), str(of["runs"]), duration(seconds.get(name, 0.0)))
        out.print(table)
        for name, why in missing.items():
            out.print(f"{name} was not run: {why}", soft_wrap=True)
        out.print(f"all verdicts: {folder / 'index.md'}; a figure: {folder / 'NAME' / 'report.html'}", soft_wrap=True)
        if not can_draw():
            err.print(HINT, style="dim", soft_wrap=True)
    if any(_broken(of) for of in results.values()):
        raise typer.Exit(1)


def _broken(of: Mapping[str, Any]) -> bool:
    return bool(of["violations"]) or any(one["violations"] for one in of["reasons"])
