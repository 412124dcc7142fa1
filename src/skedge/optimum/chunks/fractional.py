"""The least fractional flow time of ILP (4) at zeta = 1: what JSAC'22 divides by in Fig. 12 and 13.

Eq. (3) charges a chunk the mean of the slots in which it is trained, from its arrival on; a slot counts by its end, as
c_j does. The paper sets zeta = 1 everywhere, "whose optimal objective is smaller than that of ILP (4)" (Sec. V-C), so
that a chunk takes its q slots without communication. (4c) and (4d) are left out; they bind nobody beside a cloud.

**It is a flow.** Chunks of a job are alike, and so are the workers of a type on a server: of y_jdsw(t) only the sum
over d and w matters. Units of training go from a job, D_j q_j of them, to its slots, at most D_j to each (4e), from
there to a server that has its data, at most as many as the server has workers (4b), or to the cloud. A flow in whole
units is a solution of (4): dealt out to the chunks of a job in turn, slot by slot, the units of a slot are of different
chunks and every chunk has q_j of them. All capacities are whole, so that the linear program has such a flow among its
optima: its optimum is that of the integer program, chunks that change workers included, which (4) allows.

**Validity.** The mean of a chunk's slots is at most its last one, so that the program is at most the total JCT of any
schedule that dispatches chunks in slots, whose chunks take q_j slots at least (Lemma 1). The value is the dual function
at HiGHS's multipliers (:mod:`skedge.optimum.linear`), which holds for any multipliers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.network import upload_row
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND, whole_slots
from skedge.optimum.linear import relaxation_bound
from skedge.optimum.solvers import Rows
from skedge.optimum.types import Bound, BoundClock

_MAX_VARIABLES = 400_000
"""Most variables of the program of a worker type; more would take longer than a minute."""

_SECONDS = 120.0
"""Limit of HiGHS for a worker type [s]; what is usual takes less than one."""


class _Places(NamedTuple):
    """Where the jobs of a worker type can be trained; times in slots, the cloud is the last place if there is one.

    Attributes
    ----------
    arrival
        r_j, not rounded to slots, shape ``(jobs,)``.
    chunks, length
        D_j and q_j, shape ``(jobs,)``.
    ready
        The first slot in which a job's data are at a place, shape ``(jobs, places)``.
    workers
        Workers of the type at each server, shape ``(servers,)``.
    """

    arrival: Floats
    chunks: Ints
    length: Ints
    ready: Ints
    workers: Ints

    @property
    def end(self) -> Ints:
        """The slot from which on an optimum trains nothing of a job, shape ``(jobs,)``.

        A unit moves to an earlier slot unless all workers are busy there or D_j units are, which is so in at most as
        many slots as all work fills, and in q_j; the cloud is never full.
        """
        servers = len(self.workers)
        end = np.full(len(self.chunks), np.iinfo(np.int64).max)
        if servers:
            filled = -(-int(self.chunks @ self.length) // int(self.workers.sum()))
            end = self.ready[:, :servers].max(axis=1) + filled + self.length
        return np.minimum(end, self.ready[:, -1] + self.length) if self.ready.shape[1] > servers else end


def fractional_bounds(scenario: Scenario, pool_index: int | None = None) -> list[Bound]:
    """The bound on the total JCT [s] of schedules that dispatch chunks; none if some job can never run, or too large.

    Parameters
    ----------
    scenario
        In slotted time.
    pool_index
        Number of a worker type that jobs ask for, in order: the bound is on its jobs alone. None: all.
    """
    clock, total = BoundClock("lower"), 0.0
    kinds = np.unique(scenario.jobs.worker_type)
    for kind in kinds if pool_index is None else kinds[pool_index : pool_index + 1]:
        places = _places(scenario, int(kind))
        value = least_flow(places) if places.ready.shape[1] else None
        if value is None:
            return []
        total += value * scenario.physics.step
    return [clock.bound("fractional", total / SECOND, "the fractional flow time of ILP (4) at zeta = 1")]


def _places(scenario: Scenario, kind: int) -> _Places:
    jobs, cluster, step = scenario.jobs, scenario.cluster, scenario.physics.step
    members = np.flatnonzero(jobs.worker_type == kind)
    # type -1: no server has such workers
    workers = cluster.workers[:, kind] if kind >= 0 else np.zeros(len(cluster.servers), np.int64)
    servers = np.flatnonzero(workers)
    places = np.concatenate([servers, [] if cluster.cloud is None else [cluster.cloud]]).astype(np.int64)
    delays = np.array([upload_row(scenario.delays, int(job)) for job in members])[:, places]
    released = whole_slots(jobs.arrival, step)[members, None] + delays
    return _Places(
        arrival=jobs.arrival[members] / step,
        chunks=jobs.chunks[members],
        length=scenario.true_chunk_time[members, 1] // step,
        ready=-(-released // step),
        workers=workers[servers],
    )


def least_flow(places: _Places) -> float | None:
    """The optimum of the program for one worker type [slots]; None if it has too many variables."""
    spans = np.maximum(places.end[:, None] - places.ready, 0)
    if int(spans.sum()) > _MAX_VARIABLES:
        return None
    # a variable: units of training of a job at a place in a slot
    job, place = (index.ravel() for index in np.indices(spans.shape))
    job, place = np.repeat(job, spans.ravel()), np.repeat(place, spans.ravel())
    starts = np.repeat(np.cumsum(spans.ravel()) - spans.ravel(), spans.ravel())
    slot = places.ready[job, place] + np.arange(len(job)) - starts
    work = places.chunks * places.length
    cost = (slot + 1 - places.arrival[job]) / work[job]
    upper = np.minimum(np.append(places.workers, work.max())[place], places.chunks[job])
    return relaxation_bound(cost, upper.astype(np.float64), _rows(places, job, place, slot), _SECONDS)


def _rows(places: _Places, job: Ints, place: Ints, slot: Ints) -> Rows:
    """The workers of a server in a slot (4b), the chunks of a job in a slot (4e), and the work of a job (4a)."""
    on_edge = np.flatnonzero(place < len(places.workers))
    servers = _grouped(place[on_edge], slot[on_edge])
    chunks = _grouped(job, slot)
    n_servers, n_chunks = len(servers.first), len(chunks.first)
    row = np.concatenate([servers.group, n_servers + chunks.group, n_servers + n_chunks + job])
    column = np.concatenate([on_edge, np.arange(len(job)), np.arange(len(job))])
    work = (places.chunks * places.length).tolist()
    workers = places.workers[place[on_edge][servers.first]].tolist()
    most = [*workers, *places.chunks[job[chunks.first]].tolist()]
    order, high = np.argsort(row, kind="stable"), most + work
    start = np.append(0, np.cumsum(np.bincount(row, minlength=len(high))))
    low = [-np.inf] * len(most) + work
    return Rows(start.tolist(), column[order].tolist(), [1.0] * len(row), low, high)


class _Groups(NamedTuple):
    """The group of each variable, and the first variable of each group."""

    group: Ints
    first: Ints


def _grouped(owner: Ints, slot: Ints) -> _Groups:
    """Variables of one owner in one slot are a group."""
    _, first, group = np.unique(np.stack([owner, slot]), axis=1, return_index=True, return_inverse=True)
    return _Groups(group.ravel(), first)
