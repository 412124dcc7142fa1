"""True progress at sites: what the workers train in each slot, and the resulting runs."""

from __future__ import annotations

from skedge.core.kernel.site_work import UntrainedChunks
from skedge.core.model.cluster import Placement
from skedge.core.model.scenario import Scenario

from .runs import RunLog


class SiteProgress:
    """Chunks of the jobs in a simulation with sites.

    Attributes
    ----------
    held
        Placement of each job that holds workers, and since when [µs].
    trained
        Chunks that the present placement of each job has trained, by site.
    """

    def __init__(self, scenario: Scenario, log: RunLog) -> None:
        self.work, self.log = UntrainedChunks(scenario), log
        self.held: dict[int, tuple[Placement, int]] = {}
        self.trained: dict[int, dict[int, int]] = {}

    def hold(self, job: int, placement: Placement, now: int) -> None:
        """Have `job`, which holds no workers, hold these from now on."""
        self.held[job] = placement, now

    def end_slot(self, now: int) -> tuple[tuple[tuple[int, Placement], ...], list[int]]:
        """(job, (site, chunks) pairs) trained in the slot that ends now, and the jobs completed by it."""
        trained, finished = [], []
        for job, (placement, _) in sorted(self.held.items()):
            chunks = self.work.trains(job, placement)
            if not chunks:
                continue
            trained.append((job, chunks))
            totals = self.trained.setdefault(job, {})
            for site, n in chunks:
                totals[site] = totals.get(site, 0) + n
            if self.work.trained(job, chunks):
                finished.append(job)
        for job in finished:
            self.stop(job, now, preempted=False)
        return tuple(trained), finished

    def stop(self, job: int, now: int, *, preempted: bool) -> None:
        """End the present placement of a job, if there is one."""
        if job in self.held:
            placement, since = self.held.pop(job)
            self.log.site_run(job, placement, since, now, self.trained.pop(job, {}), preempted=preempted)
