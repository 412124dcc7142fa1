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
every job is either wholly on the edge, or done after :attr:`JobPool.away` with nothing taken from the pool. In the
family ``work`` a job that uses the cloud at all has until the cloud's delay at most min(D_j, m) workers of the edge,
then at most D_j anywhere at its best speed; :attr:`JobPool.away` is when those are done. Of that, :attr:`JobPool.saved`
is what a unit of the edge's worker time before :attr:`JobPool.far` is good for.
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
    arrival, ready
        r_j; and when the first of the job's data can be on the edge.
    work
        D_j p_j [worker-µs]: worker time that a job takes of the pool if it is trained there.
    rate
        min(D_j, m): its most workers.
    least
        Least computing time on the edge, alone.
    away
        Least JCT if the job uses the cloud; inf without a cloud.
    far, saved
        When the data can be in the cloud; by how much a unit of the pool's worker time before it makes the JCT of such
        a job less. 0 in the family ``chunks``.
    step
        Completions are multiples of it.
    """

    lanes: int
    jobs: Ints
    arrival: Floats
    ready: Floats
    work: Floats
    rate: Floats
    least: Floats
    away: Floats
    far: Floats
    saved: Floats
    step: int

    @property
    def alone(self) -> Floats:
        """JCT of every job alone in the pool, or in the cloud; inf if it can never run."""
        edge = np.ceil((self.ready + self.least) / self.step - 1e-9) * self.step - self.arrival
        return np.minimum(edge if self.lanes else np.inf, self.away)


def pools(scenario: Scenario, family: Family) -> list[JobPool]:
    """One pool for each worker type that a job asks for; ``docs/model.md`` has the symbols."""
    jobs, cluster = scenario.jobs, scenario.cluster
    each = scenario.true_chunk_time if family == "chunks" else scenario.exact_chunk_time
    delays = np.array([upload_row(scenario.delays, job) for job in range(len(jobs))]).reshape(len(jobs), -1)
    seen = whole_slots(jobs.arrival, scenario.physics.step)
    made = []
    for kind in np.unique(jobs.worker_type):
        members = np.flatnonzero(jobs.worker_type == kind)
        servers = np.flatnonzero(cluster.workers[:, kind] > 0) if kind >= 0 else np.empty(0, np.int64)
        lanes = int(cluster.workers[:, kind].sum()) if kind >= 0 else 0
        near = delays[np.ix_(members, servers)].min(axis=1) if lanes else np.zeros(len(members), np.int64)
        far = None if cluster.cloud is None else delays[members, cluster.cloud]
        made.append(_pool(scenario, family, members, lanes, each[members], seen[members], near, far))
    return made


def _pool(
    scenario: Scenario, family: Family, members: Ints, lanes: int, each: Ints, seen: Ints, near: Ints, far: Ints | None
) -> JobPool:
    chunks, arrival = scenario.jobs.chunks[members], scenario.jobs.arrival[members]
    together = family == "work" and scenario.physics.colocation == "one_server"
    on_edge = (each.min(axis=1) if together else each[:, 0]).astype(np.float64)
    rate = np.minimum(chunks, max(lanes, 1)).astype(np.float64)
    fluid = chunks * on_edge / rate
    away, saved = np.full(len(members), np.inf), np.zeros(len(members))
    if far is not None:
        if family == "work" and lanes:
            # a unit of the edge's worker time is 1 / (D p) of the job, and the whole job takes the least p in the cloud
            saved = each.min(axis=1) / (chunks * on_edge)
        # the part of the work that the edge can do before the data are in the cloud
        head = np.minimum(np.maximum(far - near, 0) / fluid, 1.0) if family == "work" and lanes else 0.0
        away = (seen - arrival) + far + (1 - head) * each.min(axis=1)
        step = scenario.physics.step
        away = np.ceil((away + arrival) / step - 1e-9) * step - arrival
    return JobPool(
        lanes=lanes,
        jobs=members,
        arrival=arrival.astype(np.float64),
        ready=(seen + near).astype(np.float64),
        work=chunks * on_edge,
        rate=rate,
        least=np.ceil(chunks / rate) * on_edge if family == "chunks" else fluid,
        away=away,
        far=(seen if far is None else seen + far).astype(np.float64),
        saved=saved,
        step=scenario.physics.step,
    )
