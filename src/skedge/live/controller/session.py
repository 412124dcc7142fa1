"""One live run from start to end: engine, policy and kernel over the live world, record and results."""

from __future__ import annotations

import secrets  # noqa: TID251 - marks a state's folder, not a controller
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from skedge.core.errors import InputError
from skedge.core.events import Event
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.kinds import kind_of
from skedge.core.model.scenario import Scenario
from skedge.live import host
from skedge.live.cluster.engine import Engine
from skedge.live.journal.journal import JOURNAL, SqlJournal, journal_url
from skedge.live.worker.code_archive import CODE, Codes, pack
from skedge.live.worker.program import Program, program_of
from skedge.live.world.ray_world import NoEngine
from skedge.live.world.site_world import world_of
from skedge.prepare import prepare_policy
from skedge.recorded_run import Run
from skedge.runs.meta import meta_of
from skedge.scenario.file import check_chunks, check_name, load_scenario
from skedge.scenario.save import save_scenario
from skedge.scenario.schema import TrainForm
from skedge.simulate import run

_MARK = "id"


@dataclass(frozen=True)
class LiveRun:
    """The outcome of a live run.

    Attributes
    ----------
    run
        The record, as of a simulation; ``meta["tolerance"]`` is the tolerance of its times.
    simulated
        The expected run: the same scenario and policy, simulated before with the announced times.
    results
        By job id: ``accuracy`` on its test data, and ``losses``: (version, loss) of every update.
    preemption_s
        Time from each decision to displace a chunk to the displacing job's first update with its own chunk [s].
    device_free_s
        Time from each order to suspend until the device of the suspended worker was free [s].
    """

    run: Run
    simulated: Run
    results: Mapping[str, Any]
    preemption_s: list[float]
    device_free_s: list[float]


def packed(path: str) -> bytes:
    """The code of a job at a path relative to the current folder."""
    return pack(Path(path))


def programs(
    scenario: Scenario, trains: Mapping[str, TrainForm], code: Callable[[str], bytes] = packed
) -> dict[str, Program]:
    """The program of each job, with the scenario's chunks, epochs and mini-batches.

    Parameters
    ----------
    scenario, trains
        The jobs, and what each of them trains, by its id.
    code
        Returns a job's code, given its `train.code`.

    Raises
    ------
    ScenarioError
        If a job's name cannot name a folder, or it has fewer chunks than it may have workers.
    """
    f = scenario.jobs.frame
    check_chunks(scenario.jobs)
    for name in f["id"]:
        check_name(name, f"{scenario.name}: job")
    sizes = zip(f["id"], f["chunks"], f["epochs"], f["minibatches"], strict=True)
    by_name = {}
    for name, d, e, b in sizes:
        own = trains[name].code
        by_name[name] = program_of(trains[name], d, e, b, scenario.cluster, b"" if own is None else code(own))
    return by_name


def run_live(
    scenario: Scenario,
    trains: Mapping[str, TrainForm],
    policy: str,
    folder: Path,
    *,
    address: str | None = None,
    device: str = "cpu",
    journal: str | None = None,
    progress: Callable[[Event], None] | None = None,
) -> LiveRun:
    """Train the jobs of `scenario` under `policy`.

    Parameters
    ----------
    scenario, policy
        What is run, as in a simulation.
    trains
        What each job trains, by its id.
    folder
        An empty folder for the run's state: scenario, journal, chunks and checkpoints; :func:`resume_live` continues
        from it.
    address
        Address of a Ray cluster whose nodes have the label ``server``; None: Ray is started on this machine, and its
        servers have the speeds and links of the scenario.
    device
        Where agents compute: ``cpu``, ``cuda``, or ``auto``: on GPUs where a server has some.
    journal
        SQLAlchemy URL of the journal's database; None: SQLite in `folder`.
    progress
        Called with each event; None: not called.

    Raises
    ------
    InputError
        If the scenario is slotted (allowed only at sites), or the journal cannot be opened.
    SkedgeError
        If the Ray cluster lacks a server.
    """
    kind_of(scenario.cluster).check_live(scenario)
    codes = Codes(folder / CODE)
    digests = {form.code: codes.keep(packed(form.code)) for form in trains.values() if form.code is not None}
    trains = {name: form.model_copy(update={"code": digests.get(form.code or "")}) for name, form in trains.items()}
    save_scenario(scenario, folder)
    (folder / _MARK).write_text(secrets.token_hex(8), encoding="utf-8")
    about = {
        "id": _mark(folder),
        "policy": policy,
        "trains": {name: form.model_dump() for name, form in trains.items()},
    }
    return _live(scenario, trains, policy, folder, about, address, device, journal, progress)


