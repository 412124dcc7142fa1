"""Runs whose record may be larger than memory: written as it grows, verified and measured part by part.

The run folder is that of :mod:`skedge.run`, with the same rows in the same order.
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
from .core.policy import Policy
from .core.scenario import Scenario
from .core.schedule import Schedule, schema
from .core.stored import StoredTables
from .quick.chunks.stream import covers, stream
from .run import Run, broken_inputs, write_inputs
from .runs.meta import meta_of, read_meta, registered_meta
from .runs.stopwatch import Stopwatch
from .scenario.file import load_scenario

CHUNKS = 10_000_000
"""Chunks from which on a record is not held in memory; below, one verification of the whole takes less time."""


def is_large(scenario: Scenario, policy: Policy) -> bool:
    """Whether a run is to be made by :func:`run_into`."""
    if int(scenario.jobs.chunks.sum()) < CHUNKS:
        return False
    return scenario.cluster.sharing is None and covers(scenario, policy)


@dataclass(frozen=True)
class LargeRun:
    """A run whose tables are in its folder.

    Attributes
    ----------
    scenario, meta
        As a :class:`~skedge.run.Run` has them.
    folder
        The run folder.
    decisions_s, live, tolerance
        None: decisions are made in a compiled loop. It is no live run, so the tolerance for times is 0 µs.
    """

    scenario: Scenario
    meta: Mapping[str, Any]
    folder: Path
    decisions_s: None = None
    live: bool = False
    tolerance: int = 0

    @property
    def tables(self) -> StoredTables:
        """The tables of the record."""
        return StoredTables(self.folder / "tables")

    @property
    def jobs(self) -> pl.DataFrame:
        """The jobs table of the record."""
        return self.tables.scan("jobs").collect()

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Numbers of the run by key (:func:`skedge.analysis.metrics.metrics.metrics`)."""
        return metrics_of_parts(self.scenario, self.tables, registered_meta(self.meta))

    def verify(self, limit: int = 20) -> list[Violation]:
        """Violations of the rules of ``docs/model.md``; an empty list if there are none."""
        meta = registered_meta(self.meta)
        if not has_parts(self.scenario, self.tables, meta):
            return Run.load(self.folder).verify(limit)
        stated = broken_inputs(self.meta, self.scenario, 0, limit)
        return [*verify_parts(self.scenario, self.tables, meta, limit=limit), *stated]

    def write(self, folder: Path) -> None:
        """Write the parts of the run folder besides the tables, which are there."""
        write_inputs(self.scenario, self.meta, folder)


def run_into(
    folder: Path,
    scenario: Scenario,
    policy: Policy,
    *,
    progress: Callable[[Event], None] | None = None,
    profile: Stopwatch | None = None,
) -> LargeRun:
    """Simulate `policy` on `scenario` and write the tables into the run folder `folder`, which exists.

    Parameters
    ----------
    progress, profile
        As :func:`skedge.run.run` has them.
    """
    (folder / "tables").mkdir()
    with (profile or Stopwatch()).counting("loop"):
        stream(scenario, policy, folder / "tables", progress)
    return LargeRun(scenario, meta_of(scenario, policy), folder)


def opened(folder: Path) -> Run | LargeRun:
    """Read a run folder; the tables of a large one stay in their files.

    Raises
    ------
    RunFolderError, ScenarioError
        As :meth:`skedge.run.Run.load`.
    """
    file = folder / "run.json"
    if not file.is_file() or not (folder / "scenario.yaml").is_file():
        return Run.load(folder)
    meta, scenario = read_meta(file), load_scenario(folder / "scenario.yaml")
    run = LargeRun(scenario, meta, folder)
    if int(scenario.jobs.chunks.sum()) >= CHUNKS and meta.get("world") is None and _as_written(run):
        return run
    return Run.load(folder)


def _as_written(run: LargeRun) -> bool:
    """Whether all tables are there, with the columns and types that skedge writes."""
    expected = schema(run.scenario.cluster.server_ids)
    if not all((run.folder / "tables" / f"{name}.parquet").is_file() for name in Schedule.names()):
        return False
    try:
        return all(run.tables.scan(name).collect_schema() == of for name, of in expected.items())
    except (OSError, pl.exceptions.PolarsError):
        return False
