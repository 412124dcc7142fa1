"""``skedge reproduce``: reproduce a paper's figure and check its claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich.progress import Progress
from rich.table import Column, Table

from skedge.core.errors import InputError
from skedge.run import Run, new_folder
from skedge.runs.sweep import Where
from skedge.studies import simulate
from skedge.studies.judge import Verdict
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
    paper: Annotated[str, typer.Argument(help="The paper: jsac22, okita, pdors, she; or cross, across papers.")],
    figure: Annotated[str | None, typer.Argument(help="The figure; omit to list the available figures.")] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="New folder; default PAPER-FIGURE.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds, from 0 on; default: until the claim is decided.", min=1)
    ] = None,
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
    with keeping(resume, quiet=as_json) as kept, new_folder(target) as inside, progress(quiet=as_json) as bar:
        how = How(trace, Where(-1, ray, kept), inside, bar)
        found = judged(study, seeds, how)
        if found.verdict is Verdict.FAILS:
            reasons = [(each, judged(study.under(each), seeds, how)) for each in study.hypotheses]
            found = replace(found, reasons=tuple(reasons))
        write_findings(found, inside)
    if as_json:
        print_json({"folder": str(target), **found.plain()})
    else:
        _show(found, target)
    if found.violations or any(one.violations for _, one in found.reasons):
        raise typer.Exit(1)


def _list(studies: list[Study], *, as_json: bool) -> None:
    if as_json:
        print_json([{"figure": s.figure, "title": s.title, "claim": s.claim, "ours": s.ours} for s in studies])
        return
    table = Table("figure", "claim", "whose", "seeds", "minutes", title=studies[0].paper)
    for study in studies:
        whose = "ours" if study.ours else "the paper's"
        table.add_row(
            study.figures,
            study.claim,
            whose,
            "–".join(map(str, dict.fromkeys((study.seeds, study.cap)))),
            f"{study.minutes:g}",
        )
    out.print(table)


@dataclass(frozen=True)
class How:
    """How the runs of a study are made: of which trace, where, kept in which folder, their progress shown by what."""

    trace: Path | None
    where: Where
    folder: Path
    bar: Progress


class _Watch:
    """Shows the progress of a study's runs, and keeps the rules that their records break."""

    def __init__(self, bar: Progress, name: str) -> None:
        self.bar, self.task = bar, bar.add_task(name, total=0, at="starting")
        self.asked, self.violations = 0, dict[str, tuple[str, ...]]()

    def more(self, runs: int) -> None:
        """Expect this number of runs more."""
        self.asked += runs
        self.bar.update(self.task, total=self.asked)

    def done(self, label: str, broken: tuple[str, ...]) -> None:
        if broken:
            self.violations[label] = broken
        self.bar.update(self.task, advance=1, at=f"{label} is done")


Measure = Callable[[range], list[dict[str, Any]]]
"""Makes the runs of some seeds; returns rows of results."""


def judged(study: Study, seeds: int | None, how: How) -> Findings:
    """Run a study with this number of seeds or, by default, with more and more until its claim is decided."""
    watch, rows = _Watch(how.bar, study.name), list[dict[str, Any]]()
    looks = study.looks if seeds is None else (seeds,)
    with _measuring(study, how, watch) as measure:
        for before, look in pairwise((0, *looks)):
            rows += measure(range(before, look))
            table = pl.DataFrame(rows)
            outcome = study.settings.outcome(table)
            found = Findings(study, look, table, outcome, watch.violations, watch.asked, len(looks))
            if found.verdict is not Verdict.OPEN:
                break
    return found


@contextmanager
def _measuring(study: Study, how: How, watch: _Watch) -> Iterator[Measure]:
    """What makes the runs of a study."""
    settings = study.settings
    if isinstance(settings, Feasibility):
        yield lambda _seeds: settings.points()
    elif isinstance(settings, Ratio | Ratios):
        yield lambda seeds: _against_bounds(settings, seeds, how, watch)
    elif isinstance(settings, Sweep):
        yield lambda seeds: _simulated(settings, seeds, how, watch)
    else:
        with _trained(study, settings, how, watch) as measure:
            yield measure


def _against_bounds(settings: Ratio | Ratios, seeds: range, how: How, watch: _Watch) -> list[dict[str, Any]]:
    """Compare runs with the offline optimum, or its bound."""
    asked = [one for seed in seeds for one in settings.instances(seed)]
    watch.more(len(asked))
    return simulate.set_against_bounds(asked, settings, watch.done, how.where)


def _simulated(settings: Sweep, seeds: range, how: How, watch: _Watch) -> list[dict[str, Any]]:
    """Run the points of a simulated study."""
    asked = [one for seed in seeds for one in settings.simulations(seed, how.trace)]
    watch.more(len(asked))
    return simulate.carry_out(asked, settings.metrics, watch.done, how.where)


@contextmanager
def _trained(study: Study, settings: Trained, how: How, watch: _Watch) -> Iterator[Measure]:
    """Run the study on Ray; each run's folder is kept in ``runs``."""
    check_live()
    from skedge.studies.testbed import bench, carry_out  # noqa: PLC0415 - imports the extra

    (how.folder / "runs").mkdir()

    def done(ran: Ran, record: Run) -> None:
        _keep(record, how.folder / "runs" / ran.trial.label)
        watch.done(ran.trial.label, ran.violations)

    with bench(study.servers, study.scenario) as at:

        def measure(seeds: range) -> list[dict[str, Any]]:
            watch.more(sum(len(settings.trials(study.job, seed)) for seed in seeds))
            return carry_out(study, seeds, at, done)

        yield measure


def _keep(record: Run, folder: Path) -> None:
    folder.mkdir()
    record.write(folder)


_WORDS = {Verdict.HOLDS: "yes ", Verdict.FAILS: "NO  ", Verdict.OPEN: "open"}


def _show(found: Findings, folder: Path) -> None:
    table = Table(*(Column(name, overflow="fold") for name in found.outcome.columns), title=found.study.title)
    for row in found.outcome.rows:
        table.add_row(*(shown(cell) for cell in row))
    out.print(table)
    whose = "our claim" if found.study.ours else "claim"
    out.print(f"{whose}: {found.study.claim}")
    for judgement in found.judgements:
        out.print(f"  {_WORDS[judgement.verdict]}  {judgement.part.text}: {judgement.part.numbers}", soft_wrap=True)
    for sentence in found.sentences:
        out.print(sentence, soft_wrap=True)
    out.print(found.verified, soft_wrap=True)
    for label, sentences in found.violations.items():
        for sentence in sentences:
            out.print(f"  {label}: {sentence}", soft_wrap=True)
    out.print(f"results, figure and runs: {folder}; the picture: {folder / 'report.html'}", soft_wrap=True)
