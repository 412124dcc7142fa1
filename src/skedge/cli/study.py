"""``skedge reproduce``: reproduce a paper's figure and check its claim."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.table import Table

from skedge.core.errors import InputError
from skedge.run import Run, new_folder
from skedge.runs.sweep import Where
from skedge.studies import simulate
from skedge.studies.kinds.feasibility import Feasibility
from skedge.studies.kinds.ratio import Ratio
from skedge.studies.kinds.ratios import Ratios
from skedge.studies.kinds.sweep import Sweep
from skedge.studies.outcome import shown
from skedge.studies.page import Findings, write_findings
from skedge.studies.study import Study, Trained, find, known
from skedge.studies.trial import Ran

from .console import out, print_json
from .extra import check_live
from .options import RayOption, ResumeOption
from .progress import keeping, progress


def reproduce(
    paper: Annotated[str, typer.Argument(help="The paper: jsac22, okita, pdors, she.")],
    figure: Annotated[str | None, typer.Argument(help="The figure; omit to list the available figures.")] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="New folder; default PAPER-FIGURE.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds, from 0 on; default: the study's.", min=1)] = None,
    trace: Annotated[Path | None, typer.Option(help="Google's table of jobs, for studies of its arrivals.")] = None,
    ray: RayOption = None,
    resume: ResumeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Reproduce a paper's figure, simulated or with real training: check its claim, write results and figure."""
    if figure is None:
        _list(known(paper), as_json=as_json)
        return
    study = find(paper, figure)
    if not (ray is None and resume is None) and isinstance(study.settings, Trained | Feasibility):
        raise InputError(f"{study.name}: makes no simulated runs, which --ray and --resume are for")
    target = folder or Path(study.name)
    with keeping(resume, quiet=as_json) as kept, new_folder(target) as inside:
        where = Where(-1, ray, kept)
        if isinstance(study.settings, Feasibility):
            points = pl.DataFrame(study.settings.points())
            found = Findings(study, 1, points, study.settings.outcome(points), {}, 0)
        elif isinstance(study.settings, Ratio | Ratios):
            found = _against_bounds(study, study.settings, seeds or study.seeds, where, quiet=as_json)
        elif isinstance(study.settings, Sweep):
            found = _simulated(study, study.settings, seeds or study.seeds, trace, where, quiet=as_json)
        else:
            found = _trained(study, study.settings, seeds or study.seeds, inside, quiet=as_json)
        write_findings(found, inside)
    if as_json:
        print_json({"folder": str(target), **found.plain()})
    else:
        _show(found, target)
    if found.violations:
        raise typer.Exit(1)


def _list(studies: list[Study], *, as_json: bool) -> None:
    if as_json:
        print_json([{"figure": s.figure, "title": s.title, "claim": s.claim, "ours": s.ours} for s in studies])
        return
    table = Table("figure", "claim", "whose", "seeds", "minutes", title=studies[0].paper)
    for study in studies:
        whose = "ours" if study.ours else "the paper's"
        table.add_row(study.figure, study.claim, whose, str(study.seeds), f"{study.minutes:g}")
    out.print(table)


def _simulated(study: Study, settings: Sweep, seeds: int, trace: Path | None, where: Where, *, quiet: bool) -> Findings:
    """Run the points of a simulated study."""
    violations: dict[str, tuple[str, ...]] = {}
    asked = [one for seed in range(seeds) for one in settings.simulations(seed, trace)]
    with progress(quiet=quiet) as bar:
        task = bar.add_task(study.name, total=len(asked), at="starting")

        def done(label: str, broken: tuple[str, ...]) -> None:
            if broken:
                violations[label] = broken
            bar.update(task, advance=1, at=f"{label} is done")

        rows = pl.DataFrame(simulate.carry_out(asked, settings.metric, done, where))
    return Findings(study, seeds, rows, settings.outcome(rows), violations, len(asked))


def _against_bounds(study: Study, settings: Ratio | Ratios, seeds: int, where: Where, *, quiet: bool) -> Findings:
    """Compare runs with the offline optimum, or its bound."""
    violations: dict[str, tuple[str, ...]] = {}
    asked = [one for seed in range(seeds) for one in settings.instances(seed)]
    with progress(quiet=quiet) as bar:
        task = bar.add_task(study.name, total=len(asked), at="starting")

        def done(label: str, broken: tuple[str, ...]) -> None:
            if broken:
                violations[label] = broken
            bar.update(task, advance=1, at=f"{label} is done")

        rows = pl.DataFrame(simulate.set_against_bounds(asked, settings, done, where))
    return Findings(study, seeds, rows, settings.outcome(rows), violations, len(rows))


def _trained(study: Study, settings: Trained, seeds: int, folder: Path, *, quiet: bool) -> Findings:
    """Run the study on Ray; each run's folder is kept in ``runs``."""
    check_live()
    from skedge.studies.testbed import bench, carry_out  # noqa: PLC0415 - imports the extra

    violations: dict[str, tuple[str, ...]] = {}
    runs = sum(len(settings.trials(study.job, seed)) for seed in range(seeds))
    (folder / "runs").mkdir()
    with progress(quiet=quiet) as bar:
        task = bar.add_task(study.name, total=runs, at="starting Ray")

        def done(ran: Ran, record: Run) -> None:
            _keep(record, folder / "runs" / ran.trial.label)
            if ran.violations:
                violations[ran.trial.label] = ran.violations
            bar.update(task, advance=1, at=f"{ran.trial.label} is done")

        with bench(study.servers, study.scenario) as at:
            rows = pl.DataFrame(carry_out(study, seeds, at, done))
    return Findings(study, seeds, rows, settings.outcome(rows), violations, runs)


def _keep(record: Run, folder: Path) -> None:
    folder.mkdir()
    record.write(folder)


def _show(found: Findings, folder: Path) -> None:
    table = Table(*found.outcome.columns, title=found.study.title)
    for row in found.outcome.rows:
        table.add_row(*(shown(cell) for cell in row))
    out.print(table)
    whose = "our claim" if found.study.ours else "claim"
    out.print(f"{whose}: {found.study.claim}")
    for part in found.outcome.parts:
        out.print(f"  {'yes' if part.holds else 'NO '}  {part.text}: {part.numbers}", soft_wrap=True)
    out.print(f"{found.verdict}; {found.verified}", soft_wrap=True)
    for label, sentences in found.violations.items():
        for sentence in sentences:
            out.print(f"  {label}: {sentence}", soft_wrap=True)
    out.print(f"results, figure and runs: {folder}; the picture: {folder / 'report.html'}", soft_wrap=True)
