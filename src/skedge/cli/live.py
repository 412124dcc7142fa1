"""``skedge live``: real training under a policy, on this machine or on a Ray cluster."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from skedge.core.errors import InputError
from skedge.core.model.time import SECOND
from skedge.live.cluster.gpus import check_device
from skedge.recorded_run import Run
from skedge.report.build import ReportRun, build_report
from skedge.report.write import write_report
from skedge.runs.new_folder import new_folder
from skedge.scenario.file import load_scenario, scenario_of, shipped, trainings

from .console import err, out, print_json
from .extra import check_live
from .options import JsonOption, with_groups
from .progress import JobProgress, progress

_LATENCIES = {
    "device_free_s": "an order to suspend to the worker's device being free",
    "preemption_s": "a decision to displace to the displacing job's first step",
}


_SLOWER = 1.1
"""How many times as long as simulated jobs take at least where the machine is called slower than announced."""


@dataclass(frozen=True)
class WorkerOptions:
    """Cluster and device of the workers."""

    ray: Annotated[str | None, typer.Option(help="Address of a Ray cluster; default: one on this machine.")] = None
    device: Annotated[str, typer.Option(help="Where workers compute: cpu, cuda, or auto.")] = "cpu"


@with_groups
def live(
    scenario: Annotated[
        str | None, typer.Argument(help="A scenario file whose jobs specify what they train, or live-demo.")
    ] = None,
    *,
    policy: Annotated[str, typer.Option(help="name or name:key=value,…")] = "aonline",
    folder: Annotated[Path, typer.Option("--out", help="New run folder.")] = Path("skedge-live"),
    workers: WorkerOptions,
    seed: Annotated[int | None, typer.Option(help="Seed instead of the scenario's.", min=0)] = None,
    state: Annotated[
        Path | None, typer.Option(help="New folder for the run's state, for --resume; default: not kept.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="State of a run whose controller ended, to continue it.")] = None,
    journal: Annotated[
        str | None, typer.Option(help="Database URL of the journal (PostgreSQL); default: SQLite in the state.")
    ] = None,
    replace: Annotated[bool, typer.Option(help="Replace the run folder if it exists.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train the jobs of a scenario for real, verify the record, and write a run folder with a report."""
    # a resumed run has its scenario in its state
    if (scenario is None) == (resume is None):
        raise InputError("give either a scenario, or --resume with the state of a run")
    # before the folder is begun and anything is started
    check_device(workers.device)
    check_live()
    from skedge.live.controller.session import resume_live, run_live  # noqa: PLC0415 - imports the extra
    from skedge.live.worker.code_archive import copy_codes  # noqa: PLC0415

    with (
        new_folder(folder, replacing=replace) as temp_folder,
        tempfile.TemporaryDirectory(prefix="skedge-live-") as scratch,
    ):
        training: dict[str, Any] = {"address": workers.ray, "device": workers.device, "journal": journal}
        with progress(quiet=as_json) as bar:
            if resume is not None:
                # 0 if there is no state: the error is that of resuming, below
                jobs = len(load_scenario(resume / "scenario.yaml").jobs) if resume.is_dir() else 0
                result = resume_live(resume.absolute(), **training, progress=JobProgress(bar, jobs, "resumed"))
            else:
                source = str(scenario)
                loaded = scenario_of(source, seed)
                trains = trainings(source if Path(source).is_file() else shipped(source))
                # without --state the run cannot be resumed, so its state is scratch
                base = Path(scratch) if state is None else _create_state(state)
                job_progress = JobProgress(bar, len(loaded.jobs), policy)
                result = run_live(loaded, trains, policy, base, **training, progress=job_progress)
        violations = result.run.verify()
        result.run.write(temp_folder)
        copy_codes(resume or base, temp_folder)
        rows = _rows(result.run, result.simulated, result.results)
        command = f"skedge live {scenario or f'--resume {resume}'} --policy {result.run.policy}"
        write_report(temp_folder / "report.html", _report(result.run, result.simulated, command))
    summary = {
        "folder": str(folder),
        "violations": [asdict(v) for v in violations],
        "preemptions": result.run.metrics["preemptions"],
        "preemption_s": result.preemption_s,
        "device_free_s": result.device_free_s,
        "devices": result.run.meta["devices"],
        "jct_mean_s": result.run.metrics["jct_mean_s"],
        "jct_mean_simulated_s": result.simulated.metrics["jct_mean_s"],
        "jobs": rows,
    }
    if as_json:
        print_json(summary)
    else:
        _show(summary, result.run)
    if violations:
        for violation in violations:
            err.print(f"{violation.rule} {violation.job}: {violation.message}", soft_wrap=True, highlight=False)
        raise typer.Exit(1)


