"""Gang policies on 992 jobs and 64 GPUs, and beside them Tiresias's own simulator on the same jobs.

    python benchmarks/gangs.py [--jobs 992] [--policies "fifo;tiresias"] [--large N]
        [--peer FOLDER] [--peer-python python2.7]

The jobs are drawn by the seeded Philly-like generator, in whole seconds, with an offered load of 0.9 on eight nodes of
eight GPUs; a gang waits for nothing but GPUs: uploads and communication take no time, and restoring a job is free.

skedge: CPU seconds of loading the scenario, simulating, verifying every rule, computing the metrics and writing the run
folder, the second time in one process, so that modules and compiled kernels are loaded. `simulate`: those of the
simulation alone. `start`: CPU seconds of the whole process less twice those of the run. `--large N`: the policy's
compiled loop is used from N jobs on; by default from the first, as it is for 500 jobs once it is in the cache.

`--peer`: a checkout of the folder `simulator` of github.com/SymbioticLab/Tiresias, which needs Python 2.7
(`--peer-python`). Its CPU seconds are those of the whole process, less those of the same command on the first job alone
(`start`). `fifo` runs there as `fifo`, `tiresias` as `dlas-gpu`, both with the scheme `yarn`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

NODES, GPUS = 8, 8
LOAD = 0.9
SEED = 0
SCHEDULES = {"fifo": "fifo", "tiresias": "dlas-gpu"}
"""The peer's name of a policy."""

Job = tuple[int, int, int]
"""Submission [s], GPUs, duration [s]."""


def main() -> None:
    """Measure, and print a line per policy and simulator."""
    args = arguments()
    if args.inside:
        print(json.dumps(inside(args.inside[0], args.inside[1], args.large)))
        return
    with tempfile.TemporaryDirectory() as folder:
        jobs, base = drawn(args.jobs), Path(folder)
        scenario = written(jobs, base / "scenario")
        heads = f"{'':16} {'CPU s':>7} {'simulate':>8} {'jobs/s':>8} {'start s':>8} {'JCT h':>7}"
        print(f"{len(jobs)} jobs on {NODES * GPUS} GPUs\n{heads}")
        for policy in args.policies.split(";"):
            found = ours(scenario, policy, args.large)
            print(row(f"skedge {policy}", found, len(jobs)))
            if args.peer and policy in SCHEDULES:
                theirs = peer(args.peer, args.peer_python, jobs, policy, base)
                print(row(f"peer {SCHEDULES[policy]}", theirs, len(jobs)))
                print(f"ratio {theirs['cpu_s'] / found['cpu_s']:.1f}", flush=True)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=992)
    parser.add_argument("--policies", default="fifo;tiresias", help="separated by semicolons")
    parser.add_argument("--large", type=int, default=0)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--peer-python", default="python2.7")
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def drawn(count: int) -> list[Job]:
    """Jobs in order of submission."""
    from skedge.traces.makers.synthetic import philly_like  # noqa: PLC0415 - not needed by the process that is timed

    frame = philly_like(count, np.random.default_rng(SEED))
    gpus = np.minimum(frame["gpus"].to_numpy(), NODES * GPUS)
    durations = np.maximum(frame["duration_s"].to_numpy().round(), 1).astype(np.int64)
    span = float(gpus @ durations) / (LOAD * NODES * GPUS)
    submits = (frame["submit_s"].to_numpy() * span / frame["submit_s"][-1]).astype(np.int64)
    return list(zip(submits.tolist(), gpus.tolist(), durations.tolist(), strict=True))


def written(jobs: list[Job], folder: Path) -> Path:
    """The scenario of skedge."""
    from skedge.scenario.file import scenario_from_dict  # noqa: PLC0415 - as above
    from skedge.scenario.save import save_scenario  # noqa: PLC0415

    listed = [
        {
            "id": str(i),
            "arrival_s": at,
            "epochs": 1,
            "chunks": gpus,
            "minibatches": s,
            "minibatch_s": 1,
            "workers": gpus,
        }
        for i, (at, gpus, s) in enumerate(jobs)
    ]
    servers = [{"id": f"n{i}", "workers": {"gpu": GPUS}, "ps": {"cpu": 8 * GPUS}} for i in range(NODES)]
    form = {"name": "gangs", "cluster": {"servers": servers}, "workload": {"jobs": listed}}
    folder.mkdir()
    save_scenario(scenario_from_dict(form, "gangs", Path()), folder)
    return folder / "scenario.yaml"


