"""Time a million jobs of the seeded generator, whose record is not held in memory, from start to verified run folder.

    python benchmarks/large.py [--jobs 1000000] [--policies "aonline"] [--load 0.9]

The jobs are divisible, about 67 chunks each, on Philly-like machines of one worker type with the cloud, at this offered
load; they come at the trace's rate, so that more jobs take more days. Printed are the yardstick of bench.py, CPU
seconds and peak memory of the whole process as window.py counts them, and the CPU seconds of each stage. A first run of
as many jobs as make skedge write a record part by part, a sixth of a million, fills numba's cache.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import window

import bench

WARM = 170_000
"""Jobs of the first run: more than `skedge.large.CHUNKS` chunks."""


def main() -> None:
    """Make the scenarios, warm up, run, print."""
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="skedge-large-", dir=args.folder) as folder:
        base = Path(folder)
        made, warm = scenario(base / "large.yaml", args.jobs, args.load), scenario(base / "warm.yaml", WARM, args.load)
        print(f"{'policy':34} {'CPU s':>7} {'GB':>5} {'jobs/s':>8} {'chunks/s':>9} {'JCT h':>8} {'cloud jobs':>10}")
        for policy in args.policies.split(";"):
            if not args.cold:
                window.run(warm, policy, base)
            yardstick = bench.yardstick()
            found, cpu, memory, chunks = window.run(made, policy, base)
            print(window.row(policy, found["metrics"], cpu, memory, chunks))
            print("  " + ", ".join(f"{stage} {s:.1f}" for stage, s in found["profile"]["cpu_s"].items()))
            scaled = cpu * bench.QUIET_S / yardstick
            print(
                f"  yardstick {yardstick:.2f} s; where it takes {bench.QUIET_S:g} s, {scaled:.0f} s of CPU", flush=True
            )


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--policies", default="aonline", help="separated by semicolons")
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--cold", action="store_true", help="no first run")
    parser.add_argument("--folder", type=Path, help="where the run folder is made: 2 GB, and 3 GB while it is verified")
    return parser.parse_args()


def scenario(file: Path, jobs: int, load: float) -> Path:
    """Write the scenario; its file."""
    draw = {"load": load, "machines": "philly-like", "worker_types": 1, "cloud": True}
    workload = {"synthetic": {"jobs": jobs}, "make": "divisible"}
    file.write_text(json.dumps({"name": "large", "cluster": {"draw": draw}, "workload": workload}), encoding="utf-8")
    return file


if __name__ == "__main__":
    main()
