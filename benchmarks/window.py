"""Time the policies on a window of the real Philly trace, each from start to verified run folder.

    python benchmarks/window.py [TRACE.csv.gz MACHINE_LIST] [--form i|ii|paper] [--make rigid|divisible]
        [--policies a;b] [--first N]

Form i: the trace's own work on the edge alone, one worker type, the machine list scaled down so that all work over the
span of arrivals is a load of 0.9; jobs rigid (default), or divisible; uploads take 5 % of a job's duration.
Form ii: the same jobs on half as many machines, with the cloud. Form paper: jobs as in JSAC'22 Sec. V on as many
machines as form i takes (140), with the cloud; it reports how many go there.
Without TRACE and MACHINE_LIST: as many jobs of the seeded Philly-like generator, on Philly-like machines.

Every policy runs in a process of its own (`skedge run --profile`); CPU seconds and peak memory are the operating
system's account of the whole process, start-up, simulation, verification and writing included, and the CPU seconds of
each stage stand below. A first run on fewer jobs fills numba's cache, so that compilation does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from skedge.scenario.file import scenario_from_dict
from skedge.scenario.save import save_scenario

SKEDGE = [sys.executable, "-m", "skedge"]
POLICIES = {
    "i": "aonline:cloud=false;srtf;srtf:placement=literal;tiresias;tiresias:placement=literal;fifo",
    "ii": "aonline",
    "paper": "aonline",
}


JOBS = 49_875
"""Passed jobs of the window."""

WARM = 5_000
"""Jobs of the first run: as many as make skedge use its compiled loop (`skedge.simulate.LARGE`)."""


def main() -> None:
    """Convert, warm up, run, print."""
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        form = Form(args.form, args.make, args.trace, args.machines)
        made = form.scenario(base / "window", args.first)
        warm = form.scenario(base / "warm", WARM)
        print(f"form {args.form}, {args.make}, {args.first or JOBS} jobs")
        print(f"{'policy':34} {'CPU s':>7} {'GB':>5} {'jobs/s':>8} {'chunks/s':>9} {'JCT h':>8} {'cloud jobs':>10}")
        for policy in (args.policies or POLICIES[args.form]).split(";"):
            run(warm, policy, base)
            found, cpu, memory, chunks = run(made, policy, base)
            print(row(policy, found["metrics"], cpu, memory, chunks))
            print("  " + ", ".join(f"{stage} {s:.1f}" for stage, s in found["profile"]["cpu_s"].items()), flush=True)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, nargs="?")
    parser.add_argument("machines", type=Path, nargs="?")
    parser.add_argument("--form", choices=sorted(POLICIES), default="i")
    parser.add_argument("--make", choices=("rigid", "divisible"), default="rigid", help="jobs of forms i and ii")
    parser.add_argument("--policies", help="separated by semicolons")
    parser.add_argument("--first", type=int)
    return parser.parse_args()


@dataclass(frozen=True)
class Form:
    """What a window is made of: the form, how jobs are made, and the real files, if there are any."""

    name: str
    make: str
    trace: Path | None = None
    machines: Path | None = None

    def scenario(self, folder: Path, first: int | None) -> Path:
        """Make the scenario of the first jobs; its file."""
        folder.mkdir()
        form = {"name": "window", "cluster": {"draw": self._draw()}, "workload": self._workload(first)}
        if self.trace is None:
            (folder / "scenario.yaml").write_text(json.dumps(form), encoding="utf-8")
        else:
            save_scenario(scenario_from_dict(form, "window", Path()), folder)
        return folder / "scenario.yaml"

    def _draw(self) -> dict[str, Any]:
        size = {"i": {"load": 0.9}, "ii": {"load": 1.8}, "paper": {"servers": 140}}[self.name]
        over = {"load_over": "span"} if "load" in size else {}  # as all measures before: 636 lanes in form i
        machines = "philly-like" if self.trace is None else str(self.machines.resolve())
        return {**size, **over, "machines": machines, "worker_types": 1, "cloud": self.name != "i"}

    def _workload(self, first: int | None) -> dict[str, Any]:
        if self.trace is None:
            source: dict[str, Any] = {"synthetic": {"jobs": first or JOBS}}
        else:
            taken = {} if first is None else {"first": first}
            source = {"trace": {"path": str(self.trace.resolve()), "format": "philly-csv", **taken}}
        if self.name == "paper":
            return {**source, "make": "paper"}
        return {**source, "make": self.make, "upload_share": 0.05}  # as all measures before


def run(scenario: Path, policy: str, base: Path) -> tuple[dict[str, Any], float, float, int]:
    """Run a policy; its output, CPU seconds, peak GB and number of chunks."""
    out = base / "out"
    command = [*SKEDGE, "run", str(scenario), "--policy", policy, "--out", str(out)]
    command += ["--profile", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    text = process.stdout.read() if process.stdout else ""
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{policy}: failed")
    found = json.loads(text)
    assert found["violations"] == [], found["violations"][:3]
    chunks = count_chunks(out)
    shutil.rmtree(out)
    return found, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e6, chunks


def count_chunks(folder: Path) -> int:
    """Chunks of all jobs of a run folder."""
    return int(pl.read_parquet(folder / "jobs.parquet")["chunks"].sum())


def row(policy: str, metrics: dict[str, float], cpu: float, memory: float, chunks: int) -> str:
    """One line of the table."""
    jobs = metrics["finished"]
    return (
        f"{policy:34} {cpu:7.1f} {memory:5.2f} {jobs / cpu:8.0f} {chunks / cpu:9.0f}"
        f" {metrics['jct_mean_s'] / 3600:8.3f} {metrics['jobs_in_cloud']:10.0f}"
    )


if __name__ == "__main__":
    main()