def ours(scenario: Path, policy: str, large: int = 0) -> dict[str, float]:
    """What :func:`inside` finds in a process of its own, and its start-up [s]."""
    command = [sys.executable, __file__, "--inside", str(scenario), policy, "--large", str(large)]
    text, whole = cpu_of(command, Path.cwd())
    found: dict[str, float] = json.loads(text)
    return found | {"start_s": whole - 2 * found["cpu_s"]}


def inside(scenario: str, policy: str, large: int) -> dict[str, float]:
    """Run twice; CPU of the second run and of its simulation [s], and its mean JCT [s]."""
    from skedge import simulate  # noqa: PLC0415 - part of start-up
    from skedge.scenario.file import load_scenario  # noqa: PLC0415

    simulate.LARGE = simulate.SMALL = large
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2):
            clock = [time.process_time()]
            loaded = load_scenario(scenario)
            clock.append(time.process_time())
            done = simulate.run(loaded, policy)
            clock.append(time.process_time())
            assert done.verify() == []
            jct = float(done.metrics["jct_mean_s"])
            done.save(Path(folder) / str(number))
            clock.append(time.process_time())
    return {"cpu_s": clock[-1] - clock[0], "simulate_s": clock[2] - clock[1], "jct_mean_s": jct}


def peer(folder: Path, python: str, jobs: list[Job], policy: str, base: Path) -> dict[str, float]:
    """CPU, start [s] and mean JCT [s] of Tiresias's simulator."""
    start, _ = peer_run(folder, python, jobs[:1], policy, base)
    whole, jct = peer_run(folder, python, jobs, policy, base)
    return {"cpu_s": whole - start, "start_s": start, "jct_mean_s": jct}


def peer_run(folder: Path, python: str, jobs: list[Job], policy: str, base: Path) -> tuple[float, float]:
    """CPU of the whole process and mean JCT [s]."""
    cluster, trace = base / f"n{NODES}g{GPUS}.csv", base / "jobs.csv"
    spec = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node"
    cluster.write_text(f"{spec}\n1,{NODES},{GPUS},64,256\n", encoding="utf-8")
    rows = (f"{i},{gpus},{at},{s},resnet50,{s},1" for i, (at, gpus, s) in enumerate(jobs, 1))
    heads = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval"
    trace.write_text("\n".join((heads, *rows, "")), encoding="utf-8")
    log = Path(tempfile.mkdtemp(dir=base))
    command = [python, "run_sim.py", f"--cluster_spec={cluster}", f"--trace_file={trace}", "--scheme=yarn"]
    command += [f"--schedule={SCHEDULES[policy]}", f"--log_path={log}"]
    _, cpu = cpu_of(command, folder)
    with (log / "job.csv").open(encoding="utf-8") as file:
        done = [float(line["JCT"]) for line in csv.DictReader(file)]
    assert len(done) == len(jobs), f"the peer completed {len(done)} of {len(jobs)} jobs"
    return cpu, fmean(done)


def cpu_of(command: list[str], at: Path) -> tuple[str, float]:
    """Run a command; its output, and the CPU time of its process and their children [s]."""
    process = subprocess.Popen(command, cwd=at, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)}: failed")
    return text, usage.ru_utime + usage.ru_stime


def row(name: str, found: dict[str, Any], jobs: int) -> str:
    """One line of the table."""
    cpu, start, jct = found["cpu_s"], found["start_s"], found["jct_mean_s"] / 3600
    simulate = f"{found['simulate_s']:8.3f}" if "simulate_s" in found else " " * 8
    return f"{name:16} {cpu:7.3f} {simulate} {jobs / cpu:8.0f} {start:8.2f} {jct:7.2f}"


if __name__ == "__main__":
    main()
