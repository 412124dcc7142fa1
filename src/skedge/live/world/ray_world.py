"""The live world: performs orders on Ray in real time, and reports facts.

The controller's state changes only in the thread that calls :meth:`RayWorld.next_event` and :meth:`RayWorld.perform`.
Trainers and uploads run in their own threads and put what happened into a queue. Time is the controller's clock, from
the start of the run [µs], and is read once per input.

The world is therefore a state machine that depends on its inputs alone. Each input is journaled before it is processed.
A controller that was killed replays the inputs of the journal without side effects, and then continues.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any

import polars as pl

from skedge.core.errors import SkedgeError
from skedge.core.events import (
    CANCELLED,
    Allocate,
    AssignPS,
    Dispatch,
    Event,
    Order,
    Reject,
    Reserve,
    Suspend,
    Upload,
    WakeAt,
    ps_in,
)
from skedge.core.model import Placement
from skedge.core.network import upload_delay
from skedge.core.scenario import Scenario
from skedge.core.time import NEVER, SECOND
from skedge.live.control.journal import SqlJournal
from skedge.live.engine import Engine
from skedge.live.training.checkpoint import Checkpoints
from skedge.live.training.maker import Calls
from skedge.live.training.trainer import Trainer
from skedge.live.training.training import Program
from skedge.runs.meta import LIVE, live_tolerance

from .gang_work import GangWork
from .inputs import ENDS, Cancelled, Due, Input, Resumed, Server, Submitted, Told, Uploaded, from_json, to_json
from .lane_work import LaneWork
from .runs_log import RunsLog
from .uploads import Transport, Uploads, carry

_JOIN_S = 15.0
"""How long the trainers may take to end: one round, and the measurement of the result [s]."""

_BLOCKED_S = 1.0
"""Pause before a journal write that failed on a full disk is repeated [s]."""

_RAY = -1
"""The server number that stands for Ray's head."""

Ask = Callable[[], None]
"""A read-only question to the controller, answered between two inputs."""


class NoEngine:
    """Null engine for a run that is only rebuilt: its agents ignore every call."""

    emulates = True
    acts = False
    url = ""
    lost: frozenset[int] = frozenset()

    def __init__(self, servers: int) -> None:
        self.agents: dict[int, Any] = dict.fromkeys(range(servers), self)
        self.forget, self.drop, self.maker = self, self, Calls(self)

    def parameter_server(self, server: int) -> Any:
        """None: a rebuilt run starts no trainer."""

    def release(self, server: int, actor: Any) -> None:
        """Does nothing: there is no process to release."""

    def remote(self, *_: Any) -> None:
        """Ignores the call."""

    def watch(self, tell: Callable[[int, str], None]) -> None:
        """Does nothing: no server changes during a rebuild."""


