"""DRF: the choice of the file for the kind of cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from skedge.core.model.cluster import Cluster, Physics
from skedge.core.policy import ActivePolicy, Guarantees, Need, PolicyByKind

if TYPE_CHECKING:
    from numpy.random import Generator


class Drf(PolicyByKind):
    """Dominant resource fairness."""

    name: ClassVar[str] = "drf"
    needs: ClassVar[frozenset[Need]] = frozenset({"typed slots, resources or sites"})

    @property
    def guarantees(self) -> Guarantees:
        """Data are brought with allocations only; a suspended job makes room for another; PSs by the ratio."""
        return Guarantees(uploads="with_allocations", preempts="for_others", ps="ratio")

    @property
    def may_use_cloud(self) -> bool:
        """False: it takes only what the edge can never hold."""
        return False

    def on_slots(self, cluster: Cluster, physics: Physics, rng: Generator) -> ActivePolicy:
        """DRF on typed slots."""
        from .on_slots import DrfOnSlots  # noqa: PLC0415 - see PolicyByKind

        return DrfOnSlots(self.params, cluster, physics, rng)

    def on_resources(self, cluster: Cluster, physics: Physics, rng: Generator) -> ActivePolicy:  # noqa: ARG002
        """DRF on servers with resources."""
        from .on_resources import DrfOnResources  # noqa: PLC0415

        return DrfOnResources(cluster)

    def at_sites(self, cluster: Cluster, physics: Physics, rng: Generator) -> ActivePolicy:  # noqa: ARG002
        """DRF in Okita's model."""
        from skedge.policies.okita.baselines import SiteDrf  # noqa: PLC0415
        from skedge.policies.okita.slots import SiteDriver, sites_of  # noqa: PLC0415

        return SiteDriver(SiteDrf(sites_of(cluster)), physics)
