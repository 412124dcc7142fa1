"""One job's training: the coordinating side of synchronous SGD.

One thread per job drives rounds. In a round every worker of the job computes one mini-batch at the current version. The
gradients that have arrived by the deadline go to the parameter server together. A preempted worker leaves between two
rounds: its mini-batch is finished and counted, and its data stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from skedge.core.errors import TrainingError
from skedge.live import host
from skedge.live.worker.job_processes import sent
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


class Trainer(TrainerThread):
    """Trains one job.

    Parameters
    ----------
    job, name, program, pace, note, servers
        As :class:`.trainer_thread.TrainerThread` has them.
    tell
        Called with each report.
    processes
        Lends the process of the parameter server, and measures the result.
    controllers
        Returns the number of controllers that the run had before this one.

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
        tell: Callable[[Report], None],
        processes: TrainingActors,
        pace: float = 0.0,
        *,
        note: Callable[[ProgressNote], None] | None = None,
        servers: Sequence[str],
        controllers: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(job, name, program, pace, note or _unheard, servers)
        self.tell, self.processes = tell, processes
        self.ps = PSProcess(name, processes, self.replies, controllers, self._go_back, self.closed)
        self.watched: list[tuple[int, Any]] = []
        self.devices: set[tuple[int, str]] = set()
        self.late: dict[int, MinibatchCall] = {}
        self.said_at, self.losses = 0.0, list[tuple[float, float]]()

    # -- the rounds ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Train round by round until the job is trained, fails, or is closed."""
        try:
            while (teams := self._next_teams()) is not None:
                try:
                    self._step(teams)
                except host.CallError as error:  # a call could not even be made, as there is no room for its arguments
                    self.line(f"a call cannot be made, and is tried again: {error}")
                    self.closed.wait(_PATIENCE_S)
        except TrainingError as error:
            self._fail(str(error), getattr(error, "traceback", ""))
        except Exception as error:  # any error: a thread that ends silently would leave the job hanging
            self._fail(f"its training has ended: {type(error).__name__}: {error}")
        finally:
            self.ps.release()

    def _step(self, teams: dict[int, Team]) -> None:
        """Give up the parameter server, or train a round and save."""
        if self.ps.sent is None:
            self.ps.sent = host.put(sent(self.program))
        if (site := self._place()) is None:
            self.ps.give_up()
        elif not self.ps.move(site):
            self.closed.wait(_PATIENCE_S)
        else:
            self._round(teams)
            if not self._dismiss_finished():
                self.ps.save_sometimes()

    def event(self, kind: str, sentence: str) -> None:
        """Report what has happened to a process of the job."""
        self.tell(Report(kind, self.job, progress=tuple(self.teams.progress), reason=sentence))

    def _fail(self, reason: str, traceback: str = "") -> None:
        if traceback:
            self.line(traceback)
        self.tell(Report("failed", self.job, progress=tuple(self.teams.progress), reason=reason))

    def _next_teams(self) -> dict[int, Team] | None:
        """The teams of the next round; waits until there is something to do. None at the end."""
        with self.change:
            while True:
                for number in self.teams.let_go():
                    self._give_up(number)
                    self.tell(self._fact("stopped", number))
                for kind, number in self.teams.hold_back():
                    self.tell(self._fact(kind, number))
                if self.closed.is_set():
                    return None
                rests = self._place() is None
                if (self.teams.working and not rests) or (self.ps.server is not None and rests):
                    self.clock.begin()
                    return dict(self.teams.working)
                # nothing to train: what the job is behind is not made up for after the pause
                self.clock.write_off()
                self.change.wait()

    def _fact(self, kind: str, team: int) -> Report:
        delay_s, lost = self.clock.report()
        progress, devices = tuple(self.teams.progress), tuple(sorted(self.devices))
        fact = Report(
            kind,
            self.job,
            team,
            progress,
            late_s=delay_s,
            recovery_s=lost,
            module=self.ps.module,
            devices=devices,
            first_s=self.first_s.get(team),
        )
        return replace(fact, freed_s=self._freed_s(team)) if kind == "stopped" else fact

    def _freed_s(self, team: int) -> float | None:
        """Time from the order to suspend a team until its workers had ended their mini-batches [s].

        0 if none was under way, None if the team has computed nothing at all.
        """
        suspended_at = self.asked_at.pop(team, None)
        return (
            max(self.free_at[team] - suspended_at, 0.0) if suspended_at is not None and team in self.free_at else None
        )

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

    def _round(self, teams: dict[int, Team]) -> None:
        started = host.monotonic()
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
                self._updated(progress, teams, [answer["loss"] for answer in answers.values()])
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
        if answer is None or "computing" in answer:
            return None
        self.devices.add((call.server, answer["device"]))
        return answer

    def _give_up(self, number: int) -> None:
        """End the late mini-batches of a team that leaves: its lanes are for others."""
        for call in [call for call in self.late.values() if call.team == number]:
            host.call(self.processes.agents[call.server], "end", self.job_name, (call.chunk,))
            del self.late[call.chunk]

    def _updated(self, progress: list[int], teams: dict[int, Team], losses: list[float]) -> None:
        """Note an update of the parameters."""
        self._check(progress)
        self.teams.progress = progress
        now = host.monotonic()
        for number in teams:
            self.first_s.setdefault(number, now - self.put_at.get(number, now))
        self._watch()
        self._say(losses, now)

    def _say(self, losses: list[float], now: float) -> None:
        """Note the progress, and at most once per second write the loss to the job's log."""
        progress = tuple(self.teams.progress)
        if now - self.said_at < 1:
            self.note(ProgressNote(self.job, "", progress, usual_s=self.clock.usual_s))
            return
        self.said_at = now
        trained, steps = sum(progress), self.program.steps * self.program.chunks
        self.losses.append((self.ps.version, sum(losses) / len(losses)))
        line = f"update {self.ps.version}: {trained} of {steps} mini-batches, loss {self.losses[-1][1]:.4g}"
        self.note(ProgressNote(self.job, line, progress, self.losses[-1], usual_s=self.clock.usual_s))

    def _watch(self) -> None:
        """Keep the parameters after each epoch's worth of mini-batches; they are measured at the end of training."""
        epoch = self.teams.epochs()
        if self.program.watch and epoch > (self.watched[-1][0] if self.watched else 0):
            self.watched.append((epoch, self.ps.state))

    def _dismiss_finished(self) -> bool:
        """Report teams whose chunks are all trained, once a checkpoint holds that; returns whether there was one."""
        with self.change:
            finished = self.teams.finished()
        if not finished:
            return False
        start = host.monotonic()
        # a chunk that was reported as trained is never trained again, so a checkpoint must hold it first
        saved = self.ps.save_or_load(self.teams.progress)
        self.clock.postpone(host.monotonic() - start)
        if not saved:
            return False
        with self.change:
            for number, team in finished.items():
                # a team that was put meanwhile has the number, too, but other chunks: it is looked at in its turn
                if self.teams.dismiss(number, team):
                    self.tell(self._fact("finished", number))
            over = self.teams.all_trained() and not self.teams.finished()
        if over:
            self._tell_result()
        return True

    def _tell_result(self) -> None:
        """Have the result measured on the controller's node, as the parameter server's slot is for the next job."""
        losses, state = self.ps.losses(), self.replies.of(self.ps.state, self.ps.server)
        states = [(epoch, saved) for epoch, ref in self.watched if (saved := self.replies.of(ref, None)) is not None]
        self.ps.give_up()
        if state is None or losses is None:
            self.tell(Report("unmeasured", self.job))
            return
        result = self.processes.job_code.outcome(self.program, losses, state, states, self.hear)
        if "unmeasured" in result:
            self.line(result["unmeasured"])
        self.tell(Report("result", self.job, result=result))


def _unheard(_: ProgressNote) -> None:
    """Ignores a note."""
