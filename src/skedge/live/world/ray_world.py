"""The live world: performs orders on Ray in real time, and reports facts.

The controller's state changes only in the thread that calls :meth:`RayWorld.next_event` and :meth:`RayWorld.perform`.
The coordinator, which hosts the trainers, and uploads, which are threads, put what happened into a queue. Time is the
controller's clock, from the start of the run [µs], and is read once per input.

The world is therefore a state machine that depends on its inputs alone. Each input is journaled before it is processed.
A controller that was killed replays the inputs of the journal without side effects, and then continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import polars as pl

from skedge.core.errors import SkedgeError
from skedge.core.events import (
    CANCELLED,
    Allocate,
    AssignPS,
    Dispatch,
    Event,
    Order,
    Reserve,
    Suspend,
    Upload,
    WakeAt,
    ps_in,
)
from skedge.core.kernel.state import State
from skedge.core.model.cluster import Placement
from skedge.core.model.network import upload_delay
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.live.cluster.engine import Engine
from skedge.live.confinement.confinement import TRUSTED
from skedge.live.coordinator.report import Report
from skedge.live.journal.journal import SqlJournal
from skedge.live.worker.job_code_runner import JobCodeClient
from skedge.live.worker.program import Program
from skedge.live.worker.watchdog import WATCH
from skedge.runs.meta import LIVE, live_tolerance

from .agenda import Agenda
from .gang_work import GangWork
from .inbox import Inbox
from .inputs import ENDS, Cancelled, Input, ServerChanged, Submitted, Uploaded
from .lane_work import LaneWork
from .runs_log import RunsLog
from .trainers import Trainers
from .training_facts import NEWS, TrainingFacts
from .upload_thread import UploadThread
from .uploads import Transport, Uploads

_RAY = -1
"""The server number that stands for Ray's head."""


class NoEngine:
    """Null engine for a run that is only rebuilt: it asks no process for anything."""

    emulates = True
    acts = False
    url = ""
    lost: frozenset[int] = frozenset()
    confinement = TRUSTED
    limits = WATCH

    def __init__(self, servers: int) -> None:
        self.agents: dict[int, Any] = dict.fromkeys(range(servers))
        self.job_code = JobCodeClient(None)

    def coordinator(self) -> None:
        """None: nothing trains."""

    def forget(self, job: str) -> None:
        """Does nothing: no agent keeps anything of a job."""

    def sweep(self, has_left: Callable[[str], bool]) -> None:
        """Does nothing: no agent keeps anything of a job."""

    def drop(self, server: int, job: str, chunks: tuple[int, ...]) -> None:
        """Does nothing: no agent keeps chunks."""

    def watch(self, tell: Callable[[int, str], None]) -> None:
        """Does nothing: no server changes during a rebuild."""


