"""The chunk problem, relaxed to what its bounds need: one pool of workers for each worker type.

A job asks for one worker type, so the edge separates into independent pools. In a pool the servers are merged: a job's
data are there after the least of its upload delays to them. The constraints left out (PSs, storage, checkpoint
overhead, which worker of the pool it is, in what order data come) can only make schedules worse.

There are two families of schedules:

``chunks``
    Every chunk is dispatched to one worker, or to the cloud (A_online; ILP (4) without migration, ERRATA J17). It takes
    its whole rounded p there: at zeta = 0 on the edge (M10), at zeta = 1 only if the job is wholly in the cloud.
``work``
    Any schedule: also gangs, whose D_j p_j, not rounded to slots, is divided among at most D_j workers (M5, M8). On the
    edge zeta may be 1 where ``colocation`` is ``one_server``. A dispatched schedule does at least this work with no
    more workers than chunks, so that the bounds of this family hold for it too.

**The cloud.** In the family ``chunks`` a job with one chunk in the cloud completes no earlier than the cloud's delay
and the smaller of its two p later, and a job that is wholly there needs no more if p at zeta = 1 is the smaller one. So
every job is either wholly on the edge, or done after :attr:`JobPool.cloud_jct` with nothing taken from the pool. In the
family ``work`` a job that uses the cloud at all has until the cloud's delay at most min(D_j, m) workers of the edge,
then at most D_j anywhere at its best speed; :attr:`JobPool.cloud_jct` is when those are done. Each unit of the edge's
worker time before :attr:`JobPool.cloud_release` shortens it by :attr:`JobPool.edge_saving`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.network import upload_row
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import whole_slots

Family = Literal["chunks", "work"]
"""The schedules that a bound covers."""


@dataclass(frozen=True)
class JobPool:
    """The jobs of one worker type; times in µs, every array of shape ``(jobs,)``.

    Attributes
    ----------
    lanes
        m: workers of the type on the edge.
    jobs
        Their numbers in the scenario.
    arrival, release
        r_j; and when the first of the job's data can be on the edge.
    work
        D_j p_j [worker-µs]: worker time that a job takes of the pool if it is trained there.
    rate
        min(D_j, m): its most workers.
    min_time
        Least computing time on the edge, alone.
    cloud_jct
        Least JCT if the job uses the cloud; inf without a cloud.
    cloud_release, edge_saving
        When the data can be in the cloud; by how much a unit of the pool's worker time before it makes the JCT of such
        a job less. 0 in the family ``chunks``.
    step
        Completions are multiples of it.
    """

    lanes: int
    jobs: Ints
    arrival: Floats
    release: Floats
    work: Floats
    rate: Floats
    min_time: Floats
    cloud_jct: Floats
    cloud_release: Floats
    edge_saving: Floats
    step: int

    @property
    def end(self) -> float:
        """Time [µs] after which no job can use the pool: all have gone to the cloud, or all work is done."""
        edge = float(self.release.max() + self.work.sum() / max(self.lanes, 1))
        return min(float((self.arrival + self.cloud_jct).max()), edge)

    @property
    def min_jct(self) -> Floats:
        """JCT of every job alone in the pool, or in the cloud; inf if it can never run."""
        on_edge = np.ceil((self.release + self.min_time) / self.step - 1e-9) * self.step - self.arrival
        return np.minimum(on_edge if self.lanes else np.inf, self.cloud_jct)


def pools(scenario: Scenario, family: Family) -> list[JobPool]:
    """One pool for each worker type that a job asks for; ``docs/model.md`` has the symbols."""
    return [_pool(scenario, family, int(kind)) for kind in np.unique(scenario.jobs.worker_type)]


def _pool(scenario: Scenario, family: Family, kind: int) -> JobPool:
    jobs, cluster, step = scenario.jobs, scenario.cluster, scenario.physics.step
    members = np.flatnonzero(jobs.worker_type == kind)
    # type -1: no server has such workers, so that only the cloud is left
    workers = cluster.workers[:, kind] if kind >= 0 else np.zeros(len(cluster.servers), np.int64)
    lanes = int(workers.sum())
    chunk_time = (scenario.true_chunk_time if family == "chunks" else scenario.exact_chunk_time)[members]
    delays = np.array([upload_row(scenario.delays, int(job)) for job in members])
    edge_delay = delays[:, workers > 0].min(axis=1) if lanes else np.zeros(len(members), np.int64)
    chunks, arrival = jobs.chunks[members], jobs.arrival[members]
    slot_arrival = whole_slots(jobs.arrival, step)[members]
    colocated = family == "work" and scenario.physics.colocation == "one_server"
    edge_time = (chunk_time.min(axis=1) if colocated else chunk_time[:, 0]).astype(np.float64)
    rate = np.minimum(chunks, max(lanes, 1)).astype(np.float64)
    fluid_time = chunks * edge_time / rate
    cloud_jct, edge_saving, cloud_release = np.full(len(members), np.inf), np.zeros(len(members)), slot_arrival
    if cluster.cloud is not None:
        cloud_delay, edge_share = delays[:, cluster.cloud], np.zeros(len(members))
        if family == "work" and lanes:
            # a unit of the edge's worker time is 1 / (D p) of the job, and the whole job takes the least p in the cloud
            edge_saving = chunk_time.min(axis=1) / (chunks * edge_time)
            # the part of the work that the edge can do before the data are in the cloud
            edge_share = np.minimum(np.maximum(cloud_delay - edge_delay, 0) / fluid_time, 1.0)
        cloud_jct = (slot_arrival - arrival) + cloud_delay + (1 - edge_share) * chunk_time.min(axis=1)
        # completions are on slot boundaries; 1e-9 keeps rounding from adding a slot, which would make the bound invalid
        cloud_jct = np.ceil((cloud_jct + arrival) / step - 1e-9) * step - arrival
        cloud_release = slot_arrival + cloud_delay
    return JobPool(
        lanes=lanes,
        jobs=members,
        arrival=arrival.astype(np.float64),
        release=(slot_arrival + edge_delay).astype(np.float64),
        work=chunks * edge_time,
        rate=rate,
        # chunks stay on their workers, so that some worker trains ceil(D / m) of them; divided work does not
        min_time=np.ceil(chunks / rate) * edge_time if family == "chunks" else fluid_time,
        cloud_jct=cloud_jct,
        cloud_release=cloud_release.astype(np.float64),
        edge_saving=edge_saving,
        step=step,
    )
