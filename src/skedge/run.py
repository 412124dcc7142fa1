"""One run of a policy on a scenario, and the folder that it is kept in.

A run folder holds the resolved scenario (``scenario.yaml``, ``jobs.parquet``), ``run.json`` (policy, parameters, seed,
versions) and the record (``tables/*.parquet``): enough to repeat the run byte for byte.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from .analysis.metrics import metrics, utilisation
from .analysis.verify import Violation, verify
from .core.drive import drive
from .core.errors import PolicyError, RunFolderError
from .core.events import Event
from .core.kernel import Journal, Kernel
from .core.policy import Policy, make_policy
from .core.scenario import Scenario
from .core.schedule import Schedule
from .scenario_file import load_scenario, save_scenario
from .sim.world import SimulatedWorld

FORMAT = 1
"""Version of the run folder's form."""

_LIBRARIES = ("numpy", "numba", "polars")


@dataclass(frozen=True)
class Run:
    """What a run was made of and what came out.

    Attributes
    ----------
    scenario
        The resolved scenario.
    meta
        Content of ``run.json``: policy, params, lanes, seed, versions.
    schedule
        The record.
    """

    scenario: Scenario
    meta: Mapping[str, Any]
    schedule: Schedule

    @property
    def jobs(self) -> pl.DataFrame:
        """The jobs table of the record."""
        return self.schedule.jobs

    @property
    def policy(self) -> str:
        """The policy as ``name:key=value,...``."""
        return str(self.meta["policy"])

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Numbers of the run by key (:func:`skedge.analysis.metrics.metrics`)."""
        return metrics(self.scenario, self.schedule, self.meta)

    @cached_property
    def utilisation(self) -> pl.DataFrame:
        """Utilisation over time (:func:`skedge.analysis.metrics.utilisation`)."""
        return utilisation(self.scenario, self.schedule)

    def verify(self, limit: int = 20) -> list[Violation]:
        """Violations of the rules of ``docs/model.md``; an empty list if there are none."""
        return verify(self.scenario, self.schedule, self.meta, limit=limit)

    def save(self, folder: Path | str) -> Path:
        """Write the run folder; it appears whole or not at all.

        Raises
        ------
        RunFolderError
            If `folder` exists already, or cannot be written (a full disk).
        """
        with new_folder(folder) as aside:
            save_scenario(self.scenario, aside)
            (aside / "run.json").write_text(json.dumps(dict(self.meta), indent=2, sort_keys=True) + "\n")
            (aside / "tables").mkdir()
            for name, table in self.schedule.tables().items():
                table.write_parquet(aside / "tables" / f"{name}.parquet", compression="zstd", compression_level=1)
        return Path(folder)

    @staticmethod
    def load(folder: Path | str) -> Run:
        """Read a run folder.

        Raises
        ------
        RunFolderError
            If it is not one, or a part of it is missing.
        """
        folder = Path(folder)
        if not (folder / "run.json").is_file():
            raise RunFolderError(f"{folder}: is not a run folder (there is no run.json)")
        try:
            meta = json.loads((folder / "run.json").read_text())
            tables = {name: pl.read_parquet(folder / "tables" / f"{name}.parquet") for name in Schedule.names()}
        except (OSError, ValueError, pl.exceptions.PolarsError) as error:
            raise RunFolderError(f"{folder}: the run folder is incomplete or damaged: {error}") from error
        if not isinstance(meta, dict) or meta.get("format") != FORMAT:
            raise RunFolderError(f"{folder}/run.json: format is not {FORMAT}; this skedge reads format {FORMAT}")
        return Run(load_scenario(folder / "scenario.yaml"), meta, Schedule(**tables))


@contextmanager
def new_folder(folder: Path | str) -> Iterator[Path]:
    """A folder to write to that is renamed to `folder` at the end; on any failure nothing stays.

    Raises
    ------
    RunFolderError
        If `folder` exists already or cannot be written.
    """
    folder = Path(folder)
    if folder.exists():
        raise RunFolderError(f"{folder}: exists already; name a new folder or remove it")
    aside = folder.parent / f".{folder.name}.partial"
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        yield aside
        aside.rename(folder)
    except (OSError, pl.exceptions.ComputeError) as error:
        raise RunFolderError(f"{folder}: cannot be written: {error}; nothing was left behind") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def prepared(policy: str | Policy, scenario: Scenario) -> Policy:
    """The policy, with the constants that it takes from historical data calibrated on the scenario and frozen.

    Raises
    ------
    PolicyError
        If the policy is unknown, or the scenario lacks what it needs.
    """
    made = make_policy(policy) if isinstance(policy, str) else policy
    lacking = made.needs - _offers(scenario)
    if lacking:
        raise PolicyError(f"policy {made.name!r} needs {', '.join(sorted(lacking))}, which the scenario does not have")
    calibrated: Callable[[Scenario], Policy] | None = getattr(made, "calibrated", None)
    return made if calibrated is None else calibrated(scenario)


def _offers(scenario: Scenario) -> frozenset[str]:
    slots = scenario.cluster.lanes > 0 or scenario.cluster.cloud is not None
    return frozenset({"typed slots"} if slots else ())


def run(
    scenario: Scenario,
    policy: str | Policy = "aonline",
    *,
    progress: Callable[[Event], None] | None = None,
    journal: Journal | None = None,
) -> Run:
    """Simulate `policy` on `scenario`.

    Parameters
    ----------
    policy
        ``name`` or ``name:key=value,...``, or a policy of one's own.
    progress
        Told every event after it was answered.
    journal
        Where events and orders are written; the tables of the run need none.

    Raises
    ------
    PolicyError
        If the policy is unknown or does not fit the scenario.
    OrderError
        If the policy breaks a rule.
    """
    made = prepared(policy, scenario)
    kernel = Kernel(scenario, made, journal)
    world = SimulatedWorld(scenario, preemptive=made.lanes["preemptive"])
    drive(kernel, world, progress)
    kernel.validate_state()
    return Run(scenario, _meta(scenario, made), kernel.record.schedule(world.runs()))


def _meta(scenario: Scenario, policy: Policy) -> dict[str, Any]:
    params = policy.params.model_dump(mode="json")
    default = type(policy.params)().model_dump(mode="json")
    changed = ",".join(f"{key}={_written(value)}" for key, value in params.items() if value != default.get(key))
    return {
        "format": FORMAT,
        "policy": f"{policy.name}:{changed}" if changed else policy.name,
        "params": params,
        "lanes": policy.lanes,
        "seed": scenario.seed,
        "scenario": scenario.name,
        "versions": {"skedge": version("skedge"), **{name: version(name) for name in _LIBRARIES}},
    }


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
