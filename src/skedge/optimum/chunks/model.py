"""The chunk problem of one worker type in integers, shared by the exact models and the plans that they produce.

**The problem.** Minimise sum_j (c_j - r_j) over all schedules that give each chunk to one worker for good, or the whole
job to the cloud (MINLP (2) with (4a) and (4e), chunk by chunk and without migration, ERRATA J17, J18). Workers may
interrupt chunks. PSs, storage and the checkpoint overhead are left out: the optimum without them is a bound, and a
schedule of the same value that respects them is optimal.

**Solutions.** A solution is a number of chunks for every job and worker, and an order of the jobs. If the chunks of a
worker can be trained so that each job's are done by c_j, then so does running, at every instant, the chunk that has
arrived and whose job has the least c_j (earliest deadline first is optimal on one machine with ready times and
preemption). So one rank per job, its place in the order of the c_j, is enough on all workers, and ``Dispatch`` can
express it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from skedge.core.events import CLOUD
from skedge.core.model.cluster import Ints
from skedge.core.model.network import upload_row
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import NEVER, whole_slots
from skedge.optimum.pools.pools import JobPool


@dataclass(frozen=True)
class ChunkPlan:
    """The plan of a pool's jobs: chunks by lane (`count`, shape ``(jobs, lanes)``), and when each job is done [units].

    A job without chunks on lanes is in the cloud.
    """

    count: Ints
    done: Ints

    @property
    def away(self) -> np.ndarray:
        """Whether each job is in the cloud."""
        return self.count.sum(axis=1) == 0


@dataclass(frozen=True)
class ChunkModel:
    """One pool in integer units of time.

    Attributes
    ----------
    unit
        Unit of time [µs]: the greatest common divisor of all times, at least a slot.
    jobs, lanes
        Their numbers in the scenario.
    chunks, each
        D_j and p_j, shape ``(jobs,)``.
    ready
        When a chunk can be on a lane, shape ``(jobs, lanes)``.
    away
        When the job is done if it is in the cloud; -1 if it cannot go there.
    alike
        Groups of interchangeable lanes: those of one server, in order.
    arrivals
        Sum of the r_j [µs].
    least
        A bound on the sum of the completions.
    """

    unit: int
    jobs: Ints
    lanes: Ints
    chunks: Ints
    each: Ints
    ready: Ints
    away: Ints
    alike: tuple[tuple[int, ...], ...]
    arrivals: int
    least: int

    @cached_property
    def releases(self) -> list[Ints]:
        """The times at which jobs become ready, of every lane."""
        return [np.unique(self.ready[:, lane]) for lane in range(len(self.lanes))]

    @property
    def most_workers(self) -> Ints:
        """min(D_j, m)."""
        return np.minimum(self.chunks, len(self.lanes))

    @property
    def first(self) -> Ints:
        """Earliest completion of every job on the edge."""
        return self.ready.min(axis=1) + -(-self.chunks // self.most_workers) * self.each

    @property
    def earliest(self) -> Ints:
        """Earliest completion of every job."""
        return np.where(self.away >= 0, np.minimum(self.first, self.away), self.first)

    def total(self, plan: ChunkPlan) -> int:
        """Sum of the JCTs [µs]."""
        return int(plan.done.sum()) * self.unit - self.arrivals

    def horizon(self, plan: ChunkPlan) -> int:
        """Latest completion of every job in an optimal schedule, given a feasible `plan`.

        Workers idle only when nothing is ready, so that all work is done at the latest when the last job is ready and
        all work has then been done one after the other. And a job that completes later than the sum of `plan` less the
        other jobs' earliest completions makes the sum larger than that of `plan`.
        """
        busy = int(self.ready.max() + (self.chunks * self.each).sum())
        slack = int(plan.done.sum() - self.earliest.sum())
        return max(min(busy, int(self.earliest.max()) + slack), int(plan.done.max()))

    def served(self, plan: ChunkPlan) -> list[list[tuple[int, int, int]]]:
        """The schedule of every lane, (job, from, until), with the jobs in order of ``plan.done``."""
        # twice: the place of each job in the order of completions
        rank = np.argsort(np.argsort(plan.done, kind="stable"), kind="stable")
        return [_serve(self.ready[:, i], self.each * plan.count[:, i], rank) for i in range(len(self.lanes))]

    def settled(self, plan: ChunkPlan) -> ChunkPlan:
        """`plan` with the completions that follow from its order, and identical lanes in order of their load."""
        count = plan.count.copy()
        for group in self.alike:
            load = (self.each[:, None] * count[:, group]).sum(axis=0)
            count[:, group] = count[:, np.array(group)[np.argsort(-load, kind="stable")]]
        moved = ChunkPlan(count, plan.done)
        done = np.where(moved.away, self.away, 0)
        for pieces in self.served(moved):
            for job, _, until in pieces:
                done[job] = max(done[job], until)
        return ChunkPlan(count, done)


def _serve(ready: Ints, work: Ints, rank: Ints) -> list[tuple[int, int, int]]:
    """Preemptive service of one lane: the job of least rank that is ready."""
    left, pieces, now = work.copy(), list[tuple[int, int, int]](), 0
    while (left > 0).any():
        open_jobs = np.flatnonzero((left > 0) & (ready <= now))
        later = ready[(left > 0) & (ready > now)]
        until = int(later.min()) if len(later) else NEVER
        if not len(open_jobs):
            now = until
            continue
        job = int(open_jobs[np.argmin(rank[open_jobs])])
        end = min(now + int(left[job]), until)
        left[job] -= end - now
        pieces.append((job, now, end))
        now = end
    return pieces


def chunk_model(scenario: Scenario, pool: JobPool, bound: float) -> ChunkModel:
    """The pool in integer units; `bound` is a bound on its total JCT [µs]."""
    cluster, members = scenario.cluster, pool.jobs
    kind = int(scenario.jobs.worker_type[members[0]])
    lanes = cluster.lanes_of(kind) if kind >= 0 else np.empty(0, np.int64)
    rows = np.array([upload_row(scenario.delays, int(job)) for job in members])
    seen = whole_slots(scenario.jobs.arrival[members], scenario.physics.step)
    ready = seen[:, None] + rows[:, cluster.lane_server[lanes]]
    each = scenario.true_chunk_time[members, 0]
    there = np.isfinite(pool.away)
    away = np.where(there, pool.arrival + np.where(there, pool.away, 0), 0).astype(np.int64)
    # all times are multiples of it, so the model with this unit is exact
    unit = int(np.gcd.reduce(np.concatenate([ready.ravel(), each, away[there]])))
    arrivals = int(scenario.jobs.arrival[members].sum())
    order = sorted(range(len(lanes)), key=lambda i: int(cluster.lane_server[lanes[i]]))
    alike = [tuple(group) for _, group in groupby(order, key=lambda i: int(cluster.lane_server[lanes[i]]))]
    return ChunkModel(
        unit=unit,
        jobs=members,
        lanes=lanes,
        chunks=scenario.jobs.chunks[members],
        each=each // unit,
        ready=ready // unit,
        away=np.where(there, away // unit, -1),
        alike=tuple(alike),
        arrivals=arrivals,
        # completions are whole units, so the bound rounds up; the factors keep rounding errors on the safe side
        least=int(np.ceil((bound * (1 - 1e-9) + arrivals) / unit - 1e-6)),
    )


def lanes_of_chunks(model: ChunkModel, plan: ChunkPlan, job: int) -> Ints:
    """Lane of every chunk of the pool's `job`, in the form of ``Dispatch``."""
    if plan.away[job]:
        return np.full(int(model.chunks[job]), CLOUD)
    return np.repeat(model.lanes, plan.count[job])