class RayWorld:
    """One live run; give it with its kernel to :func:`skedge.core.kernel.drive.drive`.

    Whenever an input is processed or a question answered, the kernel's state has all events and orders before it, and
    is read for what it holds. While the orders of an event are carried out it is ahead of the world: it has them all.

    Parameters
    ----------
    state, programs
        The kernel's state, for a service without jobs; and what each job trains, by job id.
    engine
        The Ray cluster, or :class:`NoEngine` to rebuild a run from its journal without side effects.
    journal, began
        Where inputs are written, None: nowhere; start of the run by ``host.time()``, None: now.
    submit
        For a service: called with a submitted job and the time [µs]; adds it to the scenario and returns its program.
    """

    TICK: ClassVar[int] = 1
    """Least time between two inputs [µs]: what happens at one instant is one event to a policy and to the verifier."""

    def __init__(
        self,
        state: State,
        programs: Mapping[str, Program],
        engine: Engine | NoEngine,
        *,
        journal: SqlJournal | None = None,
        began: float | None = None,
    ) -> None:
        self.state, self.programs, self.engine = state, dict(programs), engine
        self.submit: Callable[[Submitted, int], Program] | None = None
        self.inbox, self.facts, self.trainers = Inbox(self, journal, began), TrainingFacts(), Trainers(self)
        self.uploads, self.log = Uploads(), RunsLog(self.scenario.cluster.server_ids)
        self.lanes, self.gangs = LaneWork(self), GangWork(self)
        self.out: dict[int, set[str]] = {}
        self.agenda = Agenda(state)
        self._performers: dict[type, Any] = {
            Dispatch: self.lanes.dispatch,
            Allocate: self.gangs.allocate,
            Suspend: self.gangs.suspend,
            Upload: self.gangs.upload,
            AssignPS: self._assign_ps,
            Reserve: self.agenda.reserve,
            WakeAt: self.agenda.wake_at,
        }
        self._last_event = -1
        engine.watch(self._server_changed)
        if not self.inbox.rebuilding:
            self.inbox.begin()

    @property
    def scenario(self) -> Scenario:
        """The cluster, and all jobs so far."""
        return self.state.scenario

    def now(self) -> int:
        """Time of the last input [µs]."""
        return self.inbox.clock

    def real_now(self) -> int:
        """Time since the start [µs]; the clock stops while nothing is trained because no controller is there."""
        return self.inbox.elapsed()

    def next_event(self) -> Event | None:
        """The next event; waits for it. None once all jobs have left and no arrival is left."""
        while True:
            # before the next input is taken: it is journaled at a time when this one is dealt with
            event = self.lanes.settle() or self._timed()
            if event is None:
                if self.inbox.ending or (self.submit is None and self.state.engine.all_left):
                    return None
                event = self._take_in(self.inbox.take())
            if event is not None:
                self._last_event = event.time
                return event

    def patience(self) -> float:
        """How long to wait for the next input [s]."""
        return min(max((self.next_due() - self.real_now()) / SECOND, 0.0), 3600.0)

    def _take_in(self, received: Input) -> Event | None:
        if isinstance(received, Uploaded) and (transport := self.uploads.done(received.upload)) is not None:
            self._uploaded(transport)
        if isinstance(received, Report):
            return self._from_trainer(received)
        if isinstance(received, ServerChanged):
            return self._server(received)
        if isinstance(received, Submitted):
            self._submitted(received)
        if isinstance(received, Cancelled) and self.state.in_system(received.job):
            return self.fail(received.job, CANCELLED)
        return None

    def _uploaded(self, transport: Transport) -> None:
        """Note by how much an upload took longer than announced; report it to the work that waits for it."""
        self.facts.note_upload(transport.job, (self.now() - transport.due) / SECOND)
        self.gangs.uploaded(transport)
        self.lanes.uploaded(transport)

    def go_on(self) -> None:
        """End the rebuild: the state is that at the end of the last controller; from now on orders take effect."""
        for server, causes in sorted(self.out.items()):
            if "lost" in causes and server not in self.engine.lost:
                self.inbox.waiting.put(ServerChanged(server, "back"))  # the engine has just started it
        # uploads that were under way begin anew: their delay runs from now
        for transport in self.uploads.pending.values():
            UploadThread(self, transport).start()

    def next_due(self) -> int:
        """When the agenda has something next [µs]."""
        return self.agenda.next_due()

    def _timed(self) -> Event | None:
        """What the agenda has for now, unless something has happened at this instant already: then it waits."""
        now = self.now()
        if now == self._last_event:
            return None
        if overdue := self.agenda.ended_by(now):
            return self.fail(overdue[0].job, overdue[0].reason)
        arrived, woke = self.agenda.due_by(now)
        return Event(now, arrived=arrived, woke=woke) if arrived or woke else None

    def _submitted(self, submitted: Submitted) -> None:
        """Take in a submitted job: it arrives now, after all others."""
        assert self.submit is not None  # noqa: S101 - only a service takes jobs
        last = int(self.scenario.jobs.arrival[-1]) if len(self.scenario.jobs) else -1
        self.inbox.clock = max(self.inbox.clock, last + 1)
        program = self.submit(submitted, self.inbox.clock)
        self.programs[self.scenario.jobs.ids[-1]] = program

    def program(self, job: int) -> Program:
        """What `job` trains."""
        return self.programs[self.scenario.jobs.ids[job]]

    def _from_trainer(self, report: Report) -> Event | None:
        if self.trainers.measured(report) or not self.state.in_system(report.job):
            return None  # a result can come early: a trained chunk may be dispatched again, its server lost
        self.facts.note(report)
        if report.what in NEWS:
            return None
        if report.job in self.trainers and not self.trainers[report.job].recall(report):
            return None
        if report.what == "failed":
            return self.fail(report.job, report.reason)
        return self._progress(report)

    def _progress(self, report: Report) -> Event | None:
        """What a trainer's report of rounds, chunks or speed changes."""
        if report.what == "measured":
            allocation = self.gangs.table.held.get(report.job)
            zeta = int(self.state.wholly_in_cloud(report.job) or (allocation is not None and allocation.colocated))
            factor = report.round_s / self.trainers.announced(report.job, zeta)
            return Event(self.now(), measured=((report.job, factor),))
        return self.gangs.report(report) if report.job in self.gangs.table.stock else self.lanes.report(report)

    def fail(self, job: int, reason: str) -> Event | None:
        """Remove a job that cannot be trained or was cancelled; the others continue."""
        for upload in self.uploads.pending.values():
            if upload.job == job:
                self.facts.note_upload(upload.job, (self.now() - upload.due) / SECOND)
        return self._failed(job, reason)

    def _failed(self, job: int, reason: str) -> Event | None:
        if job in self.trainers:
            self.lanes.drop(job)
            self.gangs.drop(job)
        self.leave(job, finished=False)
        return Event(self.now(), failed=((job, reason),))

    def leave(self, job: int, *, finished: bool = True) -> None:
        """End the work of a job that leaves the system; the kernel takes it out on the event."""
        self.uploads.drop(job)
        self.lanes.forget(job)
        self.gangs.table.forget(job)
        if finished:
            self.trainers.unmeasured.add(job)
        self.trainers.retire(job)
        self.engine.forget(self.scenario.jobs.ids[job])

    def _server_changed(self, server: int, change: str) -> None:
        """Callback of the engine, once per change; changes during a rebuild are processed after it."""
        self.inbox.waiting.put(ServerChanged(server, change))

    def _server(self, change: ServerChanged) -> Event | None:
        """Process a change of a server; it is out of service while it is lost or cordoned."""
        if change.server == _RAY:
            raise SkedgeError("Ray's head no longer answers; continue from the run's state with --resume")
        out = self.out.setdefault(change.server, set())
        was_out = bool(out)
        if change.what in ENDS:
            out.discard(ENDS[change.what])
        else:
            out.add(change.what)
        for trainer in self.trainers.values():
            if change.what == "lost":
                trainer.lose(change.server)
            elif change.what == "back":
                trainer.regain(change.server)
        return self._changed(change, was_out=was_out, is_out=bool(out))

    def _changed(self, change: ServerChanged, *, was_out: bool, is_out: bool) -> Event | None:
        """The event of a server that has left service or returned to it; None if neither."""
        # a server can be both lost and cordoned: only the first cause and the last end count
        if was_out == is_out:
            return None
        return Event(self.now(), servers=((change.server, ""),)) if was_out else self._out_of_service(change)

    def _out_of_service(self, change: ServerChanged) -> Event:
        self.uploads.lose(change.server)
        self.gangs.lose(change.server)
        for job in self.state.books.with_ps():
            if self.ps_site(job) == change.server and not self.state.engine.holds(job):  # a gang is suspended by now
                self.trainers[job].rest()
        lost = self.lanes.lose(change.server)
        return Event(self.now(), servers=((change.server, f"server_{change.what}"),), lost=lost)

    def perform(self, order: Order) -> None:
        """Carry out an accepted order."""
        perform = self._performers.get(type(order))
        if perform is not None:
            perform(order)

    def send(
        self, job: int, server: int, chunks: Sequence[int], *, charged: bool = True, source: int | None = None
    ) -> None:  # fmt: skip
        """Bring chunks to a server; :class:`.inputs.Uploaded` is queued on arrival.

        Parameters
        ----------
        job, server, chunks
            Numbers of the job's chunks, and to where; if there are none, only the delay passes.
        charged
            True: it takes at least the upload delay of the scenario. False: as long as the bytes take.
        source
            The server that they move from; None: they come from the source of the job's data.
        """
        delay = int(upload_delay(self.scenario.delays, job, server)) / SECOND if charged else 0.0
        transport = self.uploads.add(job, server, tuple(chunks), delay, self.now(), source)
        if not self.inbox.rebuilding:
            UploadThread(self, transport).start()

    def _assign_ps(self, order: AssignPS) -> None:
        self.serve_from(order.job, ps_in(order.ps))

    def serve_from(self, job: int, ps: Placement) -> None:
        """Place the job's PS: one process on the server of the first of its PSs stands for all."""
        self.trainers[job].serve_from(int(self.scenario.cluster.ps_places[ps[0][0]]))

    def ps_site(self, job: int) -> int | None:
        """Server of the job's PS; None if it has none."""
        return next(iter(self.state.books.ps_servers(job)), None)

    def meta(self) -> dict[str, Any]:
        """The metadata of a live run for ``run.json``: the tolerance of its times, delays, and training state."""
        facts = self.facts.meta(self.scenario.jobs.ids, self.scenario.cluster.server_ids)
        return {
            "world": LIVE,
            "tolerance": live_tolerance(self.inbox.lost, facts["recovery_s"]),
            "resumed": self.inbox.lost,
            "away_s": max(self.inbox.away, 0) / SECOND,
            "decided_late_s": self.agenda.late / SECOND,
            **facts,
        }

    def runs(self) -> pl.DataFrame:
        """The runs table so far."""
        return self.log.table()

    def close(self) -> None:
        """End all trainers, and collect the results that they have measured."""
        self.trainers.close()
        while not self.inbox.waiting.empty():
            report = self.inbox.waiting.get()
            if isinstance(report, Report) and report.what == "result":
                self.facts.results[report.job] = report.result
