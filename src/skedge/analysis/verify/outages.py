"""Rule M48, the outages of a simulation in which servers fail, and what outages leave of the cluster."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from skedge.analysis.columns import Columns
from skedge.core.model.cluster import Ints
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import NEVER

from .rules import Findings

Outage = tuple[int, int]
"""Start and end [µs]; -1: it has no end on record."""


def absent(c: Columns, slots: Ints, at: Ints) -> Ints:
    """How many of these slots (by server) are out of service at each time [µs]."""
    out, o = np.zeros(len(at), np.int64), c.outages
    for server, start, end in zip(o["server"], o["start"], o["end"], strict=True):
        out += slots[server] * ((start <= at) & (at < (NEVER if end < 0 else end)))
    return out


def drawn_outages(scenario: Scenario, server: int) -> Iterator[Outage]:
    """The outages of a server as the seed gives them, without end (docs/model.md, M48)."""
    physics, rng, now = scenario.physics, scenario.rng(f"failures of server {server}"), 0
    if physics.mtbf is None:
        return
    while True:
        start = now + _whole_steps(rng.exponential(physics.mtbf), physics.step)
        now = start + _whole_steps(rng.exponential(physics.mttr), physics.step)
        yield start, now


def _whole_steps(time: float, step: int) -> int:
    """The time [µs] in whole steps, rounded up, at least one."""
    return max(1, -int(-time // step)) * step


def check_failures(c: Columns, found: Findings) -> None:
    """M48: the outages on record are those drawn from the seed, until the last job has left."""
    physics, cluster = c.scenario.physics, c.scenario.cluster
    if physics.mtbf is None:
        return
    over, o = _last_departure(c), c.outages
    for server in (s for s in range(len(cluster.servers)) if s != cluster.cloud):
        rows = o["server"] == server
        recorded = sorted(zip(o["start"][rows].tolist(), o["end"][rows].tolist(), strict=True))
        _compare(cluster.label(server), recorded, drawn_outages(c.scenario, server), over, found)
    if cluster.cloud is not None and (o["server"] == cluster.cloud).any():
        found.add("M48", None, int(o["start"].min()), "the cloud goes out of service; in a simulation it never does")


def _compare(name: str, recorded: list[Outage], drawn: Iterator[Outage], over: int, found: Findings) -> None:
    """Report the first outage of a server that is missing, or that is not the one drawn, until `over` [µs]."""
    for given, (start, end) in zip([*recorded, None], drawn, strict=False):
        if given is None:
            if start < over:
                found.add("M48", None, start, f"{name!r} fails at {start} µs by the seed; no outage is on record")
            return
        # at the very end an outage may begin or end after the last job has left
        ends = {end} if end < over else {-1} if end > over else {end, -1}
        if given[0] != start or start > over or given[1] not in ends:
            say = f"an outage of {name!r} is on record from {given[0]} to {given[1]} µs (-1: no end)"
            text = f"{say}; by the seed it is out from {start} to {end} µs, and the last job leaves at {over} µs"
            found.add("M48", None, given[0], text)
            return


def _last_departure(c: Columns) -> int:
    """When the last job completes, fails or is rejected [µs]."""
    d = c.decisions
    left = d["time"][d.has("verb", "reject", "fail")]
    return int(max(c.jobs["completion"].max(initial=0), left.max(initial=0)))
