"""How often the interval of a forecast holds the completion, and how long a forecast takes.

A scenario is simulated with wrong durations; every 20 events all completions are foreseen from the state that the
scheduler believes in. Printed: forecasts, intervals checked, the share that held (0.8 is asked for), the median and the
longest CPU time of a forecast [ms], the longest of the copy that it begins with, which is all that a decision can wait
for in a service, and the most jobs in the system (`--scenario s1`: up to 300).

    python benchmarks/forecasts.py [--scenario demo] [--error 0.3] [POLICY …]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from statistics import median

from skedge.core.kernel.kernel import Kernel
from skedge.prepare import prepare_policy
from skedge.scenario.file import scenario_of
from skedge.sim.forecasts import Forecasts
from skedge.sim.what_if import Present
from skedge.sim.world import SimulatedWorld

_EVERY = 20
"""Events from one forecast to the next."""


def main() -> None:
    """Print a line for each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*", default=["srtf", "aonline", "fifo", "drf"])
    parser.add_argument("--scenario", default="demo")
    parser.add_argument("--error", type=float, default=0.3)
    given = parser.parse_args()
    for policy in given.policies:
        print(policy, measure(given.scenario, policy, given.error))


def measure(name: str, policy: str, error: float) -> str:
    """Simulate a scenario, and measure its forecasts."""
    scenario = scenario_of(name)
    scenario = replace(scenario, physics=replace(scenario.physics, estimate_error=error))
    made = prepare_policy(policy, scenario)
    present = Present(Kernel(scenario, made), 0)
    world = SimulatedWorld(present.kernel)
    forecasts, took, copied, events, most = Forecasts(), list[float](), list[float](), 0, 0
    while (event := world.next_event()) is not None:
        for order in present.happens(event):
            world.perform(order)
        for job in event.finished:
            forecasts.complete(job, event.time)
        events += 1
        most = max(most, len(present.kernel.active()))
        if events % _EVERY == 0:
            began = time.process_time()
            copy = present.copy()
            copied.append(time.process_time() - began)
            completions = copy.run_out().completions
            took.append(time.process_time() - began)
            forecasts.make(event.time, completions)
    return (
        f"forecasts {len(took)}, checked {forecasts.measured}, held {forecasts.held:.3f}, "
        f"median {1000 * median(took):.0f} ms, longest {1000 * max(took):.0f} ms, copy {1000 * max(copied):.0f} ms, "
        f"jobs at most {most}"
    )


if __name__ == "__main__":
    main()
