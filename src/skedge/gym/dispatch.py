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
from skedge.policies.aonline.waiting import StorageDemand

from .interactive import Decisions, InteractivePolicy, Question, squash

if TYPE_CHECKING:
    from numpy.random import Generator

_CHUNKS_SCALE = 16
"""Chunks of a job to which their number is relative."""


class ChunkDispatcher(InteractivePolicy):
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

    def questions(self, event: Event, view: View) -> Decisions:
        """A question for each chunk to dispatch, the dispatches, and PSs for the jobs that begin.

        As under A_online, a job waits until there is room for all its chunks, in order of arrival.
        """
        a_online = self.a_online
        for job in event.left:
            a_online.rank.pop(job, None)
        # Jobs that waited come first, as in A_online: those that arrive now must not overtake them.
        if len(a_online.waiting) and (event.left or event.servers):
            a_online.waiting.remove_jobs(event.left)
            yield from self._dispatch_waiting(0, view)
        for job, lost in (*event.lost, *((job, None) for job in event.arrived)):
            impossible = a_online.rejection(job, view) if lost is None else None
            # A job that fits nowhere would wait forever: it is rejected without a question.
            if impossible is not None:
                yield impossible
                continue
            a_online.waiting.add(a_online.storage_demand(job, lost, view))
            yield from self._dispatch_waiting(len(a_online.waiting.demands) - 1, view)
        a_online.waiting.compact()
        yield from a_online.assign_ps(event, view)

    def _dispatch_waiting(self, start: int, view: View) -> Decisions:
        """The questions and dispatches of the waiting jobs from place `start` on that fit now."""
        a_online, place = self.a_online, start - 1
        free, cloud = a_online.free_storage, self._allows_cloud(view)
        while (place := a_online.waiting.next_fit(free(view), place + 1, cloud_available=cloud)) >= 0:
            yield from self._dispatch(a_online.waiting.remove(place), view)

    def _dispatch(self, need: StorageDemand, view: View) -> Decisions:
        job, lane = need.job, np.zeros(need.chunks, np.int64)
        own_chunks, free = np.zeros(self.cluster.lanes + 1, np.int64), view.free_bytes.copy()
        for chunk in range(need.chunks):
            mask = self._possible(job, free, view)
            action = yield Question(self._observation(job, own_chunks, mask, view), mask)
            # The last action is the cloud, which is no lane.
            lane[chunk] = CLOUD if action == self.cluster.lanes else action
            own_chunks[action] += 1
            self._take_storage(int(lane[chunk]), need.size, free)
        # The rank of Alg. 2, D_j p_j: the job's own work, the least first. Chunks that are lost keep it.
        rank = self.a_online.rank.setdefault(job, int(view.jobs.chunks[job]) * int(view.chunk_time[job, 0]))
        zeros = np.zeros(need.chunks)
        yield Dispatch(job, lane, rank, zeros, zeros.astype(np.int64), "chosen", need.lost)

    def _allows_cloud(self, view: View) -> bool:
        return self.a_online.may_send_to_cloud(view)

    def _take_storage(self, lane: int, size: int, free: Ints) -> None:
        if lane != CLOUD and free[self.cluster.lane_server[lane]] != UNLIMITED:
            free[self.cluster.lane_server[lane]] -= size

    def _possible(self, job: int, free_bytes: Ints, view: View) -> np.ndarray:
        """Lanes of the job's worker type on servers in service with room for a chunk, and the cloud if there is one."""
        mask = np.zeros(self.cluster.lanes + 1, np.bool_)
        lanes = self.a_online.candidates(job, view)
        # By what is left after the chunks placed so far: one question may use up what the next would need.
        mask[lanes] = free_bytes[self.cluster.lane_server[lanes]] >= view.jobs.chunk_bytes[job]
        mask[-1] = self._allows_cloud(view)
        return mask

    def _observation(self, job: int, own_chunks: Ints, mask: np.ndarray, view: View) -> np.ndarray:
        chunk_time, chunks = float(view.chunk_time[job, 0]), int(view.jobs.chunks[job])
        work_before, work_behind, displaced = self._queues(chunks * int(chunk_time), view)
        delay = view.upload_delays(job).astype(np.float64)
        columns = np.zeros((len(mask), self.features))
        columns[:-1, 0] = delay[self.cluster.lane_server]
        columns[-1, 0] = 0.0 if self.cluster.cloud is None else delay[self.cluster.cloud]
        columns[:-1, 1] = work_before
        # Its own chunks have equal rank, and are served before the next one.
        columns[:-1, 1] += own_chunks[:-1] * chunk_time
        columns[:-1, 2], columns[:-1, 3] = work_behind, displaced * chunk_time
        # In the job's own time: what matters is how much longer than it the queue is.
        columns = squash(columns / chunk_time)
        columns[:, 4] = mask
        columns[:, 5], columns[:, 6] = own_chunks.sum() / chunks, min(chunks / _CHUNKS_SCALE, 1.0)
        return columns.astype(np.float32)

    def _queues(self, rank: int, view: View) -> tuple[Floats, Floats, Floats]:
        """On each lane: work of better or equal rank, work of worse rank [µs], and chunks of worse rank."""
        lanes = view.belief(np.arange(self.cluster.lanes))
        better, worse = (_queue_sums(lanes, rank, better=side) for side in (True, False))
        return better[0], worse[0], worse[1]


def _queue_sums(lanes: Lanes, rank: int, *, better: bool) -> tuple[Floats, Floats]:
    """Work [µs] and chunks of the groups on each lane, or on the way to it, whose rank is at most, or above, `rank`."""
    work, chunks = np.zeros(len(lanes.waiting)), np.zeros(len(lanes.waiting))
    # Chunks on the way to a lane will be served there as well.
    for table, count in ((lanes.rows, lanes.waiting), (lanes.transit, lanes.coming)):
        # Tables are as wide as the longest queue; rows beyond a lane's count hold old groups.
        exists = np.arange(table.shape[1]) < count[:, None]
        counted = exists & ((table[:, :, RANK] <= rank) == better)
        # Of a group of equal chunks one may be in service: it has LEFT, each of the others EACH.
        work_left = table[:, :, LEFT] + (table[:, :, COUNT] - 1) * table[:, :, EACH]
        work += np.where(counted, work_left, 0).sum(axis=1)
        chunks += np.where(counted, table[:, :, COUNT], 0).sum(axis=1)
    return work, chunks
