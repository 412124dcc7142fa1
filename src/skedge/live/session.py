"""One live run from start to end: engine up, policy and kernel over the live world, record and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from skedge.core.drive import drive
from skedge.core.errors import InputError
from skedge.core.events import Event
from skedge.core.kernel import Journal, Kernel
from skedge.core.policy import Policy
from skedge.core.scenario import Scenario
from skedge.core.time import SECOND
from skedge.run import Run, meta_of, prepared, run
from skedge.scenario_schema import TrainForm

from .engine import Engine
from .ray_world import RayWorld
from .training import Program

TOLERANCE_S = 1.5
"""What clocks, messages and one mini-batch may cost in every comparison of times [s]."""


@dataclass(frozen=True)
class LiveRun:
    """What a live run gave.

    Attributes
    ----------
    run
        The record, as of a simulation; ``meta["tolerance"]`` says how exactly its times are to be taken.
    simulated
        The same scenario and policy simulated before, with the announced times: what was expected.
    results
        By job id: ``accuracy`` on its test data, and ``losses``: (version, loss) of every update.
    preemption_s
        From each decision to displace a chunk to the displacing one's start [s].
    """

    run: Run
    simulated: Run
    results: Mapping[str, Any]
    preemption_s: list[float]


def programs(scenario: Scenario, trains: Mapping[str, TrainForm]) -> dict[str, Program]:
    """What each job trains, cut into the scenario's chunks, epochs and mini-batches."""
    f = scenario.jobs.frame
    sizes = zip(f["id"], f["chunks"], f["epochs"], f["minibatches"], strict=True)
    return {
        name: Program(trains[name].factory, dict(trains[name].args), d, e, b, trains[name].seed)
        for name, d, e, b in sizes
    }


def run_live(
    scenario: Scenario,
    trains: Mapping[str, TrainForm],
    policy: str | Policy,
    folder: Path,
    *,
    address: str | None = None,
    progress: Callable[[Event], None] | None = None,
    journal: Journal | None = None,
) -> LiveRun:
    """Train the jobs of `scenario` under `policy`.

    Parameters
    ----------
    folder
        Where chunks and checkpoints lie while it runs.
    address
        Of a Ray cluster whose nodes have the label ``server``; None: Ray is started on this machine, and its servers
        get the speeds and links of the scenario.
    journal
        Where events and orders are written before they are carried out.

    Raises
    ------
    InputError
        If the scenario is slotted.
    SkedgeError
        If the Ray cluster lacks a server.
    """
    if scenario.physics.slotted:
        raise InputError("physics.slotted: a live run goes in continuous time; leave it out")
    expected = run(scenario, policy)  # simulating also compiles the policy's kernels, before the clock runs
    engine = Engine(scenario.cluster, folder, str(folder / "checkpoints"), address, cloud_ps=_ps_in_cloud(expected))
    try:
        return train(scenario, programs(scenario, trains), expected, engine, progress, journal)
    finally:
        engine.stop()


def _ps_in_cloud(expected: Run) -> int:
    """Jobs that have a PS in the cloud in a simulation, at least 1."""
    cluster = expected.scenario.cluster
    if cluster.cloud is None:
        return 0
    return max(1, expected.schedule.ps.filter(pl.col("server") == cluster.server_ids[cluster.cloud])["job"].n_unique())


def train(
    scenario: Scenario,
    works: Mapping[str, Program],
    expected: Run,
    engine: Engine,
    progress: Callable[[Event], None] | None = None,
    journal: Journal | None = None,
) -> LiveRun:
    """Train the jobs on an engine that is up, under the policy of the simulation `expected`."""
    made = prepared(expected.policy, scenario)
    world = RayWorld(scenario, works, engine, preemptive=made.lanes["preemptive"], emulate=engine.emulates)
    try:
        kernel = Kernel(scenario, made, journal)
        drive(kernel, world, progress)
        kernel.validate_state()
    finally:
        world.close()
    meta = {**meta_of(scenario, made), "world": "ray", "tolerance": int(TOLERANCE_S * SECOND)}
    record = Run(scenario, meta, kernel.record.schedule(world.runs()))
    results = {scenario.jobs.ids[job]: result for job, result in sorted(world.results.items())}
    return LiveRun(record, expected, results, world.preemption_s)
