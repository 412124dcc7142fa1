"""Zeta of an allocation: whether its communication is free (Eq. (1) of JSAC'22, She et al. and PD-ORS)."""

from __future__ import annotations

from .events import CLOUD, Allocate
from .scenario import Scenario


def colocated(scenario: Scenario, order: Allocate) -> int:
    """Zeta of an allocation: 1 where communication between its workers and its PS is free (ERRATA J11)."""
    if len(order.where) > 1:
        return 0
    cluster, server = scenario.cluster, order.where[0][0]
    if isinstance(order.ps, tuple):
        return int(scenario.physics.colocation == "one_server" and [server] == [at for at, _ in order.ps])
    if server == cluster.cloud:
        return int(order.ps == CLOUD)
    if scenario.physics.colocation != "one_server" or order.ps == CLOUD:
        return 0
    return int(cluster.ps_server[order.ps] == server)
