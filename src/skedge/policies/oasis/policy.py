"""OASiS: its parameters, and the choice of the file for the kind of cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from skedge.core.errors import PolicyError
from skedge.core.model.cluster import Cluster, Physics
from skedge.core.policy import ActivePolicy, Guarantees, Need, Params, PolicyByKind
from skedge.policies.pdors.prices import PrimalDualParams, frozen_prices

if TYPE_CHECKING:
    from numpy.random import Generator

    from skedge.core.model.scenario import Scenario


class OasisParams(PrimalDualParams):
    """Parameters of OASiS, besides those of :class:`~skedge.policies.pdors.prices.PrimalDualParams`.

    Attributes
    ----------
    split_sites
        Workers and PSs stand at separate sites (D5); false goes with sites alone: on servers with resources the two
        kinds are always apart.
    """

    split_sites: bool = True


class OasisPolicy(PolicyByKind):
    """OASiS: jobs admitted by primal-dual prices; workers and PSs on separate servers."""

    name: ClassVar[str] = "oasis"
    Parameters: ClassVar[type[Params]] = OasisParams
    needs: ClassVar[frozenset[Need]] = frozenset({"resources with a utility of every job, or sites", "a horizon"})

    @property
    def guarantees(self) -> Guarantees:
        """Data are brought with allocations only; on servers with resources every job that runs has a plan."""
        return Guarantees(uploads="with_allocations", plans=True)

    @property
    def history(self) -> str:
        """The file of `price_source`."""
        return str(self.params.history)

    def calibrated(self, scenario: Scenario) -> OasisPolicy:
        """A copy of the policy with its constants set, from the jobs of `scenario` where they were not."""
        if self.params.low is not None:
            return self
        constants = self.of_kind(
            scenario.cluster, resources=self._constants_on_resources, sites=self._constants_at_sites
        )
        return OasisPolicy(**{**self.params.model_dump(), **constants(scenario)})

    def _constants_on_resources(self, scenario: Scenario) -> dict[str, Any]:
        from .on_resources import OasisOnResources  # noqa: PLC0415 - see PolicyByKind

        return OasisOnResources(self.params).constants(scenario)

    @staticmethod
    def _constants_at_sites(scenario: Scenario) -> dict[str, Any]:
        from .at_sites import site_constants  # noqa: PLC0415

        return site_constants(scenario)

    def on_resources(self, cluster: Cluster, physics: Physics, rng: Generator) -> ActivePolicy:
        """OASiS on servers with resources.

        Raises
        ------
        PolicyError
            If ``split_sites=false``, which goes with sites alone.
        """
        if not self.params.split_sites:
            raise PolicyError("oasis: split_sites=false goes with sites; on servers both kinds are always apart")
        from .on_resources import OasisOnResources  # noqa: PLC0415

        policy = OasisOnResources(self.params)
        policy.start(cluster, physics, rng)
        return policy

    def at_sites(self, cluster: Cluster, physics: Physics, rng: Generator) -> ActivePolicy:  # noqa: ARG002
        """OASiS in Okita's model."""
        from skedge.policies.okita.slots import SiteDriver, sites_of  # noqa: PLC0415

        from .at_sites import SiteOasis, SiteOasisParams  # noqa: PLC0415

        p = self.params
        levels = {} if p.levels == "auto" else {"levels": p.levels}
        prices = frozen_prices(self.name, p, cluster, groups=1)
        params = SiteOasisParams(split_sites=p.split_sites, **levels)
        return SiteDriver(SiteOasis(sites_of(cluster), physics.slots or 1, prices, params), physics)
