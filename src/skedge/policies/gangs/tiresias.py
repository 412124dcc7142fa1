"""Tiresias-L: gangs by (queue, first start, arrival, id); demotion and promotion between two queues."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from skedge.core.errors import PolicyError
from skedge.core.events import Event, Order, WakeAt
from skedge.core.jit import compiled, lean
from skedge.core.model import Cluster, Floats, Ints, Physics
from skedge.core.policy import View
from skedge.core.time import NEVER, SECOND

from .base import GangParams, GangPolicy
from .placement import Gang

if TYPE_CHECKING:
    from numpy.random import Generator

    from skedge.core.scenario import Scenario

_NEVER_BEGUN = 2**40
"""Places of jobs that never ran, plus their number: behind all that have."""

_LATE = 2**41
"""Places of the second queue begin here."""


class Clocks(NamedTuple):
    """The state that Tiresias-L keeps of the jobs; all arrays are by job.

    Attributes
    ----------
    queue
        0: the first queue, 1: the second.
    executed
        Time for which the job has held its workers since its last promotion [µs].
    waited, stopped
        Time for which it has waited since then, up to when it last stopped, and when that was [µs].
    restoring
        Part of `executed` that went into restoring checkpoints [µs].
    first_start
        [µs]; NEVER before it.
    place
        Rank in the order of (first start, arrival, id); jobs that never ran come last.
    """

    queue: Ints
    executed: Ints
    waited: Ints
    stopped: Ints
    restoring: Ints
    first_start: Ints
    place: Ints


class TiresiasParams(GangParams):
    """Parameters of Tiresias-L.

    Attributes
    ----------
    limit_s
        Attained service at which a job is demoted [worker-s], > 0; None: calibrated from the scenario.
    knob
        Promote a pending job that has waited at least `knob` times its executed time, > 0; inf: never.
    """

    limit_s: float | None = Field(default=None, gt=0)
    knob: float = Field(default=math.inf, gt=0)


class Tiresias(GangPolicy):
    """Tiresias-L with two queues."""

    name: ClassVar[str] = "tiresias"
    Parameters = TiresiasParams

    def calibrated(self, scenario: Scenario) -> Tiresias:
        """The same policy with its limit set, if it was not: the median announced work of the scenario's jobs."""
        if self.params.limit_s is not None:
            return self
        if not len(scenario.jobs):
            raise PolicyError(
                "tiresias: there is no workload to take limit_s from; give tiresias:limit_s=<worker-seconds>"
            )
        limit = float(np.median(scenario.announced_work[:, 0])) / SECOND
        return Tiresias(**{**self.params.model_dump(), "limit_s": limit})

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        if self.params.limit_s is None:
            raise ValueError("tiresias: limit_s is not set; give it, or take Tiresias.calibrated(scenario)")
        self.limit = self.params.limit_s * SECOND
        self.restore = physics.checkpoint_overhead
        self.at = 0
        self.clocks = Clocks(*(np.zeros(0, np.int64) for _ in Clocks._fields))
        self.begun = 0
        self.wake_at = NEVER

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Account and demote, promote all that are due, select; D2."""
        execute(self.held, self.clocks, self.gang, view.now - self.at, self.limit)
        self.at = view.now
        yield from self.admit(event, view)
        self._lengthen()
        self.clocks.stopped[list(event.interrupted)] = view.now
        self._promote(self.active[self.gang.running[self.active] == 0], view.now)
        verdict = self._select(view)
        while self._promote(self.active[verdict == 0], view.now):
            verdict = self._select(view)
        changes = self.note(self.active, verdict)
        self.begun = begin(np.sort(changes.begins), self.clocks, view.now, self.begun, self.restore)
        self.clocks.stopped[changes.stops] = view.now
        yield from self.carry_out(changes, view, "least_attained_service")
        yield from self._wake(view)

    def rank_terms(self, job: int) -> dict[str, Any]:
        """Queue and clocks of `job`."""
        return {
            "queue": int(self.clocks.queue[job]),
            "executed_s": float(self.clocks.executed[job]) / SECOND,
            "waited_s": float(self._waited(np.array([job]), self.at)[0]) / SECOND,
            "limit_worker_s": self.params.limit_s,
        }

    def _lengthen(self) -> None:
        old = self.clocks
        more = len(self.gang.used) - len(old.queue)
        if more > 0:
            new = Clocks(*(np.append(column, np.zeros(more, np.int64)) for column in old))
            new.first_start[-more:] = NEVER
            new.place[-more:] = _NEVER_BEGUN + np.arange(len(old.place), len(new.place))
            self.clocks = new

    def _waited(self, jobs: Ints, now: int) -> Ints:
        """Time for which `jobs` have waited since their last promotion [µs]; 0 before their first start."""
        clocks = self.clocks
        waits = (self.gang.running[jobs] == 0) & (clocks.first_start[jobs] < NEVER)
        waited: Ints = clocks.waited[jobs] + waits * (now - clocks.stopped[jobs])
        return waited

    def _select(self, view: View) -> Ints:
        # jobs are kept in the last order, as a stable sort of a nearly sorted list takes one pass
        self.active = self.active[ranks(self.active, self.clocks).argsort(kind="stable")]
        return self.choose(self.active, view)

    def _promote(self, waits: Ints, now: int) -> bool:
        """Promote the jobs of `waits` that have waited long enough; whether there was one."""
        if math.isinf(self.params.knob):
            return False
        pending, clocks = self._pending(waits), self.clocks
        up = pending[self._waited(pending, now) >= self.params.knob * clocks.executed[pending]]
        clocks.queue[up] = clocks.executed[up] = clocks.waited[up] = clocks.restoring[up] = 0
        clocks.stopped[up] = now
        return len(up) > 0

    def _pending(self, waits: Ints) -> Ints:
        """Jobs of `waits` that may be promoted: of the second queue, and run before."""
        return waits[(self.clocks.queue[waits] > 0) & (self.clocks.first_start[waits] < NEVER)]

    def _wake(self, view: View) -> Iterator[WakeAt]:
        """Ask for the next demotion or promotion."""
        if self.wake_at <= view.now:
            self.wake_at = NEVER
        due = next_demotion(self.held, self.clocks, self.gang, self.limit)
        due = min(due, self._next_promotion(view.now))
        if due < NEVER and view.now + due < self.wake_at:
            self.wake_at = max(view.now + math.ceil(due), view.now + 1)
            yield WakeAt(self.wake_at)

    def _next_promotion(self, now: int) -> float:
        """Time until the first pending job is promoted [µs]; NEVER if there is none."""
        if math.isinf(self.params.knob):
            return NEVER
        jobs = self._pending(self.active[self.gang.running[self.active] == 0])
        left: Floats = self.params.knob * self.clocks.executed[jobs] - self._waited(jobs, now)
        return float(left.min(initial=NEVER))


@lean
def execute(held: Ints, clocks: Clocks, gang: Gang, passed: int, limit: float) -> None:
    """Let the jobs that hold workers run for `passed` µs.

    One whose attained service reaches `limit` [worker-µs] is demoted to the second queue.
    """
    for job in held:
        clocks.executed[job] += passed
        if gang.workers[job] * (clocks.executed[job] - clocks.restoring[job]) >= limit:
            clocks.queue[job] = 1


@lean
def begin(jobs: Ints, clocks: Clocks, now: int, begun: int, restore: int) -> int:
    """Note that `jobs`, in order, begin to run; their places follow the order of (first start, arrival, id).

    Returns how many have ever begun, `begun` before.
    """
    for job in jobs:
        if clocks.first_start[job] == NEVER:
            clocks.first_start[job], clocks.place[job] = now, begun
            begun += 1
        else:
            clocks.waited[job] += now - clocks.stopped[job]
            clocks.restoring[job] += restore
    return begun


@compiled
def ranks(jobs: Ints, clocks: Clocks) -> Ints:
    """What `jobs` are scanned by: (queue, first start, arrival, id) as one number."""
    rank = np.empty(len(jobs), np.int64)
    for n in range(len(jobs)):
        rank[n] = clocks.queue[jobs[n]] * _LATE + clocks.place[jobs[n]]
    return rank


@lean
def next_demotion(held: Ints, clocks: Clocks, gang: Gang, limit: float) -> float:
    """Time until the first running job of the first queue reaches `limit` [µs]; NEVER if there is none."""
    least = float(NEVER)
    for job in held:
        if clocks.queue[job] == 0:
            least = min(least, limit / gang.workers[job] - (clocks.executed[job] - clocks.restoring[job]))
    return least
