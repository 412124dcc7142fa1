"""Simulation against reality: speeds are measured, a run is foretold with them, and then it is trained on Ray.

    python benchmarks/live_error.py [SCENARIO] [--runs 5] [--policy aonline] [--unpaced]

Each run measures the speeds anew, as `skedge profile` does, simulates the scenario with them, and trains it live. The
error of a job is how much later (+) or earlier (-) it completes than foretold, over its simulated JCT; the error of a
run is that of its mean JCT. The same Ray cluster serves all runs. Over all runs, too: how long it takes from a decision
to displace a chunk to the first update that has a mini-batch of the displacing one in it.

The servers of one machine are held back to the announced speed: a round takes that long at least. With --unpaced it
takes as long as it takes, and uploads cost nothing; then leave the cloud out (--policy aonline:cloud=false), as a cloud
without upload delay takes every job, and this machine is none.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from skedge.analysis.intervals import estimate
from skedge.cli.profile import scenario_text
from skedge.core.errors import SkedgeError
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.live.cluster.engine import Engine
from skedge.live.cluster.profiling import announced, profile
from skedge.live.controller.session import programs, train
from skedge.live.worker.checkpoint import Checkpoints
from skedge.recorded_run import Run
from skedge.scenario.file import load_scenario, scenario_from_dict, shipped, trainings
from skedge.simulate import run

SCENARIO = shipped("live-demo")
BAR = 0.15


def main() -> None:
    """Run, print each run, then the mean."""
    args = arguments()
    stated, trains = load_scenario(args.scenario), trainings(args.scenario)
    works = programs(stated, trains)
    rows = []
    with tempfile.TemporaryDirectory(prefix="skedge-live-error-") as folder:
        engine = Engine(stated.cluster, Path(folder), str(Path(folder) / "checkpoints"), cloud_ps=len(works))
        engine.emulates = True
        try:
            for number in range(args.runs):
                scenario = measured(args, stated, works, engine)
                expected = run(scenario, args.policy)
                engine.emulates = not args.unpaced
                result = train(scenario, works, expected, engine)
                engine.emulates = True
                forget(engine, works)
                rows.append(compared(number, expected, result.run, result.preemption_s))
                show(rows[-1])
        finally:
            engine.stop()
    summarise(rows, args)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", type=Path, nargs="?", default=SCENARIO)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--policy", default="aonline")
    parser.add_argument("--minibatches", type=int, default=5)
    parser.add_argument("--load", type=int, help="workers that compute at once while speeds are measured")
    parser.add_argument("--unpaced", action="store_true")
    parser.add_argument("--json", type=Path, help="file for all numbers")
    return parser.parse_args()


def measured(args: argparse.Namespace, stated: Scenario, works: Any, engine: Engine) -> Scenario:
    """The scenario with speeds that are measured now."""
    speeds = announced(profile(stated, works, engine, minibatches=args.minibatches, load=args.load))
    data = yaml.safe_load(scenario_text(args.scenario, speeds))
    scenario = scenario_from_dict(data, str(args.scenario), args.scenario.parent)
    free = replace(scenario.physics, charge_upload=False)
    return replace(scenario, physics=free) if args.unpaced else scenario


def forget(engine: Engine, works: Any) -> None:
    """Remove the checkpoints: the next run's jobs have the same names."""
    for job in works:
        Checkpoints(engine.url).forget(job)


def compared(number: int, simulated: Run, live: Run, preemption_s: list[float]) -> dict[str, Any]:
    """One run: completions foretold and real [s], and errors."""
    broken = [violation.message for violation in live.verify()]
    jobs = []
    for before, after in zip(simulated.jobs.iter_rows(named=True), live.jobs.iter_rows(named=True), strict=True):
        if after["state"] != "finished":
            sys.exit(f"job {after['id']}: {after['state']}: {after['reason']}")
        late = after["completion"] - before["completion"]
        ends = {"simulated_s": before["completion"] / SECOND, "live_s": after["completion"] / SECOND}
        jobs.append({"job": after["id"], **ends, "error": late / before["jct"]})
    foretold, real = (one.metrics["jct_mean_s"] for one in (simulated, live))
    return {
        "run": number + 1,
        "jobs": jobs,
        "simulated_s": foretold,
        "live_s": real,
        "error": real / foretold - 1,
        "preemptions": live.metrics["preemptions"],
        "preemption_s": preemption_s,
        "broken": broken,
    }


def show(row: dict[str, Any]) -> None:
    """One run's table."""
    print(f"run {row['run']}: {'job':16} {'simulated':>10} {'live':>8} {'error':>7}")
    for job in row["jobs"]:
        print(f"       {job['job']:16} {job['simulated_s']:8.1f} s {job['live_s']:6.1f} s {job['error']:+7.1%}")
    print(f"       {'mean JCT':16} {row['simulated_s']:8.1f} s {row['live_s']:6.1f} s {row['error']:+7.1%}", end="")
    rules = "every rule verified" if not row["broken"] else f"broken: {row['broken'][0]}"
    print(f"   {row['preemptions']} preemptions, {rules}", flush=True)


def summarise(rows: list[dict[str, Any]], args: argparse.Namespace) -> None:
    """The mean over the runs, signed and absolute, and whether it is below the bar."""
    signed = np.array([row["error"] for row in rows])
    jobs = np.array([[job["error"] for job in row["jobs"]] for row in rows])
    found = estimate(np.abs(signed))
    spread = "" if found.high is None else f" ± {found.high - found.mean:.1%} (95 %)"
    print(f"\n{args.policy}, {len(rows)} runs, {'unpaced' if args.unpaced else 'paced'}")
    print(f"mean JCT, error: {np.abs(signed).mean():.1%}{spread}; signed {signed.mean():+.1%},", end=" ")
    print(f"from {signed.min():+.1%} to {signed.max():+.1%}")
    print(f"jobs' completions, error: mean {np.abs(jobs).mean():.1%}, largest {np.abs(jobs).max():.1%}")
    waits = 1e3 * np.concatenate([row["preemption_s"] for row in rows])
    if len(waits):
        found_ms = ", ".join(f"{name} {np.percentile(waits, q):.0f} ms" for name, q in (("median", 50), ("p99", 99)))
        print(f"displaced to first step of the other, {len(waits)} times: {found_ms}")
    print(f"below {BAR:.0%}: {'yes' if found.mean < BAR else 'no'}")
    if args.json is not None:
        args.json.write_text(json.dumps({"policy": args.policy, "unpaced": args.unpaced, "runs": rows}, indent=1))


if __name__ == "__main__":
    try:
        main()
    except SkedgeError as error:  # what a job's code or a lost process is at fault for, in its sentence
        sys.exit(f"live_error: {error}")
