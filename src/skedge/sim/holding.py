"""Progress of held workers in a simulation: as gangs that run to their end, or slot by slot at sites."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

from skedge.core.colocation import colocated
from skedge.core.errors import StateError
from skedge.core.events import Allocate, Transfer
from skedge.core.kernel.site_work import UntrainedChunks
from skedge.core.model.cluster import Placement
from skedge.core.model.job_fields import Kind

from .agenda import GANG_ENDS
from .site_progress import SiteProgress

if TYPE_CHECKING:
    from .world import SimulatedWorld


class OnServers:
    """Gangs: each ends when its work is done."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world

    def allocate(self, order: Allocate) -> None:
        """Start a gang."""
        world, job = self.world, order.job
        zeta = colocated(world.scenario, order)
        world.gangs.place(job, order.where, zeta, world.now, gang=order.gang)
        world.note_at(world.gangs.finish_time(job), GANG_ENDS, job, world.gang_version.setdefault(job, 0))

    def stop(self, job: int) -> None:
        """End the present run of a gang."""
        world = self.world
        done = int(world.gangs.left[job]) - world.gangs.left_of(job, world.now)
        world.log.gang_run(job, world.gangs, world.now, done, preempted=True)
        world.gangs.suspend(job, world.now)
        if done > 0:
            world.progress.further(world.now)
        # its end on the agenda is now out of date; it is skipped when it comes, not searched for
        world.gang_version[job] += 1
        world.end_is_stale()

    def resume(self, work: UntrainedChunks | None) -> None:  # noqa: ARG002 - of sites
        """Take up the gangs that run now, in a forecast."""
        world = self.world
        for job in world.gangs.placed:
            world.gang_version[job] = 0
            # a gang that is overdue has not ended yet: the earliest that a forecast can say is the next µs
            world.note_at(max(world.gangs.finish_time(job), world.now + 1), GANG_ENDS, job, 0)

    def transfer(self, order: Transfer) -> None:
        """Move chunks between sites."""
        raise StateError(f"{order!r}: a transfer needs a cluster of sites")

    def end_slot(self) -> tuple[tuple[tuple[int, Placement], ...], list[int]]:
        """What was trained in the slot that ends now, and the jobs completed by it."""
        raise StateError("a slot ended, and the servers are not sites")


class OnSites(OnServers):
    """Workers at sites, which train whole chunks slot by slot."""

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(world)
        self.sites = SiteProgress(world.scenario, world.gangs, world.log)

    def allocate(self, order: Allocate) -> None:
        """Hold the workers from now on."""
        self.world.gangs.hold(order.job, order.where, self.world.now)
        self.world.note_slot()

    def stop(self, job: int) -> None:
        """End the present placement."""
        self.sites.stop(job, self.world.now, preempted=True)

    def resume(self, work: UntrainedChunks | None) -> None:
        """Take up the work left at the sites."""
        self.sites = SiteProgress(self.world.scenario, self.world.gangs, self.world.log)
        self.sites.work = deepcopy(work) or self.sites.work
        if self.world.gangs.placed:
            self.world.note_slot()

    def transfer(self, order: Transfer) -> None:
        """Move chunks between sites."""
        self.sites.work.move(order.job, order.source, order.target, order.chunks, self.world.now)

    def end_slot(self) -> tuple[tuple[tuple[int, Placement], ...], list[int]]:
        """What was trained in the slot that ends now, and the jobs completed by it."""
        return self.sites.end_slot(self.world.now)


_OF_KIND: dict[Kind, type[OnServers]] = {"slots": OnServers, "resources": OnServers, "sites": OnSites}


def holding_of(world: SimulatedWorld) -> OnServers:
    """What holds workers in the cluster of a world."""
    return _OF_KIND[world.scenario.cluster.kind](world)
