"""A run of a policy on a scenario, and its folder.

A run folder holds the resolved scenario (``scenario.yaml``, ``jobs.parquet``), ``run.json`` (policy, parameters, seed,
versions) and the record (``tables/*.parquet``): enough to repeat the run byte for byte. The jobs and tables of a large
run stay there; it is verified and measured part by part.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from .analysis.metrics.metrics import metrics, utilisation
from .analysis.parts import Steps, counting, parts_of
from .analysis.verify.names import known_rows
from .analysis.verify.rules import Findings
from .analysis.verify.verify import Violation, verify
from .core.errors import PolicyError, RunFolderError, SkedgeError
from .core.model.scenario import Scenario
from .core.record.schedule import Schedule, schema
from .core.registry import first_line, make_policy
from .prepare import prepare_policy
from .runs.meta import broken_meta, meta_of, read_meta, registered_meta
from .runs.new_folder import new_folder
from .runs.writing import write_table
from .scenario.file import load_scenario
from .scenario.save import save_scenario

if TYPE_CHECKING:
    from .report.build import ReportRun
    from .report.plots import Plots


@dataclass(frozen=True, repr=False)
class Run:
    """A run: its inputs and its record.

    Attributes
    ----------
    scenario
        The resolved scenario.
    meta
        Content of ``run.json``: policy, params, lanes, seed, versions.
    schedule
        The record.
    decisions_s
        CPU time of the policy's decisions [s]: the simulation's, by their share of its wall-clock time. None for a run
        read from its folder, and for one in a compiled loop (:mod:`skedge.loops`).
    steps
        Called after each part that is checked, verified or measured.
    """

    scenario: Scenario
    meta: Mapping[str, Any]
    schedule: Schedule
    decisions_s: float | None = field(default=None, compare=False)
    steps: Steps | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """Policy, scenario, seed and size."""
        return f"<Run of {self.policy} on {self.scenario.name}, seed {self.scenario.seed}: {self.scenario.count} jobs>"

    @property
    def jobs(self) -> pl.DataFrame:
        """The jobs table of the record."""
        return self.schedule.jobs

    @property
    def policy(self) -> str:
        """The policy as ``name:key=value,...``."""
        return str(self.meta["policy"])

    @property
    def live(self) -> bool:
        """Whether jobs were really trained; False for a simulation."""
        return self.meta.get("world") is not None

    @property
    def tolerance(self) -> int:
        """Tolerance for times [µs]; 0 in a simulation, whatever ``run.json`` says."""
        # a simulation is exact: an edited run.json must not loosen its check
        return int(self.meta.get("tolerance", 0)) if self.live else 0

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Numbers of the run by key (:func:`skedge.analysis.metrics.metrics.metrics`)."""
        return metrics(self.scenario, self.schedule, registered_meta(self.meta), self.steps)

    @cached_property
    def utilisation(self) -> pl.DataFrame:
        """Utilisation over time (:func:`skedge.analysis.metrics.metrics.utilisation`)."""
        return utilisation(self.scenario, self.schedule)

    # The report is imported where it is asked for: reading, verifying or measuring a run needs none of it.

    @property
    def plot(self) -> Plots:
        """The charts: ``run.plot.lanes()``, ``.jct()`` and ``.utilisation()``."""
        from .report.plots import Plots  # noqa: PLC0415

        return Plots([self.shown()])

    def shown(self, label: str | None = None) -> ReportRun:
        """The run as reports and charts take it, under `label`; None: the policy."""
        from .report.build import ReportRun  # noqa: PLC0415

        return ReportRun(label or self.policy, self.scenario, self.schedule, self.metrics, self.utilisation)

    def report(self, title: str | None = None, command: str = "skedge.run") -> str:
        """The report as one HTML page: metrics, lanes and charts; `command` is how it was made."""
        return report_of_runs([self], title or f"skedge: {self.policy} on {self.scenario.name}", command)

    def _repr_html_(self) -> str:
        """Metrics and lanes, as Jupyter shows them."""
        from .report.notebook import notebook_html  # noqa: PLC0415
        from .report.table import metrics_table  # noqa: PLC0415

        return notebook_html(repr(self), metrics_table([(self.policy, self.metrics)]), [self.plot.lanes()])

    def verify(self, limit: int = 20) -> list[Violation]:
        """Violations of the rules of ``docs/model.md``; an empty list if there are none.

        Times of a live run are compared with the tolerance in its ``run.json``, times of a simulation exactly.
        """
        meta, tolerance = registered_meta(self.meta), self.tolerance
        stated = broken_inputs(self.meta, self.scenario, self._end() if self.live else 0, limit)
        violations = verify(self.scenario, self.schedule, meta, tolerance=tolerance, limit=limit, steps=self.steps)
        return [*violations, *stated]

    def _end(self) -> int:
        """The last instant on record [µs]; 0 if nothing happened."""
        # a live run may decide after the last completion, and a job may run without completing
        last = (self.schedule.decisions["time"].max(), self.schedule.runs["end"].max(), self.jobs["completion"].max())
        return max((int(time) for time in last if time is not None), default=0)  # type: ignore[arg-type]

    def check_complete(self) -> None:
        """Reject a record with impossible rows (M1), from which nothing can be computed.

        Raises
        ------
        RunFolderError
            Naming the first such row, or that a job is missing.
        """
        ranges = self.scenario.ranges
        done = counting(self.steps, "checking parts", len(ranges))
        for first, part, rows in parts_of(self.scenario, self.schedule, ranges, done):
            findings = Findings(part, 1)
            known_rows(part, rows, findings, first_job=first)
            faults = [violation.message for violation in findings.all()]
            if not faults and rows.jobs["job"].to_list() != list(range(part.count)):
                faults = [f"the jobs table does not have the {self.scenario.count} jobs of the scenario, each once"]
            if faults:
                raise RunFolderError(f"the record is damaged: {faults[0]}; `skedge verify` names all that is wrong")

    def save(self, folder: Path | str) -> Path:
        """Write the run folder, completely or not at all.

        Raises
        ------
        RunFolderError
            If `folder` already exists or cannot be written (for instance, the disk is full).
        """
        with new_folder(folder) as temp_folder:
            self.write(temp_folder)
        return Path(folder)

    def write(self, folder: Path) -> None:
        """Write the files of the run folder into `folder`, which exists (see :func:`new_folder`)."""
        (folder / "run.json").write_text(_json(self.meta), encoding="utf-8")
        # a run that was written as it went has its scenario and tables there
        if not (folder / "tables").is_dir():
            save_scenario(self.scenario, folder)
            (folder / "tables").mkdir()
            for name, table in self.schedule.tables().items():
                write_table(folder / "tables", name, table)

    @staticmethod
    def load(folder: Path | str) -> Run:
        """Read a run folder.

        Raises
        ------
        RunFolderError, ScenarioError
            If it is not a run folder, or a part of it is missing or damaged; names the file.
        """
        folder = Path(folder)
        if not os.path.isfile(folder / "run.json"):
            raise RunFolderError(f"{folder}: is not a run folder (there is no run.json)")
        meta = read_meta(folder / "run.json")
        scenario = load_scenario(folder / "scenario.yaml")
        schedule = stored_schedule(folder / "tables", scenario)
        return Run(scenario, meta, schedule)


