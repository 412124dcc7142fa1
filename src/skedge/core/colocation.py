"""Zeta of an allocation: whether its communication is free (Eq. (1) of JSAC'22, She et al. and PD-ORS)."""

from __future__ import annotations

from .events import Allocate
from .model.scenario import Scenario


def colocated(scenario: Scenario, order: Allocate) -> int:
    """Zeta of an allocation: 1 where communication between its workers and its PS is free (ERRATA J11)."""
    if len(order.where) > 1:
        return 0
    cluster, server = scenario.cluster, order.where[0][0]
    if server != cluster.cloud and scenario.physics.colocation != "one_server":
        return 0
    # all its PSs are in one place, and that is the workers' server
    return int([server] == [cluster.ps_places[place] for place, _ in order.ps])
