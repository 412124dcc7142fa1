"""The coordinator: hosts the trainers, apart from the controller, so that rounds continue while there is none.

A controller attaches with its number, gives every trainer its assignment, then sends commands. Reports are numbered and
kept until a controller has them in its journal; the next one asks for those that came after. Commands of a controller
that is not the one attached last are refused. Without a controller the trainers continue for a stated time, then save
checkpoints and pause.

There is one order of locks: the coordinator's for commands and pauses, that of a trainer, the coordinator's for what is
told. No method of a trainer is called while the last is held: a trainer that tells something holds its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from skedge.core.model.time import SECOND
from skedge.live import host
from skedge.live.worker.job_code_runner import JobCodeClient

from .attachment import Attachment
from .messages import Assignment, AttachReply, Backlog, Command, LastReport, ProgressNote, Who
from .report import Report
from .trainer import Trainer
from .training_actors import PSPlacement, TrainingActors

ALONE_S = 300.0
"""How long trainers continue without a controller [s]."""

_LOOK_S = 0.5
"""Interval at which the coordinator checks whether it has a controller [s]."""

_LINES, _PRINTED = 10_000, 500
"""Most lines of jobs' logs that are kept for a controller, and most pieces of what their processes have printed."""


class TrainingCoordinator:
    """The trainers of one run.

    Parameters
    ----------
    processes
        The processes of workers and parameter servers.
    servers
        Names of the servers, for the jobs' logs.
    alone_s
        How long trainers continue without a controller [s].

    Attributes
    ----------
    trainers
        Trainers by job.
    attachment
        The controller that is attached, and what it is owed; locked by `_changed`.
    """

    def __init__(self, processes: TrainingActors, servers: Sequence[str], alone_s: float = ALONE_S) -> None:
        self.processes, self.servers = processes, servers
        self.trainers: dict[int, Trainer] = {}
        self.attachment, self._attached = Attachment(alone_s, host.monotonic()), AttachReply()
        self._ending: dict[int, Trainer] = {}
        self._commanded, self._changed = host.Lock(), host.Condition()
        self._lines: deque[ProgressNote] = deque(maxlen=_LINES)
        self._printed: deque[ProgressNote] = deque(maxlen=_PRINTED)
        self._shown: dict[int, ProgressNote] = {}
        self._over = host.Event()
        host.Thread(target=self._watch, name="coordinator", daemon=True).start()

    # -- for the controller --------------------------------------------------------------------------------------

    def clock(self) -> int | None:
        """The run's clock [µs], which stands still while trainers pause; None if no controller has attached yet."""
        with self._changed:
            return None if self.attachment.who is None else self.attachment.clock(host.monotonic())

    def attach(
        self, controller: Who, journaled: LastReport, now: int, assignments: Mapping[int, Assignment]
    ) -> AttachReply:
        """Take commands of this controller from now on, and of none before it; a repeated call changes nothing.

        Parameters
        ----------
        controller
            The controller.
        journaled
            The last report in its journal.
        now
            The run's clock [µs].
        assignments
            Of all jobs that train; what their trainers do already goes on undisturbed.

        Raises
        ------
        FencedError
            If a later controller is attached.
        """
        with self._commanded:
            with self._changed:
                change = self.attachment.attach(controller, journaled, host.monotonic())
                self._changed.notify_all()
            if change is None:  # a call that was late: since then orders may have changed the assignments
                return self._attached
            if change.is_first:
                self.processes.clear(controller[0])
            self._hear(now)
            for job in self.trainers.keys() - assignments.keys():
                self._close(job)
            for assignment in assignments.values():
                self._open(assignment)
            losses = {job: list(trainer.losses) for job, trainer in self.trainers.items()}
            self._attached = AttachReply(self._measuring(), losses, change.alone_s, change.updates)
            return self._attached

    def order(self, controller: Who, number: int, commands: Sequence[Command]) -> None:
        """Carry out commands, in order, once: a controller numbers its orders, and repeats one whose answer is late.

        Raises
        ------
        FencedError
            If another controller is attached.
        UnattachedError
            If none is.
        """
        with self._commanded:
            if not self.attachment.takes(controller, number):
                return
            for command in commands:
                if command.method == "open":
                    self._open(*command.given)
                elif command.method == "close":
                    self._close(command.job)
                elif command.method == "put" and command.job in self.trainers:
                    number, team, since, order = command.given
                    self.trainers[command.job].put(number, team, self._lag_s(since), order)
                elif command.job in self.trainers:
                    getattr(self.trainers[command.job], command.method)(*command.given)

    def news(self, controller: Who, after: int, journaled: int, now: int, wait_s: float) -> Backlog:
        """The reports that a controller has not received yet, and the notes since the last call.

        Parameters
        ----------
        controller
            The controller that asks.
        after
            Number of the last report that it has received.
        journaled
            Number of the last report in its journal: reports up to it are dropped, as they cannot be lost any more.
        now
            The run's clock [µs].
        wait_s
            Longest time to wait for a report [s].

        Raises
        ------
        FencedError
            If another controller is attached.
        UnattachedError
            If none is.
        """
        with self._commanded:
            self.attachment.check(controller)
            self._hear(now)
        with self._changed:
            self.attachment.journaled(controller, journaled)
            self._changed.wait_for(lambda: self.attachment.has_news(controller, after), timeout=wait_s)
            reports = self.attachment.news(controller, after, host.monotonic())
            notes = [*self._lines, *self._printed, *self._shown.values()]
            for messages in (self._lines, self._printed, self._shown):
                messages.clear()
            return Backlog(reports, notes)

    def close(self, controller: Who, wait_s: float) -> None:
        """End all trainers, and wait for them for a while: they may measure results.

        Raises
        ------
        FencedError
            If another controller is attached.
        """
        with self._commanded:
            self.attachment.check(controller)
            for job in list(self.trainers):
                self._close(job)
        self._over.set()
        end = host.monotonic() + wait_s
        for trainer in list(self._ending.values()):
            trainer.join(timeout=max(end - host.monotonic(), 0.0))

    # -- for the trainers ----------------------------------------------------------------------------------------

    def tell(self, report: Report) -> None:
        """Keep a report for the controller."""
        with self._changed:
            self.attachment.tell(report, host.monotonic())
            self._changed.notify_all()

    def note(self, note: ProgressNote) -> None:
        """Keep a line of a job's log, and its latest progress."""
        with self._changed:
            self.attachment.updates += note.updates
            if note.printed:
                self._printed.append(note)
            elif note.line or note.loss:
                self._lines.append(note)
            else:
                self._shown[note.job] = note

    # -- trainers ------------------------------------------------------------------------------------------------

    def _open(self, assignment: Assignment) -> None:
        """Give a trainer its assignment; it is created if there is none."""
        trainer = self.trainers.get(assignment.job)
        if trainer is None:
            trainer = self.trainers[assignment.job] = Trainer(
                assignment.job,
                assignment.name,
                assignment.program,
                self.tell,
                self.processes,
                assignment.pace,
                note=self.note,
                servers=self.servers,
                controllers=self._controllers,
            )
            trainer.pause(paused=self.attachment.paused_at > 0)
        trainer.follow(assignment, self._lag_s)
        if trainer.ident is None:
            trainer.start()

    def _lag_s(self, since: int) -> float:
        """How long ago a time of the run's clock [µs] was [s]: commands may have been late."""
        with self._changed:
            return max(self.attachment.clock(host.monotonic()) - since, 0) / SECOND

    def _close(self, job: int) -> None:
        trainer = self.trainers.pop(job, None)
        if trainer is not None:
            trainer.close()
            self._ending = {ending_job: thread for ending_job, thread in self._ending.items() if thread.is_alive()} | {
                job: trainer
            }

    def _controllers(self) -> int:
        return 0 if self.attachment.who is None else self.attachment.who[0]

    def _measuring(self) -> frozenset[int]:
        """Jobs that have left and whose result is being measured, or is among the reports."""
        reported = {report.job for report in self.attachment.reports if report.what in ("result", "unmeasured")}
        return frozenset(reported | {job for job, trainer in self._ending.items() if trainer.is_alive()})

    # -- controllers ---------------------------------------------------------------------------------------------

    def _hear(self, now: int) -> None:
        """Note the run's clock of the controller; trainers that have paused continue. Commands are locked."""
        with self._changed:
            were_paused = self.attachment.hear(now, host.monotonic())
        if were_paused:
            self._pause(paused=False)

    def _watch(self) -> None:
        """Have the trainers pause once no controller was heard for a while, and idle processes be unloaded."""
        while not self._over.wait(_LOOK_S):
            self.processes.tidy(self._controllers())
            # decided and done under one lock: a controller that is heard meanwhile ends the pause after it has begun
            with self._commanded:
                with self._changed:
                    pauses = self.attachment.pauses(host.monotonic())
                if pauses:
                    self._pause(paused=True)

    def _pause(self, *, paused: bool) -> None:
        for trainer in self.trainers.values():
            trainer.pause(paused=paused)


class CoordinatorActor(TrainingCoordinator):
    """The coordinator as a Ray actor."""

    def __init__(self, agents: Mapping[int, Any], job_code: Any, placement: PSPlacement) -> None:
        calls = JobCodeClient(job_code, prepare_s=placement.watch.prepare_s)
        super().__init__(TrainingActors(agents, calls, placement), placement.servers)

    def warm(self) -> None:
        """Answer when the actor is up."""
