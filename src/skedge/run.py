"""One run of a policy on a scenario, and its folder.

A run folder holds the resolved scenario (``scenario.yaml``, ``jobs.parquet``), ``run.json`` (policy, parameters, seed,
versions) and the record (``tables/*.parquet``): enough to repeat the run byte for byte.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import polars as pl

from .analysis.metrics.metrics import metrics, utilisation
from .analysis.verify.names import known_rows
from .analysis.verify.rules import Findings
from .analysis.verify.verify import Violation, verify
from .core.errors import PolicyError, RunFolderError, ScenarioError, SkedgeError
from .core.events import Event
from .core.kernel.drive import drive_to_end
from .core.kernel.kernel import Journal, Kernel
from .core.model.kinds import kind_of
from .core.model.scenario import Scenario
from .core.policy import AnyPolicy, Need, Policy
from .core.record.schedule import Schedule, schema
from .core.registry import make_policy, policy_of, registered
from .platform.malloc import trim_malloc
from .platform.signals import deferred_signals
from .report.build import ReportRun, build_report, unique_labels
from .report.notebook import notebook_html
from .report.plots import Plots
from .report.table import metrics_table
from .runs.meta import broken_meta, meta_of, read_meta, registered_meta
from .runs.stopwatch import Stopwatch, WatchedPolicy, WatchedWorld
from .runs.writing import write_table
from .scenario.file import load_jobs, load_scenario, scenario_of
from .scenario.save import save_scenario
from .sim.failures import world_of

LARGE = 5_000
"""Jobs from which on :mod:`skedge.quick` is used where it can be: smaller runs do not earn back its compilation."""

SMALL = 500
"""Jobs from which on it is used if its kernels are in the cache."""


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
        read from its folder, and for one in a compiled loop (:mod:`skedge.quick`).
    """

    scenario: Scenario
    meta: Mapping[str, Any]
    schedule: Schedule
    decisions_s: float | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """Policy, scenario, seed and size."""
        return (
            f"<Run of {self.policy} on {self.scenario.name}, seed {self.scenario.seed}: {len(self.scenario.jobs)} jobs>"
        )

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
        return int(self.meta.get("tolerance", 0)) if self.live else 0

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Numbers of the run by key (:func:`skedge.analysis.metrics.metrics.metrics`)."""
        return metrics(self.scenario, self.schedule, registered_meta(self.meta))

    @cached_property
    def utilisation(self) -> pl.DataFrame:
        """Utilisation over time (:func:`skedge.analysis.metrics.metrics.utilisation`)."""
        return utilisation(self.scenario, self.schedule)

    @property
    def plot(self) -> Plots:
        """The charts: ``run.plot.lanes()``, ``.jct()`` and ``.utilisation()``."""
        return Plots([self.shown()])

    def shown(self, label: str | None = None) -> ReportRun:
        """The run as reports and charts take it, under `label`; None: the policy."""
        return ReportRun(label or self.policy, self.scenario, self.schedule, self.metrics, self.utilisation)

    def report(self, title: str | None = None, command: str = "skedge.run") -> str:
        """The report as one HTML page: metrics, lanes and charts; `command` is how it was made."""
        return report([self], title or f"skedge: {self.policy} on {self.scenario.name}", command)

    def _repr_html_(self) -> str:
        """Metrics and lanes, as Jupyter shows them."""
        return notebook_html(repr(self), metrics_table([(self.policy, self.metrics)]), [self.plot.lanes()])

    def verify(self, limit: int = 20) -> list[Violation]:
        """Violations of the rules of ``docs/model.md``; an empty list if there are none.

        Times of a live run are compared with the tolerance in its ``run.json``, times of a simulation exactly.
        """
        meta, tolerance = registered_meta(self.meta), self.tolerance
        stated = broken_inputs(self.meta, self.scenario, self._end(), limit)
        return [*verify(self.scenario, self.schedule, meta, tolerance=tolerance, limit=limit), *stated]

    def _end(self) -> int:
        """The last instant on record [µs]; 0 if nothing happened."""
        last = (self.schedule.decisions["time"].max(), self.schedule.runs["end"].max(), self.jobs["completion"].max())
        return max((int(time) for time in last if time is not None), default=0)  # type: ignore[arg-type]

    def check_complete(self) -> None:
        """Reject a record with impossible rows (M1), from which nothing can be computed.

        Raises
        ------
        RunFolderError
            Naming the first such row.
        """
        must_be_known(self.scenario, self.schedule, self.scenario.count)

    def save(self, folder: Path | str) -> Path:
        """Write the run folder, completely or not at all.

        Raises
        ------
        RunFolderError
            If `folder` already exists or cannot be written (for instance, the disk is full).
        """
        with new_folder(folder) as aside:
            self.write(aside)
        return Path(folder)

    def write(self, folder: Path) -> None:
        """Write the parts of the run folder into `folder`, which exists (see :func:`new_folder`)."""
        save_scenario(self.scenario, folder)
        write_meta(self.meta, folder)
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
        columns = schema(scenario.cluster.server_ids)
        tables = {name: _read_table(folder / "tables" / f"{name}.parquet", columns[name]) for name in Schedule.names()}
        return Run(scenario, meta, Schedule(**tables))


def must_be_known(scenario: Scenario, schedule: Schedule, count: int, first_job: int = 0) -> None:
    """:meth:`Run.check_complete` of a record of `count` jobs, or of its part that begins with `first_job`."""
    found = Findings(scenario, 1)
    known_rows(scenario, schedule, found, first_job=first_job)
    wrong = [violation.message for violation in found.all()]
    if not wrong and schedule.jobs["job"].to_list() != list(range(scenario.count)):
        wrong = [f"the jobs table does not have the {count} jobs of the scenario, each once"]
    if wrong:
        raise RunFolderError(f"the record is damaged: {wrong[0]}; `skedge verify` names all that is wrong")


def write_meta(meta: Mapping[str, Any], folder: Path) -> None:
    """Write ``run.json``."""
    (folder / "run.json").write_text(_json(meta), encoding="utf-8")


def broken_inputs(meta: Mapping[str, Any], scenario: Scenario, end: int, limit: int) -> list[Violation]:
    """Violations of M37, at most `limit`; `end` is the last instant on record [µs]."""
    texts = [*broken_meta(meta, scenario, end), *_uncalibrated(str(meta["policy"]), scenario)]
    return [Violation("M37", "definition", None, None, text) for text in texts[:limit]]


def _uncalibrated(policy: str, scenario: Scenario) -> Iterator[str]:
    """Violations of M37: missing constants of a policy that is calibrated on its jobs."""
    try:
        made = make_policy(policy)
    except PolicyError:
        return  # the parameters of a third-party policy may mean anything
    try:
        ready = prepared(made, scenario)
    except SkedgeError as error:
        yield f"run.json: policy {policy} cannot run on the scenario: {error}"
        return
    if ready.params != made.params:
        right = meta_of(scenario, ready)["policy"]
        yield f"run.json: policy {policy} lacks the constants that it takes from jobs; with them it is {right}"


def report(runs: Sequence[Run], title: str, command: str) -> str:
    """The report of runs side by side as one HTML page; `command` is how it was made."""
    versions = ", ".join(f"{name} {number}" for name, number in runs[0].meta.get("versions", {}).items())
    return build_report(side_by_side(runs), title=title, settings={"versions": versions, "command": command})


def side_by_side(runs: Sequence[Run]) -> list[ReportRun]:
    """Runs as reports and charts take them; those of one policy are told apart by numbers."""
    labels = unique_labels([run.policy for run in runs])
    return [run.shown(label) for label, run in zip(labels, runs, strict=True)]


def load_complete(folder: Path | str) -> Run:
    """Read a run folder whose record must be usable for computations.

    Raises
    ------
    RunFolderError, ScenarioError
        As :meth:`Run.load` and :meth:`Run.check_complete`; names the folder.
    """
    result = Run.load(folder)
    with named(folder):
        result.check_complete()
    return result


@contextmanager
def named(folder: Path | str) -> Iterator[None]:
    """Name the folder in errors about its record."""
    try:
        yield
    except RunFolderError as error:
        raise RunFolderError(f"{folder}: {error}") from error


def _json(meta: Mapping[str, Any]) -> str:
    return json.dumps(dict(meta), indent=2, sort_keys=True, allow_nan=False) + "\n"


def _read_table(path: Path, columns: Mapping[str, Any]) -> pl.DataFrame:
    """Read a table of the record; types may differ from ours (a third-party record), but not their kinds."""
    try:
        table = pl.read_parquet(path, glob=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise RunFolderError(f"{path}: the run folder is incomplete or damaged: {_first_line(error)}") from error
    for name, kind in columns.items():
        if name not in table.columns or _kind(table.schema[name]) != _kind(kind):
            raise RunFolderError(
                f"{path}: the run folder is damaged: it has no column {name!r} of {_kind(kind)} values"
            )
    try:
        return table.select(_as(name, table.schema[name], kind) for name, kind in columns.items())
    except pl.exceptions.PolarsError as error:
        raise RunFolderError(f"{path}: the run folder is damaged: {_first_line(error)}") from error


def _as(name: str, is_: pl.DataType, kind: pl.DataType) -> pl.Expr:
    """A column in the type of the record; unknown names become null, which rule M1 reports."""
    column = pl.col(name)
    if is_ == kind or (isinstance(kind, pl.Categorical) and isinstance(is_, pl.Categorical)):
        return column
    return column.cast(pl.String).cast(kind, strict=False) if _kind(kind) == "text" else column.cast(kind)


def _kind(of: pl.DataType) -> str:
    if of.is_integer():
        return "whole-number"
    if of.is_float():
        return "number"
    if of == pl.Boolean:
        return "true-or-false"
    return "text" if of in (pl.String, pl.Categorical, pl.Enum) else str(of)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextmanager
def new_folder(folder: Path | str, *, replacing: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `folder` at the end; on any failure nothing is left.

    If entered before the work, it detects early that nothing can be written. With `replacing`, an existing folder is
    removed at the end.

    Raises
    ------
    RunFolderError
        If `folder` already exists (unless `replacing`) or cannot be written.
    """
    target = Path(os.path.abspath(folder))
    if os.path.lexists(target) and not replacing:
        raise RunFolderError(f"{folder}: exists already; name a new folder or remove it")
    aside = target.parent / f".{target.name}.{os.getpid()}.partial"
    made: list[Path] = []
    try:
        _make_parents(target.parent, made)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        yield aside
        if replacing and target.is_dir():
            shutil.rmtree(target)
        aside.rename(target)
        made.clear()
    except (OSError, pl.exceptions.ComputeError) as error:
        raise RunFolderError(
            f"{folder}: cannot be written: {_reason(error, aside)}; nothing was left behind"
        ) from error
    finally:
        with deferred_signals():  # a second Ctrl-C must not leave anything behind
            shutil.rmtree(aside, ignore_errors=True)
            _remove_empty(made)


