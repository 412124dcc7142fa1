"""A simulated world whose edge servers fail and are repaired (``physics.mtbf``), with the facts that a live run has.

A chunk that a failed server had keeps what is trained of it (M8), and the policy sends it again, to a lane or to the
cloud, which does not fail (:class:`~.away.CloudChunks`). A gang with workers or its PS there is suspended. The times
between failures and of repairs are exponential, drawn by server from the scenario's seed, so that all policies meet
the same failures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.random import Generator

from skedge.core.engine import truth as truth_of
from skedge.core.engine.agenda import CLOUD_ENDS, CLOUD_STARTS
from skedge.core.engine.lanes import HEAD, JOB, LEFT, UNKNOWN, group_of
from skedge.core.engine.truth import Truth, arrive_now, close, touch
from skedge.core.errors import SkedgeError
from skedge.core.events import CLOUD, Dispatch, Event, Order, Reject
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Ints
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import NEVER
from skedge.platform.jit import lean

from .away import CloudChunks
from .world import SimulatedWorld

FAILED = "server_failed"
"""Reason of an outage."""


def world_of(kernel: Kernel) -> SimulatedWorld:
    """The simulated world for a kernel: with failures if the physics has them."""
    if kernel.scenario.physics.mtbf is None:
        return SimulatedWorld(kernel)
    return FailingWorld(kernel)


class Failures:
    """When each edge server fails and is repaired, drawn as time passes: the next change is first."""

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
        """Time of the next change [µs]."""
        return self.queue[0][0]

    def until(self, now: int) -> list[tuple[int, bool]]:
        """The changes at `now`: the server, and whether it fails."""
        changes = []
        while self.queue[0][0] <= now:
            _, server, fails = heappop(self.queue)
            heappush(self.queue, (self._after(now, server, repaired=not fails), server, not fails))
            changes.append((server, fails))
        return sorted(changes)

    def _after(self, now: int, server: int, *, repaired: bool) -> int:
        # a generator for each server: its times do not depend on the number of the other servers
        interval = self.rng[server].exponential(self.means[0 if repaired else 1])
        return now + max(1, -int(-interval // self.step)) * self.step


class FailingWorld(SimulatedWorld):
    """A simulation in which edge servers fail."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        scenario = kernel.scenario
        if self.max_lag.any():
            raise SkedgeError("physics.mtbf: does not go with jobs that have max_lag")
        self.books, self.failures = kernel.books, Failures(scenario)
        self.n_unfinished, self.groups_sent = len(scenario.jobs), 0
        self.settling = False
        self.remaining: dict[tuple[int, int], int] = {}
        """Training time left of chunks whose service began on servers that have failed [µs], by (job, chunk)."""
        self.lane_of: dict[int, Ints] = {}
        """Lane to which each chunk of a job was last sent."""
        self.cloud_chunks = CloudChunks(scenario, self.log)

    def next_event(self) -> Event | None:
        """The next event; None when all jobs have left."""
        event = self._settled() if self.settling else super().next_event()
        if event is not None:
            self.n_unfinished -= len(event.left)
        return event

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

    def perform(self, order: Order) -> None:
        """Carry out an accepted order now."""
        if isinstance(order, Reject):
            self.n_unfinished -= 1
        super().perform(order)

    def lane_work(self) -> Ints:
        """As in the base, with the chunks that wait to be sent again."""
        left = super().lane_work()
        for (job, _), work in self.remaining.items():
            left[job] += work
        return left

    def resume(self, arrived: int, active: list[int], *, further: bool) -> None:
        """As in the base."""
        super().resume(arrived, active, further=further)
        self.n_unfinished = len(self.scenario.jobs) - arrived + len(active)

    def _next_on_agenda(self) -> int:
        return min(super()._next_on_agenda(), self._next_change())

    def _next_change(self) -> int:
        """Time of the next failure or repair [µs]; NEVER when all jobs have left."""
        return self.failures.next if self.n_unfinished > 0 else NEVER

    def _present_event(self) -> Event | None:
        changes = self.failures.until(self.now) if self._next_change() <= self.now else []
        failed = [server for server, fails in changes if fails]
        # first, as this advances the lanes to now: a chunk that ends at this instant is complete, and reported
        lost = self._remove_chunks(failed)
        event = super()._present_event()
        if not changes:
            return event
        for server in failed:
            for job in [job for job in self.engine.holders() if self._stands_on(job, server)]:
                self._interrupt(job)
        event = event or Event(self.now, chunks=self._chunk_facts())
        self.settling = bool(failed) and self.dispatches > 0
        servers = tuple((server, FAILED if fails else "") for server, fails in changes)
        left = {job: chunks for job, chunks in lost.items() if job not in event.left}
        event = replace(event, servers=servers, settling=self.settling)
        return replace(event, lost=tuple((job, tuple(sorted(left[job]))) for job in sorted(left)))

    def _stands_on(self, job: int, server: int) -> bool:
        return server in self.books.ps_servers(job) or any(server == host for host, _ in self.engine.placement(job))

    def _interrupt(self, job: int) -> None:
        """The kernel will suspend a job on a server that has failed."""
        if self.engine.trains(job, self.now):
            self.progress.further(self.now)
        self.holding.stop(job)

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