class RayWorld:
    """One live run of `scenario`; give it with a kernel to :func:`skedge.core.drive.drive`.

    Parameters
    ----------
    programs
        What each job trains, by job id.
    engine
        The Ray cluster, or :class:`NoEngine` to rebuild a run from its journal without side effects.
    submit
        For a service: called with a submitted job and the time [µs]; returns the scenario with that job appended, and
        the job's program.
    job_log
        Called with (job id, line).
    """

    def __init__(
        self,
        scenario: Scenario,
        programs: Mapping[str, Program],
        engine: Engine | NoEngine,
        *,
        preemptive: bool = True,
        journal: SqlJournal | None = None,
        began: float | None = None,
        submit: Callable[[Submitted, int], tuple[Scenario, Program]] | None = None,
        job_log: Callable[[str, str], None] | None = None,
    ) -> None:
        self.scenario, self.programs, self.engine = scenario, dict(programs), engine
        self.journal, self.submit, self.job_log = journal, submit, job_log
        self.rebuilding = journal is not None and len(journal.inputs) > 0
        self.clock = self.away = self.resumed = 0
        self.ending = False
        self.lane_server: list[int] = scenario.cluster.lane_server.tolist()
        self.told: queue.SimpleQueue[Input | Ask] = queue.SimpleQueue()  # safe in signal handlers
        self.later: deque[Input] = deque()
        self.uploads, self.log = Uploads(), RunsLog(scenario.cluster.server_ids)
        self.lanes, self.gangs = LaneWork(self, preemptive=preemptive), GangWork(self)
        self.trainers: dict[int, Trainer] = {}
        self.progress: dict[int, list[int]] = {}  # as recorded: repeated mini-batches count once
        self.trained: dict[int, tuple[int, ...]] = {}  # as held in the parameters
        self.ps_site: dict[int, int] = {}
        self.out: dict[int, set[str]] = {}
        self.agenda: list[int] = []
        self.arrived = 0
        self.in_system: set[int] = set()
        self.results: dict[int, Any] = {}
        self.modules: dict[int, str] = {}
        self.unmeasured: set[int] = set()
        self.measuring: list[threading.Thread] = []
        self.late_s: dict[int, float] = {}
        self.recovery_s: dict[int, float] = {}
        self.upload_late_s: dict[int, float] = {}
        self.began = time.monotonic() - (0.0 if began is None else time.time() - began)
        self._performers: dict[type, Any] = {
            Dispatch: self.lanes.dispatch,
            Allocate: self.gangs.allocate,
            Suspend: self.gangs.suspend,
            Upload: self.gangs.upload,
            Reject: self._reject,
            AssignPS: self._assign_ps,
            Reserve: self._reserve,
            WakeAt: self._wake_at,
        }
        if journal is not None:
            journal.meanwhile = self._answer
        engine.watch(self._server_changed)

    def now(self) -> int:
        """Time of the last input [µs]."""
        return self.clock

    def real_now(self) -> int:
        """Time since the start [µs]; the clock stops while no controller runs, as nothing is trained then."""
        return self._elapsed()

    def _elapsed(self) -> int:
        return int((time.monotonic() - self.began) * SECOND) - self.away

    # -- inputs --------------------------------------------------------------------------------------------------

    def next_event(self) -> Event | None:
        """The next event; waits for it. None once all jobs have left and no arrival is left."""
        while True:
            event = self.lanes.settle() or self._due()
            if event is not None:
                return event
            over = self.submit is None and not self.in_system and self.arrived == len(self.scenario.jobs)
            if over or self.ending:
                return None
            event = self._take_in(self._next_input())
            if event is not None:
                return event

    def _next_input(self) -> Input:
        """The next input: from the journal while the run is rebuilt, then from trainers, uploads and the clock."""
        earlier = self.journal.again() if self.rebuilding and self.journal is not None else None
        if earlier is not None:
            now, given = earlier[0], from_json(earlier[1])
        elif not self.engine.acts:
            self.ending = True
            return Due()
        else:
            # below 0 if the machine's clock was set back meanwhile; the run's clock still advances
            given = Resumed(self._elapsed() - self.clock) if self.rebuilding else self._wait()
            now = self.clock if self.rebuilding else max(self.clock, self.real_now())
            if self.journal is not None:
                self.journal.take(now, to_json(given))
        if isinstance(given, Resumed):
            self.away += given.away
            self.resumed += 1
            if earlier is None:
                self._go_on()
        self.clock = now
        return given

    def _wait(self) -> Input:
        """The next input from the queue, or :class:`Due` when an agenda entry is due; answers questions meanwhile."""
        while not self.ending:
            if self.later:
                return self.later.popleft()
            try:
                told = self.told.get(timeout=self._patience())
            except queue.Empty:
                break
            if not callable(told):
                return told.taken(time.monotonic()) if isinstance(told, Told) else told
            told()
        return Due()

    def _answer(self) -> None:
        """Answer questions for a second while the journal cannot be written, so that no input can be processed."""
        until = time.monotonic() + _BLOCKED_S
        with suppress(queue.Empty):
            while True:
                told = self.told.get(timeout=max(until - time.monotonic(), 0.0))
                if callable(told):
                    told()
                else:
                    self.later.append(told)

    def _patience(self) -> float:
        """How long to wait for the next input [s]."""
        return max((self._next_due() - self.real_now()) / SECOND, 0.0)

    def _take_in(self, given: Input) -> Event | None:
        if isinstance(given, Uploaded):
            done = self.uploads.done(given.upload)
            if done is not None:
                self._uploaded(done)
        if isinstance(given, Told):
            return self._from_trainer(given)
        if isinstance(given, Server):
            return self._server(given)
        if isinstance(given, Submitted):
            self._submitted(given)
        if isinstance(given, Cancelled) and given.job in self.in_system:
            return self.fail(given.job, CANCELLED)
        return None

    def _uploaded(self, done: Transport) -> None:
        """Report an upload to the work that waits for it."""
        self._came(done)
        self.gangs.uploaded(done)
        self.lanes.uploaded(done)

    def _came(self, upload: Transport) -> None:
        """Record by how much an upload took longer than announced."""
        late = (self.now() - upload.due) / SECOND
        self.upload_late_s[upload.job] = max(late, self.upload_late_s.get(upload.job, 0.0))

    def _go_on(self) -> None:
        """End the rebuild: the state is that at the end of the last controller; from now on orders take effect."""
        self.rebuilding = False
        for server, why in sorted(self.out.items()):
            if "lost" in why and server not in self.engine.lost:
                self.told.put(Server(server, "back"))  # the engine has just started it
        for transport in self.uploads.pending.values():
            self._carry(transport)
        for job in sorted(self.unmeasured):
            self._measure(job)
        for trainer in self.trainers.values():
            if not trainer.closed:
                trainer.joined.clear()  # no delay: the run's clock stood still
                trainer.start()

    def _next_due(self) -> int:
        arrivals = self.scenario.jobs.arrival
        arrival = int(arrivals[self.arrived]) if self.arrived < len(arrivals) else NEVER
        return min(arrival, self.agenda[0] if self.agenda else NEVER, self.real_now() + 3600 * SECOND)

    def _due(self) -> Event | None:
        """Arrivals and wakes that are due now."""
        arrived, woke = self.due_by(self.now())
        return Event(self.now(), arrived=arrived, woke=woke) if arrived or woke else None

    def due_by(self, time: int) -> tuple[tuple[int, ...], bool]:
        """The jobs that have arrived by `time` [µs], and whether a wake is due; each is reported once."""
        first, woke = self.arrived, False
        while self.arrived < len(self.scenario.jobs) and self.scenario.jobs.arrival[self.arrived] <= time:
            self.arrived += 1
        while self.agenda and self.agenda[0] <= time:
            heappop(self.agenda)
            woke = True
        arrived = tuple(range(first, self.arrived))
        self.in_system.update(arrived)
        return arrived, woke

    def _submitted(self, given: Submitted) -> None:
        """Take in a submitted job: it arrives now, after all others."""
        assert self.submit is not None  # noqa: S101 - only a service takes jobs
        last = int(self.scenario.jobs.arrival[-1]) if len(self.scenario.jobs) else -1
        self.clock = max(self.clock, last + 1)
        self.scenario, program = self.submit(given, self.clock)
        self.programs[self.scenario.jobs.ids[-1]] = program

    # -- jobs ----------------------------------------------------------------------------------------------------

    def program(self, job: int) -> Program:
        """What `job` trains."""
        return self.programs[self.scenario.jobs.ids[job]]

    def trainer(self, job: int) -> Trainer:
        """The trainer of `job`, created on first use."""
        if job not in self.trainers:
            name, program, engine, log = self.scenario.jobs.ids[job], self.program(job), self.engine, self.job_log
            write = None if log is None else lambda line: log(name, line)
            trainer = self.trainers[job] = Trainer(
                job,
                name,
                program,
                self._tell,
                engine.parameter_server,
                engine.release,
                engine.maker,
                self.pace(job, 0),
                log=write,
                servers=self.scenario.cluster.server_ids,
                controllers=lambda: self.resumed,
            )
            trainer.out |= {server for server, why in self.out.items() if "lost" in why}
            self.progress[job] = [0] * program.chunks
            if not self.rebuilding:
                trainer.start()
        return self.trainers[job]

    def pace(self, job: int, zeta: int) -> float:
        """Least time of a round [s]: the announced time of a mini-batch; 0 on servers with their own speed."""
        return self._announced(job, zeta) if self.engine.emulates else 0.0

    def _announced(self, job: int, zeta: int) -> float:
        """Announced time of a mini-batch [s]."""
        return float(self.scenario.chunk_time[job, zeta]) / SECOND / int(self.scenario.jobs.minibatches[job])

    def _tell(self, told: Input) -> None:
        """Queue a fact for the controller; ignored in a rebuild, where the journal already holds it."""
        if not self.rebuilding:
            self.told.put(told.queued(time.monotonic()) if isinstance(told, Told) else told)

    def lag_s(self) -> float:
        """How long ago the event that is being answered was [s]: teams hold their lanes since then."""
        return 0.0 if self.rebuilding else max(self._elapsed() - self.clock, 0) / SECOND

    def _from_trainer(self, told: Told) -> Event | None:
        if told.what == "result":
            self.results[told.job] = told.result
            self.unmeasured.discard(told.job)
        elif told.what == "unmeasured" and not self.rebuilding and told.job in self.unmeasured:
            self._measure(told.job)
        if told.what in ("result", "unmeasured") or told.job not in self.in_system:
            return None  # a result can come early: a trained chunk may be dispatched again, its server lost
        if told.progress:
            self.trained[told.job] = told.progress
            self.progress[told.job] = [max(pair) for pair in zip(self.progress[told.job], told.progress, strict=True)]
        if told.module:
            self.modules[told.job] = told.module
        self.late_s[told.job] = self.late_s.get(told.job, 0.0) + told.late_s
        self.recovery_s[told.job] = self.recovery_s.get(told.job, 0.0) + told.recovery_s
        if self.rebuilding:
            self.trainer(told.job).recall(told)
        if told.what == "failed":
            return self.fail(told.job, told.reason)
        return self._progress(told)

    def _progress(self, told: Told) -> Event | None:
        """What a trainer's report of rounds, chunks or speed changes."""
        if told.what == "measured":
            held = self.gangs.board.held.get(told.job)
            zeta = int(told.job in self.lanes.in_cloud or (held is not None and held.colocated))
            return Event(self.now(), measured=((told.job, told.round_s / self._announced(told.job, zeta)),))
        return self.gangs.told(told) if told.job in self.gangs.board.stock else self.lanes.told(told)

    def fail(self, job: int, reason: str) -> Event | None:
        """Remove a job that cannot be trained or was cancelled; the others continue."""
        for upload in self.uploads.pending.values():
            if upload.job == job:
                self._came(upload)
        return self._failed(job, reason)

    def _failed(self, job: int, reason: str) -> Event | None:
        if job in self.trainers:
            self.lanes.drop(job)
            self.gangs.drop(job)
        self.leave(job, finished=False)
        return Event(self.now(), failed=((job, reason),))

    def untrained(self, job: int) -> str:
        """What is missing in the parameters of a job reported as fully trained (rule M38); empty if nothing."""
        done, steps = self.trained.get(job, (0,)), self.program(job).steps
        if min(done) >= steps:
            return ""
        chunk = done.index(min(done))
        return f"its parameters hold {done[chunk]} of {steps} mini-batches of chunk {chunk}: they are not complete"

    def leave(self, job: int, *, finished: bool = True) -> None:
        """Remove a job from the system."""
        self.in_system.discard(job)
        self.uploads.drop(job)
        self.lanes.forget(job)
        self.ps_site.pop(job, None)
        if finished:
            self.unmeasured.add(job)
        if job in self.trainers:
            self.trainers[job].close()
        for agent in self.engine.agents.values():
            agent.forget.remote(self.scenario.jobs.ids[job])

    def _measure(self, job: int) -> None:
        """Measure a finished job from its last checkpoint, as its trainer has ended."""

        def measure() -> None:
            saved = Checkpoints(self.engine.url).read(self.scenario.jobs.ids[job])
            if saved is not None:
                self._tell(Told("result", job, result=self.engine.maker.outcome_of(self.program(job), saved)))

        self.measuring.append(threading.Thread(target=measure, name=f"measure {job}", daemon=True))
        self.measuring[-1].start()

    # -- servers -------------------------------------------------------------------------------------------------

    def _server_changed(self, server: int, what: str) -> None:
        """Callback of the engine, once per change; changes during a rebuild are processed after it."""
        self.told.put(Server(server, what))

    def _server(self, given: Server) -> Event | None:
        """Process a change of a server; it is out of service while it is lost or cordoned."""
        if given.server == _RAY:
            raise SkedgeError("Ray's head no longer answers; go on from the run's state with --resume")
        out = self.out.setdefault(given.server, set())
        was_out = bool(out)
        if given.what in ENDS:
            out.discard(ENDS[given.what])
        else:
            out.add(given.what)
        for trainer in self.trainers.values():
            if given.what == "lost":
                trainer.lose(given.server)
            elif given.what == "back":
                trainer.regain(given.server)
        return self._changed(given, was_out=was_out, is_out=bool(out))

    def _changed(self, given: Server, *, was_out: bool, is_out: bool) -> Event | None:
        """The event of a server that has left service or returned to it; None if neither."""
        if was_out == is_out:
            return None
        return Event(self.now(), servers=((given.server, ""),)) if was_out else self._out_of_service(given)

    def _out_of_service(self, given: Server) -> Event:
        self.uploads.lose(given.server)
        self.gangs.lose(given.server)
        for job in [job for job, site in self.ps_site.items() if site == given.server]:
            self.rest(job)
        lost = self.lanes.lose(given.server)
        return Event(self.now(), servers=((given.server, f"server_{given.what}"),), lost=lost)

    # -- orders --------------------------------------------------------------------------------------------------

    def perform(self, order: Order) -> None:
        """Carry out an accepted order."""
        perform = self._performers.get(type(order))
        if perform is not None:
            perform(order)

    def send(
        self, job: int, server: int, chunks: Sequence[int], *, charged: bool = True, source: int | None = None
    ) -> None:  # fmt: skip
        """Bring chunks to a server, from `source` if given; :class:`.inputs.Uploaded` is queued on arrival."""
        delay = int(upload_delay(self.scenario.delays, job, server)) / SECOND if charged else 0.0
        transport = self.uploads.add(job, server, tuple(chunks), delay, self.now(), source)
        if not self.rebuilding:
            self._carry(transport)

    def _carry(self, transport: Transport) -> None:
        name, agent = self.scenario.jobs.ids[transport.job], self.engine.agents[transport.server]
        program, maker, log = self.program(transport.job), self.engine.maker, self.job_log
        say = None if log is None else lambda line: log(name, line)
        known = transport.source is not None and not self.out.get(transport.source)
        source = self.engine.agents[transport.source] if known and transport.source is not None else None
        carry(transport, name, program, maker, agent, self._tell, lambda n: n in self.uploads.pending, source, say)

    def _reject(self, order: Reject) -> None:
        self.in_system.discard(order.job)

    def _assign_ps(self, order: AssignPS) -> None:
        self.serve_from(order.job, ps_in(order.ps))

    def serve_from(self, job: int, ps: Placement) -> None:
        """Place the job's PS: one process on the server of the first of its PSs stands for all."""
        site = int(self.scenario.cluster.ps_places[ps[0][0]])
        self.ps_site[job] = site
        self.trainers[job].serve_from(site)

    def rest(self, job: int) -> None:
        """Remove the job's PS."""
        self.ps_site.pop(job, None)
        self.trainers[job].rest()

    def _reserve(self, order: Reserve) -> None:
        heappush(self.agenda, order.start)
        heappush(self.agenda, order.end)

    def _wake_at(self, order: WakeAt) -> None:
        heappush(self.agenda, order.time)

    def servers_of(self, job: int, placed: Placement) -> set[int]:  # noqa: ARG002 - sites ask for it
        """Servers that train `job` now; `placed` are its workers in the kernel's books."""
        held = self.gangs.board.held
        teams = {self.lanes.board.chunks[job][team].server for team in self.log.running(job)}
        return teams | set(held[job].shares if job in held else ())

    # -- the end -------------------------------------------------------------------------------------------------

    def meta(self) -> dict[str, Any]:
        """The metadata of a live run for ``run.json``: the tolerance of its times, delays, and training state."""
        recovery = max(self.recovery_s.values(), default=0.0)
        jobs, ids = sorted(self.late_s.keys() | self.upload_late_s.keys()), self.scenario.jobs.ids
        late = {ids[job]: self.late_s.get(job, 0.0) + self.upload_late_s.get(job, 0.0) for job in jobs}
        return {
            "world": LIVE,
            "tolerance": live_tolerance(self.resumed, recovery),
            "resumed": self.resumed,
            "away_s": max(self.away, 0) / SECOND,
            "recovery_s": recovery,
            "late_s": late,
            "code": {ids[job]: module for job, module in sorted(self.modules.items())},
            "trained": {ids[job]: list(done) for job, done in sorted(self.trained.items())},
        }

    def runs(self) -> pl.DataFrame:
        """The runs table so far."""
        return self.log.table()

    def close(self) -> None:
        """End all trainers, and collect the results that they have measured."""
        for trainer in self.trainers.values():
            trainer.close()
        end = time.monotonic() + _JOIN_S
        for thread in (*self.trainers.values(), *self.measuring):
            if thread.is_alive():
                thread.join(timeout=max(end - time.monotonic(), 0.0))
        while not self.told.empty():
            told = self.told.get()
            if isinstance(told, Told) and told.what == "result":
                self.results[told.job] = told.result
