"""Runs that may be larger than memory: jobs are read as they arrive, the record is written as it grows.

Verification and metrics go part by part, too. The run folder is that of :mod:`skedge.recorded_run`, with the same
rows in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from .analysis.metrics.metrics import metrics_of_parts
from .analysis.verify.parts import has_parts, verify_parts
from .analysis.verify.verify import Violation
from .core.events import Event
from .core.model.scenario import Scenario
from .core.policy import AnyPolicy, Policy
from .core.record.schedule import Schedule, schema
from .core.record.stored import Steps, StoredScenario, StoredTables
from .core.registry import policy_of
from .platform.malloc import trim_malloc
from .prepare import prepare_policy
from .quick.chunks.simulate import takes
from .quick.chunks.stream import covers, stream
from .recorded_run import Run, broken_inputs, check_known_rows, write_meta
from .runs.meta import meta_of, read_meta, registered_meta
from .runs.stopwatch import Stopwatch
from .scenario.file import Source, scenario_in_parts, scenario_of, stored_scenario
from .scenario.save import JOBS, save_scenario, save_stored

CHUNKS = 10_000_000
"""Chunks from which on a run is not held in memory; below, one verification of the whole takes less time."""


def inputs_of(source: Source, policy: AnyPolicy, seed: int | None = None) -> tuple[Scenario | StoredScenario, Policy]:
    """The scenario and the policy prepared for it; the jobs stay in their file if :func:`run_into` can take them there.

    Raises
    ------
    PolicyError, ScenarioError, TraceError
        As :func:`~skedge.scenario.file.scenario_of` and :func:`~skedge.prepare.prepare_policy`.
    """
    if takes(instance := policy_of(policy)):
        scenario = scenario_in_parts(source, seed, least=CHUNKS)
        if isinstance(scenario, Scenario):
            return scenario, prepare_policy(policy, scenario)
        if covers(scenario, instance):
            return scenario, prepare_policy(policy, scenario.base)
    in_memory = scenario_of(source, seed)
    return in_memory, prepare_policy(policy, in_memory)


def stored_in(folder: Path, scenario: Scenario | StoredScenario, policy: Policy) -> Scenario | StoredScenario:
    """Write a scenario that :func:`run_into` can take into a run folder; the one returned reads its jobs from there.

    Any other scenario is returned as it is.
    """
    if isinstance(scenario, StoredScenario):
        save_stored(scenario, folder)
        return StoredScenario(scenario.base, folder / JOBS, scenario.fixed_delays, part_chunks=scenario.part_chunks)
    if int(scenario.jobs.chunks.sum()) >= CHUNKS and covers(scenario, policy):
        save_scenario(scenario, folder)
        return StoredScenario(scenario.without_jobs(), folder / JOBS, scenario.jobs.fixed_delays)
    return scenario


@dataclass(frozen=True)
class LargeRun:
    """A run whose tables are in its folder.

    Attributes
    ----------
    scenario
        The resolved scenario; its jobs are in the folder.
    meta
        As a :class:`~skedge.recorded_run.Run` has it.
    folder
        The run folder.
    steps
        Called after each part that is verified or measured.
    decisions_s, live, tolerance
        None: decisions are made in a compiled loop. It is no live run, so the tolerance for times is 0 µs.
    """

    scenario: StoredScenario
    meta: Mapping[str, Any]
    folder: Path
    steps: Steps | None = None
    decisions_s: None = None
    live: bool = False
    tolerance: int = 0

    @property
    def tables(self) -> StoredTables:
        """The tables of the record."""
        return StoredTables(self.folder / "tables")

    @property
    def jobs(self) -> pl.LazyFrame:
        """The jobs table of the record."""
        return self.tables.scan("jobs")

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Numbers of the run by key (:func:`skedge.analysis.metrics.metrics.metrics`)."""
        return metrics_of_parts(self.scenario, self.tables, registered_meta(self.meta), self.steps)

    def verify(self, limit: int = 20) -> list[Violation]:
        """Violations of the rules of ``docs/model.md``; an empty list if there are none."""
        meta = registered_meta(self.meta)
        if not has_parts(self.scenario, self.tables, meta):
            return Run.load(self.folder).verify(limit)
        stated = broken_inputs(self.meta, self.scenario.base, 0, limit)
        return [*verify_parts(self.scenario, self.tables, meta, limit=limit, steps=self.steps), *stated]

    def check_complete(self) -> None:
        """Reject a record with impossible rows; raises as :meth:`skedge.recorded_run.Run.check_complete` does."""
        parts = zip(self.scenario.parts(), self.tables.by_job(self.scenario), strict=True)
        for n_done, ((first, part), rows) in enumerate(parts, 1):
            check_known_rows(part, rows, self.scenario.count, first)
            if self.steps is not None:
                self.steps("checking parts", n_done, len(self.scenario.ranges))

    def write(self, folder: Path) -> None:
        """Write ``run.json``; the rest of the run folder is there."""
        write_meta(self.meta, folder)


def run_into(
    folder: Path,
    scenario: StoredScenario,
    policy: Policy,
    *,
    progress: Callable[[Event], None] | None = None,
    steps: Steps | None = None,
    profile: Stopwatch | None = None,
) -> LargeRun:
    """Simulate `policy` on `scenario` and write the tables into the run folder `folder` (:func:`stored_in`).

    Parameters
    ----------
    progress, profile
        As :func:`skedge.simulate.run` has them.
    steps
        As a :class:`LargeRun` has it.
    """
    (folder / "tables").mkdir()
    with (profile or Stopwatch()).counting("loop"):
        trim_malloc()  # a scenario that was in memory before
        stream(scenario, policy, folder / "tables", progress)
        trim_malloc()
    return LargeRun(scenario, meta_of(scenario.base, policy), folder, steps)


def opened(folder: Path, steps: Steps | None = None) -> Run | LargeRun:
    """Read a run folder; the tables of a large one stay in their files, and it calls `steps`.

    Raises
    ------
    RunFolderError, ScenarioError
        As :meth:`skedge.recorded_run.Run.load`.
    """
    file = folder / "run.json"
    if not file.is_file() or not (folder / "scenario.yaml").is_file():
        return Run.load(folder)
    meta, scenario = read_meta(file), stored_scenario(folder / "scenario.yaml", least=CHUNKS)
    if scenario is not None and scenario.base.cluster.lanes and meta.get("world") is None:
        run = LargeRun(scenario, meta, folder, steps)
        if _as_written(run):
            return run
    return Run.load(folder)


def _as_written(run: LargeRun) -> bool:
    """Whether all tables are there, with the columns and types that skedge writes."""
    expected = schema(run.scenario.base.cluster.server_ids)
    if not all((run.folder / "tables" / f"{name}.parquet").is_file() for name in Schedule.names()):
        return False
    try:
        return all(run.tables.scan(name).collect_schema() == columns for name, columns in expected.items())
    except (OSError, pl.exceptions.PolarsError):
        return False
