"""Which compiled loop takes a run, if any."""

from __future__ import annotations

from collections.abc import Callable

from skedge.core.events import Event
from skedge.core.policy import Policy
from skedge.core.scenario import Scenario
from skedge.core.schedule import Schedule

from . import simulate as gangs
from .chunks import simulate as chunks

Simulate = Callable[[Scenario, Policy, Callable[[Event], None] | None], Schedule]


def loop_for(scenario: Scenario, policy: Policy) -> Simulate | None:
    """The loop that can run `policy` on `scenario`."""
    for loop in (gangs, chunks):
        if loop.covers(scenario, policy):
            return loop.simulate
    return None
