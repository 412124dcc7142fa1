"""The live world: performs orders on Ray in real time, and reports facts.

Everything that changes the controller's picture happens in the thread that calls :meth:`RayWorld.next_event` and
:meth:`RayWorld.perform`; trainers and uploads run in threads of their own and leave what happened in a queue. Time is
that of the controller's clock, from the start of the run [µs], and it is read once for each input.

So the world is a machine that depends on its inputs alone. Each is journaled before it is taken in; a controller that
was killed takes the journal's inputs in again, without doing anything, and then goes on from there.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np
import polars as pl

from skedge.core.events import (
    CLOUD,
    Allocate,
    AssignPS,
    Dispatch,
    Event,
    LaneFacts,
    Order,
    Reject,
    Reserve,
    Suspend,
    Upload,
    WakeAt,
)
from skedge.core.gangs import Placement
from skedge.core.kernel import colocated
from skedge.core.network import upload_delay
from skedge.core.scenario import Scenario
from skedge.core.time import NEVER, SECOND

from .board import Board, Chunk
from .engine import Engine
from .gang_board import Allocation, GangBoard, shares
from .inputs import Due, Input, Resumed, Told, Uploaded, from_json, to_json
from .journal import SqlJournal
from .runs_log import RunsLog
from .trainer import Team, Trainer
from .training import Program
from .uploads import Transport, Uploads, carry

_JOIN_S = 15.0
"""How long a trainer may take to end: a round, and measuring what came out."""

_REDONE = 3 * SECOND
"""Most that is trained again after a controller was lost: what came after the last checkpoint, and loading it."""


class RayWorld:
    """One live run of `scenario`; give it with a kernel to :func:`skedge.core.drive.drive`.

    Parameters
    ----------
    programs
        What each job trains, by its id.
    engine
        The Ray cluster.
    emulate
        True: rounds take as long as announced, uploads too, so that the servers of one machine have the speed and the
        links of those in the scenario. False: as fast as the servers are.
    """

    def __init__(
        self,
        scenario: Scenario,
        programs: Mapping[str, Program],
        engine: Engine,
        *,
        preemptive: bool = True,
        emulate: bool = True,
        journal: SqlJournal | None = None,
        began: float | None = None,
    ) -> None:
        self.journal, self.clock = journal, 0
        self.rebuilding = journal is not None and len(journal.inputs) > 0
        self.uploads = Uploads()
        self.progress: dict[int, list[int]] = {}
        self.away = 0
        self.scenario, self.programs, self.engine, self.emulate = scenario, programs, engine, emulate
        self.lane_server: list[int] = scenario.cluster.lane_server.tolist()
        self.board = Board(preemptive)
        self.told: queue.Queue[Input] = queue.Queue()
        self.trainers: dict[int, Trainer] = {}
        self.agenda: list[tuple[int, int]] = []
        self.arrived = 0
        self.in_system: set[int] = set()
        self.in_service: dict[int, int] = {}
        self.was_running: set[int] = set()
        self.gangs = GangBoard()
        self.log = RunsLog(scenario.cluster.server_ids)
        self.results: dict[int, Any] = {}
        self.preempted_at: dict[tuple[int, int], int] = {}
        self.preemption_s: list[float] = []
        self.began = time.monotonic() - (0.0 if began is None else time.time() - began)
        self._performers: dict[type, Any] = {
            Dispatch: self._dispatch,
            Allocate: self._allocate,
            Suspend: self._suspend,
            Upload: self._upload,
            Reject: self._reject,
            AssignPS: self._assign_ps,
            Reserve: self._reserve,
            WakeAt: self._wake_at,
        }

    def now(self) -> int:
        """Time of the last input [µs]."""
        return self.clock

    def real_now(self) -> int:
        """Time since the start [µs]."""
        return int((time.monotonic() - self.began) * SECOND)

    # -- facts ---------------------------------------------------------------------------------------------------

    def next_event(self) -> Event | None:
        """The next thing that happens; waits for it. None when all jobs have left and none is to come."""
        while True:
            event = self._settled() or self._due()
            if event is not None:
                return event
            if not self.in_system and self.arrived == len(self.scenario.jobs):
                return None
            given = self._next_input()
            if isinstance(given, Uploaded):
                self._uploaded(given.upload)
            elif isinstance(given, Told) and (event := self._from_trainer(given)) is not None:
                return event

    def _next_input(self) -> Input:
        """What comes next: from the journal while the run is rebuilt, then from trainers, uploads and the clock."""
        earlier = self.journal.again() if self.rebuilding and self.journal is not None else None
        if earlier is not None:
            now, given = earlier[0], from_json(earlier[1])
        else:
            given = Resumed() if self.rebuilding else self._wait()
            now = max(self.clock, self.real_now())
            if self.journal is not None:
                self.journal.take(now, to_json(given))
        if isinstance(given, Resumed):
            self.away += now - self.clock + _REDONE
            if earlier is None:
                self._go_on()
        self.clock = now
        return given

    def _wait(self) -> Input:
        try:
            return self.told.get(timeout=max((self._next_due() - self.real_now()) / SECOND, 0.0))
        except queue.Empty:
            return Due()

    def _go_on(self) -> None:
        """The picture is as it was when the controller ended: from here on act again."""
        self.rebuilding = False
        for transport in self.uploads.pending.values():
            self._carry(transport)
        for trainer in self.trainers.values():
            if not trainer.closed:
                trainer.start()

    def _next_due(self) -> int:
        arrivals = self.scenario.jobs.arrival
        arrival = int(arrivals[self.arrived]) if self.arrived < len(arrivals) else NEVER
        return min(arrival, self.agenda[0][0] if self.agenda else NEVER, self.real_now() + 3600 * SECOND)

    def _due(self) -> Event | None:
        """Arrivals and wakes whose time has come."""
        now, first, woke = self.now(), self.arrived, False
        while self.arrived < len(self.scenario.jobs) and self.scenario.jobs.arrival[self.arrived] <= now:
            self.arrived += 1
        while self.agenda and self.agenda[0][0] <= now:
            heappop(self.agenda)
            woke = True
        arrived = tuple(range(first, self.arrived))
        self.in_system.update(arrived)
        return Event(now, arrived=arrived, woke=woke) if arrived or woke else None

    def _settled(self) -> Event | None:
        """Give every lane to the best chunk that is there; tell which jobs have started or paused."""
        for holder, best in list(self.board.changes()):
            if holder is None:
                self._start(best)
            else:
                holder.leaving = True
                self.preempted_at[best.job, best.number] = self.real_now()
                self.trainers[holder.job].take(holder.number)
        running = {job for job, count in self.in_service.items() if count > 0}
        started, paused = sorted(running - self.was_running), sorted(self.was_running - running)
        self.was_running = running
        for job in paused:
            self.trainers[job].rest()
        if not started and not paused:
            return None
        return Event(self.now(), started=tuple(started), paused=tuple(p for p in paused if p in self.in_system))

    def _uploaded(self, number: int) -> None:
        """Chunks of a job have reached a server."""
        done = self.uploads.done(number)
        if done.job in self.gangs.held:
            self.gangs.held[done.job].awaits.discard(number)
            self._start_gang(done.job)
        for chunk in self.board.arrive(done.job, done.server):
            if chunk.lane == CLOUD:
                self._start(chunk)

    def _from_trainer(self, told: Told) -> Event | None:
        if told.what == "result":
            self.results[told.job] = told.result
            return None
        if told.job not in self.in_system:
            return None
        if told.progress:
            self.progress[told.job] = list(told.progress)
        if self.rebuilding:
            self.trainers[told.job].gone(told.team)
        if told.what == "failed":
            return self._fail(told.job, told.reason)
        if told.job in self.gangs.data:
            return self._gang_told(told)
        chunk = self.board.chunks[told.job][told.team]
        done = told.what == "finished"
        now = self.now()
        self.log.end(told.job, told.team, now, told.progress[chunk.number], preempted=not done)
        self.in_service[told.job] -= 1
        self.board.leave(chunk, done=done)
        if not done:
            return None
        finished = all(other.done for other in self.board.chunks[told.job])
        if finished:
            self._leave(told.job)
        facts = LaneFacts() if chunk.lane == CLOUD else LaneFacts(*(np.array([x]) for x in (now, chunk.lane, told.job)))
        return Event(now, finished=(told.job,) if finished else (), chunks=facts)

    def _fail(self, job: int, reason: str) -> Event:
        """The job cannot be trained: it leaves, the others go on."""
        now, progress = self.now(), self.progress[job]
        for chunk in self.log.running(job):
            self.log.end(job, chunk, now, progress[chunk], preempted=False)
        if job in self.gangs.held:
            self._close_gang(job, preempted=False)
        self.log.settle(job, sum(progress))
        self.board.drop(job)
        self._leave(job)
        return Event(now, failed=((job, reason),))

    def _leave(self, job: int) -> None:
        self.in_system.discard(job)
        self.in_service.pop(job, None)
        self.was_running.discard(job)
        self.trainers[job].close()
        for agent in self.engine.agents.values():
            agent.forget.remote(self.scenario.jobs.ids[job])

    # -- orders --------------------------------------------------------------------------------------------------

    def perform(self, order: Order) -> None:
        """Carry out an accepted order."""
        perform = self._performers.get(type(order))
        if perform is not None:
            perform(order)

    def _tell(self, told: Input) -> None:
        """Leave a fact for the controller; what is rebuilt has told it before."""
        if not self.rebuilding:
            self.told.put(told)

    def _trainer(self, job: int) -> Trainer:
        if job not in self.trainers:
            name = self.scenario.jobs.ids[job]
            engine = self.engine
            trainer = Trainer(
                job,
                name,
                self.programs[name],
                self._tell,
                engine.parameter_server,
                engine.release,
                self._pace(job, 0),
            )
            self.trainers[job] = trainer
            self.progress[job] = [0] * self.programs[name].chunks
            if not self.rebuilding:
                trainer.start()
        return self.trainers[job]

    def _pace(self, job: int, zeta: int) -> float:
        """Time of a round [s]: that of a mini-batch, as announced."""
        if not self.emulate:
            return 0.0
        return float(self.scenario.chunk_time[job, zeta]) / SECOND / int(self.scenario.jobs.minibatches[job])

    def _dispatch(self, order: Dispatch) -> None:
        sent = self.board.dispatch(order, self.lane_server, self.scenario.cluster.cloud)
        trainer = self._trainer(order.job)
        trainer.pace = self._pace(order.job, int(all(chunk.lane == CLOUD for chunk in sent)))
        by_server: dict[int, list[int]] = {}
        for chunk in sent:
            by_server.setdefault(chunk.server, []).append(chunk.number)
        for server, chunks in by_server.items():
            self._send(order.job, server, chunks)

    def _send(self, job: int, server: int, chunks: Sequence[int], *, charged: bool = True) -> None:
        """Bring chunks to a server; the queue is told when they are there."""
        charged = charged and self.emulate
        delay = int(upload_delay(self.scenario.delays, job, server)) / SECOND if charged else 0.0
        transport = self.uploads.add(job, server, tuple(chunks), delay)
        if not self.rebuilding:
            self._carry(transport)

    def _carry(self, transport: Transport) -> None:
        name = self.scenario.jobs.ids[transport.job]
        carry(transport, name, self.programs[name], self.engine.agents[transport.server], self._tell)

    def _reject(self, order: Reject) -> None:
        self.in_system.discard(order.job)

    def _start(self, chunk: Chunk) -> None:
        """Let a chunk train on its lane from now on."""
        now, trainer = self.now(), self.trainers[chunk.job]
        self.board.hold(chunk)
        self.in_service[chunk.job] = self.in_service.get(chunk.job, 0) + 1
        wholly = all(c.lane == CLOUD for c in self.board.chunks[chunk.job])
        lane = None if chunk.lane == CLOUD else chunk.lane
        before = self.progress[chunk.job][chunk.number]
        self.log.begin(chunk.job, chunk.number, chunk.server, lane, now, before, zeta=wholly)
        asked = self.preempted_at.pop((chunk.job, chunk.number), None)
        if asked is not None:
            self.preemption_s.append((self.real_now() - asked) / SECOND)
        trainer.put(chunk.number, Team(chunk.server, self.engine.agents[chunk.server], (chunk.number,), 1))

    def _assign_ps(self, order: AssignPS) -> None:
        self.trainers[order.job].serve_from(self._ps_server(order.ps))

    def _ps_server(self, ps: int) -> int:
        cluster = self.scenario.cluster
        return int(cluster.cloud) if ps == CLOUD and cluster.cloud is not None else int(cluster.ps_server[ps])

    def _reserve(self, order: Reserve) -> None:
        self._wake_at(WakeAt(order.start))
        self._wake_at(WakeAt(order.end))

    def _wake_at(self, order: WakeAt) -> None:
        heappush(self.agenda, (order.time, len(self.agenda)))

    # -- gangs ---------------------------------------------------------------------------------------------------

    def _allocate(self, order: Allocate) -> None:
        job = order.job
        if job in self.gangs.held:
            self._suspend(Suspend(job))
        trainer, zeta = self._trainer(job), colocated(self.scenario, order)
        trainer.pace = self._pace(job, zeta)
        trainer.serve_from(self._ps_server(order.ps))
        given = self._bring_shares(job, order.where)
        awaits = {transport.number for server in given for transport in self.uploads.to(job, server)}
        self.gangs.held[job] = Allocation(order.where, given, self.now(), bool(zeta), awaits)
        self._start_gang(job)

    def _upload(self, order: Upload) -> None:
        self._trainer(order.job)
        self._bring_shares(order.job, order.where)

    def _bring_shares(self, job: int, where: Placement) -> dict[int, range]:
        """Bring each server of a gang the chunks that it lacks; one that gets more workers pays the delay."""
        given = shares(int(self.scenario.jobs.chunks[job]), where)
        for server, grows in self.gangs.move(job, where).items():
            missing = self.uploads.lacks(job, server, given[server])
            if missing or grows:
                self._send(job, server, missing, charged=grows)
        return given

    def _start_gang(self, job: int) -> None:
        """Let a gang compute once all its data are there."""
        gang = self.gangs.held[job]
        if gang.awaits or gang.compute_from < NEVER:
            return
        gang.compute_from = self.now()
        for server, n in gang.where:
            number = self.gangs.new_team(int(self.scenario.jobs.chunks[job]))
            gang.teams.append(number)
            self.trainers[job].put(number, Team(server, self.engine.agents[server], tuple(gang.shares[server]), n))

    def _suspend(self, order: Suspend) -> None:
        trainer = self.trainers[order.job]
        trainer.rest()
        for number in self.gangs.held[order.job].teams:
            trainer.take(number)
        self._close_gang(order.job, preempted=True)

    def _gang_told(self, told: Told) -> Event | None:
        job, steps = told.job, self.programs[self.scenario.jobs.ids[told.job]].steps
        finished = told.what == "finished" and min(told.progress) >= steps
        if finished and job in self.gangs.held:
            self._close_gang(job, preempted=False)
        self.log.settle(job, sum(told.progress))
        if not finished:
            return None
        self._leave(job)
        return Event(self.now(), finished=(job,))

    def _close_gang(self, job: int, *, preempted: bool) -> None:
        gang = self.gangs.held.pop(job)
        self.log.gang(
            job, gang.where, gang.start, gang.compute_from, self.now(), zeta=gang.colocated, preempted=preempted
        )

    # -- the end -------------------------------------------------------------------------------------------------

    def runs(self) -> pl.DataFrame:
        """The runs table of what has happened."""
        return self.log.table()

    def close(self) -> None:
        """End all trainers."""
        for trainer in self.trainers.values():
            trainer.close()
        for trainer in self.trainers.values():
            if trainer.is_alive():
                trainer.join(timeout=_JOIN_S)
        while not self.told.empty():
            told = self.told.get()
            if isinstance(told, Told) and told.what == "result":
                self.results[told.job] = told.result