def _make_parents(folder: Path, made: list[Path]) -> None:
    """Create `folder` and its missing parents, and add those created to `made`."""
    if not folder.is_dir():
        if os.path.lexists(folder):
            raise NotADirectoryError(errno.ENOTDIR, f"{folder} is not a folder")
        _make_parents(folder.parent, made)
        folder.mkdir()
        made.append(folder)


def _remove_empty(folders: list[Path]) -> None:
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()


def _reason(error: Exception, folder: Path) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    # polars says of a full disk that the file's format is wrong, if it is its last bytes that find no room
    if folder.is_dir() and shutil.disk_usage(folder).free < _LAST_BYTES:
        return os.strerror(errno.ENOSPC)
    return _first_line(error)


_LAST_BYTES = 100_000
"""Free space below which a table that could not be written was too large for the disk [bytes]."""


def prepared(policy: AnyPolicy, scenario: Scenario) -> Policy:
    """The policy, with the constants that it takes from historical data calibrated on the scenario.

    Raises
    ------
    PolicyError
        If the policy is unknown, or the scenario lacks what it needs.
    """
    made = policy_of(policy)
    lacking = made.needs - offers(scenario)
    if lacking:
        fit = ", ".join(name for name in sorted(registered()) if _fits(name, scenario))
        raise PolicyError(
            f"policy {made.name!r} needs {', '.join(sorted(lacking))}, which the scenario does not have; policies that "
            f"fit it: {fit or 'none'}"
        )
    if not _shares(made, scenario):
        fit = ", ".join(name for name in sorted(registered()) if _fits(name, scenario))
        raise PolicyError(
            f"policy {made.name!r} does not keep to tenants and priority classes, and the cluster has some "
            f"(cluster.sharing); policies that do: {fit or 'none'}"
        )
    return made.calibrated(_history(made, scenario))


