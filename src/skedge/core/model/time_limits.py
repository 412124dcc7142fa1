"""The limits of a job's time (``max_wait_s``, ``max_run_time_s``), its own or its tenant's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .sharing import Sharing, Tenant
from .time import NEVER, ticks, whole_slots

if TYPE_CHECKING:
    from .scenario import Jobs, Scenario

MAX_WAIT, MAX_RUN_TIME = "max_wait_s", "max_run_time_s"
"""The fields of a job and of a tenant."""

PREFIX = "its time limit: "
"""Beginning of the reason of a job that reached a limit."""


class TimeLimit(NamedTuple):
    """The limits of one job [µs]; NEVER: it has none.

    Attributes
    ----------
    wait
        From its arrival to when it first holds workers or has a chunk in service.
    run
        In all, while it holds workers or has a chunk in service.
    """

    wait: int = NEVER
    run: int = NEVER


def time_limits(jobs: Jobs, sharing: Sharing | None, first: int = 0) -> dict[int, TimeLimit]:
    """The limits of the jobs from number `first` on that have any: the lower of its own and its tenant's."""
    columns = jobs.frame.columns
    own = [jobs.frame[name][first:].to_list() if name in columns else None for name in (MAX_WAIT, MAX_RUN_TIME)]
    tenants = [] if sharing is None else [_tenant_limit(tenant) for tenant in sharing.tenants.values()]
    # the usual case: no job has a limit, and none is looked at
    if own == [None, None] and all(limit == TimeLimit() for limit in tenants):
        return {}
    limits = {}
    for job in range(first, len(jobs)):
        limit = TimeLimit(*(_span(None if column is None else column[job - first]) for column in own))
        if tenants:
            limit = TimeLimit(*map(min, limit, tenants[jobs.tenant[job]]))
        if limit != TimeLimit():
            limits[job] = limit
    return limits


def has_time_limits(scenario: Scenario) -> bool:
    """Whether a job of the scenario can reach a limit."""
    return bool(time_limits(scenario.jobs, scenario.cluster.sharing))


def waiting_since(scenario: Scenario, job: int) -> int:
    """Start of a job's wait [µs]: its arrival, in slotted time the next boundary between slots."""
    return int(whole_slots(scenario.jobs.arrival[job : job + 1], scenario.physics.step)[0])


def _tenant_limit(tenant: Tenant) -> TimeLimit:
    return TimeLimit(_span(tenant.max_wait_s), _span(tenant.max_run_time_s))


def _span(seconds: float | None) -> int:
    return NEVER if seconds is None else max(1, int(ticks(seconds)))


def reason(kind: str, limit: int) -> str:
    """The reason of the failure of a job that reached its limit [µs]."""
    if kind == "run":
        return f"{PREFIX}it has run for {limit / 1e6:g} s, as long as {MAX_RUN_TIME} allows"
    return f"{PREFIX}it has waited for {limit / 1e6:g} s to begin, as long as {MAX_WAIT} allows"
