"""Tiresias-L: gangs by (queue, first start, arrival, id); demotion and promotion between two queues."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from skedge.core.events import Event, Order, WakeAt
from skedge.core.model.cluster import Cluster, Floats, Ints, Physics
from skedge.core.model.time import NEVER, SECOND
from skedge.core.policy import View
from skedge.platform.jit import compiled, inlined, lean

from .base import GangParams, GangPolicy
from .placement import Gang

if TYPE_CHECKING:
    from numpy.random import Generator

_NEVER_STARTED = 2**40
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
    restore_left
        Of a job that holds its workers: the time for which it still restores [µs].
    earlier
        Time that counted as attained service up to its last promotion [µs].
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
    restore_left: Ints
    earlier: Ints
    first_start: Ints
    place: Ints


class Attained(NamedTuple):
    """The attained service of the jobs that have finished, and the limit that follows from it.

    Attributes
    ----------
    counts
        Number of jobs by step of attained service (:func:`_step_of`), and in all.
    limit
        Attained service at which a job is demoted [worker-µs], shape ``(1,)``; NEVER before a job has finished.
    learns
        1 if the limit follows the finished jobs, 0 if it is given.
    """

    counts: Ints
    limit: Floats
    learns: int


def attained(limit_s: float | None) -> Attained:
    """Of no jobs; `limit_s` as in :class:`TiresiasParams`."""
    limit = float(NEVER) if limit_s is None else limit_s * SECOND
    return Attained(np.zeros(_STEPS + 1, np.int64), np.array([limit]), int(limit_s is None))


def no_clocks() -> Clocks:
    """Clocks of no jobs."""
    return Clocks(*(np.zeros(0, np.int64) for _ in Clocks._fields))


def with_clocks(clocks: Clocks, jobs: int) -> Clocks:
    """`clocks` of at least `jobs` jobs; the new ones have never run."""
    n_new = jobs - len(clocks.queue)
    if n_new <= 0:
        return clocks
    grown = Clocks(*(np.append(column, np.zeros(n_new, np.int64)) for column in clocks))
    grown.first_start[-n_new:] = NEVER
    grown.place[-n_new:] = _NEVER_STARTED + np.arange(len(clocks.place), len(grown.place))
    return grown


class TiresiasParams(GangParams):
    """Parameters of Tiresias-L.

    Attributes
    ----------
    limit_s
        Attained service at which a job is demoted [worker-s], > 0; None: that which nine of ten jobs that have finished
        so far have not exceeded, rounded up to one of eight steps an octave; before any has finished none is demoted.
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

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.attained = attained(self.params.limit_s)
        self.restore = physics.checkpoint_overhead
        self.accounted_until = 0
        self.clocks = no_clocks()
        self.n_started = 0
        self.wake_at = NEVER

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Account and demote, promote all that are due, select; D2."""
        execute(self.holders, self.clocks, view.now - self.accounted_until)
        learn(np.array(event.finished, np.int64), self.clocks, self.gang, self.attained)
        demote(self.holders, self.clocks, self.gang, self.attained)
        self.accounted_until = view.now
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
        self.n_started = begin(np.sort(changes.begins), self.clocks, view.now, self.n_started, self.restore)
        self.clocks.stopped[changes.stops] = view.now
        yield from self.carry_out(changes, view, "least_attained_service")
        yield from self._wake(view)
        yield from self.note_shares(changes, view)

    def rank_terms(self, job: int) -> dict[str, Any]:
        """Queue and clocks of `job`."""
        return {
            "queue": int(self.clocks.queue[job]),
            "executed_s": float(self.clocks.executed[job]) / SECOND,
            "waited_s": float(waited(self.clocks, self.gang, job, self.accounted_until)) / SECOND,
            "limit_worker_s": limit / SECOND if (limit := float(self.attained.limit[0])) < NEVER else None,
        }

    def _select(self, view: View) -> tuple[Ints, Ints]:
        # jobs are kept in the last order, as a stable sort of a nearly sorted list takes one pass
        self.active = self.active[ranks(self.active, self.clocks).argsort(kind="stable")]
        return self.share_out(self.active, view)

    def _wake(self, view: View) -> Iterator[WakeAt]:
        """Ask for the next demotion or promotion."""
        if self.wake_at <= view.now:
            self.wake_at = NEVER
        due = next_demotion(self.holders, self.clocks, self.gang, self.attained)
        waits = self.active[self.gang.running[self.active] == 0]
        due = min(due, next_promotion(waits, self.clocks, self.gang, self.params.knob, view.now))
        if due < NEVER and view.now + due < self.wake_at:
            # at least 1 µs on, or a rounded time would wake it at this instant for ever
            self.wake_at = max(view.now + math.ceil(due), view.now + 1)
            yield WakeAt(self.wake_at)


@lean
def execute(holders: Ints, clocks: Clocks, elapsed: int) -> None:
    """Let the jobs that hold workers run for `elapsed` µs."""
    for job in holders:
        # a job may lose its workers before its checkpoint is restored: no more counts than it had them for
        restored = min(clocks.restore_left[job], elapsed)
        clocks.executed[job] += elapsed
        clocks.restoring[job] += restored
        clocks.restore_left[job] -= restored


@inlined
def _served(clocks: Clocks, job: int) -> int:
    """Time of `job` since its last promotion that counts as attained service [µs]."""
    return clocks.executed[job] - clocks.restoring[job]


@lean
def demote(holders: Ints, clocks: Clocks, gang: Gang, attained: Attained) -> None:
    """Move the jobs that hold workers and whose attained service reaches the limit to the second queue.

    Parameters
    ----------
    holders
        Jobs that hold workers.
    clocks, gang
        Their clocks (queue is changed), and requested workers.
    attained
        Whose limit applies.
    """
    for job in holders:
        if gang.workers[job] * _served(clocks, job) >= attained.limit[0]:
            clocks.queue[job] = 1


_STEPS = 512
"""Steps of attained service [worker-µs]: eight to an octave, and below 16 whole numbers."""


@inlined
def _step_of(service: int) -> int:
    """The step in which an attained service lies; it indexes an array, so that none is below 0."""
    service, octave = max(service, 0), 0
    while service >> octave >= 16:
        octave += 1
    return 8 * octave + (service >> octave)


@lean
def learn(finished: Ints, clocks: Clocks, gang: Gang, attained: Attained) -> None:
    """Take in the jobs that finish now, and let the limit follow; the cloud's jobs attain no service here.

    The limit is the end of the first step up to which nine tenths of the finished jobs lie. What a job attained before
    a promotion counts, too.

    Parameters
    ----------
    finished
        Jobs that complete now.
    clocks, gang
        Clocks and requested workers, by job.
    attained
        In and out: the counts, and the limit if it is learned.
    """
    counts = attained.counts
    if attained.learns == 0:
        return
    for job in finished:
        if clocks.first_start[job] < NEVER:
            counts[_step_of(gang.workers[job] * (clocks.earlier[job] + _served(clocks, job)))] += 1
            counts[_STEPS] += 1
    if counts[_STEPS] == 0:
        return
    step, n_jobs = 0, counts[0]
    while 10 * n_jobs < 9 * counts[_STEPS]:
        step += 1
        n_jobs += counts[step]
    # the inverse of _step_of: the first service beyond the step
    octave = max(step // 8 - 1, 0)
    attained.limit[0] = float((step - 8 * octave + 1) << octave)


@lean
def begin(jobs: Ints, clocks: Clocks, now: int, n_started: int, restore: int) -> int:
    """Note that `jobs`, in order, begin to run; their places follow the order of (first start, arrival, id).

    Returns how many have ever begun, `n_started` before.

    Parameters
    ----------
    jobs
        Jobs that are given workers now, ascending.
    clocks, now
        In and out; the present [µs].
    n_started
        Jobs that have started before.
    restore
        Checkpoint overhead [µs], which a job that resumes pays.
    """
    for job in jobs:
        if clocks.first_start[job] == NEVER:
            clocks.first_start[job], clocks.place[job] = now, n_started
            n_started += 1
        else:
            clocks.waited[job] += now - clocks.stopped[job]
            # time in which a checkpoint is restored holds workers, and is no attained service
            clocks.restore_left[job] = restore
    return n_started


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
def next_demotion(holders: Ints, clocks: Clocks, gang: Gang, attained: Attained) -> float:
    """Time until the first running job of the first queue reaches the limit [µs]; NEVER if there is none.

    Parameters
    ----------
    holders, clocks, gang, attained
        As in :func:`demote`.
    """
    least, limit = float(NEVER), attained.limit[0]
    if limit < least:
        for job in holders:
            if clocks.queue[job] == 0:
                least = min(least, limit / gang.workers[job] - (_served(clocks, job) - clocks.restore_left[job]))
    return least


@lean
def waited(clocks: Clocks, gang: Gang, job: int, now: int) -> int:
    """Time for which `job` has waited since its last promotion [µs]; 0 before its first start.

    Parameters
    ----------
    clocks, gang
        Clocks, and which jobs hold workers.
    job, now
        The job, and the present [µs].
    """
    waits = gang.running[job] == 0 and clocks.first_start[job] < NEVER
    return clocks.waited[job] + (now - clocks.stopped[job] if waits else 0)


@inlined
def _pending(clocks: Clocks, job: int) -> bool:
    """Whether `job`, which waits, may be promoted: it is in the second queue, and has run before."""
    return clocks.queue[job] > 0 and clocks.first_start[job] < NEVER


@lean
def promote(waiting: Ints, clocks: Clocks, gang: Gang, knob: float, now: int) -> bool:
    """Promote the `waiting` jobs that have waited at least `knob` times their executed time; False if there is none.

    Parameters
    ----------
    waiting
        Jobs in the system that hold no workers.
    clocks, gang
        In and out; which jobs hold workers.
    knob
        Waited over executed time that is enough, > 0; inf: never.
    now
        The present [µs].
    """
    if math.isinf(knob):
        return False
    promoted = False
    for job in waiting:
        if _pending(clocks, job) and waited(clocks, gang, job, now) >= knob * clocks.executed[job]:
            clocks.earlier[job] += _served(clocks, job)
            clocks.queue[job] = clocks.executed[job] = clocks.waited[job] = clocks.restoring[job] = 0
            clocks.stopped[job] = now
            promoted = True
    return promoted


@lean
def next_promotion(waiting: Ints, clocks: Clocks, gang: Gang, knob: float, now: int) -> float:
    """Time until the first of `waiting` is promoted [µs]; NEVER if there is none.

    Parameters
    ----------
    waiting, clocks, gang, knob, now
        As in :func:`promote`.
    """
    least = float(NEVER)
    if not math.isinf(knob):
        for job in waiting:
            if _pending(clocks, job):
                least = min(least, knob * clocks.executed[job] - waited(clocks, gang, job, now))
    return least
