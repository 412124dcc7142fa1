"""Tiresias-L: gangs by (queue, first start, arrival, id); demotion and promotion between two queues."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from skedge.core.engine.apply import apply_all
from skedge.core.engine.ledger import DEMAND, HELD, NOW, Case, Ledger
from skedge.core.engine.orders import N_FINISHED, N_INTERRUPTED, EventFacts, OrderRows, add_wake
from skedge.core.engine.step import EVENT, PAUSED, QUIET, step
from skedge.core.model.cluster import Cluster, Floats, Ints, Physics
from skedge.core.model.time import NEVER, SECOND
from skedge.core.policy import View
from skedge.platform.jit import compiled, inlined, lean

from .base import (
    ARRANGED,
    BEGINS,
    HOLDERS,
    STOPS,
    VERDICT,
    GangParams,
    GangPolicy,
    GangState,
    admit_gangs,
    carry_out,
    compare,
    note_changes,
    select,
)
from .edge import ACTIVE, FURTHER, SPARE

if TYPE_CHECKING:
    from numpy.random import Generator

    from skedge.core.model.scenario import Scenario

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


DECIDED, N_BEGUN, WAKES_AT = range(3)
"""Numbers of ``TiresiasState.numbers``: the last decision [µs], jobs that have ever begun, the next wake-up [µs]."""


class TiresiasState(NamedTuple):
    """What Tiresias-L keeps.

    Attributes
    ----------
    gang
        As of every gang policy.
    clocks, attained
        Of the jobs, and of those that have finished.
    knob
        Waited over executed time at which a job is promoted.
    numbers
        Numbers; see above.
    """

    gang: GangState
    clocks: Clocks
    attained: Attained
    knob: float
    numbers: Ints


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


# -- the clocks ------------------------------------------------------------------------------------------------------


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
def demote(holders: Ints, clocks: Clocks, table: Ints, attained: Attained) -> None:
    """Move the jobs that hold workers and whose attained service reaches the limit to the second queue.

    Parameters
    ----------
    holders
        Jobs that hold workers.
    clocks, table
        Their clocks (queue is changed), and the rows of jobs (``Ledger.jobs``).
    attained
        Whose limit applies.
    """
    for job in holders:
        if table[job, DEMAND] * _served(clocks, job) >= attained.limit[0]:
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
def learn(finished: Ints, clocks: Clocks, table: Ints, attained: Attained) -> None:
    """Take in the jobs that finish now, and let the limit follow; the cloud's jobs attain no service here.

    The limit is the end of the first step up to which nine tenths of the finished jobs lie. What a job attained before
    a promotion counts, too.

    Parameters
    ----------
    finished
        Jobs that complete now.
    clocks, table
        By job, as in :func:`demote`.
    attained
        In and out: the counts, and the limit if it is learned.
    """
    counts = attained.counts
    if attained.learns == 0:
        return
    for job in finished:
        if clocks.first_start[job] < NEVER:
            counts[_step_of(table[job, DEMAND] * (clocks.earlier[job] + _served(clocks, job)))] += 1
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
            clocks.stopped[job] = now
            # time in which a checkpoint is restored holds workers, and is no attained service
            clocks.restore_left[job] = restore
    return n_started


@inlined
def rank_of(clocks: Clocks, job: int) -> int:
    """(queue, first start, arrival, id) of `job` as one number."""
    return clocks.queue[job] * _LATE + clocks.place[job]


@lean
def next_demotion(holders: Ints, clocks: Clocks, table: Ints, attained: Attained) -> float:
    """Time until the first running job of the first queue reaches the limit [µs]; NEVER if there is none.

    Parameters
    ----------
    holders, clocks, table, attained
        As in :func:`demote`.
    """
    least, limit = float(NEVER), attained.limit[0]
    if limit < least:
        for job in holders:
            if clocks.queue[job] == 0:
                least = min(least, limit / table[job, DEMAND] - (_served(clocks, job) - clocks.restore_left[job]))
    return least


@lean
def waited(clocks: Clocks, table: Ints, job: int, now: int) -> int:
    """Time for which `job` has waited since its last promotion [µs]; 0 before its first start.

    Parameters
    ----------
    clocks, table
        By job, as in :func:`demote`.
    job, now
        The job, and the present [µs].
    """
    waits = table[job, HELD] == 0 and clocks.first_start[job] < NEVER
    return clocks.waited[job] + (now - clocks.stopped[job] if waits else 0)


@inlined
def _pending(clocks: Clocks, job: int) -> bool:
    """Whether `job`, which waits, may be promoted: it is in the second queue, and has run before."""
    return clocks.queue[job] > 0 and clocks.first_start[job] < NEVER


@lean
def promote(waiting: Ints, clocks: Clocks, table: Ints, knob: float, now: int) -> bool:
    """Promote the `waiting` jobs that have waited at least `knob` times their executed time; False if there is none.

    Parameters
    ----------
    waiting
        Jobs in the system that hold no workers.
    clocks, table
        In and out; the rows of jobs.
    knob
        Waited over executed time that is enough, > 0; inf: never.
    now
        The present [µs].
    """
    if math.isinf(knob):
        return False
    promoted = False
    for job in waiting:
        if _pending(clocks, job) and waited(clocks, table, job, now) >= knob * clocks.executed[job]:
            clocks.earlier[job] += _served(clocks, job)
            clocks.queue[job] = clocks.executed[job] = clocks.waited[job] = clocks.restoring[job] = 0
            clocks.stopped[job] = now
            promoted = True
    return promoted


@lean
def next_promotion(waiting: Ints, clocks: Clocks, table: Ints, knob: float, now: int) -> float:
    """Time until the first of `waiting` is promoted [µs]; NEVER if there is none.

    Parameters
    ----------
    waiting, clocks, table, knob, now
        As in :func:`promote`.
    """
    least = float(NEVER)
    if not math.isinf(knob):
        for job in waiting:
            if _pending(clocks, job):
                least = min(least, knob * clocks.executed[job] - waited(clocks, table, job, now))
    return least


# -- the decision ----------------------------------------------------------------------------------------------------


@lean
def decide(case: Case, ledger: Ledger, state: TiresiasState, facts: EventFacts, orders: OrderRows) -> None:
    """Account and demote, promote all that are due, select; D2.

    Parameters
    ----------
    case, ledger, facts
        The run, and what has happened.
    state
        In and out.
    orders
        Out.
    """
    gang, clocks, numbers, now = state.gang, state.clocks, state.numbers, ledger.counters[NOW]
    lists, lengths = gang.edge.lists, gang.edge.lengths
    holders = lists[HOLDERS, : lengths[HOLDERS]]
    execute(holders, clocks, now - numbers[DECIDED])
    learn(facts.left[: facts.counters[N_FINISHED]], clocks, ledger.jobs, state.attained)
    demote(holders, clocks, ledger.jobs, state.attained)
    numbers[DECIDED] = now
    admit_gangs(case, ledger, gang, facts, orders)
    for i in range(facts.counters[N_INTERRUPTED]):
        clocks.stopped[facts.interrupted[i]] = now
    first = _select(case, ledger, state, now)
    compare(ledger, gang, lists[ACTIVE, : lengths[ACTIVE]], first, False)
    begins = lists[SPARE, : lengths[BEGINS]]
    _sort(lists[BEGINS, : len(begins)], begins)
    numbers[N_BEGUN] = begin(begins, clocks, now, numbers[N_BEGUN], case.overhead)
    for i in range(lengths[STOPS]):
        clocks.stopped[lists[STOPS, i]] = now
    carry_out(case, ledger, gang, orders)
    _wake(ledger, state, now, orders)
    note_changes(ledger, gang, orders)


@lean
def _select(case: Case, ledger: Ledger, state: TiresiasState, now: int) -> int:
    """Promote and select until no job is due; returns how many at the beginning run on. FURTHER: those that wait."""
    lists, lengths, promotes = state.gang.edge.lists, state.gang.edge.lengths, not math.isinf(state.knob)
    active, waits, n_waits, first = lists[ACTIVE, : lengths[ACTIVE]], lists[FURTHER], 0, -1
    tried = lists[ARRANGED, : len(active)] if state.gang.shares else active
    for i in range(len(active) if promotes else 0):
        waits[n_waits] = active[i]
        n_waits += ledger.jobs[active[i], HELD] == 0
    # a job that loses its workers now may be due for promotion at once, which changes the order again
    while promote(waits[:n_waits], state.clocks, ledger.jobs, state.knob, now) or first < 0:
        _rank(active, state.clocks)
        first, n_waits = select(case, ledger, state.gang, active, False), 0
        for n in range(len(active) if promotes else 0):
            waits[n_waits] = tried[n]
            n_waits += lists[VERDICT, n] == 0
    lengths[FURTHER] = n_waits
    return first


@inlined
def _rank(jobs: Ints, clocks: Clocks) -> None:
    """Sort `jobs`, which are nearly sorted, by rank."""
    highest = -1
    for i in range(len(jobs)):
        job, k = jobs[i], i
        rank = rank_of(clocks, job)
        if rank >= highest:
            highest = rank
            continue
        while k > 0 and rank_of(clocks, jobs[k - 1]) > rank:
            jobs[k] = jobs[k - 1]
            k -= 1
        jobs[k] = job


@inlined
def _sort(jobs: Ints, ascending: Ints) -> None:
    """Fill `ascending` with the `jobs`."""
    for i in range(len(jobs)):
        k = i
        while k > 0 and ascending[k - 1] > jobs[i]:
            ascending[k] = ascending[k - 1]
            k -= 1
        ascending[k] = jobs[i]


@lean
def _wake(ledger: Ledger, state: TiresiasState, now: int, orders: OrderRows) -> None:
    """Ask for the next demotion or promotion."""
    lists, lengths, numbers = state.gang.edge.lists, state.gang.edge.lengths, state.numbers
    holders, waits = lists[HOLDERS, : lengths[HOLDERS]], lists[FURTHER, : lengths[FURTHER]]
    if numbers[WAKES_AT] <= now:
        numbers[WAKES_AT] = NEVER
    due = next_demotion(holders, state.clocks, ledger.jobs, state.attained)
    due = min(due, next_promotion(waits, state.clocks, ledger.jobs, state.knob, now))
    if due < NEVER and now + due < numbers[WAKES_AT]:
        # at least 1 µs on, or a rounded time would wake it at this instant for ever
        numbers[WAKES_AT] = max(now + math.ceil(due), now + 1)
        add_wake(orders, numbers[WAKES_AT])


@lean
def run(case: Case, ledger: Ledger, state: TiresiasState, facts: EventFacts, orders: OrderRows, events: int) -> int:
    """At most so many events of a simulation; the same lines in each policy (:mod:`skedge.policies.gangs` says why).

    Parameters
    ----------
    case, ledger, state, facts, orders
        As :func:`decide` has them.
    events
        At least 1.

    Returns
    -------
    As of :func:`~skedge.core.engine.step.step`; BROKEN or PAUSED.
    """
    for _ in range(events):
        outcome = step(case, ledger, facts)
        if outcome == EVENT:
            decide(case, ledger, state, facts, orders)
            outcome = apply_all(case, ledger, orders)
        if outcome != QUIET:
            return outcome
    return PAUSED


@compiled
def _decide(handle: Any, state: TiresiasState) -> None:
    decide(handle.case, handle.ledger, state, handle.facts, handle.orders)


@compiled
def _run(handle: Any, state: TiresiasState, events: int) -> int:
    return run(handle.case, handle.ledger, state, handle.facts, handle.orders, events)


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
    rank: ClassVar[str] = "least_attained_service"
    Parameters = TiresiasParams
    decision, loop = _decide, _run

    @property
    def shares(self) -> bool:
        """Tenants and classes are kept to."""
        return True

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.attained, self.clocks = attained(self.params.limit_s), no_clocks()
        self.numbers = np.array([0, 0, NEVER])

    def state(self) -> Any:
        """The arrays of the policy."""
        return TiresiasState(super().state(), self.clocks, self.attained, self.params.knob, self.numbers)

    def make_room(self, n_jobs: int, source: View | Scenario) -> None:
        """As in the base, with clocks."""
        super().make_room(n_jobs, source)
        self.clocks = with_clocks(self.clocks, self.edge.lists.shape[1])

    def rank_terms(self, job: int, view: View) -> dict[str, Any]:
        """Queue and clocks of `job`."""
        n_waited = waited(self.clocks, view.engine.ledger.jobs, job, int(self.numbers[DECIDED]))
        return {
            "queue": int(self.clocks.queue[job]),
            "executed_s": float(self.clocks.executed[job]) / SECOND,
            "waited_s": float(n_waited) / SECOND,
            "limit_worker_s": limit / SECOND if (limit := float(self.attained.limit[0])) < NEVER else None,
        }
