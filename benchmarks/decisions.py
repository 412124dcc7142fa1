"""How long a decision takes: an event's time from its receipt to all its orders checked.

    python benchmarks/decisions.py [--cases live,pending,pdors,okita] [--policies "aonline;srtf"] [--lanes N] [--json]

live: 400 jobs on 1,000 lanes, nearly all in the system at once, with the journal of a live run: SQLite, flushed to disk
before an order is carried out. pending: 10,000 lanes with 50 chunks of 50 jobs pending on each, then 200 jobs of 60
chunks, one after the other; in simulation, without a journal. pdors, okita: the scenarios s4 and s3, the papers' sizes.

Reported [ms]: per arriving job, the events on which jobs arrived, divided by their number; and all events. Each by
wall-clock time, and by CPU time of the thread, which other work on the machine disturbs less. Kernels are warmed up by
a first run. `--lanes`: instead of the case's own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from skedge.core.events import Event, Order
from skedge.core.kernel.drive import drive
from skedge.core.kernel.kernel import Journal, Kernel
from skedge.core.model.scenario import Scenario
from skedge.prepare import prepare_policy
from skedge.scenario.file import scenario_from_dict, scenario_of
from skedge.sim.world import SimulatedWorld

POLICIES = {
    "live": "aonline;aonline:cloud=false;srtf;tiresias;fifo",
    "pending": "aonline:cloud=false",
    "pdors": "pdors",
    "okita": "okita",
}
LANES = {"live": 1_000, "pending": 10_000}
PENDING, PROBES = 50, 200
"""Chunks pending on each lane, and jobs that arrive then."""

LARGE = 1_000
"""Chunks of a job that fills lanes; jobs that arrive later have 60."""


class Timed(Kernel):
    """A kernel that times itself."""

    def handle(self, event: Event) -> list[Order]:
        """Decide as ever."""
        begun, cpu = time.perf_counter(), time.thread_time()
        orders = super().handle(event)
        spent = time.perf_counter() - begun, time.thread_time() - cpu
        self.times.append((*spent, len(event.arrived)))
        return orders

    times: list[tuple[float, float, int]]


class Until:
    """A simulated world that ends after the last arrival, if `last` is given."""

    def __init__(self, world: SimulatedWorld, last: int | None) -> None:
        self.world, self.last, self.perform = world, last, world.perform

    def next_event(self) -> Event | None:
        """The next event; None after the last arrival."""
        event = self.world.next_event()
        return None if event is None or (self.last is not None and event.time > self.last) else event


def scenario(case: str, lanes: int | None, *, warm: bool) -> Scenario:
    """The scenario of a case; `warm`: a smaller one with the same kernels."""
    if case in ("pdors", "okita"):
        return scenario_of({"pdors": "s4", "okita": "s3"}[case])
    lanes = lanes or LANES[case]
    return pending(40 if warm else lanes) if case == "pending" else drawn(lanes, 20 if warm else 400)


def drawn(lanes: int, jobs: int) -> Scenario:
    """Servers of four lanes each and a cloud; jobs of the paper's kind, so many that they queue."""
    servers: list[dict[str, Any]] = [
        {"id": f"s{i}", "workers": {"gpu": 4}, "ps": {"cpu": 4}} for i in range(lanes // 4)
    ]
    form = {
        "name": "decisions",
        "slot": "1h",
        "cluster": {"servers": [*servers, {"id": "far", "kind": "cloud"}]},
        "workload": {"synthetic": {"jobs": jobs, "span": "20h"}, "make": "paper"},
    }
    return scenario_from_dict(form, "decisions", Path())


def pending(lanes: int) -> Scenario:
    """Servers of four lanes each, filled by jobs that arrive at once and run for hours; then small jobs."""
    large = max(lanes * PENDING // LARGE, 1)
    arrivals = [(0, LARGE)] * large + [(60 + 10 * i, 60) for i in range(PROBES)]
    jobs = [
        {"id": str(i), "arrival_s": at, "epochs": 1, "chunks": chunks, "minibatches": 10_000 + i, "minibatch_s": 1}
        | {"workers": 1, "upload_edge_s": [1, 20]}
        for i, (at, chunks) in enumerate(arrivals)
    ]
    servers = [{"id": f"s{i}", "workers": {"gpu": 4}, "ps": {"cpu": 64}} for i in range(lanes // 4)]
    form = {"name": "pending", "cluster": {"servers": servers}, "workload": {"jobs": jobs}}
    return scenario_from_dict(form, "pending", Path())


def timed(
    scenario: Scenario, policy: str, journal: Journal | None, *, arrivals: bool
) -> list[tuple[float, float, int]]:
    """Simulate; per event its wall-clock and CPU time [s] and the number of jobs that arrived.

    `arrivals`: only up to the last arrival.
    """
    made = prepare_policy(policy, scenario)
    kernel = Timed(scenario, made, journal)
    kernel.times = []
    last = int(scenario.jobs.frame["arrival_s"].max() * 1e6) if arrivals else None  # type: ignore[operator]
    drive(kernel, Until(SimulatedWorld(kernel), last))
    return kernel.times


def journal(url: str, policy: str) -> Journal:
    """The journal of a live run; needs the extra live."""
    from skedge.live.journal.journal import SqlJournal  # noqa: PLC0415 - the other cases do without the extra

    return SqlJournal(url, {"policy": policy})


def measured(case: str, policy: str, lanes: int | None = None) -> dict[str, float]:
    """Milliseconds by statistic."""
    with tempfile.TemporaryDirectory() as folder:

        def one(of: Scenario, name: str) -> list[tuple[float, float, int]]:
            book = journal(f"sqlite:///{folder}/{name}.db", policy) if case == "live" else None
            return timed(of, policy, book, arrivals=case == "pending")

        one(scenario(case, lanes, warm=True), "warm")
        rows = one(scenario(case, lanes, warm=False), "run")
    found: dict[str, float] = {}
    several = case == "pending"  # the jobs that fill the lanes arrive together, and are not what is measured
    arrivals = [row for row in rows if row[2] > 0 and not (several and row[2] > 1)]
    for name, part in (
        ("arrival", [(wall / jobs, cpu / jobs) for wall, cpu, jobs in arrivals]),
        ("event", [(wall, cpu) for wall, cpu, _ in rows]),
    ):
        wall, cpu = 1e3 * np.array([row[0] for row in part]), 1e3 * np.array([row[1] for row in part])
        found |= {f"{name}_median_ms": float(np.median(wall)), f"{name}_p99_ms": float(np.percentile(wall, 99))}
        found |= {f"{name}_max_ms": float(wall.max())}
        found |= {f"{name}_cpu_median_ms": float(np.median(cpu)), f"{name}_cpu_p99_ms": float(np.percentile(cpu, 99))}
    return found


def main() -> None:
    """Run and print a line per case and policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(POLICIES))
    parser.add_argument("--policies", help="separated by semicolons")
    parser.add_argument("--lanes", type=int)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = {
        f"{case} {policy}": measured(case, policy, given.lanes)
        for case in given.cases.split(",")
        for policy in (given.policies or POLICIES[case]).split(";")
    }
    if given.json:
        print(json.dumps(found))
        return
    heads = "median", "p99", "max", "CPU median", "CPU p99"
    print(f"{'ms':30}" + "".join(f"{f'{of} {h}':>19}" for of in ("arrival", "event") for h in heads))
    for name, values in found.items():
        print(f"{name:30}" + "".join(f"{value:19.2f}" for value in values.values()), flush=True)


if __name__ == "__main__":
    main()