def _create_state(folder: Path) -> Path:
    """Create a folder for the state of a run; it must not exist."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise InputError(f"{folder}: exists already; name a new folder, or continue from it with --resume") from error
    return folder.absolute()


def _rows(run: Run, simulated: Run, results: Any) -> list[dict[str, Any]]:
    expected = dict(zip(simulated.jobs["id"], simulated.jobs["jct"], strict=True))
    return [
        {
            "job": job["id"],
            "state": job["state"],
            "jct_s": None if job["jct"] is None else job["jct"] / SECOND,
            "jct_simulated_s": None if expected[job["id"]] is None else expected[job["id"]] / SECOND,
            "accuracy": (results.get(job["id"]) or {}).get("accuracy"),
        }
        for job in run.jobs.iter_rows(named=True)
    ]


def _show(summary: dict[str, Any], run: Run) -> None:
    table = Table(title=f"{run.policy} on {run.scenario.name}, live")
    for name in ("job", "state", "JCT s", "simulated s", "accuracy"):
        table.add_column(name, justify="left" if name in {"job", "state"} else "right")
    for row in summary["jobs"]:
        numbers = (row["jct_s"], row["jct_simulated_s"], row["accuracy"])
        cells = ["-" if number is None else f"{number:.3g}" for number in numbers]
        table.add_row(row["job"], row["state"], *cells)
    out.print(table)
    mean, expected = summary["jct_mean_s"], summary["jct_mean_simulated_s"]
    out.print(
        f"mean JCT {mean:.3g} s, simulated {expected:.3g} s; {summary['preemptions']} preemptions", soft_wrap=True
    )
    if mean > _SLOWER * expected:
        out.print(
            f"jobs took {mean / expected:.2g} times as long as at the announced speeds: other work may have the "
            "cores, or there are too few; `skedge profile` measures what a mini-batch takes here",
            soft_wrap=True,
        )
    for key, interval in _LATENCIES.items():
        if summary[key]:
            # milliseconds, as latencies of seconds would be a fault
            median, p99 = (1e3 * float(np.percentile(summary[key], q)) for q in (50, 99))
            out.print(f"from {interval}: median {median:.0f} ms, p99 {p99:.0f} ms", soft_wrap=True)
    used = sorted(
        {
            device
            for servers in summary["devices"].values()
            for server_devices in servers.values()
            for device in server_devices
        }
    )
    out.print(f"devices: {', '.join(used) or 'none'}", soft_wrap=True)
    verified = "" if summary["violations"] else ", every rule verified"
    out.print(f"run folder: {summary['folder']}{verified}; report: {summary['folder']}/report.html", soft_wrap=True)


def _report(run: Run, simulated: Run, command: str) -> str:
    """The report of the live run beside the simulation that predicted it."""
    runs = [
        ReportRun(label, result.scenario, result.schedule, result.metrics, result.utilisation)
        for label, result in (("live", run), ("simulated", simulated))
    ]
    return build_report(runs, title=f"{run.policy} on {run.scenario.name}, live", settings={"command": command})
