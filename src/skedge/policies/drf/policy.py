"""DRF: the choice of the file for the kind of cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from skedge.core.errors import PolicyError
from skedge.core.model.cluster import Cluster, Physics
from skedge.core.policy import ActivePolicy, Guarantees, Need, Params, PolicyByKind

if TYPE_CHECKING:
    from numpy.random import Generator


class DrfParams(Params):
    """Parameters of DRF.

    Attributes
    ----------
    counts
        On typed slots: ``dynamic``, filled anew at every event; ``fixed``, a job keeps the workers with which it began
        to train, as constraints (2c) and (2d) of She et al. have it.
    """

    counts: Literal["dynamic", "fixed"] = "dynamic"


class Drf(PolicyByKind):
    """Dominant resource fairness."""

    name: ClassVar[str] = "drf"
    needs: ClassVar[frozenset[Need]] = frozenset({"typed slots, resources or sites"})
    Parameters = DrfParams

    @property
    def guarantees(self) -> Guarantees:
        """Data are brought with allocations only; PSs by the ratio; no job is suspended, or only for another."""
        preempts: Literal["never", "for_others"] = "never" if self.params.counts == "fixed" else "for_others"
        return Guarantees(uploads="with_allocations", preempts=preempts, ps="ratio")

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
        self._needs_dynamic_counts()
        from .on_resources import DrfOnResources  # noqa: PLC0415

        return DrfOnResources(cluster)

    def at_sites(self, cluster: Cluster, physics: Physics, rng: Generator) -> ActivePolicy:  # noqa: ARG002
        """DRF in Okita's model."""
        self._needs_dynamic_counts()
        from skedge.policies.okita.baselines import SiteDrf  # noqa: PLC0415
        from skedge.policies.okita.slots import SiteDriver, sites_of  # noqa: PLC0415

        return SiteDriver(SiteDrf(sites_of(cluster)), physics)

    def _needs_dynamic_counts(self) -> None:
        if self.params.counts == "fixed":
            raise PolicyError("drf: counts=fixed goes with typed slots; these servers have resources")
