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
    completion: Ints

    @property
    def in_cloud(self) -> np.ndarray:
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
    chunks, chunk_time
        D_j and p_j, shape ``(jobs,)``.
    release
        When a chunk can be on a lane, shape ``(jobs, lanes)``.
    cloud_completion
        When the job is done if it is in the cloud; -1 if it cannot go there.
    lane_groups
        Groups of interchangeable lanes: those of one server, in order.
    arrival_sum
        Sum of the r_j [µs].
    min_sum
        A bound on the sum of the completions.
    """

    unit: int
    jobs: Ints
    lanes: Ints
    chunks: Ints
    chunk_time: Ints
    release: Ints
    cloud_completion: Ints
    lane_groups: tuple[tuple[int, ...], ...]
    arrival_sum: int
    min_sum: int

    @cached_property
    def release_times(self) -> list[Ints]:
        """The times at which jobs become ready, of every lane."""
        return [np.unique(self.release[:, lane]) for lane in range(len(self.lanes))]

    @property
    def max_workers(self) -> Ints:
        """min(D_j, m)."""
        return np.minimum(self.chunks, len(self.lanes))

    @property
    def edge_earliest(self) -> Ints:
        """Earliest completion of every job on the edge."""
        return self.release.min(axis=1) + -(-self.chunks // self.max_workers) * self.chunk_time

    @property
    def earliest(self) -> Ints:
        """Earliest completion of every job."""
        return np.where(
            self.cloud_completion >= 0, np.minimum(self.edge_earliest, self.cloud_completion), self.edge_earliest
        )

    def total(self, plan: ChunkPlan) -> int:
        """Sum of the JCTs [µs]."""
        return int(plan.completion.sum()) * self.unit - self.arrival_sum

    def horizon(self, plan: ChunkPlan) -> int:
        """Latest completion of every job in an optimal schedule, given a feasible `plan`.

        Workers idle only when nothing is ready, so that all work is done at the latest when the last job is ready and
        all work has then been done one after the other. And a job that completes later than the sum of `plan` less the
        other jobs' earliest completions makes the sum larger than that of `plan`.
        """
        busy = int(self.release.max() + (self.chunks * self.chunk_time).sum())
        slack = int(plan.completion.sum() - self.earliest.sum())
        return max(min(busy, int(self.earliest.max()) + slack), int(plan.completion.max()))

    def lane_schedules(self, plan: ChunkPlan) -> list[list[tuple[int, int, int]]]:
        """The schedule of every lane, (job, from, until), with the jobs in order of ``plan.completion``."""
        # twice: the place of each job in the order of completions
        rank = np.argsort(np.argsort(plan.completion, kind="stable"), kind="stable")
        return [_serve(self.release[:, i], self.chunk_time * plan.count[:, i], rank) for i in range(len(self.lanes))]

    def canonical(self, plan: ChunkPlan) -> ChunkPlan:
        """`plan` with the completions that follow from its order, and identical lanes in order of their load."""
        count = plan.count.copy()
        # lanes of a server are interchangeable: the solvers have rows that break this symmetry, which a start must keep
        for group in self.lane_groups:
            load = (self.chunk_time[:, None] * count[:, group]).sum(axis=0)
            count[:, group] = count[:, np.array(group)[np.argsort(-load, kind="stable")]]
        sorted_plan = ChunkPlan(count, plan.completion)
        completion = np.where(sorted_plan.in_cloud, self.cloud_completion, 0)
        for pieces in self.lane_schedules(sorted_plan):
            for job, _, until in pieces:
                completion[job] = max(completion[job], until)
        return ChunkPlan(count, completion)


def _serve(release: Ints, work: Ints, rank: Ints) -> list[tuple[int, int, int]]:
    """Preemptive service of one lane: the job of least rank that is ready."""
    work_left, intervals, now = work.copy(), list[tuple[int, int, int]](), 0
    while (work_left > 0).any():
        open_jobs = np.flatnonzero((work_left > 0) & (release <= now))
        # only a release can change which job is served: run the job until its end or the next one
        next_releases = release[(work_left > 0) & (release > now)]
        next_release = int(next_releases.min()) if len(next_releases) else NEVER
        if not len(open_jobs):
            now = next_release
            continue
        job = int(open_jobs[np.argmin(rank[open_jobs])])
        end = min(now + int(work_left[job]), next_release)
        work_left[job] -= end - now
        intervals.append((job, now, end))
        now = end
    return intervals


def chunk_model(scenario: Scenario, pool: JobPool, bound: float) -> ChunkModel:
    """The pool in integer units; `bound` is a bound on its total JCT [µs]."""
    cluster, members = scenario.cluster, pool.jobs
    kind = int(scenario.jobs.worker_type[members[0]])
    lanes = cluster.lanes_of(kind) if kind >= 0 else np.empty(0, np.int64)
    delays = np.array([upload_row(scenario.delays, int(job)) for job in members])
    slot_arrival = whole_slots(scenario.jobs.arrival[members], scenario.physics.step)
    release = slot_arrival[:, None] + delays[:, cluster.lane_server[lanes]]
    chunk_time = scenario.true_chunk_time[members, 0]
    has_cloud = np.isfinite(pool.cloud_jct)
    cloud_completion = np.where(has_cloud, pool.arrival + np.where(has_cloud, pool.cloud_jct, 0), 0).astype(np.int64)
    # all times are multiples of it, so the model with this unit is exact
    unit = int(np.gcd.reduce(np.concatenate([release.ravel(), chunk_time, cloud_completion[has_cloud]])))
    arrival_sum = int(scenario.jobs.arrival[members].sum())
    order = sorted(range(len(lanes)), key=lambda i: int(cluster.lane_server[lanes[i]]))
    lane_groups = [tuple(group) for _, group in groupby(order, key=lambda i: int(cluster.lane_server[lanes[i]]))]
    return ChunkModel(
        unit=unit,
        jobs=members,
        lanes=lanes,
        chunks=scenario.jobs.chunks[members],
        chunk_time=chunk_time // unit,
        release=release // unit,
        cloud_completion=np.where(has_cloud, cloud_completion // unit, -1),
        lane_groups=tuple(lane_groups),
        arrival_sum=arrival_sum,
        # completions are whole units, so the bound rounds up; the factors keep rounding errors on the safe side
        min_sum=int(np.ceil((bound * (1 - 1e-9) + arrival_sum) / unit - 1e-6)),
    )


def lanes_of_chunks(model: ChunkModel, plan: ChunkPlan, job: int) -> Ints:
    """Lane of every chunk of the pool's `job`, in the form of ``Dispatch``."""
    if plan.in_cloud[job]:
        return np.full(int(model.chunks[job]), CLOUD)
    return np.repeat(model.lanes, plan.count[job])
