"""``skedge reproduce``: reproduce a paper's figure and check its claim."""

from __future__ import annotations

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
from skedge.studies.runner import RunContext, findings
from skedge.studies.study import LiveSettings, Study, find_study, studies_of

from .console import err, out, print_json, print_table
from .extra import check_live
from .figures import FigureSelection, run_all_figures
from .options import JsonOption, RayOption, ResumeOption
from .progress import open_cache, progress


def reproduce(
    paper: Annotated[
        str, typer.Argument(help="The paper: jsac22, okita, pdors, she; cross, across papers; or all, every figure.")
    ],
    figure: Annotated[str | None, typer.Argument(help="The figure; omit to list the available figures.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="New folder; default PAPER-FIGURE. Of all: new, or to continue; default figures."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Number of seeds, from 0 on; default: until the claim is decided.", min=1, max=MOST_SEEDS),
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Google's table of jobs, for studies of its arrivals.")] = None,
    ray: RayOption = None,
    resume: ResumeOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Of all: simulated, one seed, no solver above 1 s.")] = False,
    simulated: Annotated[bool, typer.Option("--simulated", help="Of all: leave out those that train.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Reproduce a paper's figure, simulated or with real training: check its claim, write results and figure."""
    if paper == "all":
        if figure is not None:
            alone = figure if figure in PAPERS else f"PAPER {figure}"
            raise InputError(f"reproduce all runs every figure; for {figure} alone: skedge reproduce {alone}")
        if resume is not None:
            raise InputError("reproduce all continues in its --out by itself: leave --resume out")
        selection = FigureSelection(
            folder or Path("figures"), 1 if quick else seeds, quick=quick, trained=not (simulated or quick)
        )
        run_all_figures(selection, trace, ray, as_json=as_json)
        return
    if quick or simulated:
        raise InputError("--quick and --simulated are for all figures: skedge reproduce all")
    if figure is None:
        _list(studies_of(paper), as_json=as_json)
        return
    study = find_study(paper, figure)
    # refused, as the options would silently do nothing
    if ray is not None and isinstance(study.settings, LiveSettings | Feasibility):
        raise InputError(f"{study.name}: makes no simulated runs, which --ray is for")
    if resume is not None and isinstance(study.settings, Feasibility):
        raise InputError(f"{study.name}: makes no runs, which --resume is for")
    target = folder or Path(study.name)
    with open_cache(resume, quiet=as_json) as cache, new_folder(target) as temp_folder, progress(quiet=as_json) as bar:
        if study.trained:
            check_live()
        results = findings(study, seeds, RunContext(trace, Executor(-1, ray, cache), temp_folder, bar))
        write_findings(results, temp_folder)
    if as_json:
        print_json({"folder": str(target), **results.plain()})
    else:
        _show(results, target)
    if results.broken:
        raise typer.Exit(1)


def _list(studies: list[Study], *, as_json: bool) -> None:
    studies = sorted(studies, key=in_order)
    if as_json:
        print_json([{"figure": s.figure, "title": s.title, "claim": s.claim, "ours": s.ours} for s in studies])
        return
    print_table(("figure", "claim", "whose", "seeds", "minutes"), map(_study_cells, studies), title=studies[0].paper)


def _study_cells(study: Study) -> tuple[str, ...]:
    seeds = "–".join(map(str, dict.fromkeys((study.seeds, study.cap))))
    return study.figures, study.claim, "ours" if study.ours else "the paper's", seeds, f"{study.minutes:g}"


_WORDS = {Verdict.HOLDS: "yes ", Verdict.FAILS: "NO  ", Verdict.OPEN: "open"}


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