def stored_schedule(folder: Path, scenario: Scenario) -> Schedule:
    """The record in `folder`; that of a scenario whose jobs stay in their file stays there, too.

    Raises
    ------
    RunFolderError
        If a table is missing or damaged; names the file.
    """
    columns = {folder / f"{name}.parquet": kinds for name, kinds in schema(scenario.cluster.server_ids).items()}
    # tables of other types are changed as they are read into memory
    if scenario.unread is not None and _are_as_written(columns):
        return Schedule.in_files(folder)
    return Schedule(**{path.stem: _read_table(path, kinds) for path, kinds in columns.items()})


def _are_as_written(columns: Mapping[Path, pl.Schema]) -> bool:
    """Whether the tables have the columns and types that skedge writes."""
    try:
        return all(pl.read_parquet_schema(path) == kinds for path, kinds in columns.items())
    except (OSError, pl.exceptions.PolarsError):
        return False


def broken_inputs(meta: Mapping[str, Any], scenario: Scenario, end: int, limit: int) -> list[Violation]:
    """Violations of M37: contradictions in the inputs on record.

    Parameters
    ----------
    meta
        Content of ``run.json``.
    scenario
        The resolved scenario; its jobs are needed for policies that are calibrated on them.
    end
        The last instant on record [µs].
    limit
        Most violations.
    """
    texts = [*broken_meta(meta, scenario, end), *_uncalibrated(str(meta["policy"]), scenario)]
    return [Violation("M37", "definition", None, None, text) for text in texts[:limit]]


