"""Which compiled loop takes a run, if any."""

from __future__ import annotations

from collections.abc import Callable

from skedge.core.events import Event
from skedge.core.model.scenario import Scenario
from skedge.core.model.time_limits import has_time_limits
from skedge.core.policy import Policy
from skedge.core.record.schedule import Schedule

from . import aonline, batches

Simulate = Callable[[Scenario, Policy, Callable[[Event], None] | None], Schedule]


def loop_for(scenario: Scenario, policy: Policy, *, compiling: bool = True) -> Simulate | None:
    """The loop that can run `policy` on `scenario`; unless `compiling`, only one that is in the cache."""
    if scenario.cluster.sharing is not None or scenario.physics.mtbf is not None or has_time_limits(scenario):
        return None
    for loop in (aonline, batches):
        if loop.covers(scenario, policy) and (compiling or loop.kernel_of(policy).cached):
            return loop.simulate
    return None
