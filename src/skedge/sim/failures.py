"""A simulated world whose edge servers fail and are repaired (``physics.mtbf``), with the facts that a live run has.

A chunk that a failed server had keeps what is trained of it (M8), and the policy sends it again, to a lane or to the
cloud, which does not fail (:class:`~.away.CloudChunks`). A gang with workers or its PS there is suspended. The times
between failures and of repairs are exponential, drawn by server from the scenario's seed, so that all policies meet
the same failures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from heapq import heapify, heapreplace

import numpy as np
from numpy.random import Generator

from skedge.core.engine import truth as truth_of
from skedge.core.engine.agenda import CLOUD_ENDS, CLOUD_STARTS
from skedge.core.engine.lanes import HEAD, JOB, LEFT, UNKNOWN, group_of
from skedge.core.engine.timeline import Instant
from skedge.core.engine.truth import Truth, arrive_now, close, touch
from skedge.core.errors import SkedgeError
from skedge.core.events import CLOUD, FAILED, Dispatch, Event
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Ints
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import NEVER
from skedge.platform.jit import lean

from .away import CloudChunks
from .world import SimulatedWorld

CHANGES = 64
"""Failures and repairs that are drawn at a time."""


def world_of(kernel: Kernel) -> SimulatedWorld:
    """The simulated world for a kernel: with failures if the physics has them."""
    if kernel.scenario.physics.mtbf is None:
        return SimulatedWorld(kernel)
    return FailingWorld(kernel)


class Failures:
    """When each edge server fails and is repaired, drawn as far as a run gets."""

    def __init__(self, scenario: Scenario) -> None:
        physics, cluster = scenario.physics, scenario.cluster
        edge = [server for server in range(len(cluster.servers)) if server != cluster.cloud]
        self.step = physics.step
        self.means = (float(physics.mtbf or NEVER), float(physics.mttr))
        self.rng: dict[int, Generator] = {server: scenario.rng(f"failures of server {server}") for server in edge}
        self.queue = [(self._after(0, server, repaired=True), server, True) for server in edge]
        heapify(self.queue)

    @property
    def next(self) -> int:
        """Time of the first change that is not drawn yet [µs]."""
        return self.queue[0][0]

    def draw(self) -> Ints:
        """The next changes, with all of their last instant: (time, server, fails) rows, ascending."""
        changes = list[tuple[int, int, bool]]()
        while self.next < NEVER and (len(changes) < CHANGES or self.next == changes[-1][0]):
            time, server, fails = self.queue[0]
            heapreplace(self.queue, (self._after(time, server, repaired=not fails), server, not fails))
            changes.append((time, server, fails))
        return np.array(changes, np.int64).reshape(-1, 3)

    def _after(self, time: int, server: int, *, repaired: bool) -> int:
        # a generator for each server: its times do not depend on the number of the other servers
        interval = self.rng[server].exponential(self.means[0 if repaired else 1])
        return min(time + max(1, -int(-interval // self.step)) * self.step, NEVER)


class FailingWorld(SimulatedWorld):
    """A simulation in which edge servers fail."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        scenario = kernel.scenario
        if self.max_lag.any():
            raise SkedgeError("physics.mtbf: does not go with jobs that have max_lag")
        self.failures = Failures(scenario)
        self.groups_sent = 0
        self.settling = False
        self.remaining: dict[tuple[int, int], int] = {}
        """Training time left of chunks whose service began on servers that have failed [µs], by (job, chunk)."""
        self.lane_of: dict[int, Ints] = {}
        """Lane to which each chunk of a job was last sent."""
        self.cloud_chunks = CloudChunks(scenario, self.log)

    def next_event(self) -> Event | None:
        """The next event; None when all jobs have left."""
        return self._settled() if self.settling else super().next_event()

    def _settled(self) -> Event:
        """The jobs that start or pause by the orders that answered a failure, before time passes."""
        self.settling = False
        reason, _ = truth_of.run(self.truth, self.now, self.now)
        self.unsettled = reason == truth_of.FINISHED
        event = self._start_stop_event()
        self.progress.note(event)
        return event

    def leave_cloud(self, job: int) -> None:
        """Take a failed job's chunks off the cloud, where those that compute end now; none is sent again."""
        self.cloud_chunks.end(job, self.now)
        for chunk in [chunk for chunk in self.remaining if chunk[0] == job]:
            del self.remaining[chunk]
        super().leave_cloud(job)

    def lane_work(self) -> Ints:
        """As in the base, with the chunks that wait to be sent again."""
        left = super().lane_work()
        for (job, _), work in self.remaining.items():
            left[job] += work
        return left

    def known_until(self) -> int:
        """Until when the engine knows all failures and repairs, at least the next [µs]; NEVER when no job is left."""
        if self.engine.all_left:
            return NEVER
        if not self.engine.changes_left:
            self.engine.set_changes(self.failures.draw())
        return self.failures.next

    def _next_change(self) -> int:
        self.known_until()
        return self.engine.next_change

    def _present_event(self, instant: Instant) -> Event | None:
        changes = self.engine.take_changes(self.now)
        failed = [server for _, server, fails in changes if fails]
        # first, as this advances the lanes to now: a chunk that ends at this instant is complete, and reported
        lost = self._remove_chunks(failed)
        event = super()._present_event(instant)
        if not changes:
            return event
        event = event or Event(self.now, chunks=self._chunk_facts())
        self.settling = bool(failed) and self.dispatches > 0
        servers = tuple((server, FAILED if fails else "") for _, server, fails in changes)
        left = {job: chunks for job, chunks in lost.items() if job not in event.left}
        event = event._replace(servers=servers, settling=self.settling)
        return event._replace(lost=tuple((job, tuple(sorted(left[job]))) for job in sorted(left)))

    def _remove_chunks(self, servers: list[int]) -> dict[int, list[int]]:
        """Take the chunks off the lanes of these servers; returns them by job."""
        chunks_of = defaultdict[int, list[int]](list)
        if not servers or not self.dispatches:
            return chunks_of
        self.drain()
        lanes = np.flatnonzero(np.isin(self.scenario.cluster.lane_server, servers))
        buffer = np.zeros((self.truth.lanes.rows.shape[1] * 2 * len(lanes), 3), np.int64)
        for job, chunk, left in buffer[: _clear_lanes(self.truth, lanes, self.now, buffer)].tolist():
            self.remaining[job, chunk] = left
            chunks_of[job].append(chunk)
        return chunks_of

    def _dispatch(self, order: Dispatch) -> None:
        """Send each chunk as a group of its own, with what is left of it."""
        job, total = order.job, int(self.scenario.jobs.chunks[order.job])
        chunks = range(total) if order.chunks is None else order.chunks
        colocated = self._note_lanes(order, chunks)
        for chunk, lane in zip(chunks, order.lane.tolist(), strict=True):
            left = self.remaining.pop((job, chunk), int(self.scenario.true_chunk_time[job, colocated]))
            if lane == CLOUD:
                self._send_chunk_to_cloud(job, chunk, left)
            else:
                server = int(self.scenario.cluster.lane_server[lane])
                self._send(lane, server, group_of(job, self.groups_sent, order.rank, left, total), chunk)
                self.groups_sent += 1
        if colocated and order.chunks is not None:
            self._move_to_cloud(job)
        self.dispatches += 1
        self.unsettled = True
        arrive_now(self.truth, order.lane, self.now)

    def _note_lanes(self, order: Dispatch, chunks: Sequence[int]) -> int:
        """Note the lanes that chunks are sent to; returns zeta_j of their job, which may be 1 from now on (M10)."""
        # a redispatch names only the lost chunks: zeta_j is of all of them
        lanes = self.lane_of.get(order.job, order.lane).copy()
        lanes[list(chunks)] = order.lane
        self.lane_of[order.job] = lanes
        colocated = int((lanes == CLOUD).all())
        self.log.note_colocated(order.job, colocated)
        return colocated

    def _move_to_cloud(self, job: int) -> None:
        """The last chunks on the edge were sent to the cloud: from now on the job communicates free of charge."""
        self.drain()
        self.log.colocated_since[job] = self.now
        for chunk, end in self.cloud_chunks.convert_to_colocated(job, self.now):
            self.note_at(end, CLOUD_ENDS, job, chunk)

    def _send_chunk_to_cloud(self, job: int, chunk: int, left: int) -> None:
        start, end = self.cloud_chunks.send(job, chunk, left, self.now)
        self.note_at(start, CLOUD_STARTS, job, chunk)
        self.note_at(end, CLOUD_ENDS, job, chunk)

    def _cloud(self, kind: int, job: int, number: int) -> bool:
        """Start or end a chunk, of this number, in the cloud; returns whether the job is finished."""
        if kind == CLOUD_ENDS and not self.cloud_chunks.ends(job, number, self.now):
            return False  # it has ended earlier, as its job was sent wholly to the cloud
        return super()._cloud(kind, job, 1)


