"""Limits of a job's time (``max_wait_s``, ``max_run_time_s``), its own or its tenant's: it fails when one is reached.

The kernel keeps count, in simulations and live alike, and orders its world to end a job at a time
(:class:`~.events.EndAt`); a later order of the same job takes the place of the earlier one.
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
"""What the reason of a job that reached a limit begins with."""


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
    tenants = [] if sharing is None else [_of_tenant(tenant) for tenant in sharing.tenants.values()]
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


def seen_at(scenario: Scenario, job: int) -> int:
    """When a job's waiting begins [µs]: at its arrival, in slotted time at the next boundary between slots."""
    return int(whole_slots(scenario.jobs.arrival[job : job + 1], scenario.physics.step)[0])


def _of_tenant(tenant: Tenant) -> TimeLimit:
    return TimeLimit(_span(tenant.max_wait_s), _span(tenant.max_run_time_s))


def _span(seconds: float | None) -> int:
    return NEVER if seconds is None else max(1, int(ticks(seconds)))


class TimeLimits:
    """How long the jobs with limits have waited and run so far.

    Attributes
    ----------
    of
        The limits, by job.
    ran
        How long each job ran until it last stopped [µs]; no entry: it has not run yet.
    since
        When the jobs that run now began to [µs].
    ahead
        The last order about each job.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.of = time_limits(scenario.jobs, scenario.cluster.sharing)
        self.ran: dict[int, int] = {}
        self.since: dict[int, int] = {}
        self.ahead: dict[int, EndAt] = {}

    def extend(self, scenario: Scenario, first: int) -> None:
        """Add the jobs from number `first` on."""
        self.of |= time_limits(scenario.jobs, scenario.cluster.sharing, first)

    def orders(self, state: State, event: Event, orders: Sequence[Order]) -> Iterator[EndAt]:
        """What the world is to be told after `event` and the `orders` that answered it."""
        if not self.of:
            return
        concerned = {order.job for order in orders if hasattr(order, "job")}
        concerned.update(event.arrived, event.started, event.paused, event.interrupted)
        for job in event.left:
            self._forget(job)
        for job in sorted(concerned & self.of.keys()):
            self._note(state, job)
            if job not in self.of:
                continue
            order, before = self._order(state, job), self.ahead.get(job)
            if order.time != (NEVER if before is None else before.time):
                self.ahead[job] = order
                yield order

    def _order(self, state: State, job: int) -> EndAt:
        """When the job fails if it goes on as now."""
        limit = self.of[job]
        if job in self.since:
            left = limit.run - self.ran.get(job, 0)
            time = NEVER if limit.run == NEVER else self.since[job] + left
            return EndAt(job, time, reason("run", limit.run))
        time = NEVER if job in self.ran or limit.wait == NEVER else seen_at(state.scenario, job) + limit.wait
        return EndAt(job, time, reason("wait", limit.wait))

    def _note(self, state: State, job: int) -> None:
        """Note whether a job runs now."""
        if not state.in_system(job):
            self._forget(job)
        elif state.is_running(job):
            self.since.setdefault(job, state.now)
        elif job in self.since:
            self.ran[job] = self.ran.get(job, 0) + state.now - self.since.pop(job)

    def _forget(self, job: int) -> None:
        for table in (self.of, self.ran, self.since, self.ahead):
            table.pop(job, None)


def reason(kind: str, limit: int) -> str:
    """Why a job that reached its limit [µs] has failed."""
    if kind == "run":
        return f"{PREFIX}it has run for {limit / 1e6:g} s, as long as {MAX_RUN_TIME} allows"
    return f"{PREFIX}it has waited for {limit / 1e6:g} s to begin, as long as {MAX_WAIT} allows"
