"""The rounds of one job: the coordinating side of synchronous SGD.

In a round every worker of the job computes one mini-batch at the current version, and the gradients that have arrived
by the deadline go to the parameter server together.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from skedge.core.errors import TrainingError
from skedge.live import host
from skedge.live.worker.program import Program

from .messages import ProgressNote
from .ps_process import PSProcess
from .replies import MinibatchCall
from .report import Report
from .round_clock import SLOW_S
from .teams import Team
from .trainer_thread import TrainerThread
from .training_actors import TrainingActors

_PATIENCE_S = 0.5
"""Pause before a round is repeated after a process was lost [s]."""


class Rounds(TrainerThread):
    """The rounds of one job.

    Parameters
    ----------
    job, name, program, pace, note, servers
        As :class:`.trainer_thread.TrainerThread` has them.
    tell, processes, controllers
        As :class:`.trainer.Trainer` has them.

    Attributes
    ----------
    watched
        (epoch, reference to the parameters) after each epoch, if the program asks for it.
    devices
        (server, device) of the workers so far.
    late
        By chunk, the mini-batches that have not come in their round: none is asked for again before it has come.
    """

    def __init__(
        self,
        job: int,
        name: str,
        program: Program,
        pace: float,
        note: Callable[[ProgressNote], None],
        servers: Sequence[str],
        tell: Callable[[Report], None],
        processes: TrainingActors,
        controllers: Callable[[], int],
    ) -> None:
        super().__init__(job, name, program, pace, note, servers)
        self.tell, self.processes = tell, processes
        self.ps = PSProcess(name, processes, self.replies, controllers, self._go_back, self.closed)
        self.watched: list[tuple[int, Any]] = []
        self.devices: set[tuple[int, str]] = set()
        self.late: dict[int, MinibatchCall] = {}
        self.said_at, self.losses = 0.0, list[tuple[float, float]]()

    def _check(self, progress: list[int]) -> None:
        """Check the progress that the parameter server says: it runs in a process of the job.

        Raises
        ------
        TrainingError
            If it has other chunks than the job, or more mini-batches.
        """
        chunks, steps = self.program.chunks, self.program.steps
        if len(progress) != chunks or max(progress) > steps:
            have = f"{len(progress)} chunks and up to {max(progress, default=0)} mini-batches of one"
            raise TrainingError(f"its parameter server tells of {have}; the job has {chunks} chunks of {steps}")

    def _go_back(self, progress: list[int]) -> None:
        """Continue from a checkpoint's progress; mini-batches that are not in it are trained again.

        Raises
        ------
        TrainingError
            If one of them belongs to a chunk that was reported as trained: no worker would train it again.
        """
        self._check(progress)
        for chunk in sorted(self.teams.reported):
            if progress[chunk] < self.program.steps:
                raise TrainingError(
                    f"its trained parameters are lost: the checkpoint that can be read holds {progress[chunk]} of "
                    f"{self.program.steps} mini-batches of chunk {chunk}, which was reported as trained"
                )
        repeated = max(before - now for before, now in zip(self.teams.progress, progress, strict=True))
        if repeated < 0:  # trained by a coordinator that was lost
            self.clock.late_s -= self.teams.rounds_until(progress) * self.clock.announced_s
        if repeated > 0:
            self.line(f"goes back by {repeated} mini-batches a chunk: that is what its newest whole checkpoint lacks")
            self.clock.late_s += repeated * max(self.clock.round_s, self.clock.pace)
        self.teams.progress = progress

    # -- rounds of calls -----------------------------------------------------------------------------------------

    def _round(self, teams: dict[int, Team]) -> None:
        """Have every worker compute a mini-batch, and the parameters updated by those that come in time."""
        started = host.monotonic()
        if not self.ps.fetch():
            self.ps.load()
            return
        self.replies.usual_s = self.clock.usual_s
        calls = self._ask(teams)
        deadline = started + self.clock.patience_s
        answers = {call.chunk: answer for call in calls if (answer := self._answer(call, deadline)) is not None}
        contributions = [call.brought for call in calls if call.chunk in answers]
        for answer in answers.values():
            # before the update: gradients of other code must not get into the parameters
            self.program.check_same_as(self.ps.module, answer["module"])
        complete = True
        if contributions:
            progress = self.ps.apply(contributions, host.monotonic() + SLOW_S)
            if progress is None:
                self.ps.load()
                complete = False
            else:
                self.replies.updated(answers)
                loss = statistics.fmean(answer["loss"] for answer in answers.values())
                self._updated(progress, teams, loss)
        elif calls or self.late:
            self.closed.wait(_PATIENCE_S)
            if self.replies.gone:
                self.ps.load()  # the parameters themselves: only their server can give them again
        took = host.monotonic() - started
        if not complete or len(contributions) < len(calls):
            self.clock.fail(took)  # it says nothing about how long rounds take
        elif self.late:
            self.clock.recovery_s += took
        elif (mean := self.clock.measure(took)) is not None:
            self.tell(Report("measured", self.job, round_s=mean))
        self.clock.keep()

    def _ask(self, teams: dict[int, Team]) -> list[MinibatchCall]:
        """Have every worker compute a mini-batch; those that were late are waited for instead."""
        calls = []
        for number, team in teams.items():
            for chunk in self.teams.next_chunks(team):
                overdue, step = self.late.get(chunk), self.teams.progress[chunk]
                if overdue is None or overdue.server != team.server:
                    calls.append(self._asked(number, team, chunk))
                elif (overdue.version, overdue.step) == (self.ps.version, step):
                    calls.append(overdue)
                elif not overdue.comes():
                    # of parameters that have changed: only whether it has stalled is of interest
                    self._answer(overdue, 0.0)
                    calls.append(self._asked(number, team, chunk))
        return calls

    def _asked(self, number: int, team: Team, chunk: int) -> MinibatchCall:
        agent, step, limits = self.processes.agents[team.server], self.teams.progress[chunk], self.replies.limits(chunk)
        arguments = self.job_name, self.ps.sent, chunk, step, self.ps.state, limits
        ack, brought = host.call(agent, "gradient", *arguments, returns=2)
        return MinibatchCall(number, team.server, chunk, step, self.ps.version, ack, brought)

    def _answer(self, call: MinibatchCall, deadline: float) -> Any:
        """The facts about a mini-batch of a team on a server; None if its process is lost or late."""
        answer = self.replies.of(call.ack, call.server, deadline, call.chunk)
        self.free_at[call.team] = host.monotonic()
        self.late.pop(call.chunk, None)
        if answer is None and call.comes():
            self.late[call.chunk] = call
        if answer is None or "device" not in answer:
            return None
        self.devices.add((call.server, answer["device"]))
        return answer

    def _give_up(self, number: int) -> None:
        """End the late mini-batches of a team that leaves: its lanes are for others."""
        for call in [call for call in self.late.values() if call.team == number]:
            host.call(self.processes.agents[call.server], "end", self.job_name, (call.key,))
            del self.late[call.chunk]

    # -- updates -------------------------------------------------------------------------------------------------

    def _updated(
        self, progress: list[int], teams: Iterable[int], loss: float, updates: int = 1, first_ago_s: float = 0.0
    ) -> None:
        """Note updates of the parameters, the first of them `first_ago_s` ago [s]."""
        self._check(progress)
        self.teams.progress = progress
        now = host.monotonic()
        for number in teams:
            self.first_s.setdefault(number, max(now - first_ago_s - self.put_at.get(number, now), 0.0))
        self._watch()
        self._say(loss, now, updates)

    def _say(self, loss: float, now: float, updates: int) -> None:
        """Note the progress, and at most once per second write the loss to the job's log."""
        progress = tuple(self.teams.progress)
        if now - self.said_at < 1:
            self.note(ProgressNote(self.job, "", progress, usual_s=self.clock.usual_s, updates=updates))
            return
        self.said_at = now
        trained, steps = sum(progress), self.program.steps * self.program.chunks
        self.losses.append((self.ps.version, loss))
        line = f"update {self.ps.version}: {trained} of {steps} mini-batches, loss {loss:.4g}"
        progress_note = ProgressNote(
            self.job, line, progress, self.losses[-1], usual_s=self.clock.usual_s, updates=updates
        )
        self.note(progress_note)

    def _watch(self) -> None:
        """Keep the parameters after each epoch's worth of mini-batches; they are measured at the end of training."""
        epoch = self.teams.epochs()
        is_new = self.program.watch and epoch > (self.watched[-1][0] if self.watched else 0)
        if is_new and self.ps.fetch():
            self.watched.append((epoch, self.ps.state))
