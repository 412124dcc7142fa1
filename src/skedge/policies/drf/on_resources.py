"""DRF on servers with resources: workers with the PSs of the ratio, placed round robin, anew at every event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from skedge.core.events import Event, Order
from skedge.core.model.cluster import Cluster
from skedge.core.policy import View
from skedge.policies.common.resource_jobs import ResourceJobs

from .progressive_filling import progressive_filling


class DrfOnResources:
    """Dominant resource fairness on servers with resources, as PD-ORS runs it."""

    def __init__(self, cluster: Cluster) -> None:
        self.jobs = ResourceJobs(cluster)

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Fill from zero at every event, and move the jobs whose allocation changes."""
        yield from self.jobs.admit(event, view)
        demands = self.jobs.demands(self.jobs.active, view)
        counts = progressive_filling(*demands, view.amounts.copy(), self.jobs.total)
        yield from self.jobs.settle(*counts, view, "fair_share")

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """The policy's view of `job`."""
        return self.jobs.terms(job, view)
