"""What it costs that Python sees each event: CPU time of SRTF by driver, over that of the compiled run.

    python benchmarks/drivers.py [--jobs 20000] [--repeats 5] [--drivers "compiled;stepped"]

The demo's jobs stretched to so many at the same load. Each repeat runs every driver once, kernels warm, and the row has
the median and range of CPU seconds of the whole run, record included, and the median of the ratios by repeat.

- compiled: events are run in the policy's compiled loop, 20,000 a call, as `skedge run` does from 500 jobs on.
- stepped: Python calls the same loop for each event; no objects are made.
- kernel: the kernel asks the policy event by event, with objects for events and orders.
- objects: as kernel, of a policy in Python that yields the orders which SRTF has made: engine and adapter alone.
- rows: as objects, but the orders of an event are a batch of rows.
- ranks: as kernel, of a policy that ranks the jobs by NumPy and has the compiled part fill the cluster.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml

from skedge.core.engine.step import PAUSED
from skedge.core.events import VERBS, Allocate, Event, Order, OrderBatch, Suspend, batch_of
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import NEVER
from skedge.core.policy import BasePolicy, Policy, View
from skedge.policies.gangs.base import GangPolicy
from skedge.policies.gangs.srtf import Srtf
from skedge.prepare import prepare_policy
from skedge.scenario.file import scenario_from_dict, shipped
from skedge.sim.compiled import use_loop
from skedge.sim.failures import world_of

DAYS, JOBS = 3, 400
"""Span and jobs of the demo."""

WARM_JOBS = 500
"""Jobs of the runs that load the kernels."""


class Replayed(BasePolicy):
    """Yields recorded orders, event by event."""

    name = "replayed"

    def __init__(self, orders: list[list[Order]]) -> None:
        super().__init__()
        self.recorded = iter(orders)

    def decide(self, event: Event, view: View) -> Iterator[Order]:  # noqa: ARG002 - they are known
        """The orders on this event."""
        yield from next(self.recorded)


class Batched(Replayed):
    """The same as rows, made beforehand."""

    name = "batched"

    def __init__(self, orders: list[list[Order]]) -> None:
        super().__init__(orders)
        reasons = dict[str, int]()
        self.recorded = iter([[_batch(of_event, reasons)] if of_event else [] for of_event in orders])  # type: ignore[list-item]


def _batch(orders: list[Order], reasons: dict[str, int]) -> OrderBatch:
    """The orders of an event as rows."""
    rows, places = list[tuple[int, ...]](), list[tuple[int, int]]()
    for order in orders:
        if not isinstance(order, Allocate | Suspend):
            raise TypeError(f"{order!r}")
        reason = reasons.setdefault(order.reason, len(reasons))
        if isinstance(order, Suspend):
            rows.append((VERBS.index("suspend"), order.job, -1, reason, 0, 0))
        else:
            verb = VERBS.index("allocate")
            rows.append((verb, order.job, order.ps[0][0], reason, len(places), len(order.where)))
            places += sorted(order.where)
    table, places_table = np.array(rows, np.int64), np.array(places, np.int64).reshape(-1, 2)
    return batch_of(table, places_table, tuple(reasons))


class Ranked(GangPolicy):
    """SRTF that ranks by NumPy."""

    name = "ranked"

    def decide(self, event: Event, view: View) -> Iterator[Order | OrderBatch]:  # type: ignore[override]
        """Take in what has happened, and fill the cluster by remaining time."""
        yield self.admit(event, view)
        active = self.active
        left = -(-view.remaining(active) // view.jobs.workers[active])
        yield self.fill(active[np.lexsort((active, left))], view, "shortest_remaining_time")


def scenario(jobs: int) -> Scenario:
    """The demo's scenario with so many jobs."""
    content = yaml.safe_load(shipped("demo").read_text(encoding="utf-8"))
    content["workload"]["synthetic"] |= {"jobs": jobs, "span": f"{24 * DAYS * jobs // JOBS}h"}
    return scenario_from_dict(content, "demo", Path())


def looped(of: Scenario, *, step: bool) -> Any:
    """The decisions of a run in the compiled loop; `step`: with one event a call."""
    policy: Any = prepare_policy("srtf", of)
    kernel = Kernel(of, policy)
    world = world_of(kernel)
    if not use_loop(world, kernel):
        raise RuntimeError("srtf has no compiled loop")
    while step and policy.advance(kernel.engine, 1, NEVER, of) == PAUSED:
        pass
    drive_to_end(kernel, world)  # the run, or what a run has to do at its end
    return kernel.record.schedule(world.runs()).tables()["decisions"]


def driven(of: Scenario, policy: Policy, seen: list[list[Order]] | None = None) -> Any:
    """The decisions of a run in which the kernel asks `policy`; its orders by event are added to `seen`."""
    kernel = Kernel(of, policy)
    world = world_of(kernel)
    drive_to_end(kernel, world, None if seen is None else lambda _, orders: seen.append(orders))
    return kernel.record.schedule(world.runs()).tables()["decisions"]


def drivers(of: Scenario) -> dict[str, Callable[[], Any]]:
    """A run of `of` by each driver."""
    orders: list[list[Order]] = []
    driven(of, prepare_policy(Srtf(), of), orders)
    batched = Batched(orders)
    made = list(batched.recorded)

    def rows() -> Any:
        batched.recorded = iter(made)
        return driven(of, prepare_policy(batched, of))

    return {
        "compiled": lambda: looped(of, step=False),
        "stepped": lambda: looped(of, step=True),
        "kernel": lambda: driven(of, prepare_policy("srtf", of)),
        "objects": lambda: driven(of, prepare_policy(Replayed(orders), of)),
        "rows": rows,
        "ranks": lambda: driven(of, prepare_policy(Ranked(), of)),
    }


def cpu(run: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a run, and what it returns."""
    before = time.process_time()
    result = run()
    return time.process_time() - before, result


def main() -> None:
    """Measure, compare the decisions, and print a row for each driver."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--drivers", default="compiled;stepped;kernel;objects;rows;ranks", help="separated by semicolons"
    )
    asked = parser.parse_args()
    names = asked.drivers.split(";")
    for name, run in drivers(scenario(WARM_JOBS)).items():
        if name in names:
            run()
    runs, seconds = drivers(scenario(asked.jobs)), dict[str, list[float]]()
    expected = runs["compiled"]()
    for _ in range(asked.repeats):
        for name in names:
            spent, decisions = cpu(runs[name])
            if not decisions.equals(expected):
                raise RuntimeError(f"{name} decides otherwise than the compiled run")
            seconds.setdefault(name, []).append(spent)
    print(f"{asked.jobs} jobs, {len(expected)} decisions\n{'driver':10} {'CPU s':>22} {'ratio':>6}")
    for name, spent in seconds.items():
        ratio = median(one / base for one, base in zip(spent, seconds.get("compiled", spent), strict=True))
        print(f"{name:10} {median(spent):7.3f} ({min(spent):.3f} to {max(spent):.3f}) {ratio:6.2f}")


if __name__ == "__main__":
    main()
