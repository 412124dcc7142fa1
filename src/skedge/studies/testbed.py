"""Runs trials one after another on one Ray cluster on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from skedge.core.errors import InputError, SkedgeError
from skedge.core.model.cluster import Cluster
from skedge.core.model.scenario import Scenario
from skedge.live.control.session import LiveRun, programs, train
from skedge.live.engine import Engine
from skedge.recorded_run import Run
from skedge.runs.result_cache import ResultCache
from skedge.runs.tasks import key_of
from skedge.scenario.file import scenario_from_dict, server_of
from skedge.scenario.schema import ServerForm, TrainForm
from skedge.simulate import run
from skedge.studies.kinds.feasibility import Feasibility
from skedge.studies.kinds.ratio import Ratio
from skedge.studies.kinds.ratios import Ratios
from skedge.studies.kinds.sweep import Sweep

from .study import Study
from .trial import Ran, Trial, displaced


@dataclass(frozen=True)
class Testbed:
    """An engine that is up, its servers as a scenario file names them, and what else all scenarios share."""

    engine: Engine
    servers: list[dict[str, Any]]
    scenario: dict[str, Any]

    def run(self, trial: Trial) -> tuple[Ran, Run]:
        """Train the jobs of a trial for real; also gives the record.

        Raises
        ------
        SkedgeError
            If a job could not be trained.
        """
        scenario, trains = self._scenario(trial)
        works = programs(scenario, trains)
        for name in trial.watched:
            works[_unique(trial, name)] = replace(works[_unique(trial, name)], watch=True)
        done = train(scenario, works, run(scenario, trial.policy), self.engine)
        return _ran(trial, done), done.run

    def key_of(self, trial: Trial) -> str:
        """Key of a trial's run (:func:`skedge.runs.tasks.key_of`), although no training is quite the same again."""
        plain = {**vars(trial), "watched": sorted(trial.watched)}
        return key_of("trained", self.servers, self.scenario, plain)

    def _scenario(self, trial: Trial) -> tuple[Scenario, dict[str, TrainForm]]:
        jobs = [{**job, "id": _unique(trial, job["id"])} for job in trial.jobs]
        data = {
            "name": trial.label,
            "seed": trial.seed,
            "slot": 1.0,
            **self.scenario,
            "cluster": {"servers": self.servers, **self.scenario.get("cluster", {})},
            "workload": {"jobs": jobs},
        }
        return scenario_from_dict(data, trial.label, Path()), {
            job["id"]: TrainForm.model_validate(job["train"]) for job in jobs
        }


@contextmanager
def testbed(servers: list[ServerForm], scenario: dict[str, Any]) -> Iterator[Testbed]:
    """Start Ray on this machine with these servers; it ends whatever happens."""
    plain = [server.model_dump(exclude_defaults=True) for server in servers]
    with tempfile.TemporaryDirectory(prefix="skedge-study-") as folder:
        engine = Engine(Cluster([server_of(form) for form in servers]), Path(folder), str(Path(folder) / "checkpoints"))
        try:
            yield Testbed(engine, plain, scenario)
        finally:
            engine.stop()


def carry_out(
    study: Study,
    seeds: Iterable[int],
    at: Testbed,
    progress: Callable[[Ran, Run], None] | None = None,
    kept: ResultCache | None = None,
) -> list[dict[str, Any]]:
    """Carry out all trials of `study` for these seeds; a row of results for each thing that it measures.

    Trials that are kept are not carried out again: those of an interrupted study, or of one with the same trials.
    """
    settings, rows = study.settings, list[dict[str, Any]]()
    if isinstance(settings, Sweep | Feasibility | Ratio | Ratios):
        raise InputError(f"{study.name}: trains nothing; skedge reproduce simulates it")
    for seed in seeds:
        for trial in settings.trials(study.job, seed):
            ran, record = (
                at.run(trial) if kept is None else kept.get_or_compute(at.key_of(trial), partial(at.run, trial))
            )
            rows += settings.rows(ran)
            if progress is not None:
                progress(ran, record)
    return rows


def _unique(trial: Trial, job: str) -> str:
    """The engine knows a job by its id, over all trials."""
    return f"{trial.label}-{job}"


def _ran(trial: Trial, done: LiveRun) -> Ran:
    for one in done.run.jobs.filter(state="failed").iter_rows(named=True):
        raise SkedgeError(f"{trial.label}: job {one['id']} could not be trained: {one['reason']}")
    names = [str(job["id"]) for job in trial.jobs]
    found = {name: done.results[_unique(trial, name)] for name in names}
    lost = displaced(done.run.schedule.runs)
    ids = done.run.scenario.jobs.ids
    return Ran(
        trial,
        done.run.metrics,
        done.simulated.metrics,
        sum(lost.values()),
        len(lost),
        {ids[job].removeprefix(f"{trial.label}-"): count for job, count in lost.items()},
        {name: result["accuracy"] for name, result in found.items()},
        {name: result["accuracies"] for name, result in found.items() if "accuracies" in result},
        tuple(f"{v.rule} {v.constraint}: {v.message}" for v in done.run.verify()),
    )
