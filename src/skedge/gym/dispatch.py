"""Chunk dispatch: which lane trains the next data chunk of the job that arrived (the decision of A_greedy, Alg. 2).

Chunks are dispatched for good, lanes run the chunk of the highest average processing rate first, and PSs are assigned
by A_ps, as in A_online. Only the choice of the lane is open. Action i is lane i; the last one is the cloud.

Features of an action, of which times are relative to the time p of the job's chunk there and x becomes x / (1 + x):
upload delay; work on the lane that is served before the chunk; work that it displaces; number of chunks that it
displaces; 1 if it is possible. In all actions: share of the job's chunks that are already dispatched; their number, by
16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from skedge.core.engine.lanes import COUNT, EACH, LEFT, RANK, Lanes
from skedge.core.events import CLOUD, Dispatch, Event
from skedge.core.model.cluster import Cluster, Floats, Ints, Physics
from skedge.core.model.size import UNLIMITED
from skedge.core.policy import Guarantees, View
from skedge.policies.aonline.policy import AOnline
from skedge.policies.aonline.waiting import Need

from .asking import Asked, Asking, Question, squashed

if TYPE_CHECKING:
    from numpy.random import Generator

_MANY = 16
"""Chunks of a job to which their number is relative."""


class ChunkDispatcher(Asking):
    """Dispatches every chunk to the lane that `choose` names; PSs are those of A_online."""

    name: ClassVar[str] = "gym-dispatch"
    features = 7

    @property
    def guarantees(self) -> Guarantees:
        """A PS is taken in the cloud only where the edge has none."""
        return Guarantees(ps="edge_first")

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.a_online = AOnline()
        self.a_online.start(cluster, physics, rng)

    def actions(self, cluster: Cluster) -> int:
        """The lanes, and the cloud."""
        return cluster.lanes + 1

    def questions(self, event: Event, view: View) -> Asked:
        """A question for each chunk to dispatch, the dispatches, and PSs for the jobs that begin.

        As under A_online, a job waits until there is room for all its chunks, in order of arrival.
        """
        a_online = self.a_online
        for job in event.left:
            a_online.rank.pop(job, None)
        if len(a_online.waiting) and (event.left or event.servers):
            a_online.waiting.remove_jobs(event.left)
            yield from self._dispatched(0, view)
        for job, lost in (*event.lost, *((job, None) for job in event.arrived)):
            impossible = a_online.impossible(job, view) if lost is None else None
            if impossible is not None:
                yield impossible
                continue
            a_online.waiting.add(a_online.need(job, lost, view))
            yield from self._dispatched(len(a_online.waiting.needs) - 1, view)
        a_online.waiting.tidy()
        yield from a_online.assign_ps(event, view)

    def _dispatched(self, start: int, view: View) -> Asked:
        """The questions and dispatches of the waiting jobs from place `start` on that fit now."""
        a_online, at = self.a_online, start - 1
        while (at := a_online.waiting.next_fit(a_online.room(view), at + 1, anywhere=self._cloud(view))) >= 0:
            yield from self._dispatch(a_online.waiting.remove(at), view)

    def _dispatch(self, need: Need, view: View) -> Asked:
        job, lane = need.job, np.zeros(need.chunks, np.int64)
        mine, free = np.zeros(self.cluster.lanes + 1, np.int64), view.free_bytes.copy()
        for chunk in range(need.chunks):
            mask = self._possible(job, free, view)
            chosen = yield Question(self._observed(job, mine, mask, view), mask)
            lane[chunk] = CLOUD if chosen == self.cluster.lanes else chosen
            mine[chosen] += 1
            self._store(int(lane[chunk]), need.size, free)
        rank = self.a_online.rank.setdefault(job, int(view.jobs.chunks[job]) * int(view.chunk_time[job, 0]))
        none = np.zeros(need.chunks)
        yield Dispatch(job, lane, rank, none, none.astype(np.int64), "chosen", need.lost)

    def _cloud(self, view: View) -> bool:
        return self.a_online.may_send_to_cloud(view)

    def _store(self, lane: int, size: int, free: Ints) -> None:
        if lane != CLOUD and free[self.cluster.lane_server[lane]] != UNLIMITED:
            free[self.cluster.lane_server[lane]] -= size

    def _possible(self, job: int, free: Ints, view: View) -> np.ndarray:
        """Lanes of the job's worker type on servers in service with room for a chunk, and the cloud if there is one."""
        mask = np.zeros(self.cluster.lanes + 1, np.bool_)
        lanes = self.a_online.candidates(job, view)
        mask[lanes] = free[self.cluster.lane_server[lanes]] >= view.jobs.chunk_bytes[job]
        mask[-1] = self._cloud(view)
        return mask

    def _observed(self, job: int, mine: Ints, mask: np.ndarray, view: View) -> np.ndarray:
        each, chunks = float(view.chunk_time[job, 0]), int(view.jobs.chunks[job])
        ahead, behind, displaced = self._queues(chunks * int(each), view)
        delay = view.upload_delays(job).astype(np.float64)
        columns = np.zeros((len(mask), self.features))
        columns[:-1, 0] = delay[self.cluster.lane_server]
        columns[-1, 0] = 0.0 if self.cluster.cloud is None else delay[self.cluster.cloud]
        columns[:-1, 1] = ahead
        columns[:-1, 1] += mine[:-1] * each
        columns[:-1, 2], columns[:-1, 3] = behind, displaced * each
        columns = squashed(columns / each)
        columns[:, 4] = mask
        columns[:, 5], columns[:, 6] = mine.sum() / chunks, min(chunks / _MANY, 1.0)
        return columns.astype(np.float32)

    def _queues(self, rank: int, view: View) -> tuple[Floats, Floats, Floats]:
        """On each lane: work of better or equal rank, work of worse rank [µs], and chunks of worse rank."""
        lanes = view.belief(np.arange(self.cluster.lanes))
        better, worse = (_sums(lanes, rank, better=side) for side in (True, False))
        return better[0], worse[0], worse[1]


def _sums(lanes: Lanes, rank: int, *, better: bool) -> tuple[Floats, Floats]:
    """Work [µs] and chunks of the groups on each lane, or on the way to it, whose rank is at most, or above, `rank`."""
    work, chunks = np.zeros(len(lanes.waiting)), np.zeros(len(lanes.waiting))
    for table, count in ((lanes.rows, lanes.waiting), (lanes.transit, lanes.coming)):
        there = np.arange(table.shape[1]) < count[:, None]
        taken = there & ((table[:, :, RANK] <= rank) == better)
        left = table[:, :, LEFT] + (table[:, :, COUNT] - 1) * table[:, :, EACH]
        work += np.where(taken, left, 0).sum(axis=1)
        chunks += np.where(taken, table[:, :, COUNT], 0).sum(axis=1)
    return work, chunks
