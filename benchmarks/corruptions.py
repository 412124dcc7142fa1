"""Corrupts records of every kind of run at random, and prints what the verifier does not find.

    python benchmarks/corruptions.py --count 20000 --seed 1
    python benchmarks/corruptions.py --count 2000 --runs FOLDER ...    # runs that are there, as those of `skedge live`

Of what survives, by table, column and mutation: how often, which metrics it changes, and one of them. Exit code 1 if
something survives that is not equivalent (`equivalent` in `tests/builders/corruptions.py`).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from skedge.core.model.cluster import Cluster, Physics
from skedge.core.model.scenario import Jobs, Scenario
from skedge.recorded_run import Run
from skedge.simulate import run
from skedge.testing import resource_scenarios, site_scenario, small_scenario

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.corruptions import fuzz, survivor_lines

SLOTTED = Physics(slotted=True, slot=10_000_000)
OVERHEAD = Physics(checkpoint_overhead=500_000)


def limited() -> Scenario:
    """Servers with room for a few chunks each."""
    full = small_scenario(5)
    edge = [replace(s, storage_mb=80.0) if s.kind == "edge" else s for s in full.cluster.servers]
    cluster = Cluster(edge)
    return Scenario(cluster, Jobs(full.jobs.frame, cluster, full.jobs.fixed_delays), full.physics, 5, "limited")


KINDS: dict[str, tuple[str, Callable[[], Scenario]]] = {
    "aonline": ("aonline", lambda: small_scenario(0)),
    "aonline at the edge": ("aonline:cloud=false", lambda: small_scenario(1)),
    "aonline, overhead": ("aonline", lambda: small_scenario(3, physics=OVERHEAD)),
    "aonline, estimates off": ("aonline", lambda: small_scenario(3, physics=Physics(estimate_error=1.0))),
    "aonline, little storage": ("aonline", limited),
    "aonline, slotted": ("aonline", lambda: small_scenario(2, physics=SLOTTED)),
    "aonline, Eq. (5)": ("aonline:q_mode=eq5", lambda: small_scenario(7)),
    "aonline, fractional": ("aonline:q_mode=fractional", lambda: small_scenario(8)),
    "aonline, no preemption": ("aonline:preempt_running=false", lambda: small_scenario(6)),
    "srtf": ("srtf", lambda: small_scenario(0)),
    "tiresias": ("tiresias", lambda: small_scenario(1, physics=OVERHEAD)),
    "fifo, earliest server": ("fifo:rule=earliest_server", lambda: small_scenario(0)),
    "drf": ("drf", lambda: small_scenario(0)),
    "preemptive": ("preemptive", lambda: small_scenario(0)),
    "batch": ("batch", lambda: small_scenario(0, physics=replace(SLOTTED, slotted=False))),
    "batchsche": ("batchsche", lambda: small_scenario(2, physics=SLOTTED)),
    "pdors": ("pdors", lambda: resource_scenarios()[0]),
    "oasis": ("oasis", lambda: resource_scenarios()[0]),
    "dorm": ("dorm", lambda: resource_scenarios()[0]),
    "okita": ("okita", lambda: site_scenario(1, jobs=40)),
    "oasis at sites": ("oasis", lambda: site_scenario(0)),
}
"""Runs: policy and scenario."""


def _run(kind: str) -> Run:
    policy, scenario = KINDS[kind]
    return run(scenario(), policy)


def main() -> None:
    """Corrupt, verify, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="corruptions in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS), help="kinds of run")
    parser.add_argument("--runs", nargs="*", default=[], help="folders of runs, instead of kinds")
    args = parser.parse_args()
    made = {folder: partial(Run.load, folder) for folder in args.runs} or {
        kind: partial(_run, kind) for kind in args.kinds
    }
    each, rng = -(-args.count // len(made)), np.random.default_rng(args.seed)
    tried, found, equivalent, left = 0, 0, Counter[str](), 0
    for kind, make in made.items():
        begun, seen = time.monotonic(), fuzz(make(), rng, each)
        survived = sum(times for times, _, _ in seen.open.values())
        tried, found, left = tried + seen.tried, found + sum(seen.detected.values()), left + survived
        equivalent += seen.equivalent
        took = time.monotonic() - begun
        print(
            f"{kind}: {seen.tried} tried, {sum(seen.detected.values())} found, {survived} open, {took:.0f} s",
            flush=True,
        )
        for line in survivor_lines(seen):
            print("   ", line, flush=True)
    print(f"{tried} corruptions, {found} found; equivalent:")
    for why, times in equivalent.most_common():
        print(f"{times:6d}  {why}")
    print(f"{left:6d}  open")
    sys.exit(int(left > 0))


if __name__ == "__main__":
    main()