def _shares(policy: Policy, scenario: Scenario) -> bool:
    """Whether a policy keeps to the sharing of the scenario's cluster, if there is any."""
    return scenario.cluster.sharing is None or bool(getattr(policy, "shares", False))


def _fits(name: str, scenario: Scenario) -> bool:
    """Whether a policy can run on `scenario`; False if its package is broken."""
    try:
        made = make_policy(name)
        return made.needs <= offers(scenario) and _shares(made, scenario)
    except PolicyError:
        return False


def _history(policy: Policy, scenario: Scenario) -> Scenario:
    """The scenario with the jobs used for calibration: its own, or those of the policy's file."""
    if not policy.history:
        return scenario
    try:
        return replace(scenario, jobs=load_jobs(policy.history, scenario.cluster))
    except ScenarioError as error:
        raise PolicyError(f"price_source: {error}; it must be a table of jobs") from error


def for_service(policy: AnyPolicy, scenario: Scenario) -> Policy:
    """The policy for a service on the cluster of `scenario`, whose jobs are not known in advance.

    Raises
    ------
    PolicyError
        As :func:`prepared`; also if jobs may arrive that the policy cannot handle there.
    """
    made = prepared(policy, scenario)
    reason = made.incompatibility(scenario.cluster)
    if reason is not None:
        raise PolicyError(f"{made.name} cannot serve this cluster: {reason}")
    return made