def _uncalibrated(policy: str, scenario: Scenario) -> Iterator[str]:
    """Violations of M37: missing constants of a policy that is calibrated on its jobs."""
    try:
        instance = make_policy(policy)
    except PolicyError:
        return  # the parameters of a third-party policy may mean anything
    try:
        calibrated = prepare_policy(instance, scenario)
    except SkedgeError as error:
        yield f"run.json: policy {policy} cannot run on the scenario: {error}"
        return
    # calibrating a policy that has its constants changes nothing
    if calibrated.params != instance.params:
        right = meta_of(scenario, calibrated)["policy"]
        yield f"run.json: policy {policy} lacks the constants that it takes from jobs; with them it is {right}"


def load_complete(folder: Path | str) -> Run:
    """Read a run folder whose record must be usable for computations.

    Raises
    ------
    RunFolderError, ScenarioError
        As :meth:`Run.load` and :meth:`Run.check_complete`; names the folder.
    """
    result = Run.load(folder)
    with naming_folder(folder):
        result.check_complete()
    return result


def side_by_side(runs: Sequence[Run]) -> list[ReportRun]:
    """Runs as reports and charts take them; those of one policy are told apart by numbers."""
    from .report.build import unique_labels  # noqa: PLC0415

    labels = unique_labels([run.policy for run in runs])
    return [run.shown(label) for label, run in zip(labels, runs, strict=True)]


def report_of_runs(runs: Sequence[Run], title: str, command: str) -> str:
    """The report of runs side by side as one HTML page; `command` is how it was made."""
    from .report.build import build_report  # noqa: PLC0415

    versions = ", ".join(f"{name} {number}" for name, number in runs[0].meta.get("versions", {}).items())
    return build_report(side_by_side(runs), title=title, settings={"versions": versions, "command": command})


@contextmanager
def naming_folder(folder: Path | str) -> Iterator[None]:
    """Name the folder in errors about its record.

    Raises
    ------
    RunFolderError
        As the block does, with the folder before the message.
    """
    try:
        yield
    except RunFolderError as error:
        raise RunFolderError(f"{folder}: {error}") from error


def _json(meta: Mapping[str, Any]) -> str:
    return json.dumps(dict(meta), indent=2, sort_keys=True, allow_nan=False) + "\n"


def _read_table(path: Path, columns: Mapping[str, Any]) -> pl.DataFrame:
    """Read a table of the record; types may differ from ours (a third-party record), but not their kinds."""
    try:
        table = pl.read_parquet(path, glob=False)  # brackets in a path are no pattern
    except (OSError, pl.exceptions.PolarsError) as error:
        raise RunFolderError(f"{path}: the run folder is incomplete or damaged: {first_line(error)}") from error
    for name, kind in columns.items():
        # another program's integers may be narrower than ours; text instead of numbers is damage
        if name not in table.columns or _kind(table.schema[name]) != _kind(kind):
            raise RunFolderError(
                f"{path}: the run folder is damaged: it has no column {name!r} of {_kind(kind)} values"
            )
    try:
        return table.select(_as(name, table.schema[name], kind) for name, kind in columns.items())
    except pl.exceptions.PolarsError as error:
        raise RunFolderError(f"{path}: the run folder is damaged: {first_line(error)}") from error


def _as(name: str, dtype: pl.DataType, kind: pl.DataType) -> pl.Expr:
    """A column in the type of the record; unknown names become null, which rule M1 reports."""
    column = pl.col(name)
    if dtype == kind or (isinstance(kind, pl.Categorical) and isinstance(dtype, pl.Categorical)):
        return column
    # by way of text: two categorical types have different codes for one name
    return column.cast(pl.String).cast(kind, strict=False) if _kind(kind) == "text" else column.cast(kind)


def _kind(dtype: pl.DataType) -> str:
    if dtype.is_integer():
        return "whole-number"
    if dtype.is_float():
        return "number"
    if dtype == pl.Boolean:
        return "true-or-false"
    return "text" if dtype in (pl.String, pl.Categorical, pl.Enum) else str(dtype)
