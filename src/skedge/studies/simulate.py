"""Carries simulated studies out, several runs at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from skedge.run import run
from skedge.scenario_file import scenario_from_dict

from .sweep import Simulation

Verified = tuple[str, ...]
"""Rules that a record breaks, a sentence each."""


def carry_out(
    simulations: Sequence[Simulation],
    metric: str,
    progress: Callable[[str, Verified], None],
    *,
    processes: int = -1,
) -> list[dict[str, Any]]:
    """Carry all of them out; a row of results each, in the order asked for.

    `progress` is told a run's label, and which rules its record breaks, when it is done.
    """
    found: dict[str, float] = {}
    work = (delayed(_one)(one, metric) for one in simulations)
    for label, value, broken in Parallel(n_jobs=processes, return_as="generator_unordered")(work):
        found[label] = value
        progress(label, broken)
    return [{"seed": one.seed, **one.place, "value": found[one.label]} for one in simulations]


def _one(one: Simulation, metric: str) -> tuple[str, float, Verified]:
    scenario = scenario_from_dict(one.data, one.label, Path())
    done = run(scenario, one.policy)
    broken = tuple(f"{v.rule} {v.constraint}: {v.message}" for v in done.verify(limit=3))
    return one.label, float(done.metrics[metric]), broken
