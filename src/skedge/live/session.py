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

    Raises
    ------
    InputError
        If the extra ``live`` is not installed, or the scenario is slotted.
    """
    if scenario.physics.slotted:
        raise InputError("physics.slotted: a live run goes in continuous time; leave it out")
    made, expected = prepared(policy, scenario), run(scenario, policy)  # simulating also compiles the policy's kernels
    works = programs(scenario, trains)
    cloud = None if scenario.cluster.cloud is None else scenario.cluster.server_ids[scenario.cluster.cloud]
    in_cloud = expected.schedule.ps.filter(pl.col("server") == cloud)["job"].n_unique() if cloud else 0
    engine = Engine(scenario.cluster, folder, str(folder / "checkpoints"), address, cloud_ps=max(1, in_cloud))
    try:
        world = RayWorld(scenario, works, engine, preemptive=made.lanes["preemptive"], emulate=address is None)
        try:
            kernel = Kernel(scenario, made, journal)
            drive(kernel, world, progress)
            kernel.validate_state()
        finally:
            world.close()
    finally:
        engine.stop()
    meta = {**meta_of(scenario, made), "world": "ray", "tolerance": int(TOLERANCE_S * SECOND)}
    record = Run(scenario, meta, kernel.record.schedule(world.runs()))
    results = {scenario.jobs.ids[job]: result for job, result in sorted(world.results.items())}
    return LiveRun(record, expected, results, world.preemption_s)