def resume_live(
    folder: Path,
    *,
    address: str | None = None,
    device: str = "cpu",
    journal: str | None = None,
    progress: Callable[[Event], None] | None = None,
) -> LiveRun:
    """Continue a run whose controller has ended, from its state in `folder`.

    Parameters
    ----------
    folder
        The folder in which :func:`run_live` began the run.
    address, device, journal
        As in :func:`run_live`; the journal must be the one that the run began with.
    progress
        Called with each event, those that are replayed from the journal included; None: not called.

    Raises
    ------
    InputError
        If `folder` holds no run.
    StateError
        If this version's decisions differ from those in the journal.
    """
    if not (folder / "scenario.yaml").exists() or (journal is None and not (folder / JOURNAL).exists()):
        raise InputError(f"{folder}: holds no live run to continue (there is no {JOURNAL})")
    scenario = load_scenario(folder / "scenario.yaml")
    opened = SqlJournal(journal_url(folder, journal), run_id=_mark(folder))
    about = opened.about
    opened.close()
    trains = {name: TrainForm.model_validate(form) for name, form in about["trains"].items()}
    return _live(scenario, trains, about["policy"], folder, None, address, device, journal, progress)


def _live(
    scenario: Scenario,
    trains: Mapping[str, TrainForm],
    policy: str,
    folder: Path,
    about: dict[str, Any] | None,
    address: str | None,
    device: str,
    url: str | None,
    progress: Callable[[Event], None] | None,
) -> LiveRun:
    expected = run(scenario, policy)  # simulating also compiles the policy's kernels, before the clock runs
    cloud_ps = _ps_in_cloud(expected)
    engine = Engine(scenario.cluster, folder, str(folder / "checkpoints"), address, cloud_ps=cloud_ps, device=device)
    try:
        new_run = None if about is None else {**about, "began": host.time()}
        journal = SqlJournal(journal_url(folder, url), new_run, run_id=_mark(folder))
        try:
            # the code as it was kept when the run began, whatever the files hold by now
            works = programs(scenario, trains, Codes(folder / CODE).read)
            return train(scenario, works, expected, engine, progress, journal)
        finally:
            journal.close()
    finally:
        engine.stop()


def _mark(folder: Path) -> str:
    """The id of a state's run in a journal."""
    return (folder / _MARK).read_text(encoding="utf-8")


def _ps_in_cloud(expected: Run) -> int:
    """Number of jobs with a PS in the cloud in a simulation, at least 1; 0 without a cloud."""
    cluster = expected.scenario.cluster
    if cluster.cloud is None:
        return 0
    return max(1, expected.schedule.ps.filter(pl.col("server") == cluster.server_ids[cluster.cloud])["job"].n_unique())


def train(
    scenario: Scenario,
    works: Mapping[str, Program],
    expected: Run,
    engine: Engine | NoEngine,
    progress: Callable[[Event], None] | None = None,
    journal: SqlJournal | None = None,
) -> LiveRun:
    """Train the jobs on a running engine, under the policy of the simulation `expected`.

    Parameters
    ----------
    scenario
        The scenario that was simulated.
    works
        What each job trains, by its id.
    expected
        The simulation; the policy, with its parameters, is made anew.
    engine
        Processes on Ray; with :class:`~skedge.live.world.ray_world.NoEngine` the run ends once it is rebuilt.
    progress
        Called with each event; None: not called.
    journal
        Where events and orders are written. If it has inputs, the run is first rebuilt from them. None: the run cannot
        be continued.
    """
    prepared = prepare_policy(expected.policy, scenario)
    kernel = Kernel(scenario, prepared, journal)
    began = None if journal is None else float(journal.about["began"])
    world = world_of(scenario)(kernel, works, engine, journal=journal, began=began)
    try:
        drive_to_end(kernel, world, None if progress is None else lambda event, _: progress(event))
        kernel.validate_state()
    finally:
        world.close()
    meta = {**meta_of(scenario, prepared), **world.meta()}
    record = Run(scenario, meta, kernel.record.schedule(world.runs()))
    results = {scenario.jobs.ids[job]: result for job, result in sorted(world.facts.results.items())}
    return LiveRun(record, expected, results, world.facts.preemption_s, world.facts.freed_s)
