"""Run a study with more and more seeds until its claim is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from skedge.recorded_run import Run
from skedge.runs.tasks import Executor

from . import simulate
from .judge import Verdict
from .kinds.feasibility import Feasibility
from .kinds.ratio import Ratio
from .kinds.ratios import Ratios
from .kinds.sweep import Sweep
from .page import StudyResults
from .reading import with_parameters
from .study import LiveSettings, Study
from .trial import TrialResult

if TYPE_CHECKING:
    from rich.progress import Progress


@dataclass(frozen=True)
class RunContext:
    """The trace that a study uses, where its runs are made, the folder of its results, and the display of progress."""

    trace: Path | None
    where: Executor
    folder: Path
    bar: Progress


def findings(study: Study, seeds: int | None, context: RunContext) -> StudyResults:
    """Run and judge a study with this number of seeds or, by default, with more and more until its claim is decided."""
    watch, rows = _Watch(context.bar, study.name), list[dict[str, Any]]()
    looks = study.looks if seeds is None else (seeds,)
    with _measure_context(study, context, watch) as measure:
        for n_seeds, look in pairwise((0, *looks)):
            # only the new seeds: rows of the earlier looks stay
            rows += measure(range(study.first_seed + n_seeds, study.first_seed + look))
            table = pl.DataFrame(rows)
            outcome = study.settings.outcome(table)
            # all seeds so far are judged together; the p-values are corrected for the earlier looks
            results = StudyResults(study, look, table, outcome, watch.violations, watch.n_runs, looks)
            if results.verdict is not Verdict.OPEN:
                break
    watch.end()
    return results


class _Watch:
    """Shows the progress of a study's runs, and keeps the rules that their records break."""

    def __init__(self, bar: Progress, name: str) -> None:
        self.bar, self.task = bar, bar.add_task(name, total=0, at="starting")
        self.n_runs, self.steps, self.violations = 0, 0, dict[str, tuple[str, ...]]()

    def expect(self, n_runs: int, n_bounds: int = 0) -> None:
        """Expect `n_runs` more runs, and `n_bounds` more bounds on optima."""
        self.n_runs += n_runs
        self.steps += n_runs + n_bounds
        self.bar.update(self.task, total=self.steps)

    def report_done(self, label: str, broken: tuple[str, ...]) -> None:
        if broken:
            self.violations[label] = broken
        self.bar.update(self.task, advance=1, at=f"{label} is done")

    def end(self) -> None:
        """Take the study off the display."""
        self.bar.remove_task(self.task)


Measure = Callable[[range], list[dict[str, Any]]]
"""Makes the runs of some seeds; returns rows of results."""


@contextmanager
def _measure_context(study: Study, context: RunContext, watch: _Watch) -> Iterator[Measure]:
    """The function that makes the runs of a study."""
    settings = study.settings
    if isinstance(settings, Feasibility):
        # a formula: nothing is drawn, so seeds do not matter
        yield lambda _seeds: settings.points()
    elif isinstance(settings, Ratio | Ratios):
        yield lambda seeds: _compare_with_bounds(study, settings, seeds, context, watch)
    elif isinstance(settings, Sweep):
        yield lambda seeds: _simulate(study, settings, seeds, context, watch)
    else:
        with _train(study, settings, context, watch) as measure:
            yield measure


def _compare_with_bounds(
    study: Study, settings: Ratio | Ratios, seeds: range, context: RunContext, watch: _Watch
) -> list[dict[str, Any]]:
    """Compare runs with the offline optimum, or its bound."""
    instances = [instance for seed in seeds for instance in settings.instances(seed)]
    watch.expect(len(instances), n_bounds=len(instances))
    rows = simulate.compare_with_bounds(instances, settings, watch.report_done, context.where, study.parameters)
    watch.n_runs -= sum(not row["policy"] for row in rows)  # instances without an optimum, which are not run
    return rows


def _simulate(study: Study, settings: Sweep, seeds: range, context: RunContext, watch: _Watch) -> list[dict[str, Any]]:
    """Run the points of a simulated study."""
    simulations = [
        replace(simulation, policy=with_parameters(simulation.policy, study.parameters))
        for seed in seeds
        for simulation in settings.simulations(seed, context.trace)
    ]
    watch.expect(len(simulations))
    return simulate.run_simulations(simulations, settings.metrics, watch.report_done, context.where)


@contextmanager
def _train(study: Study, settings: LiveSettings, context: RunContext, watch: _Watch) -> Iterator[Measure]:
    """Run the study on Ray, but for what is kept of it; each run's folder is in ``runs``."""
    from .testbed import run_trials, testbed  # noqa: PLC0415 - imports the extra

    # trained runs cannot be repeated exactly, so their records are kept with the study
    (context.folder / "runs").mkdir(exist_ok=True)

    def report_done(result: TrialResult, record: Run) -> None:
        folder = context.folder / "runs" / result.trial.label
        folder.mkdir()
        record.write(folder)
        watch.report_done(result.trial.label, result.violations)

    with testbed(study.servers, study.scenario) as bed:

        def measure(seeds: range) -> list[dict[str, Any]]:
            watch.expect(sum(len(settings.trials(study.job, seed)) for seed in seeds))
            return run_trials(study, seeds, bed, report_done, context.where.cache)

        yield measure
