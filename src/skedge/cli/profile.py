"""``skedge profile``: measure the time of a job's mini-batches on each server type, or of a round by stage."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.box import SIMPLE_HEAD
from rich.table import Table

from skedge.core.errors import InputError
from skedge.core.model.time import SECOND
from skedge.report.write import write_report
from skedge.scenario.file import scenario_of, shipped, trainings

from .console import duration, out, print_json
from .extra import check_live
from .options import JsonOption
from .profile_round import ROUNDS, SIZES, WORKERS, check_folder, profile_round, shipped_programs, sizes_of, workers_of
from .progress import progress

if TYPE_CHECKING:
    from skedge.live.cluster.profiling import Speed


def profile(
    scenario: Annotated[
        str | None,
        typer.Argument(help="A scenario file whose jobs specify what they train, or live-demo; optional with --round."),
    ] = None,
    ray: Annotated[str | None, typer.Option(help="Address of a Ray cluster; default: one on this machine.")] = None,
    minibatches: Annotated[
        int | None, typer.Option(help="Mini-batches to measure, after two for warm-up; default: 5.", min=1)
    ] = None,
    load: Annotated[
        int | None, typer.Option(help="Number of concurrent workers; default: all that share the machine.", min=1)
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--out", help="New scenario file with the measured speeds; with --round a folder for a picture."),
    ] = None,
    as_json: JsonOption = False,
    by_stage: Annotated[
        bool,
        typer.Option(
            "--round", help="Measure a round by stage instead, beside plain PyTorch and DDP, on this machine."
        ),
    ] = False,
    parameters: Annotated[
        str | None, typer.Option(help=f"With --round, without a scenario: sizes of models; default: {SIZES}.")
    ] = None,
    workers: Annotated[str | None, typer.Option(help=f"With --round: numbers of workers; default: {WORKERS}.")] = None,
    rounds: Annotated[
        int | None, typer.Option(help=f"With --round: rounds to measure, after 3; default: {ROUNDS}.", min=1)
    ] = None,
) -> None:
    """Measure a few mini-batches of every job on each server type: m, G, q, b of Eq. (1), and Okita's rho."""
    if by_stage:
        _refuse("does not work with --round", {"--ray": ray, "--minibatches": minibatches, "--load": load})
        if scenario is not None:
            _refuse("does not work with a scenario", {"--parameters": parameters})
        _profile_round(scenario, parameters, workers, rounds, file, as_json=as_json)
        return
    _refuse("works only with --round", {"--parameters": parameters, "--workers": workers, "--rounds": rounds})
    if scenario is None:
        raise InputError("name a scenario whose jobs are measured, or measure a round by stage: --round")
    _check_new(file)
    check_live()
    from skedge.live.cluster import profiling  # noqa: PLC0415 - imports the extra
    from skedge.live.cluster.engine import Engine  # noqa: PLC0415
    from skedge.live.controller.session import programs  # noqa: PLC0415

    source = Path(scenario) if Path(scenario).is_file() else shipped(scenario)
    trains, loaded = trainings(source), scenario_of(scenario)
    works = programs(loaded, trains)
    with tempfile.TemporaryDirectory(prefix="skedge-profile-") as folder, progress(quiet=as_json) as bar:
        task = bar.add_task("profile", total=len(works) * len(profiling.server_types(loaded.cluster)), at="")
        engine = Engine(loaded.cluster, Path(folder), str(Path(folder) / "checkpoints"), ray)
        try:
            speeds = profiling.profile(
                loaded,
                works,
                engine,
                minibatches=minibatches or profiling.MINIBATCHES,
                load=load,
                progress=lambda job, server: bar.update(task, advance=1, at=f"{job} on {server}"),
            )
        finally:
            engine.stop()
    slowest, fields = profiling.slowest(speeds), profiling.announced(speeds)
    if file is not None:
        write_report(file, scenario_text(source, fields))
    slot_s = loaded.physics.slot / SECOND
    if as_json:
        print_json({"slot_s": slot_s, "out": None if file is None else str(file), "speeds": rows(speeds, slot_s)})
    else:
        _show(speeds, slowest, slot_s, file)


