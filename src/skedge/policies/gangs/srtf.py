"""SRTF: shortest remaining time first, with gangs (the baseline of JSAC'22; Schrage and Miller 1966).

**Rule.** At every arrival and completion all jobs, running or not, are scanned in the order of (remaining training
time, arrival, id); a job whose whole demand is left runs, another waits and, if it was running, is preempted; the scan
goes on behind it. Remaining training time is announced work left over requested workers; pending uploads do not count.

================== ==========================
paper              here
================== ==========================
remaining time     ``view.remaining / workers``
worker requirement ``workers`` = min(D_j, GPUs of the trace)
================== ==========================

**Deviations.** D1: gang placement, upload and PS are unstated; they follow :mod:`.placement` and
:mod:`.base`. D2: the cloud takes only what can never fit on the edge (``allow_cloud`` changes that).

**Complexity.** O(J log J) per event, plus a placement per job that is moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from skedge.core.events import Event, Order
from skedge.core.policy import View

from .base import GangPolicy


class Srtf(GangPolicy):
    """Shortest remaining time first."""

    name: ClassVar[str] = "srtf"

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Rank all jobs by remaining time and run as many as fit."""
        yield from self.admit(event, view)
        jobs = self.active
        workers = view.column("workers")[jobs]
        remaining = -(-view.remaining(jobs) // workers)
        order = jobs[remaining.argsort(kind="stable")]
        changes = self.note(order, self.choose(order, view))
        yield from self.carry_out(changes, view, "shortest_remaining_time")
