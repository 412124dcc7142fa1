"""How long the controller takes to decide: kernel, policy and journal, at many simulated lanes.

    python benchmarks/decisions.py [--lanes 1000] [--jobs 400] [--policies aonline;srtf;tiresias;fifo]

A scenario of one worker type is drawn so that jobs queue, and simulated with the journal of a live run: SQLite, flushed
to disk before an order is carried out. Of every event the time from being told of it to having all its orders checked
and journaled is taken; reported are the events on which a job arrived, and all. Kernels are warmed up by a first run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from skedge.core.drive import drive_to_end
from skedge.core.events import Event, Order
from skedge.core.kernel import Kernel
from skedge.core.scenario import Scenario
from skedge.live.control.journal import SqlJournal
from skedge.run import prepared
from skedge.scenario.file import scenario_from_dict
from skedge.sim.world import SimulatedWorld


class Timed(Kernel):
    """A kernel that times itself."""

    def handle(self, event: Event) -> list[Order]:
        """Decide as ever."""
        began = time.perf_counter()
        orders = super().handle(event)
        self.times.append((time.perf_counter() - began, bool(event.arrived), len(self.active())))
        return orders

    times: list[tuple[float, bool, int]]


def drawn(lanes: int, jobs: int) -> Scenario:
    """A scenario whose servers have `lanes` lanes in all, four on each."""
    return scenario_from_dict(
        {
            "name": "decisions",
            "slot": "1h",
            "cluster": {
                "servers": [
                    *({"id": f"s{i}", "workers": {"gpu": 4}, "ps": {"cpu": 4}} for i in range(lanes // 4)),
                    {"id": "far", "kind": "cloud"},
                ]
            },
            "workload": {"synthetic": {"jobs": jobs, "span": "20h"}, "make": "paper"},
        },
        "decisions",
        Path(),
    )


def timed(scenario: Scenario, policy: str, url: str) -> list[tuple[float, bool, int]]:
    """Simulate; per event its time [s], whether a job arrived, and how many jobs were in the system."""
    made = prepared(policy, scenario)
    kernel = Timed(scenario, made, SqlJournal(url, {"policy": policy}))
    kernel.times = []
    drive_to_end(kernel, SimulatedWorld(scenario, preemptive=made.lanes["preemptive"]))
    return kernel.times


def main() -> None:
    """Run and print a line per policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lanes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--policies", default="aonline;aonline:cloud=false;srtf;tiresias;fifo")
    given = parser.parse_args()
    scenario, small = drawn(given.lanes, given.jobs), drawn(given.lanes, 20)
    print(f"{scenario.cluster.lanes} lanes, {len(scenario.jobs)} jobs; decided and journaled, ms")
    heads = "median", "p99", "most"
    print(f"{'policy':28} {'jobs in system':>14} " + " ".join(f"{f'arrival {h}':>14}" for h in heads), end=" ")
    print(" ".join(f"{f'event {h}':>12}" for h in heads))
    with tempfile.TemporaryDirectory() as folder:
        for number, policy in enumerate(given.policies.split(";")):
            timed(small, policy, f"sqlite:///{folder}/warm{number}.db")
            rows = timed(scenario, policy, f"sqlite:///{folder}/{number}.db")
            every = np.array([1e3 * seconds for seconds, _, _ in rows])
            arrivals = np.array([1e3 * seconds for seconds, arrived, _ in rows if arrived])
            print(f"{policy:28} {max(jobs for *_, jobs in rows):14}", end=" ")
            print(" ".join(f"{value:14.1f}" for value in told(arrivals)), end=" ")
            print(" ".join(f"{value:12.1f}" for value in told(every)), flush=True)


def told(values: np.ndarray) -> tuple[float, float, float]:
    """Median, 99th percentile and most."""
    return float(np.median(values)), float(np.percentile(values, 99)), float(values.max())


if __name__ == "__main__":
    main()