def _refuse(reason: str, options: Mapping[str, object]) -> None:
    """Fail on the first option that has a value."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name} {reason}")


def _profile_round(
    scenario: str | None,
    parameters: str | None,
    workers: str | None,
    rounds: int | None,
    folder: Path | None,
    *,
    as_json: bool,
) -> None:
    """Measure rounds of the scenario's jobs, or of shipped models."""
    sizes, numbers = sizes_of(parameters or SIZES), workers_of(workers or WORKERS)
    check_folder(folder)
    check_live()
    if scenario is None:
        works = shipped_programs(sizes)
    else:
        from skedge.live.controller.session import programs  # noqa: PLC0415 - imports the extra

        source = Path(scenario) if Path(scenario).is_file() else shipped(scenario)
        works = programs(scenario_of(scenario), trainings(source))
    profile_round(works, numbers, rounds or ROUNDS, folder, as_json=as_json)


def _check_new(file: Path | None) -> None:
    """Fail before measuring if the file cannot be written."""
    if file is None:
        return
    if os.path.lexists(file):
        raise InputError(f"{file}: exists already; name a new file or remove it")
    if not file.absolute().parent.is_dir():
        raise InputError(f"{file}: cannot be written: {file.parent} is not a folder")


def rows(speeds: list[Speed], slot_s: float) -> list[dict[str, Any]]:
    """All measured and derived numbers; one row per job and server type."""
    return [
        {
            **asdict(speed),
            **speed.announced,
            "round_s": speed.minibatch_s,
            "samples_per_s": speed.samples_per_s,
            "chunk_epoch_s": speed.chunk_epoch_s,
            "chunk_s": speed.chunk_s,
            "rho": speed.rho(slot_s),
        }
        for speed in speeds
    ]


def scenario_text(source: Path, announced: Mapping[str, Mapping[str, float]]) -> str:
    """The scenario file `source` with the measured speeds in place of the announced ones."""
    # rewritten as data: comments of the file are lost, which its head says
    data = yaml.safe_load(source.read_text(encoding="utf-8"))
    for job in data["workload"]["jobs"]:
        # six digits are more than a measurement has, and stay readable in the file
        job.update({name: float(f"{value:.6g}") for name, value in announced[str(job["id"])].items()})
    draw = data["cluster"].get("draw") or {}
    # a path in the file is relative to it
    if draw.get("machines", "philly-like") != "philly-like":
        draw["machines"] = str((source.parent / draw["machines"]).resolve())  # the new file may be in another folder
    head = (
        f"# {source.name} with speeds measured by `skedge profile`: of each job those of its slowest server type.\n"
        "# minibatch_s: m, ps_update_s: G, gradient_mb: q, bandwidth_mbps: b for which 2 q / b is as measured;\n"
        "# internal_mbps: the same of a job that is wholly in the cloud, its parameter server too.\n"
    )
    return head + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)


def _show(speeds: list[Speed], slowest: Mapping[str, Speed], slot_s: float, file: Path | None) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("job", overflow="fold", min_width=8)
    table.add_column("server", overflow="fold", min_width=7)
    for name in ("m ms", "G ms", "2q/b ms", "sum ms", "from – to", "q MB", "b Mbit/s", "smp/s", "rho"):
        table.add_column(name.replace(" ", "\n", 1), justify="right", no_wrap=True)
    for s in speeds:
        # on one server type alone there is no slowest to mark
        mark = "*" if slowest[s.job] is s and sum(t.job == s.job for t in speeds) > 1 else ""
        # the terms of Eq. (1): m, G, 2 q / b, and their sum
        parts = (s.compute.median, s.update.median, s.communication.median, s.minibatch_s)
        table.add_row(
            s.job,
            s.server + mark,
            *(f"{1e3 * part:.1f}" for part in parts),
            f"{1e3 * s.round.low:.0f} – {1e3 * s.round.high:.0f}",
            f"{s.gradient_mb:.4f}",
            f"{s.bandwidth_mbps:.3g}",
            f"{s.samples_per_s:.0f}",
            f"{s.rho(slot_s):.3g}",
        )
    out.print(table)
    out.print(f"medians over mini-batches; {_workers(speeds)} computed at once; *: a job's slowest server type")
    out.print(f"rho: chunks that one worker passes through once in a slot of {duration(slot_s)}")
    if file is not None:
        out.print(f"written to {file}, with the speeds of each job's slowest server type", soft_wrap=True)


def _workers(speeds: list[Speed]) -> str:
    counts = sorted({speed.workers for speed in speeds})
    return f"{counts[0]} workers" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} workers"
