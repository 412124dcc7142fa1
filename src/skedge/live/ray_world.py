"""The live world: performs orders on Ray in real time, and reports facts.

Everything that changes the controller's picture happens in the thread that calls :meth:`RayWorld.next_event` and
:meth:`RayWorld.perform`; trainers and uploads run in threads of their own and leave what happened in a queue. Time is
that of the controller's clock, from the start of the run [µs], and it is read once for each input.

So the world is a machine that depends on its inputs alone. Each is journaled before it is taken in; a controller that
was killed takes the journal's inputs in again, without doing anything, and then goes on from there.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
from skedge.core.schedule import schema
from skedge.core.time import NEVER, SECOND

from .agent import packed
from .board import Board, Chunk
from .engine import Engine
from .journal import SqlJournal
from .trainer import Team, Told, Trainer
from .training import Program, Training

_JOIN_S = 15.0
"""How long a trainer may take to end: a round, and measuring what came out."""

_RESUMED = "resumed"
_REDONE = 3 * SECOND
"""Most that is trained again after a controller was lost: what came after the last checkpoint, and loading it."""

_PIECE = 2**18
"""Bytes of a chunk sent at once."""


@dataclass
class _Run:
    """An open row of the runs table."""

    job: int
    chunk: int | None
    server: int
    lane: int | None
    workers: int
    start: int
    compute_from: int
    done_before: int
    colocated: bool


@dataclass(frozen=True)
class _Uploaded:
    """Chunks have reached a server."""

    job: int
    server: int
    number: int
    chunks: tuple[int, ...]


@dataclass
class _Gang:
    """An allocation: its chunks by server, and the numbers of the uploads that it waits for."""

    where: Placement
    shares: dict[int, range]
    start: int
    colocated: bool
    compute_from: int = NEVER
    awaits: set[int] = field(default_factory=set)
    teams: list[int] = field(default_factory=list)


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
        self.rebuilding = journal is not None and len(journal.earlier) > 0
        self.pending: dict[int, _Upload] = {}
        self.progress: dict[int, list[int]] = {}
        self.unsettled: dict[int, list[dict[str, Any]]] = {}
        self.teams = self.away = 0
        self.scenario, self.programs, self.engine, self.emulate = scenario, programs, engine, emulate
        self.lane_server: list[int] = scenario.cluster.lane_server.tolist()
        self.board = Board(preemptive)
        self.told: queue.Queue[Told | _Uploaded] = queue.Queue()
        self.trainers: dict[int, Trainer] = {}
        self.agenda: list[tuple[int, int]] = []
        self.arrived = 0
        self.in_system: set[int] = set()
        self.in_service: dict[int, int] = {}
        self.was_running: set[int] = set()
        self.gangs: dict[int, _Gang] = {}
        self.gang_data: dict[int, dict[int, int]] = {}
        self.gang_done: dict[int, int] = {}
        self.stored: dict[tuple[int, int], set[int]] = {}
        self.uploads = 0
        self.open: dict[tuple[int, int], _Run] = {}
        self.rows: list[dict[str, Any]] = []
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
            fact = self._next_input()
            if isinstance(fact, _Uploaded):
                self._upload_done(fact)
            elif isinstance(fact, Told) and (event := self._from_trainer(fact)) is not None:
                return event

    def _next_input(self) -> Told | _Uploaded | None:
        """What trainers and uploads tell next; None: it is time for something on the agenda."""
        if self.rebuilding and self.journal is not None:
            earlier = self.journal.again()
            if earlier is not None:
                time_, content = earlier
                if content.get("is") == _RESUMED:
                    self.away += time_ - self.clock + _REDONE
                self.clock = time_
                return _read(content)
            self._go_on()
        try:
            fact = self.told.get(timeout=max((self._next_due() - self.real_now()) / SECOND, 0.0))
        except queue.Empty:
            fact = None
        self.clock = max(self.clock, self.real_now())
        if self.journal is not None:
            self.journal.take(self.clock, {} if fact is None else {"is": type(fact).__name__, **asdict(fact)})
        return fact

    def _go_on(self) -> None:
        """The picture is as it was when the controller ended: from here on act again."""
        self.rebuilding = False
        if self.journal is not None:
            self.journal.take(self.real_now(), {"is": _RESUMED})
        self.away += self.real_now() - self.clock + _REDONE
        for upload in self.pending.values():
            threading.Thread(target=self._bring, args=(upload,), daemon=True).start()
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

    def _upload_done(self, done: _Uploaded) -> None:
        """Chunks of a job have reached a server."""
        self.stored.setdefault((done.job, done.server), set()).update(done.chunks)
        self.pending.pop(done.number, None)
        if done.job in self.gangs:
            self.gangs[done.job].awaits.discard(done.number)
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
        if told.job in self.gang_data:
            return self._gang_told(told)
        chunk = self.board.chunks[told.job][told.team]
        done = told.what == "finished"
        now = self.now()
        self._close_run(told.job, told.team, now, told.progress[chunk.number], preempted=not done)
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
        for chunk in [chunk for other, chunk in self.open if other == job]:
            self._close_run(job, chunk, now, progress[chunk], preempted=False)
        if job in self.gangs:
            self._close_gang(job, preempted=False)
        self._settle_work(job)
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

    def _tell(self, told: Told | _Uploaded) -> None:
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

    def _send(self, job: int, server: int, chunks: Sequence[int], *, charged: bool = True) -> int:
        """Bring chunks to a server, in a thread; the queue is told when they are there. Returns the upload's number."""
        charged = charged and self.emulate
        delay = int(upload_delay(self.scenario.delays, job, server)) / SECOND if charged else 0.0
        self.uploads += 1
        upload = self.pending[self.uploads] = _Upload(self.uploads, job, server, tuple(chunks), delay)
        if not self.rebuilding:
            threading.Thread(target=self._bring, args=(upload,), daemon=True).start()
        return upload.number

    def _bring(self, upload: _Upload) -> None:
        name = self.scenario.jobs.ids[upload.job]
        try:
            _copy(upload, name, self.programs[name], self.engine.agents[upload.server])
            self._tell(_Uploaded(upload.job, upload.server, upload.number, upload.chunks))
        except Exception as error:
            self._tell(Told("failed", upload.job, reason=str(error)))

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
        self.open[chunk.job, chunk.number] = _Run(
            chunk.job, chunk.number, chunk.server, lane, 1, now, now, before, wholly
        )
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
        if job in self.gangs:
            self._suspend(Suspend(job))
        trainer, zeta = self._trainer(job), colocated(self.scenario, order)
        trainer.pace = self._pace(job, zeta)
        trainer.serve_from(self._ps_server(order.ps))
        shares = self._upload_shares(job, order.where)
        awaits = {upload.number for upload in self.pending.values() if upload.job == job and upload.server in shares}
        self.gangs[job] = _Gang(order.where, shares, self.now(), bool(zeta), awaits=awaits)
        self._start_gang(job)

    def _upload(self, order: Upload) -> None:
        self._trainer(order.job)
        self._upload_shares(order.job, order.where)

    def _upload_shares(self, job: int, where: Placement) -> dict[int, range]:
        """Bring each server of a gang the chunks that it lacks; one that gets more workers pays the delay."""
        shares, before = self._shares(job, where), self.gang_data.get(job, {})
        for server, n in where:
            coming = {c for up in self.pending.values() if (up.job, up.server) == (job, server) for c in up.chunks}
            missing = sorted(set(shares[server]) - self.stored.get((job, server), set()) - coming)
            if missing or n > before.get(server, 0):
                self._send(job, server, missing, charged=n > before.get(server, 0))
        self.gang_data[job] = dict(where)
        return shares

    def _shares(self, job: int, where: Placement) -> dict[int, range]:
        """Chunks of each server of a gang: spread evenly over its workers, as the record says."""
        chunks, given, total = int(self.scenario.jobs.chunks[job]), 0, sum(n for _, n in where)
        shares = {}
        for server, n in where:
            shares[server] = range(chunks * given // total, chunks * (given + n) // total)
            given += n
        return shares

    def _start_gang(self, job: int) -> None:
        """Let a gang compute once all its data are there."""
        gang = self.gangs[job]
        if gang.awaits or gang.compute_from < NEVER:
            return
        gang.compute_from = self.now()
        for server, n in gang.where:
            self.teams += 1
            number = int(self.scenario.jobs.chunks[job]) + self.teams
            gang.teams.append(number)
            self.trainers[job].put(number, Team(server, self.engine.agents[server], tuple(gang.shares[server]), n))

    def _suspend(self, order: Suspend) -> None:
        trainer = self.trainers[order.job]
        trainer.rest()
        for number in self.gangs[order.job].teams:
            trainer.take(number)
        self._close_gang(order.job, preempted=True)

    def _gang_told(self, told: Told) -> Event | None:
        job, steps = told.job, self.programs[self.scenario.jobs.ids[told.job]].steps
        finished = told.what == "finished" and min(told.progress) >= steps
        if finished and job in self.gangs:
            self._close_gang(job, preempted=False)
        self._settle_work(job)
        if not finished:
            return None
        self._leave(job)
        return Event(self.now(), finished=(job,))

    def _close_gang(self, job: int, *, preempted: bool) -> None:
        """Note the rows of an allocation that ends now; one of no length leaves no trace."""
        gang, now = self.gangs.pop(job), self.now()
        if now == gang.start:
            return
        for server, n in gang.where:
            run = _Run(job, None, server, None, n, gang.start, min(gang.compute_from, now), 0, gang.colocated)
            self._note_run(run, now, 0.0, preempted=preempted)
            if gang.teams:
                self.unsettled.setdefault(job, []).append(self.rows[-1])

    def _settle_work(self, job: int) -> None:
        """Share what was done since the last time among the workers of the allocation that did it."""
        rows = self.unsettled.pop(job, [])
        if not rows:
            return
        done, workers = sum(self.progress[job]) - self.gang_done.get(job, 0), sum(row["workers"] for row in rows)
        self.gang_done[job] = sum(self.progress[job])
        for row in rows:
            row["work"] = done * row["workers"] / workers

    # -- the record ----------------------------------------------------------------------------------------------

    def _close_run(self, job: int, chunk: int, now: int, progress: int, *, preempted: bool) -> None:
        """Note the run of a chunk that ends now; one of no length leaves no trace."""
        run = self.open.pop((job, chunk))
        if now > run.start:
            self._note_run(run, now, progress - run.done_before, preempted=preempted)

    def _note_run(self, run: _Run, now: int, work: float, *, preempted: bool) -> None:
        self.rows.append(
            {
                "job": run.job,
                "chunk": run.chunk,
                "server": self.scenario.cluster.server_ids[run.server],
                "lane": run.lane,
                "workers": run.workers,
                "start": run.start,
                "compute_from": run.compute_from,
                "end": now,
                "work": float(work),
                "colocated": run.colocated,
                "preempted": preempted,
            }
        )

    def runs(self) -> pl.DataFrame:
        """The runs table of what has happened."""
        table = pl.DataFrame(self.rows, schema=schema(self.scenario.cluster.server_ids)["runs"])
        return table.sort("start", "job", "chunk", "server", maintain_order=True)

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


def _read(content: dict[str, Any]) -> Told | _Uploaded | None:
    """An input from the journal."""
    given = {name: tuple(value) if name in {"progress", "chunks"} else value for name, value in content.items()}
    kind: Any = {"Told": Told, "_Uploaded": _Uploaded}.get(str(given.pop("is", "")))
    return None if kind is None else kind(**given)


@dataclass(frozen=True)
class _Upload:
    """Chunks of a job on their way to a server, spread over the link's delay."""

    number: int
    job: int
    server: int
    chunks: tuple[int, ...]
    delay_s: float


def _copy(upload: _Upload, job: str, program: Program, agent: Any) -> None:
    """Send the bytes piece by piece; they are whole and checked when this returns."""
    import ray  # noqa: PLC0415 - Ray is an extra

    began = time.monotonic()
    training: Training = program.make()
    contents = [(chunk, packed(training.chunk(chunk))) for chunk in upload.chunks]
    total, sent = sum(len(content) for _, content in contents), 0
    for chunk, content in contents:
        for offset in range(0, len(content), _PIECE):
            piece = content[offset : offset + _PIECE]
            last = offset + len(piece) == len(content)
            ray.get(agent.store.remote(job, chunk, offset, piece, last=last))
            sent += len(piece)
            time.sleep(max(began + upload.delay_s * sent / total - time.monotonic(), 0.0))
    time.sleep(max(began + upload.delay_s - time.monotonic(), 0.0))
