"""Progress of held workers in a simulation: by the engine on servers, or slot by slot at sites."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

from skedge.core.engine.ledger import SINCE
from skedge.core.errors import StateError
from skedge.core.events import Allocate, Transfer
from skedge.core.kernel.site_work import UntrainedChunks
from skedge.core.model.cluster import Placement
from skedge.core.model.job_fields import Kind

from .site_progress import SiteProgress

if TYPE_CHECKING:
    from .world import SimulatedWorld


class OnServers:
    """Gangs and elastic allocations: the engine knows when each ends."""

    notes = False
    """Whether allocations are noted here, too."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world

    def allocate(self, order: Allocate) -> None:
        """Process an allocation, which the engine has begun."""

    def stop(self, job: int) -> None:
        """Process the end of an allocation of `job`, if it had one."""

    def resume(self, work: UntrainedChunks | None) -> None:
        """Take up the chunks left at sites, in a forecast."""

    def transfer(self, order: Transfer) -> None:
        """Move chunks between sites."""
        raise StateError(f"{order!r}: a transfer needs a cluster of sites")

    def end_slot(self) -> tuple[tuple[tuple[int, Placement], ...], list[int]]:
        """What was trained in the slot that ends now, and the jobs completed by it."""
        raise StateError("a slot ended, and the servers are not sites")


class OnSites(OnServers):
    """Workers at sites, which train whole chunks slot by slot."""

    notes = True

    def __init__(self, world: SimulatedWorld) -> None:
        super().__init__(world)
        self.sites = SiteProgress(world.scenario, world.log)

    def allocate(self, order: Allocate) -> None:
        """Hold the workers from now on."""
        self.sites.hold(order.job, order.where, self.world.now)
        self.world.note_slot()

    def stop(self, job: int) -> None:
        """End the present placement, if there is one."""
        self.sites.stop(job, self.world.now, preempted=True)

    def resume(self, work: UntrainedChunks | None) -> None:
        """Take up the placements and the work left at the sites."""
        engine = self.world.engine
        self.sites = SiteProgress(self.world.scenario, self.world.log)
        self.sites.work = deepcopy(work) or self.sites.work
        for job in engine.holders():
            self.sites.hold(job, engine.placement(job), int(engine.column(SINCE)[job]))
            self.world.note_slot()

    def transfer(self, order: Transfer) -> None:
        """Move chunks between sites."""
        self.sites.work.move(order.job, order.source, order.target, order.chunks, self.world.now)

    def end_slot(self) -> tuple[tuple[tuple[int, Placement], ...], list[int]]:
        """What was trained in the slot that ends now, and the jobs completed by it."""
        outcome = self.sites.end_slot(self.world.now)
        if self.sites.held:
            self.world.note_slot()
        return outcome


_HOLDINGS: dict[Kind, type[OnServers]] = {"slots": OnServers, "resources": OnServers, "sites": OnSites}


def holding_of(world: SimulatedWorld) -> OnServers:
    """What holds workers in the cluster of a world."""
    return _HOLDINGS[world.scenario.cluster.kind](world)
