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
from skedge.live.gpus import check_device
from skedge.report.build import ReportRun, build_report, write_report
from skedge.run import Run, new_folder
from skedge.scenario.file import load_scenario, scenario_of, shipped, trainings

from .console import err, out, print_json
from .extra import check_live
from .options import with_groups
from .progress import JobProgress, progress

_LATENCIES = {
    "device_free_s": "an order to suspend to the worker's device being free",
    "preemption_s": "a decision to displace to the displacing job's first step",
}


@dataclass(frozen=True)
class On:
    """Where workers run."""

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
    on: On,
    seed: Annotated[int | None, typer.Option(help="Seed instead of the scenario's.", min=0)] = None,
    state: Annotated[
        Path | None, typer.Option(help="New folder for the run's state, for --resume; default: not kept.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="State of a run whose controller ended, to continue it.")] = None,
    journal: Annotated[
        str | None, typer.Option(help="Database URL of the journal (PostgreSQL); default: SQLite in the state.")
    ] = None,
    replace: Annotated[bool, typer.Option(help="Replace the run folder if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train the jobs of a scenario for real, verify the record, and write a run folder with a report."""
    if (scenario is None) == (resume is None):
        raise InputError("give either a scenario, or --resume with the state of a run")
    check_device(on.device)
    check_live()
    from skedge.live.control.session import resume_live, run_live  # noqa: PLC0415 - imports the extra
    from skedge.live.training.code import copy_codes  # noqa: PLC0415

    with new_folder(folder, replacing=replace) as inside, tempfile.TemporaryDirectory(prefix="skedge-live-") as scratch:
        with progress(quiet=as_json) as bar:
            if resume is not None:
                jobs = len(load_scenario(resume / "scenario.yaml").jobs) if resume.is_dir() else 0
                result = resume_live(
                    resume.absolute(),
                    address=on.ray,
                    device=on.device,
                    journal=journal,
                    progress=JobProgress(bar, jobs, "resumed"),
                )
            else:
                source = str(scenario)
                loaded = scenario_of(source, seed)
                trains = trainings(source if Path(source).is_file() else shipped(source))
                base = Path(scratch) if state is None else _new_state(state)
                say = JobProgress(bar, len(loaded.jobs), policy)
                result = run_live(
                    loaded, trains, policy, base, address=on.ray, device=on.device, journal=journal, progress=say
                )
        violations = result.run.verify()
        result.run.write(inside)
        copy_codes(resume or base, inside)
        rows = _rows(result.run, result.simulated, result.results)
        command = f"skedge live {scenario or f'--resume {resume}'} --policy {result.run.policy}"
        write_report(inside / "report.html", _report(result.run, result.simulated, command))
    found = {
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
        print_json(found)
    else:
        _show(found, result.run)
    if violations:
        for violation in violations:
            err.print(f"{violation.rule} {violation.job}: {violation.message}", soft_wrap=True, highlight=False)
        raise typer.Exit(1)


def _new_state(folder: Path) -> Path:
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


def _show(found: dict[str, Any], run: Run) -> None:
    table = Table(title=f"{run.policy} on {run.scenario.name}, live")
    for name in ("job", "state", "JCT s", "simulated s", "accuracy"):
        table.add_column(name, justify="left" if name in {"job", "state"} else "right")
    for row in found["jobs"]:
        numbers = (row["jct_s"], row["jct_simulated_s"], row["accuracy"])
        cells = ["-" if number is None else f"{number:.3g}" for number in numbers]
        table.add_row(row["job"], row["state"], *cells)
    out.print(table)
    mean, expected = found["jct_mean_s"], found["jct_mean_simulated_s"]
    out.print(f"mean JCT {mean:.3g} s, simulated {expected:.3g} s; {found['preemptions']} preemptions", soft_wrap=True)
    for key, what in _LATENCIES.items():
        if found[key]:
            median, p99 = (1e3 * float(np.percentile(found[key], q)) for q in (50, 99))
            out.print(f"from {what}: median {median:.0f} ms, p99 {p99:.0f} ms", soft_wrap=True)
    used = sorted({device for servers in found["devices"].values() for of in servers.values() for device in of})
    out.print(f"devices: {', '.join(used) or 'none'}", soft_wrap=True)
    verified = "" if found["violations"] else ", every rule verified"
    out.print(f"run folder: {found['folder']}{verified}; report: {found['folder']}/report.html", soft_wrap=True)


def _report(run: Run, simulated: Run, command: str) -> str:
    """The report of the live run beside the simulation that predicted it."""
    runs = [
        ReportRun(label, one.scenario, one.schedule, one.metrics, one.utilisation)
        for label, one in (("live", run), ("simulated", simulated))
    ]
    return build_report(runs, title=f"{run.policy} on {run.scenario.name}, live", settings={"command": command})
