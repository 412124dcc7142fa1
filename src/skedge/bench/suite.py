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
"""A minute a policy; the size of the papers' simulations; what needs a compiled policy."""

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
        content = _merged(entry["scenario"], entry["sizes"][self.size]) | {"name": self.name}
        return scenario_from_dict(content, f"suite {VERSION}, {self.name}", Path(), self.seed)

    def frozen(self) -> Frozen:
        """What is stored of it."""
        return Frozen(**_stored()[self.size][self.name][self.seed])

    def reference(self) -> Reference:
        """Its stored bound, which scores are relative to."""
        frozen, problem = self.frozen(), _entries()[self.name]["problem"]
        of = PROBLEMS[problem]
        return Reference(problem, of.metric, of.sense, Bound(frozen.bound, frozen.value, 0.0))

    def frozen_anew(self) -> Frozen:
        """What is to be stored of it, computed: its hash and the best bound that takes seconds."""
        scenario, of = self.scenario(), PROBLEMS[_entries()[self.name]["problem"]]
        best = best_bound(of.bounds(scenario, True), of.sense)
        return Frozen(hash_of(scenario), best.name, best.value)


@dataclass(frozen=True)
class Frozen:
    """What does not change within a version of the suite: a scenario's hash, the bound's name and its value."""

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
    given = {job: dict(delays) for job, delays in sorted(scenario.jobs.fixed_delays.items())}
    text = json.dumps([cluster_fields(scenario), given], sort_keys=True) + scenario.jobs.frame.write_ndjson()
    return blake2b(text.encode(), digest_size=16).hexdigest()


def frozen_table(sizes: tuple[str, ...] = SIZES) -> Iterator[tuple[Task, dict[str, Any]]]:
    """Compute what is stored of each task anew."""
    for size in sizes:
        for task in tasks(size, SEEDS[size]):
            yield task, asdict(task.frozen_anew())


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`, mapping by mapping."""
    both = {key: _merged(base[key], over[key]) for key in base if isinstance(over.get(key), Mapping)}
    return {**base, **over, **both}


def _file(suffix: str) -> Path:
    return Path(str(files(__package__))) / f"suite-{VERSION}.{suffix}"


@cache
def _entries() -> dict[str, Any]:
    content: Any = read_yaml(_file("yaml"))
    return dict(content["scenarios"])


@cache
def _stored() -> dict[str, Any]:
    return dict(json.loads(_file("json").read_text(encoding="utf-8")))
