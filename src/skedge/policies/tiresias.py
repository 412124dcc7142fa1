"""Tiresias-L: discretised two-dimensional least attained service (Gu et al., NSDI'19; the baseline of JSAC'22).

**Rule.** Attained service is workers * executed time. A job starts in the first of two queues; once its attained
service reaches the limit it is demoted to the second. A pending job of the second queue that has waited at least `knob`
times as long as it has executed is promoted, and both its clocks start anew. At every event jobs are scanned by (queue,
first start, arrival, id), never started last; a job whose whole demand is left runs, others wait or are preempted.
It knows no durations.

**Parameters.** The original limit, about one GPU-hour, is one worker-slot at the papers' slot of an hour: every job
would be demoted at once. Default: the median over the workload of the work D_j p, set before the run from the
scenario's jobs and recorded (:meth:`Tiresias.calibrated`). `knob` is infinite by default: no promotion.

**Deviations.** D1: the official simulator notices demotions late (it does not multiply executed time by the GPUs);
here they are on time. D2: promotion comes before the selection is final, so a job can be demoted, preempted and
promoted at one instant. D3: time that a job holds its workers, uploads included, counts as executed. D4: the
checkpoint overhead of a resumed job is no attained service, or jobs could take turns for ever without training.

**Complexity.** O(J log J) per event.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.random import Generator
from pydantic import Field

from skedge.core.events import Event, Order, WakeAt
from skedge.core.jit import compiled, lean
from skedge.core.model import Cluster, Floats, Ints, Physics
from skedge.core.policy import View
from skedge.core.scenario import Scenario
from skedge.core.time import NEVER, SECOND

from .gang import GangParams, GangPolicy, Selection

_NEVER_BEGUN = 2**40
"""Places of jobs that never ran, plus their number: behind all that have."""

_LATE = 2**41
"""Places of the second queue begin here."""


class Clocks(NamedTuple):
    """What Tiresias-L knows of the jobs; all arrays are by job.

    Attributes
    ----------
    queue
        0: the first queue, 1: the second.
    executed, waited
        Time for which the job has held its workers, and waited since its first start, since its last promotion [µs].
    restoring
        Part of `executed` that went into restoring checkpoints [µs].
    first_start
        [µs]; NEVER before it.
    place
        Rank in the order of (first start, arrival, id); jobs that never ran stand behind.
    """

    queue: Ints
    executed: Ints
    waited: Ints
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
        """Account, demote, promote, select."""
        account(self.active, self.clocks, self.gang.running, view.now - self.at)
        self.at = view.now
        yield from self.admit(event, view)
        self._lengthen()
        demote(self.active, self.clocks, self.gang.workers, self.limit)
        chosen = self._select(view)
        while self._promote(chosen.waits):
            chosen = self._select(view)
        runs, first_start = chosen.runs, self.clocks.first_start
        self._begin(np.sort(runs[first_start[runs] == NEVER]), view.now)
        self.clocks.restoring[runs[(self.gang.running[runs] == 0) & (first_start[runs] < view.now)]] += self.restore
        yield from self.carry_out(chosen, view, "least_attained_service")
        yield from self._wake(view)

    def standing(self, job: int) -> dict[str, Any]:
        """Queue and clocks of `job`."""
        return {
            "queue": int(self.clocks.queue[job]),
            "executed_s": float(self.clocks.executed[job]) / SECOND,
            "waited_s": float(self.clocks.waited[job]) / SECOND,
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

    def _begin(self, jobs: Ints, now: int) -> None:
        """Note the first start of `jobs`, ascending: their places follow the order of (first start, arrival, id)."""
        self.clocks.first_start[jobs] = now
        self.clocks.place[jobs] = self.begun + np.arange(len(jobs))
        self.begun += len(jobs)

    def _select(self, view: View) -> Selection:
        # jobs are kept in the last order: a stable sort of what is nearly sorted takes one pass
        self.active = self.active[np.argsort(ranks(self.active, self.clocks), kind="stable")]
        return self.choose(self.active, view)

    def _promote(self, waits: Ints) -> bool:
        """Promote the pending jobs that have waited long enough; whether there was one."""
        if math.isinf(self.params.knob):
            return False
        queue, executed, waited, restoring, first_start, _ = self.clocks
        ran = waits[(queue[waits] > 0) & (first_start[waits] < NEVER)]
        up = ran[waited[ran] >= self.params.knob * executed[ran]]
        queue[up] = executed[up] = waited[up] = restoring[up] = 0
        return len(up) > 0

    def _wake(self, view: View) -> Iterator[WakeAt]:
        """Ask for the next demotion or promotion."""
        if self.wake_at <= view.now:
            self.wake_at = NEVER
        due = next_demotion(self.active, self.clocks, self.gang.running, self.gang.workers, self.limit)
        due = min(due, self._next_promotion())
        if due < NEVER and view.now + due < self.wake_at:
            self.wake_at = max(view.now + math.ceil(due), view.now + 1)
            yield WakeAt(self.wake_at)

    def _next_promotion(self) -> float:
        if math.isinf(self.params.knob):
            return NEVER
        queue, executed, waited, _, first_start, _ = self.clocks
        jobs = self.active[(self.gang.running[self.active] == 0) & (queue[self.active] > 0)]
        jobs = jobs[first_start[jobs] < NEVER]
        left: Floats = self.params.knob * executed[jobs] - waited[jobs]
        return float(left.min(initial=NEVER))


@lean
def account(jobs: Ints, clocks: Clocks, running: Ints, passed: int) -> None:
    """Let `passed` µs go by: a running job has executed, a pending one that ever ran has waited."""
    for job in jobs:
        if running[job] == 1:
            clocks.executed[job] += passed
        elif clocks.first_start[job] < NEVER:
            clocks.waited[job] += passed


@lean
def demote(jobs: Ints, clocks: Clocks, workers: Ints, limit: float) -> None:
    """Put the jobs whose attained service has reached `limit` [worker-µs] into the second queue."""
    for job in jobs:
        if workers[job] * (clocks.executed[job] - clocks.restoring[job]) >= limit:
            clocks.queue[job] = 1


@compiled
def ranks(jobs: Ints, clocks: Clocks) -> Ints:
    """What `jobs` are scanned by: (queue, first start, arrival, id) as one number."""
    rank = np.empty(len(jobs), np.int64)
    for n in range(len(jobs)):
        rank[n] = clocks.queue[jobs[n]] * _LATE + clocks.place[jobs[n]]
    return rank


@lean
def next_demotion(jobs: Ints, clocks: Clocks, running: Ints, workers: Ints, limit: float) -> float:
    """Time until the first running job of the first queue reaches `limit` [µs]; NEVER if there is none."""
    least = float(NEVER)
    for job in jobs:
        if running[job] == 1 and clocks.queue[job] == 0:
            least = min(least, limit / workers[job] - (clocks.executed[job] - clocks.restoring[job]))
    return least