def offers(scenario: Scenario) -> frozenset[Need]:
    """The requirements of policies that the scenario meets, in the words of their `needs`."""
    offered = kind_of(scenario.cluster).offers(scenario)
    if None not in scenario.jobs.utility:
        offered.add("a utility of every job")
    if scenario.physics.horizon is not None:
        offered.add("a horizon")
    return frozenset(offered)


def run(
    scenario: Scenario | Path | str,
    policy: AnyPolicy = "aonline",
    *,
    progress: Callable[[Event], None] | None = None,
    journal: Journal | None = None,
    profile: Stopwatch | None = None,
) -> Run:
    """Simulate `policy` on `scenario`.

    Parameters
    ----------
    scenario
        A scenario, its file, or the name of a shipped one.
    policy
        ``name`` or ``name:key=value,...``, a policy object, or its class.
    progress
        Called with each event after its orders were carried out; in a compiled run (:mod:`skedge.quick`) now and then,
        with the jobs that have completed since the last call.
    journal
        Where to write events and orders; not needed for the tables of the run.
    profile
        Counts the CPU time of the run by stage.

    Raises
    ------
    ScenarioError
        If there is no such file or shipped scenario, or it is wrong.
    PolicyError
        If the policy is unknown or does not fit the scenario.
    OrderError
        If the policy breaks a rule.
    """
    scenario = scenario_of(scenario)
    made = prepared(policy, scenario)
    watch = profile or Stopwatch()
    if journal is None and len(scenario.jobs) >= min(SMALL, LARGE):
        from .quick.which import loop_for  # noqa: PLC0415 - it imports the policies that it covers

        simulate = loop_for(scenario, made, compiling=len(scenario.jobs) >= LARGE)
        if simulate is not None:
            with watch.counting("loop"):
                schedule = simulate(scenario, made, progress)
                if len(scenario.jobs) >= LARGE:
                    trim_malloc()  # verification needs as much again
            return Run(scenario, meta_of(scenario, made), schedule)
    return _driven(scenario, made, progress, journal, watch, split=profile is not None)


def _driven(
    scenario: Scenario,
    policy: Policy,
    progress: Callable[[Event], None] | None,
    journal: Journal | None,
    watch: Stopwatch,
    *,
    split: bool,
) -> Run:
    """The run of a policy that the kernel asks event by event; `split`: count the world's CPU time apart."""
    with watch.simulating("kernel"):
        kernel = Kernel(scenario, cast("Policy", WatchedPolicy(policy, watch)), journal)
        world = world_of(kernel)
        driven = WatchedWorld(world, watch) if split else world
        drive_to_end(kernel, driven, None if progress is None else lambda event, _: progress(event))
        kernel.validate_state()
    with watch.counting("record"):
        schedule = kernel.record.schedule(world.runs())
    del kernel.view  # it refers to the kernel, whose books would take memory until they are found to be garbage
    return Run(scenario, meta_of(scenario, policy), schedule, watch.seconds["decide"])
