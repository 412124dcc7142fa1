"""Limits of a job's time: it fails when one is reached.

The kernel keeps count, in simulations and live alike, and orders its world to end a job at a time
(:class:`~skedge.core.events.EndAt`); a later order of the same job takes the place of the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from skedge.core.events import EndAt, Event, Order
from skedge.core.model.time import NEVER
from skedge.core.model.time_limits import reason, time_limits, waiting_since

if TYPE_CHECKING:
    from skedge.core.model.scenario import Scenario

    from .state import State


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
