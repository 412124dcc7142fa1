"""Okita as a policy: Alg. 1 driven slot by slot, and the terms behind its decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from skedge.core.events import Event, Order
from skedge.core.model.cluster import Cluster, Physics
from skedge.core.policy import BasePolicy, Need, Params, View

from .alg1 import Okita, OkitaDecision, OkitaParams
from .explain import as_tables, explain_decision
from .slots import SiteDriver, sites_of

if TYPE_CHECKING:
    from numpy.random import Generator


class OkitaPolicy(BasePolicy):
    """Okita: unbiased training on data at many sites, at the lowest latency cost plus bandwidth cost."""

    name: ClassVar[str] = "okita"
    needs: ClassVar[frozenset[Need]] = frozenset({"sites"})
    Parameters: ClassVar[type[Params]] = OkitaParams

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.driver = SiteDriver(Okita(sites_of(cluster), self.params), physics)

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Alg. 1, in every slot."""
        return self.driver.decide(event, view)

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """The enumeration over N, the chosen sites with Q's terms, the PS's cost, migrate or delay, what moved."""
        driver = self.driver
        decisions = [d for d in driver.decisions if d.job == job and isinstance(d, OkitaDecision)]
        if not any(decision.tentative for decision in decisions):
            return {"compares": "nothing: no placement on the sites is feasible"}
        explanation = explain_decision(
            driver.current_sites, self.params, driver.jobs, driver.slot, driver.decisions, job
        )
        return as_tables(explanation, self.cluster.server_ids, view.job_id)
