"""The frozen scenarios of a suite, their hashes and their proved bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any

from skedge.core.errors import InputError
from skedge.core.model.scenario import Scenario
from skedge.optimum.problems import PROBLEMS, Reference
from skedge.optimum.types import Bound, best_bound
from skedge.scenario.file import scenario_from_dict
from skedge.scenario.save import cluster_fields
from skedge.scenario.yaml import read_yaml

VERSION = 1
"""Version of the suite; results of different versions are not compared."""

SIZES = ("small", "paper", "large")
"""small: a minute a policy; paper: the size of the papers' simulations; large: only for compiled policies."""

SEEDS = {"small": 3, "paper": 3, "large": 1}
"""Seeds with a proved bound by size: 0, 1, ..."""


@dataclass(frozen=True)
class Task:
    """A scenario of the suite at a size and a seed, which a policy is to schedule."""

    name: str
    size: str
    seed: int

    @property
    def group(self) -> str:
        """The group of scenarios that the leaderboard ranks together."""
        return str(_entries()[self.name]["group"])

    def scenario(self) -> Scenario:
        """Draw the scenario."""
        entry = _entries()[self.name]
        content = _deep_merge(entry["scenario"], entry["sizes"][self.size]) | {"name": self.name}
        return scenario_from_dict(content, f"suite {VERSION}, {self.name}", Path(), self.seed)

    def frozen(self) -> FrozenTask:
        """The stored hash and bound of the task."""
        return FrozenTask(**_stored()[self.size][self.name][self.seed])

    def reference(self) -> Reference:
        """Its stored bound, which scores are relative to."""
        frozen, problem = self.frozen(), _entries()[self.name]["problem"]
        definition = PROBLEMS[problem]
        # 0.0 s: the bound was proved when the suite was frozen, not now.
        return Reference(problem, definition.metric, definition.sense, Bound(frozen.bound, frozen.value, 0.0))

    def compute_frozen(self) -> FrozenTask:
        """Compute the hash and the bound to store: the best bound that takes seconds."""
        scenario, definition = self.scenario(), PROBLEMS[_entries()[self.name]["problem"]]
        # True: only bounds that take seconds, so that anyone can compute them again.
        best = best_bound(definition.bounds(scenario, True), definition.sense)
        return FrozenTask(hash_of(scenario), best.name, best.value)


@dataclass(frozen=True)
class FrozenTask:
    """A scenario's hash, and the name and value of its bound; a version of the suite never changes them."""

    hash: str
    bound: str
    value: float


def tasks(size: str, seeds: int = 1) -> list[Task]:
    """The tasks of a size, each scenario with the first `seeds` seeds.

    Raises
    ------
    InputError
        If there is no such size, or there are fewer seeds.
    """
    if size not in SIZES:
        raise InputError(f"size {size!r} is unknown; a suite has {', '.join(SIZES)}")
    if not 1 <= seeds <= SEEDS[size]:
        raise InputError(f"seeds: {seeds}; at size {size} bounds are proved for 1 to {SEEDS[size]}")
    return [Task(name, size, seed) for name in _entries() for seed in range(seeds)]


def hash_of(scenario: Scenario) -> str:
    """Hash of a scenario's values; unlike a hash of its file it is the same with other versions of the libraries."""
    delays_by_job = {job: dict(delays) for job, delays in sorted(scenario.jobs.fixed_delays.items())}
    # Of values in a fixed order, not of pickles or files: those differ between versions of polars.
    text = json.dumps([cluster_fields(scenario), delays_by_job], sort_keys=True) + scenario.jobs.frame.write_ndjson()
    return blake2b(text.encode(), digest_size=16).hexdigest()


def frozen_table(sizes: tuple[str, ...] = SIZES) -> Iterator[tuple[Task, dict[str, Any]]]:
    """Compute the stored hash and bound of each task again."""
    for size in sizes:
        for task in tasks(size, SEEDS[size]):
            yield task, asdict(task.compute_frozen())


def _deep_merge(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `overrides`, mapping by mapping."""
    nested = {key: _deep_merge(base[key], overrides[key]) for key in base if isinstance(overrides.get(key), Mapping)}
    return {**base, **overrides, **nested}


def _file(suffix: str) -> Path:
    return Path(str(files(__package__))) / f"suite-{VERSION}.{suffix}"


@cache
def _entries() -> dict[str, Any]:
    content: Any = read_yaml(_file("yaml"))
    return dict(content["scenarios"])


@cache
def _stored() -> dict[str, Any]:
    return dict(json.loads(_file("json").read_text(encoding="utf-8")))
