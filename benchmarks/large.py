"""Time a million jobs of a table, which are read as they arrive, from start to verified run folder.

    python benchmarks/large.py [--jobs 160000,320000,1000000] [--policies "aonline"] [--load 0.9]

The table is written first, by the seeded generator: divisible jobs, about 67 chunks each, on Philly-like machines of
one worker type with the cloud, at this offered load; they come at the trace's rate, so that more jobs take more days.
Printed are the yardstick of bench.py, CPU seconds and peak memory of the whole process as window.py counts them, and
the CPU seconds of each stage. A first run of as many jobs as make skedge read and write part by part, a sixth of a
million, fills numba's cache.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
from pathlib import Path

import window

import bench
from skedge.scenario.file import load_scenario
from skedge.scenario.save import save_scenario

WARM = 160_000
"""Jobs of the first run: more than `skedge.scenario.file.CHUNKS_IN_PARTS` chunks."""


def main() -> None:
    """Make the scenarios, warm up, run, print."""
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="skedge-large-", dir=args.folder) as folder:
        base, sizes = Path(folder), [int(jobs) for jobs in args.jobs.split(",")]
        files = {jobs: scenario(base, jobs, args.load) for jobs in {*sizes, WARM}}
        print(f"{'policy':34} {'CPU s':>7} {'GB':>5} {'jobs/s':>8} {'chunks/s':>9} {'JCT h':>8} {'cloud jobs':>10}")
        for policy, jobs in [(policy, jobs) for policy in args.policies.split(";") for jobs in sizes]:
            if not args.cold and jobs == sizes[0]:
                window.run(files[WARM], policy, base)
            yardstick = bench.yardstick()
            found, cpu, memory, chunks = window.run(files[jobs], policy, base)
            print(window.row(f"{policy}, {jobs:,} jobs", found["metrics"], cpu, memory, chunks))
            print("  " + ", ".join(f"{stage} {s:.1f}" for stage, s in found["profile"]["cpu_s"].items()))
            scaled = cpu * bench.QUIET_S / yardstick
            print(
                f"  yardstick {yardstick:.2f} s; where it takes {bench.QUIET_S:g} s, {scaled:.0f} s of CPU", flush=True
            )


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="1000000", help="separated by commas")
    parser.add_argument("--policies", default="aonline", help="separated by semicolons")
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--cold", action="store_true", help="no first run")
    parser.add_argument("--folder", type=Path, help="where the run folder is made: 2 GB, and 3 GB while it is verified")
    return parser.parse_args()


def scenario(base: Path, jobs: int, load: float) -> Path:
    """Write the scenario, with a table of its jobs; its file."""
    draw = {"load": load, "load_over": "span", "machines": "philly-like", "worker_types": 1, "cloud": True}
    workload = {"synthetic": {"jobs": jobs}, "make": "divisible", "upload_share": 0.05}
    file, folder = base / f"{jobs}.yaml", base / str(jobs)
    file.write_text(json.dumps({"name": "large", "cluster": {"draw": draw}, "workload": workload}), encoding="utf-8")
    # in a process of its own: a process that is started takes over the peak memory of the one that starts it
    drawing = multiprocessing.get_context("spawn").Process(target=write, args=(file, folder))
    drawing.start()
    drawing.join()
    return folder / "scenario.yaml"


def write(file: Path, folder: Path) -> None:
    """Draw a scenario and save it."""
    save_scenario(load_scenario(file), folder)


if __name__ == "__main__":
    main()
