"""True progress at sites: what the workers train in each slot, and the resulting runs."""

from __future__ import annotations

from skedge.core.engine.gangs import Gangs
from skedge.core.kernel.site_work import UntrainedChunks
from skedge.core.model.cluster import Placement
from skedge.core.model.scenario import Scenario

from .runs import RunLog


class SiteProgress:
    """Chunks of the jobs in a simulation with sites.

    Parameters
    ----------
    gangs
        The workers held; complete jobs are closed there.
    """

    def __init__(self, scenario: Scenario, gangs: Gangs, log: RunLog) -> None:
        self.work, self.gangs, self.log = UntrainedChunks(scenario), gangs, log
        self.done: dict[int, dict[int, int]] = {}

    def end_slot(self, now: int) -> tuple[tuple[tuple[int, Placement], ...], list[int]]:
        """(job, (site, chunks) pairs) trained in the slot that ends now, and the jobs completed by it."""
        trained, finished = [], []
        for job, where in sorted(self.gangs.placed.items()):
            chunks = self.work.trains(job, where)
            if not chunks:
                continue
            trained.append((job, chunks))
            so_far = self.done.setdefault(job, {})
            for site, n in chunks:
                so_far[site] = so_far.get(site, 0) + n
            if self.work.trained(job, chunks):
                finished.append(job)
        for job in finished:
            self.stop(job, now, preempted=False)
            self.gangs.finish(job)
        return tuple(trained), finished

    def stop(self, job: int, now: int, *, preempted: bool) -> None:
        """End the present placement of a job."""
        self.log.site_run(
            job, self.gangs.placed[job], self.gangs.since[job], now, self.done.pop(job, {}), preempted=preempted
        )
        self.gangs.suspend(job, now)
