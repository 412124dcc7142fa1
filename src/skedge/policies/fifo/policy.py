"""FIFO: its parameters, and the choice of the file for the kind of cluster and the rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, model_validator

from skedge.core.errors import PolicyError
from skedge.core.model.cluster import Cluster, Physics
from skedge.core.policy import ActivePolicy, Guarantees, Need, Params, PolicyByKind

if TYPE_CHECKING:
    from numpy.random import Generator


class FifoParams(Params):
    """Parameters of FIFO.

    Attributes
    ----------
    allow_cloud
        With ``strict`` on typed slots: as :class:`~skedge.policies.gangs.base.GangParams`.
    sticky, placement
        Of gang policies; FIFO takes no value but the default.
    rule
        ``strict`` head of line, or ``earliest_server``.
    backfill
        With ``strict``: jobs behind a waiting one may start.
    most_workers
        On servers with resources: workers are drawn from 1 to this, or to the job's batch if that is less.
    """

    allow_cloud: bool = False
    sticky: bool = False
    placement: Literal["keep_running", "literal"] = "keep_running"
    rule: Literal["strict", "earliest_server"] = "strict"
    backfill: bool = False
    most_workers: int = Field(30, ge=1)

    @model_validator(mode="after")
    def _no_idle_parameter(self) -> FifoParams:
        """Refuse a parameter that the rule does not use."""
        idle = ("sticky", "placement", *(("backfill", "allow_cloud") if self.rule == "earliest_server" else ()))
        for name in idle:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} does nothing with rule={self.rule}; leave it out")
        return self


class Fifo(PolicyByKind):
    """First in, first out."""

    name: ClassVar[str] = "fifo"
    needs: ClassVar[frozenset[Need]] = frozenset({"typed slots, resources or sites"})
    Parameters = FifoParams

    @property
    def guarantees(self) -> Guarantees:
        """No job is preempted; PSs by the ratio; where jobs go to a server on arrival, data are brought ahead."""
        if self.params.rule == "earliest_server":
            return Guarantees(preempts="never")
        return Guarantees(uploads="with_allocations", preempts="never", ps="ratio")

    @property
    def shares(self) -> bool:
        """With the rule ``strict``."""
        return bool(self.params.rule == "strict")

    @property
    def may_use_cloud(self) -> bool:
        """With `allow_cloud`, and with the rule ``earliest_server``, which counts the cloud as a server."""
        return bool(self.params.allow_cloud or self.params.rule == "earliest_server")

    def on_slots(self, cluster: Cluster, physics: Physics, rng: Generator) -> ActivePolicy:
        """The rule on typed slots."""
        if self.params.rule == "earliest_server":
            from .earliest_server import EarliestServer  # noqa: PLC0415 - see PolicyByKind

            return EarliestServer(self.params, cluster, physics, rng)
        from .strict import StrictFifo  # noqa: PLC0415

        return StrictFifo(self.params, cluster, physics, rng)

    def on_resources(self, cluster: Cluster, physics: Physics, rng: Generator) -> ActivePolicy:  # noqa: ARG002
        """FIFO on servers with resources."""
        self._needs_strict()
        from .on_resources import FifoOnResources  # noqa: PLC0415

        return FifoOnResources(self.params, cluster, rng)

    def at_sites(self, cluster: Cluster, physics: Physics, rng: Generator) -> ActivePolicy:
        """FIFO in Okita's model."""
        self._needs_strict()
        from skedge.policies.okita.baselines import SiteFifo  # noqa: PLC0415
        from skedge.policies.okita.slots import SiteDriver, sites_of  # noqa: PLC0415

        return SiteDriver(SiteFifo(sites_of(cluster), rng), physics)

    def _needs_strict(self) -> None:
        if self.params.rule == "earliest_server":
            raise PolicyError("fifo: rule=earliest_server goes with typed slots; these servers have resources")
