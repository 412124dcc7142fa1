"""Tiresias-L: gangs by (queue, first start, arrival, id); demotion and promotion between two queues."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from skedge.core.errors import PolicyError
from skedge.core.events import Event, Order, WakeAt
from skedge.core.jit import compiled, inlined, lean
from skedge.core.model import Cluster, Ints, Physics
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


def no_clocks() -> Clocks:
    """Clocks of no jobs."""
    return Clocks(*(np.zeros(0, np.int64) for _ in Clocks._fields))


def with_clocks(clocks: Clocks, jobs: int) -> Clocks:
    """`clocks` of at least `jobs` jobs; the new ones have never run."""
    more = jobs - len(clocks.queue)
    if more <= 0:
        return clocks
    new = Clocks(*(np.append(column, np.zeros(more, np.int64)) for column in clocks))
    new.first_start[-more:] = NEVER
    new.place[-more:] = _NEVER_BEGUN + np.arange(len(clocks.place), len(new.place))
    return new


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

    @property
    def shares(self) -> bool:
        """Tenants and classes are kept to."""
        return True

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
        self.clocks = no_clocks()
        self.begun = 0
        self.wake_at = NEVER

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Account and demote, promote all that are due, select; D2."""
        execute(self.held, self.clocks, self.gang, view.now - self.at, self.limit)
        self.at = view.now
        yield from self.admit(event, view)
        self.clocks = with_clocks(self.clocks, len(self.gang.used))
        self.clocks.stopped[list(event.interrupted)] = view.now
        knob = self.params.knob
        promote(self.active[self.gang.running[self.active] == 0], self.clocks, self.gang, knob, view.now)
        order, verdict = self._select(view)
        # a job that loses its workers now may be due for promotion at once, which changes the order again
        while promote(order[verdict == 0], self.clocks, self.gang, knob, view.now):
            order, verdict = self._select(view)
        changes = self.note(order, verdict)
        self.begun = begin(np.sort(changes.begins), self.clocks, view.now, self.begun, self.restore)
        self.clocks.stopped[changes.stops] = view.now
        yield from self.carry_out(changes, view, "least_attained_service")
        yield from self._wake(view)
        yield from self.note_shares(changes, view)

    def rank_terms(self, job: int) -> dict[str, Any]:
        """Queue and clocks of `job`."""
        return {
            "queue": int(self.clocks.queue[job]),
            "executed_s": float(self.clocks.executed[job]) / SECOND,
            "waited_s": float(waited(self.clocks, self.gang, job, self.at)) / SECOND,
            "limit_worker_s": self.params.limit_s,
        }

    def _select(self, view: View) -> tuple[Ints, Ints]:
        # jobs are kept in the last order, as a stable sort of a nearly sorted list takes one pass
        self.active = self.active[ranks(self.active, self.clocks).argsort(kind="stable")]
        return self.share_out(self.active, view)

    def _wake(self, view: View) -> Iterator[WakeAt]:
        """Ask for the next demotion or promotion."""
        if self.wake_at <= view.now:
            self.wake_at = NEVER
        due = next_demotion(self.held, self.clocks, self.gang, self.limit)
        waits = self.active[self.gang.running[self.active] == 0]
        due = min(due, next_promotion(waits, self.clocks, self.gang, self.params.knob, view.now))
        if due < NEVER and view.now + due < self.wake_at:
            # at least 1 µs on, or a rounded time would wake it at this instant for ever
            self.wake_at = max(view.now + math.ceil(due), view.now + 1)
            yield WakeAt(self.wake_at)


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
            # time in which a checkpoint is restored holds workers, and is no attained service
            clocks.restoring[job] += restore
    return begun


@compiled
def ranks(jobs: Ints, clocks: Clocks) -> Ints:
    """What `jobs` are scanned by."""
    rank = np.empty(len(jobs), np.int64)
    for n in range(len(jobs)):
        rank[n] = rank_of(clocks, jobs[n])
    return rank


@inlined
def rank_of(clocks: Clocks, job: int) -> int:
    """(queue, first start, arrival, id) of `job` as one number."""
    return clocks.queue[job] * _LATE + clocks.place[job]


@lean
def next_demotion(held: Ints, clocks: Clocks, gang: Gang, limit: float) -> float:
    """Time until the first running job of the first queue reaches `limit` [µs]; NEVER if there is none."""
    least = float(NEVER)
    for job in held:
        if clocks.queue[job] == 0:
            least = min(least, limit / gang.workers[job] - (clocks.executed[job] - clocks.restoring[job]))
    return least


@lean
def waited(clocks: Clocks, gang: Gang, job: int, now: int) -> int:
    """Time for which `job` has waited since its last promotion [µs]; 0 before its first start."""
    waits = gang.running[job] == 0 and clocks.first_start[job] < NEVER
    return clocks.waited[job] + (now - clocks.stopped[job] if waits else 0)


@inlined
def _pending(clocks: Clocks, job: int) -> bool:
    """Whether `job`, which waits, may be promoted: it is in the second queue, and has run before."""
    return clocks.queue[job] > 0 and clocks.first_start[job] < NEVER


@lean
def promote(waits: Ints, clocks: Clocks, gang: Gang, knob: float, now: int) -> bool:
    """Promote the jobs of `waits` that have waited at least `knob` times their executed time; whether there was one."""
    if math.isinf(knob):
        return False
    found = False
    for job in waits:
        if _pending(clocks, job) and waited(clocks, gang, job, now) >= knob * clocks.executed[job]:
            clocks.queue[job] = clocks.executed[job] = clocks.waited[job] = clocks.restoring[job] = 0
            clocks.stopped[job] = now
            found = True
    return found


@lean
def next_promotion(waits: Ints, clocks: Clocks, gang: Gang, knob: float, now: int) -> float:
    """Time until the first of `waits` is promoted [µs]; NEVER if there is none."""
    least = float(NEVER)
    if not math.isinf(knob):
        for job in waits:
            if _pending(clocks, job):
                least = min(least, knob * clocks.executed[job] - waited(clocks, gang, job, now))
    return least
