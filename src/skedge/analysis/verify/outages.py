"""Rule M48, the outages of a simulation in which servers fail, and what outages leave of the cluster."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from skedge.analysis.columns import Columns, outage_spans
from skedge.core.model.cluster import Ints
from skedge.core.model.scenario import Scenario

from .rules import Findings

Outage = tuple[int, int]
"""Start and end [µs]; -1: it has no end on record."""


def absent(c: Columns, slots: Ints, times: Ints) -> Ints:
    """How many of these slots (by server) are out of service at each time [µs]."""
    n_out = np.zeros(len(times), np.int64)
    for server, start, end in outage_spans(c):
        n_out += slots[server] * ((start <= times) & (times < end))
    return n_out


def drawn_outages(scenario: Scenario, server: int) -> Iterator[Outage]:
    """The outages of a server as the seed gives them, without end (docs/model.md, M48)."""
    # named by the server, so that the failures of one do not depend on the others
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


def check_failures(c: Columns, findings: Findings) -> None:
    """M48: the outages on record are those drawn from the seed, until the last job has left."""
    physics, cluster = c.scenario.physics, c.scenario.cluster
    if physics.mtbf is None:
        return
    horizon, o = _last_departure(c), c.outages
    for server in (s for s in range(len(cluster.servers)) if s != cluster.cloud):
        rows = o["server"] == server
        recorded = sorted(zip(o["start"][rows].tolist(), o["end"][rows].tolist(), strict=True))
        _compare_outages(cluster.label(server), recorded, drawn_outages(c.scenario, server), horizon, findings)
    if cluster.cloud is not None and (o["server"] == cluster.cloud).any():
        findings.add("M48", None, int(o["start"].min()), "the cloud goes out of service; in a simulation it never does")


def _compare_outages(
    name: str, recorded: list[Outage], drawn: Iterator[Outage], horizon: int, findings: Findings
) -> None:
    """Report a server's first outage until `over` [µs] that is missing or is not the one drawn."""
    for outage, (start, end) in zip([*recorded, None], drawn, strict=False):
        if outage is None:
            if start < horizon:
                findings.add("M48", None, start, f"{name!r} fails at {start} µs by the seed; no outage is on record")
            return
        # at the very end an outage may begin or end after the last job has left
        ends = {end} if end < horizon else {-1} if end > horizon else {end, -1}
        if outage[0] != start or start > horizon or outage[1] not in ends:
            text = f"an outage of {name!r} is on record from {outage[0]} to {outage[1]} µs (-1: no end)"
            message = f"{text}; by the seed it is out from {start} to {end} µs, and the last job leaves at {horizon} µs"
            findings.add("M48", None, outage[0], message)
            return


def _last_departure(c: Columns) -> int:
    """When the last job completes, fails or is rejected [µs]."""
    d = c.decisions
    left = d["time"][d.has("verb", "reject", "fail")]
    return int(max(c.jobs["completion"].max(initial=0), left.max(initial=0)))
