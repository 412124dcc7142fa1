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
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from pydantic import Field

from skedge.core.events import Event, Order, WakeAt
from skedge.core.model import Cluster, Floats, Ints, Physics
from skedge.core.policy import View
from skedge.core.scenario import Scenario
from skedge.core.time import NEVER, SECOND

from .gang import GangParams, GangPolicy, Selection

_NEVER_BEGUN = 2**40
"""Places of jobs that never ran, plus their number: behind all that have."""

_LATE = 2**41
"""Places of the second queue begin here."""


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
        self.queue: Ints = np.zeros(0, np.int64)
        self.executed: Ints = np.zeros(0, np.int64)
        self.waited: Ints = np.zeros(0, np.int64)
        self.restoring: Ints = np.zeros(0, np.int64)
        self.first_start: Ints = np.zeros(0, np.int64)
        self.place: Ints = np.zeros(0, np.int64)
        self.begun = 0
        self.wake_at = NEVER

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Account, demote, promote, select."""
        self._account(view.now)
        yield from self.admit(event, view)
        self._lengthen()
        jobs, workers = self.active, view.column("workers")[self.active]
        self._demote(jobs, workers)
        chosen = self._select(view)
        while self._promote(chosen.waits):
            chosen = self._select(view)
        never_ran = chosen.runs[self.first_start[chosen.runs] == NEVER]
        self._begin(np.sort(never_ran), view.now)
        resumed = chosen.runs[(self.gang.running[chosen.runs] == 0) & (self.first_start[chosen.runs] < view.now)]
        self.restoring[resumed] += self.restore
        yield from self.carry_out(chosen, view, "least_attained_service")
        yield from self._wake(view)

    def standing(self, job: int) -> dict[str, Any]:
        """Queue and clocks of `job`."""
        return {
            "queue": int(self.queue[job]),
            "executed_s": float(self.executed[job]) / SECOND,
            "waited_s": float(self.waited[job]) / SECOND,
            "limit_worker_s": self.params.limit_s,
        }

    def _account(self, now: int) -> None:
        """Executed and waited time since the last event."""
        jobs, passed = self.active, now - self.at
        self.at = now
        runs = self.gang.running[jobs] == 1
        self.executed[jobs[runs]] += passed
        pending = jobs[~runs]
        self.waited[pending[self.first_start[pending] < NEVER]] += passed

    def _lengthen(self) -> None:
        more = len(self.gang.used) - len(self.queue)
        if more > 0:
            self.queue, self.executed, self.waited, self.restoring = (
                np.append(a, np.zeros(more, np.int64)) for a in (self.queue, self.executed, self.waited, self.restoring)
            )
            self.first_start = np.append(self.first_start, np.full(more, NEVER))
            self.place = np.append(self.place, _NEVER_BEGUN + np.arange(len(self.place), len(self.place) + more))

    def _begin(self, jobs: Ints, now: int) -> None:
        """Note the first start of `jobs`, ascending: their places follow the order of (first start, arrival, id)."""
        self.first_start[jobs] = now
        self.place[jobs] = self.begun + np.arange(len(jobs))
        self.begun += len(jobs)

    def _demote(self, jobs: Ints, workers: Ints) -> None:
        self.queue[jobs[workers * (self.executed[jobs] - self.restoring[jobs]) >= self.limit]] = 1

    def _select(self, view: View) -> Selection:
        # jobs are kept in the last order: a stable sort of what is nearly sorted takes one pass
        self.active = self.active[np.argsort(self.queue[self.active] * _LATE + self.place[self.active], kind="stable")]
        return self.choose(self.active, view)

    def _promote(self, waits: Ints) -> bool:
        """Promote the pending jobs that have waited long enough; whether there was one."""
        if math.isinf(self.params.knob):
            return False
        ran = waits[(self.queue[waits] > 0) & (self.first_start[waits] < NEVER)]
        up = ran[self.waited[ran] >= self.params.knob * self.executed[ran]]
        self.queue[up] = self.executed[up] = self.waited[up] = self.restoring[up] = 0
        return len(up) > 0

    def _wake(self, view: View) -> Iterator[WakeAt]:
        """Ask for the next demotion or promotion."""
        if self.wake_at <= view.now:
            self.wake_at = NEVER
        due = min(self._next_demotion(view), self._next_promotion())
        if due < NEVER and view.now + due < self.wake_at:
            self.wake_at = max(view.now + math.ceil(due), view.now + 1)
            yield WakeAt(self.wake_at)

    def _next_demotion(self, view: View) -> float:
        jobs = self.active[(self.gang.running[self.active] == 1) & (self.queue[self.active] == 0)]
        workers = view.column("workers")[jobs]
        left = self.limit / workers - (self.executed[jobs] - self.restoring[jobs])
        return float(left.min(initial=NEVER))

    def _next_promotion(self) -> float:
        if math.isinf(self.params.knob):
            return NEVER
        jobs = self.active[(self.gang.running[self.active] == 0) & (self.queue[self.active] > 0)]
        jobs = jobs[self.first_start[jobs] < NEVER]
        left: Floats = self.params.knob * self.executed[jobs] - self.waited[jobs]
        return float(left.min(initial=NEVER))
