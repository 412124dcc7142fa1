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
from skedge.live.cluster.engine import Engine
from skedge.live.controller.session import LiveRun, programs, train
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

from .reading import with_parameters
from .study import Study
from .trial import Trial, TrialResult, deployments, displaced_workers


@dataclass(frozen=True)
class Testbed:
    """An engine that is up, its servers as a scenario file names them, and what else all scenarios share."""

    engine: Engine
    servers: list[dict[str, Any]]
    scenario: dict[str, Any]

    def run(self, trial: Trial) -> tuple[TrialResult, Run]:
        """Train the jobs of a trial for real; also gives the record.

        Raises
        ------
        SkedgeError
            If a job could not be trained.
        """
        scenario, trains = self._scenario(trial)
        job_programs = programs(scenario, trains)
        for name in trial.watched:
            job_programs[_engine_id(trial, name)] = replace(job_programs[_engine_id(trial, name)], watch=True)
        live_run = train(scenario, job_programs, run(scenario, trial.policy), self.engine)
        return _trial_result(trial, live_run), live_run.run

    def key_of(self, trial: Trial) -> str:
        """Key of a trial's run (:func:`skedge.runs.tasks.key_of`), although no training is quite the same again."""
        # sets have no order, so that their text would differ from process to process
        plain = {**vars(trial), "watched": sorted(trial.watched)}
        return key_of("trained", self.servers, self.scenario, plain)

    def _scenario(self, trial: Trial) -> tuple[Scenario, dict[str, TrainForm]]:
        jobs = [{**job, "id": _engine_id(trial, job["id"])} for job in trial.jobs]
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
        # one engine for all trials: Ray takes seconds to start
        engine = Engine(Cluster([server_of(form) for form in servers]), Path(folder), str(Path(folder) / "checkpoints"))
        try:
            yield Testbed(engine, plain, scenario)
        finally:
            engine.stop()


def run_trials(
    study: Study,
    seeds: Iterable[int],
    bed: Testbed,
    progress: Callable[[TrialResult, Run], None] | None = None,
    cache: ResultCache | None = None,
) -> list[dict[str, Any]]:
    """Carry out all trials of a study; a row of results for each thing that it measures.

    Parameters
    ----------
    study, seeds
        The study, and the seeds for which it is carried out.
    bed
        The engine.
    progress
        Called with the result and the record of each trial.
    cache
        Results that are kept; their trials are not carried out again: those of an interrupted study, or of one with the
        same trials.

    Raises
    ------
    InputError
        If the study trains nothing.
    """
    settings, rows = study.settings, list[dict[str, Any]]()
    if isinstance(settings, Sweep | Feasibility | Ratio | Ratios):
        raise InputError(f"{study.name}: trains nothing; skedge reproduce simulates it")
    for seed in seeds:
        for planned in settings.trials(study.job, seed):
            trial = replace(planned, policy=with_parameters(planned.policy, study.parameters))
            result, record = (
                bed.run(trial) if cache is None else cache.get_or_compute(bed.key_of(trial), partial(bed.run, trial))
            )
            rows += settings.rows(result)
            if progress is not None:
                progress(result, record)
    return rows


def _engine_id(trial: Trial, job: str) -> str:
    """The engine knows a job by its id, over all trials."""
    return f"{trial.label}-{job}"


def _trial_result(trial: Trial, live_run: LiveRun) -> TrialResult:
    for failed_job in live_run.run.jobs.filter(state="failed").iter_rows(named=True):
        raise SkedgeError(f"{trial.label}: job {failed_job['id']} could not be trained: {failed_job['reason']}")
    names = [str(job["id"]) for job in trial.jobs]
    # back to the ids of the study's file
    results = {name: live_run.results[_engine_id(trial, name)] for name in names}
    displacements = displaced_workers(live_run.run.schedule.runs)
    ids = [name.removeprefix(f"{trial.label}-") for name in live_run.run.scenario.jobs.ids]
    return TrialResult(
        trial,
        live_run.run.metrics,
        live_run.simulated.metrics,
        sum(displacements.values()),
        len(displacements),
        {ids[job]: count for job, count in displacements.items()},
        {ids[job]: count for job, count in deployments(live_run.run.schedule.runs).items()},
        {name: result["accuracy"] for name, result in results.items()},
        {name: result["accuracies"] for name, result in results.items() if "accuracies" in result},
        tuple(f"{v.rule} {v.constraint}: {v.message}" for v in live_run.run.verify()),
    )
