"""``skedge reproduce``: reproduce a paper's figure and check its claim."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column

from skedge.comparison import MOST_SEEDS
from skedge.core.errors import InputError
from skedge.report.pictures import HINT, can_draw
from skedge.runs.new_folder import new_folder
from skedge.runs.tasks import Executor
from skedge.studies.judge import Verdict
from skedge.studies.kinds.feasibility import Feasibility
from skedge.studies.outcome import format_cell
from skedge.studies.overview import PAPERS, in_order
from skedge.studies.page import StudyResults, write_findings
from skedge.studies.reading import KEPT
from skedge.studies.runner import RunContext, findings
from skedge.studies.study import LiveSettings, Study, find_study, studies_of

from .console import err, out, print_json, print_table
from .extra import check_live
from .figures import FigureSelection, create_folder, judge_figures, run_all_figures
from .options import JsonOption, RayOption, ResumeOption, with_groups
from .progress import open_cache, progress
from .readings import run_readings


@dataclass(frozen=True)
class ExtentOptions:
    """Whether more than one figure is made, and which."""

    quick: Annotated[bool, typer.Option("--quick", help="Of all: simulated, one seed, no solver above 1 s.")] = False
    simulated: Annotated[bool, typer.Option("--simulated", help="Of all: leave out those that train.")] = False
    readings: Annotated[
        bool,
        typer.Option(
            "--readings",
            help="Of a paper: search for its joint reading, then make all under both readings. Of a figure: both.",
        ),
    ] = False
    judge: Annotated[
        bool, typer.Option("--judge", help="Of all: run nothing; judge again what --out holds, and write its pages.")
    ] = False


@with_groups
def reproduce(
    paper: Annotated[
        str, typer.Argument(help="The paper: jsac22, okita, pdors, she; cross, across papers; or all, every figure.")
    ],
    figure: Annotated[str | None, typer.Argument(help="The figure; omit to list the available figures.")] = None,
    *,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="New folder; default PAPER-FIGURE. Of all, and with --readings: new, or to continue; default figures.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Number of seeds; default: until the claim is decided.", min=1, max=MOST_SEEDS),
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Google's table of jobs, for studies of its arrivals.")] = None,
    ray: RayOption = None,
    resume: ResumeOption = None,
    extent: ExtentOptions,
    as_json: JsonOption = False,
) -> None:
    """Reproduce a paper's figure, simulated or with real training: check its claim, write results and figure."""
    quick, readings = extent.quick, extent.readings
    if paper == "all" or (readings and figure is None):
        _check_whole(figure, resume, readings=readings)
        if extent.judge:
            judge_figures(folder or Path("figures"), as_json=as_json)
            return
        selection = FigureSelection(
            folder or Path("figures"),
            1 if quick else seeds,
            quick=quick,
            trained=not (extent.simulated or quick or readings),
            paper=paper if readings else None,
        )
        (run_readings if readings else run_all_figures)(selection, trace, ray, as_json=as_json)
        return
    if quick or extent.simulated or extent.judge:
        raise InputError("--quick, --simulated and --judge are for all figures: skedge reproduce all")
    if figure is None:
        _list(studies_of(paper), as_json=as_json)
        return
    studies = [find_study(paper, figure, reading) for reading in (KEPT if readings else KEPT[:1])]
    _check_figure(studies[0], ray, resume, readings=readings)
    target = folder or Path(f"{paper}-{figure}")
    if readings:
        create_folder(target)
    outcomes = []
    with open_cache(resume, quiet=as_json) as cache:
        for study in studies:
            study_folder = target / study.reading if readings else target
            results = _run_study(study, seeds, trace, Executor(-1, ray, cache), study_folder, quiet=as_json)
            outcomes.append((results, study_folder))
    if as_json:
        plain = [{"folder": str(study_folder), **results.plain()} for results, study_folder in outcomes]
        print_json(plain if readings else plain[0])
    else:
        for results, study_folder in outcomes:
            _show(results, study_folder)
    if any(results.broken for results, _ in outcomes):
        raise typer.Exit(1)


def _run_study(
    study: Study, seeds: int | None, trace: Path | None, executor: Executor, folder: Path, *, quiet: bool
) -> StudyResults:
    """Run a study into a new folder."""
    with new_folder(folder) as temp_folder, progress(quiet=quiet) as bar:
        if study.trained:
            check_live()
        results = findings(study, seeds, RunContext(trace, executor, temp_folder, bar))
        write_findings(results, temp_folder)
    return results


def _check_whole(figure: str | None, resume: Path | None, *, readings: bool) -> None:
    """Check the options of a command for every figure."""
    command = "PAPER --readings" if readings else "all"
    if figure is not None:
        alone = figure if figure in PAPERS else f"PAPER {figure}"
        raise InputError(f"reproduce all runs every figure; for {figure} alone: skedge reproduce {alone}")
    if resume is not None:
        raise InputError(f"reproduce {command} continues in its --out by itself: leave --resume out")


def _check_figure(study: Study, ray: str | None, resume: Path | None, *, readings: bool) -> None:
    """Refuse options that would silently do nothing for a figure."""
    if ray is not None and isinstance(study.settings, LiveSettings | Feasibility):
        raise InputError(f"{study.paper} {study.figure}: makes no simulated runs, which --ray is for")
    if resume is not None and isinstance(study.settings, Feasibility):
        raise InputError(f"{study.paper} {study.figure}: makes no runs, which --resume is for")
    if readings and not study.simulated:
        raise InputError(f"{study.paper} {study.figure}: is made once, and --readings is for simulated figures")


def _list(studies: list[Study], *, as_json: bool) -> None:
    studies = sorted(studies, key=in_order)
    if as_json:
        print_json([{"figure": s.figure, "title": s.title, "claim": s.claim, "ours": s.ours} for s in studies])
        return
    print_table(("figure", "claim", "whose", "seeds", "minutes"), map(_study_cells, studies), title=studies[0].paper)


def _study_cells(study: Study) -> tuple[str, ...]:
    seeds = "–".join(map(str, dict.fromkeys((study.seeds, study.cap))))
    return study.figures, study.claim, "ours" if study.ours else "the paper's", seeds, f"{study.minutes:g}"


_WORDS = {Verdict.HOLDS: "yes ", Verdict.EASIER: "yes ", Verdict.FAILS: "NO  ", Verdict.OPEN: "open"}


def _show(results: StudyResults, folder: Path) -> None:
    headings = [Column(name, overflow="fold") for name in results.outcome.columns]
    rows = (list(map(format_cell, row)) for row in results.outcome.rows)
    print_table(headings, rows, title=results.study.title)
    claim_label = "our claim" if results.study.ours else "claim"
    out.print(f"{claim_label}: {results.study.claim}")
    for judgement in results.judgements:
        out.print(f"  {_WORDS[judgement.verdict]}  {judgement.part.text}: {judgement.part.numbers}", soft_wrap=True)
    for sentence in results.sentences:
        out.print(sentence, soft_wrap=True)
    out.print(results.verified, soft_wrap=True)
    for label, sentences in results.violations.items():
        for sentence in sentences:
            out.print(f"  {label}: {sentence}", soft_wrap=True)
    out.print(f"results, figure and runs: {folder}; the picture: {folder / 'report.html'}", soft_wrap=True)
    if not can_draw():
        err.print(HINT, style="dim", soft_wrap=True)