@lean
def _clear_lanes(w: Truth, lanes: Ints, now: int, table: Ints) -> int:
    """Empty these lanes at `now`; writes job, chunk and time left of each chunk to `table`, returns their number."""
    n = 0
    for lane in lanes:
        touch(w, lane, now)
        job, chunk, in_progress = w.open_job[lane], w.open_chunk[lane], now > w.open_start[lane]
        if chunk >= 0:
            close(w, lane, now, 1)
        for i in range(w.lanes.waiting[lane]):
            table[n, 0], table[n, 1] = w.lanes.rows[lane, i, JOB], w.lanes.rows[lane, i, HEAD]
            table[n, 2] = w.lanes.rows[lane, i, LEFT]
            # its next service begins with a restore (M8); one that has trained nothing has no checkpoint
            if in_progress and table[n, 0] == job and table[n, 1] == chunk:
                table[n, 2] += w.lanes.overhead
            n += 1
        for i in range(w.lanes.coming[lane]):
            table[n, 0], table[n, 1] = w.lanes.transit[lane, i, JOB], w.lanes.transit[lane, i, HEAD]
            table[n, 2] = w.lanes.transit[lane, i, LEFT]
            n += 1
        w.lanes.waiting[lane] = w.lanes.coming[lane] = 0
        w.lanes.serving[lane], w.lanes.n_intervals[lane] = -1, UNKNOWN
    return n
