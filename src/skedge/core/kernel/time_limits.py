"""Limits of a job's time (``max_wait_s``, ``max_run_time_s``), its own or its tenant's: it fails when one is reached.

The kernel keeps count, in simulations and live alike, and orders its world to end a job at a time
(:class:`~skedge.core.events.EndAt`); a later order of the same job takes the place of the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from skedge.core.events import EndAt, Event, Order
from skedge.core.model.sharing import Sharing, Tenant
from skedge.core.model.time import NEVER, ticks, whole_slots

if TYPE_CHECKING:
    from skedge.core.model.scenario import Jobs, Scenario

    from .state import State

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


class TimeLimits:
    """Waiting and running times so far of the jobs with limits.

    Attributes
    ----------
    limits
        The limits, by job.
    run_time
        How long each job ran until it last stopped [µs]; no entry: it has not run yet.
    running_since
        When the jobs that run now began to [µs].
    last_order
        The last order about each job.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.limits = time_limits(scenario.jobs, scenario.cluster.sharing)
        self.run_time: dict[int, int] = {}
        self.running_since: dict[int, int] = {}
        self.last_order: dict[int, EndAt] = {}

    def extend(self, scenario: Scenario, first: int) -> None:
        """Add the jobs from number `first` on."""
        self.limits |= time_limits(scenario.jobs, scenario.cluster.sharing, first)

    def orders(self, state: State, event: Event, orders: Sequence[Order]) -> Iterator[EndAt]:
        """Orders to the world that follow from `event` and from the `orders` of the policy."""
        if not self.limits:
            return
        # only these can have begun to run, paused or left; the limits of all others stand
        concerned = {order.job for order in orders if hasattr(order, "job")}
        concerned.update(event.arrived, event.started, event.paused, event.interrupted)
        for job in event.left:
            self._forget(job)
        # sorted, as these orders are journalled, and a replay must make them in the same order
        for job in sorted(concerned & self.limits.keys()):
            self._update(state, job)
            if job not in self.limits:
                continue
            order, before = self._order(state, job), self.last_order.get(job)
            # the world is told of changes only
            if order.time != (NEVER if before is None else before.time):
                self.last_order[job] = order
                yield order

    def _order(self, state: State, job: int) -> EndAt:
        """The time at which the job fails if it continues as now."""
        limit = self.limits[job]
        if job in self.running_since:
            left = limit.run - self.run_time.get(job, 0)
            time = NEVER if limit.run == NEVER else self.running_since[job] + left
            return EndAt(job, time, reason("run", limit.run))
        # a job that has run once no longer waits, not even while it is preempted
        time = NEVER if job in self.run_time or limit.wait == NEVER else waiting_since(state.scenario, job) + limit.wait
        return EndAt(job, time, reason("wait", limit.wait))

    def _update(self, state: State, job: int) -> None:
        """Note whether a job runs now."""
        # an order of this event has rejected it: `event.left` has only what the world reports
        if not state.in_system(job):
            self._forget(job)
        elif state.is_running(job):
            self.running_since.setdefault(job, state.now)
        elif job in self.running_since:
            self.run_time[job] = self.run_time.get(job, 0) + state.now - self.running_since.pop(job)

    def _forget(self, job: int) -> None:
        for table in (self.limits, self.run_time, self.running_since, self.last_order):
            table.pop(job, None)


def reason(kind: str, limit: int) -> str:
    """The reason of the failure of a job that reached its limit [µs]."""
    if kind == "run":
        return f"{PREFIX}it has run for {limit / 1e6:g} s, as long as {MAX_RUN_TIME} allows"
    return f"{PREFIX}it has waited for {limit / 1e6:g} s to begin, as long as {MAX_WAIT} allows"
