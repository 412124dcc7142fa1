"""Run a study with more and more seeds until its claim is decided; if it does not hold, run its hypotheses too."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from skedge.recorded_run import Run
from skedge.runs.result_cache import ResultCache
from skedge.runs.tasks import Executor

from . import simulate
from .judge import Verdict
from .kinds.feasibility import Feasibility
from .kinds.ratio import Ratio
from .kinds.ratios import Ratios
from .kinds.sweep import Sweep
from .page import StudyResults
from .study import Study, Trained
from .trial import Ran

if TYPE_CHECKING:
    from rich.progress import Progress


@dataclass(frozen=True)
class How:
    """How the runs of a study are made: of which trace, where, kept in which folder, their progress shown by what."""

    trace: Path | None
    where: Executor
    folder: Path
    bar: Progress


def findings(study: Study, seeds: int | None, how: How) -> StudyResults:
    """Run and judge a study and, if its claim does not hold, the same under each of its hypotheses.

    With `seeds`, there is one look at that number of them; else they are added until the claim is decided.
    """
    with _keeping_trained(study, how) as kept:
        found = _judged(study, seeds, kept)
        if found.verdict is not Verdict.FAILS:
            return found
        return replace(found, reasons=tuple((one, _judged(study.under(one), seeds, kept)) for one in study.hypotheses))


@contextmanager
def _keeping_trained(study: Study, how: How) -> Iterator[How]:
    """Trained runs are kept while the study goes on, as its hypotheses take minutes more of the same ones."""
    if not study.trained or how.where.cache is not None:
        yield how
        return
    with tempfile.TemporaryDirectory(prefix="skedge-study-") as folder:
        yield replace(how, where=replace(how.where, cache=ResultCache(Path(folder))))


def _judged(study: Study, seeds: int | None, how: How) -> StudyResults:
    """Run a study with this number of seeds or, by default, with more and more until its claim is decided."""
    watch, rows = _Watch(how.bar, study.name), list[dict[str, Any]]()
    looks = study.looks if seeds is None else (seeds,)
    with _measuring(study, how, watch) as measure:
        for before, look in pairwise((0, *looks)):
            rows += measure(range(before, look))
            table = pl.DataFrame(rows)
            outcome = study.settings.outcome(table)
            found = StudyResults(study, look, table, outcome, watch.violations, watch.asked, looks)
            if found.verdict is not Verdict.OPEN:
                break
    watch.end()
    return found


class _Watch:
    """Shows the progress of a study's runs, and keeps the rules that their records break."""

    def __init__(self, bar: Progress, name: str) -> None:
        self.bar, self.task = bar, bar.add_task(name, total=0, at="starting")
        self.asked, self.steps, self.violations = 0, 0, dict[str, tuple[str, ...]]()

    def more(self, runs: int, bounds: int = 0) -> None:
        """Expect so many runs more, and so many bounds on optima."""
        self.asked += runs
        self.steps += runs + bounds
        self.bar.update(self.task, total=self.steps)

    def done(self, label: str, broken: tuple[str, ...]) -> None:
        if broken:
            self.violations[label] = broken
        self.bar.update(self.task, advance=1, at=f"{label} is done")

    def end(self) -> None:
        """Take the study off the display."""
        self.bar.remove_task(self.task)


Measure = Callable[[range], list[dict[str, Any]]]
"""Makes the runs of some seeds; returns rows of results."""


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
    watch.more(len(asked), bounds=len(asked))
    rows = simulate.set_against_bounds(asked, settings, watch.done, how.where)
    watch.asked -= sum(not row["policy"] for row in rows)  # instances without an optimum, which are not run
    return rows


def _simulated(settings: Sweep, seeds: range, how: How, watch: _Watch) -> list[dict[str, Any]]:
    """Run the points of a simulated study."""
    asked = [one for seed in seeds for one in settings.simulations(seed, how.trace)]
    watch.more(len(asked))
    return simulate.carry_out(asked, settings.metrics, watch.done, how.where)


@contextmanager
def _trained(study: Study, settings: Trained, how: How, watch: _Watch) -> Iterator[Measure]:
    """Run the study on Ray, but for what is kept of it; each run's folder is in ``runs``."""
    from .testbed import carry_out, testbed  # noqa: PLC0415 - imports the extra

    (how.folder / "runs").mkdir(exist_ok=True)

    def done(ran: Ran, record: Run) -> None:
        _keep(record, how.folder / "runs" / ran.trial.label)
        watch.done(ran.trial.label, ran.violations)

    with testbed(study.servers, study.scenario) as at:

        def measure(seeds: range) -> list[dict[str, Any]]:
            watch.more(sum(len(settings.trials(study.job, seed)) for seed in seeds))
            return carry_out(study, seeds, at, done, how.where.cache)

        yield measure


def _keep(record: Run, folder: Path) -> None:
    """Write a run's folder, unless the run is one of another hypothesis, too."""
    if not folder.exists():
        folder.mkdir()
        record.write(folder)
