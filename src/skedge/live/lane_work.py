"""Dispatched chunks in the live world: which of them train, on which lanes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from skedge.core.events import CLOUD, Dispatch, Event, LaneFacts
from skedge.core.model import Ints
from skedge.core.network import upload_delay
from skedge.sim.what_if import InCloud

from .board import Board, Chunk
from .inputs import Told
from .trainer import Team
from .uploads import Transport

if TYPE_CHECKING:
    from .ray_world import RayWorld

Lost = tuple[tuple[int, tuple[int, ...]], ...]
"""(job, chunks) whose server is out of service, as in :class:`~skedge.core.events.Event`."""


class LaneWork:
    """The board, and the trainers' teams of one chunk each.

    Attributes
    ----------
    running
        Chunks in service of each job.
    in_cloud
        Jobs of which the last dispatch of every chunk was to the cloud: communication is free there (zeta = 1).
    preemption_s
        From each decision to displace a chunk to the displacing job's first update with its own [s].
    """

    def __init__(self, world: RayWorld, *, preemptive: bool) -> None:
        self.world, self.board = world, Board(preemptive)
        self.running: dict[int, int] = {}
        self.was_running: set[int] = set()
        self.in_cloud: set[int] = set()
        self.sent_at: dict[int, int] = {}
        self.displaced_at: dict[tuple[int, int], float] = {}
        self.preemption_s: list[float] = []

    def dispatch(self, order: Dispatch) -> None:
        """Send the chunks of a job, or its lost ones again, on their way."""
        world = self.world
        sent = self.board.dispatch(order, world.lane_server, world.scenario.cluster.cloud)
        wholly = all(chunk.lane == CLOUD for chunk in self.board.chunks[order.job])
        (self.in_cloud.add if wholly else self.in_cloud.discard)(order.job)
        world.trainer(order.job).pace = world.pace(order.job, int(order.job in self.in_cloud))
        self.sent_at[order.job] = world.now()
        by_server: dict[int, list[int]] = {}
        for chunk in sent:
            by_server.setdefault(chunk.server, []).append(chunk.number)
        for server, chunks in by_server.items():
            world.send(order.job, server, chunks)

    def uploaded(self, done: Transport) -> None:
        """Chunks have reached their server; in the cloud each has a worker of its own."""
        for chunk in self.board.arrive(done.job, done.server, done.chunks):
            if chunk.lane == CLOUD:
                self._start(chunk)

    def settle(self) -> Event | None:
        """Give every lane to the best chunk that is there; tell which jobs have started or paused."""
        world = self.world
        for holder, best in list(self.board.changes()):
            if holder is None:
                self._start(best)
            else:
                holder.leaving = True
                self.displaced_at[best.job, best.number] = time.monotonic()
                world.trainers[holder.job].take(holder.number)
        running = {job for job, count in self.running.items() if count > 0}
        started, paused = sorted(running - self.was_running), sorted(self.was_running - running)
        self.was_running = running
        for job in paused:
            world.rest(job)
        if not started and not paused:
            return None
        return Event(world.now(), started=tuple(started), paused=tuple(p for p in paused if p in world.in_system))

    def _start(self, chunk: Chunk) -> None:
        """Let a chunk train on its lane from now on."""
        world, now = self.world, self.world.now()
        self.board.hold(chunk)
        self.running[chunk.job] = self.running.get(chunk.job, 0) + 1
        lane, done = None if chunk.lane == CLOUD else chunk.lane, world.progress[chunk.job][chunk.number]
        world.log.begin(chunk.job, chunk.number, chunk.server, lane, now, done, zeta=chunk.job in self.in_cloud)
        team = Team(chunk.server, world.engine.agents[chunk.server], (chunk.number,), 1)
        world.trainers[chunk.job].put(chunk.number, team)

    def told(self, told: Told) -> Event | None:
        """A chunk has left its lane: trained, displaced, or because its server is out of service."""
        world, now, chunk = self.world, self.world.now(), self.board.chunks[told.job][told.team]
        done = told.what == "finished"
        world.log.end(told.job, told.team, now, world.progress[told.job][chunk.number], preempted=not done)
        self.running[told.job] -= 1
        self.board.leave(chunk, done=done)
        asked, stepped = self.displaced_at.pop((told.job, told.team), None), world.trainers[told.job].first_step
        if asked is not None and told.team in stepped:
            self.preemption_s.append(stepped[told.team] - asked)
        if not done:
            return Event(now, lost=((told.job, (chunk.number,)),)) if chunk.lost else None
        finished = all(other.done for other in self.board.chunks[told.job])
        if finished and (lacking := world.untrained(told.job)):
            return world.fail(told.job, lacking)
        if finished:
            world.leave(told.job)
        facts = LaneFacts() if chunk.lane == CLOUD else LaneFacts(*(np.array([x]) for x in (now, chunk.lane, told.job)))
        return Event(now, finished=(told.job,) if finished else (), chunks=facts)

    def lose(self, server: int) -> Lost:
        """A server is out of service: its chunks leave, those that train after their mini-batch; returns the others."""
        gone: dict[int, list[int]] = {}
        for chunk in self.board.lose(server):
            if (chunk.job, chunk.number) in self.world.log.open:
                self.world.trainers[chunk.job].take(chunk.number)
            else:
                gone.setdefault(chunk.job, []).append(chunk.number)
        return tuple((job, tuple(sorted(chunks))) for job, chunks in sorted(gone.items()))

    def in_the_cloud(self, now: int, chunk_time: Ints) -> dict[int, InCloud]:
        """Chunks in the cloud that are not trained, by job: when they start and end [µs], with these times p."""
        world, found = self.world, {}
        for job, chunks in self.board.chunks.items():
            there = [chunk for chunk in chunks if chunk.lane == CLOUD and not (chunk.done or chunk.lost)]
            if there:
                zeta, steps = int(job in self.in_cloud), world.program(job).steps
                whole, arrives = int(chunk_time[job, zeta]), self.sent_at[job]
                arrives += int(upload_delay(world.scenario.delays, job, there[0].server))
                delay = 0 if all(chunk.arrived for chunk in there) else max(arrives - now, 0)
                done = min(world.trainers[job].progress[chunk.number] for chunk in there)
                found[job] = InCloud(len(there), now + delay, now + delay + whole * (steps - done) // steps)
        return found

    def drop(self, job: int) -> None:
        """A job has failed or was cancelled."""
        for chunk in self.world.log.running(job):
            self.world.log.end(job, chunk, self.world.now(), self.world.progress[job][chunk], preempted=False)
        self.board.drop(job)

    def forget(self, job: int) -> None:
        """A job has left the system."""
        self.running.pop(job, None)
        self.sent_at.pop(job, None)
        self.was_running.discard(job)
