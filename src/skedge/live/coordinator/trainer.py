"""One job's training: the thread that does what the job's rounds decide (:mod:`.rounds`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import singledispatchmethod
from typing import Any

from skedge.core.errors import TrainingError
from skedge.live import host
from skedge.live.worker.job_processes import sent
from skedge.live.worker.program import Program
from skedge.live.worker.round_window import RoundWindow

from .instructions import (
    Apply,
    Ask,
    AtOnce,
    AwaitWindow,
    Begin,
    Collect,
    Comes,
    Connect,
    Disconnect,
    EndLate,
    Fetch,
    GiveUp,
    HearWorkers,
    Instruction,
    KeepAnnouncedPace,
    KeepParameters,
    Load,
    Loaded,
    LookForGone,
    LookForLeft,
    MeasureResult,
    Missing,
    Pause,
    Rest,
    Revoke,
    Save,
    SaveSometimes,
    Say,
    StartWindow,
    Steps,
    T,
    Tell,
    TellRoundTime,
    Updated,
)
from .messages import ProgressNote
from .ps_process import PSProcess
from .replies import MinibatchCall
from .report import Report
from .round_clock import SLOW_S
from .rounds import Rounds
from .rounds_state import RoundsState
from .trainer_thread import TrainerThread
from .training_actors import TrainingActors
from .window_workers import WindowWorkers


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
    training, rounds
        What is known of the training, and what decides about it.
    watched
        (epoch, reference to the parameters) after each epoch, if the program asks for it.
    losses
        (version, loss) of updates so far, one a second.
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
        self.ps = PSProcess(name, processes, self.replies, controllers, self.closed)
        self.workers = WindowWorkers(name, program, processes, self.ps, self.replies)
        self.training = RoundsState(program, self.teams, self.clock)
        self.rounds = Rounds(self.training)
        self.watched: list[tuple[int, Any]] = []
        self.said_at, self.losses = 0.0, list[tuple[float, float]]()
        self._window_call: Any = None

    def run(self) -> None:
        """Train round by round until the job is trained, fails, or is closed."""
        try:
            self.perform(self.rounds.run())
        except TrainingError as error:
            self._fail(str(error), getattr(error, "traceback", ""))
        except Exception as error:  # any error: a thread that ends silently would leave the job hanging
            self._fail(f"its training has ended: {type(error).__name__}: {error}")
        finally:
            self.ps.release()

    def perform(self, steps: Steps[T]) -> T:
        """Do each of these steps, and tell them how it has ended; returns what they return."""
        outcome: Any = None
        try:
            while True:
                with self.change:
                    self.training.look(self._place(), self.changes, closed=self.closed.is_set())
                    while isinstance(step := _next(steps, outcome), AtOnce):
                        outcome = self._outcome(step)
                    if isinstance(step, Rest):
                        outcome = self.change.wait()
                        continue
                outcome = self._outcome(step)
        except StopIteration as end:
            value: T = end.value
            return value

    def _outcome(self, step: Instruction) -> Any:
        try:
            return self.do(step)
        except host.CallError as error:
            return error

    def event(self, kind: str, sentence: str) -> None:
        """Report what has happened to a process of the job."""
        self.tell(Report(kind, self.job, progress=tuple(self.teams.progress), reason=sentence))

    def end_window(self) -> None:
        """Have the rounds that the parameter server's process trains by itself end."""
        self.ps.revoke()

    def _fail(self, reason: str, traceback: str = "") -> None:
        if traceback:
            self.line(traceback)
        self.tell(Report("failed", self.job, progress=tuple(self.teams.progress), reason=reason))

    # -- the job -----------------------------------------------------------------------------------------------------

    @singledispatchmethod
    def do(self, step: Instruction) -> Any:
        """Do what an instruction says; returns what is told of it.

        Raises
        ------
        TrainingError
            If the job's own code fails.
        CallError
            If a call could not even be made.
        """
        raise NotImplementedError(step)

    @do.register
    def _(self, _: Begin) -> None:
        if self.ps.sent is None:
            self.ps.sent = host.put(sent(self.program))
        self.replies.usual_s = self.clock.usual_s

    @do.register
    def _(self, step: Pause) -> None:
        self.closed.wait(step.seconds)

    @do.register
    def _(self, step: KeepAnnouncedPace) -> None:
        self.clock.keep(step.minibatches, step.pace_s)

    @do.register
    def _(self, step: Say) -> None:
        self.line(step.line)

    @do.register
    def _(self, step: Tell) -> None:
        self.tell(self.fact(step.what, step.team))

    @do.register
    def _(self, step: TellRoundTime) -> None:
        self.tell(Report("measured", self.job, round_s=step.round_s))

    def fact(self, kind: str, team: int) -> Report:
        """A report of a team, with the delays since the last one."""
        delay_s, lost = self.clock.report()
        fact = Report(
            kind,
            self.job,
            team,
            tuple(self.teams.progress),
            late_s=delay_s,
            recovery_s=lost,
            module=self.ps.module,
            devices=tuple(sorted(self.training.devices)),
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

    @do.register
    def _(self, step: MeasureResult) -> None:
        """The result is measured on the controller's node, as the parameter server's slot is for the next job."""
        losses = self.ps.losses()
        state = self.replies.of(self.ps.state, self.ps.server) if self.ps.fetch(step.version) else None
        states = [(epoch, saved) for epoch, ref in self.watched if (saved := self.replies.of(ref, None)) is not None]
        self.ps.give_up()
        if state is None or losses is None:
            self.tell(Report("unmeasured", self.job))
            return
        result = self.processes.job_code.outcome(self.program, losses, state, states, self.hear)
        if "unmeasured" in result:
            self.line(result["unmeasured"])
        self.tell(Report("result", self.job, result=result))

    # -- the parameter server ----------------------------------------------------------------------------------------

    @do.register
    def _(self, step: Load) -> Loaded | None:
        return self.ps.move(step.server)

    @do.register
    def _(self, _: GiveUp) -> None:
        self.ps.give_up()

    @do.register
    def _(self, _: Save) -> list[int] | None:
        return self.ps.save()

    @do.register
    def _(self, _: SaveSometimes) -> bool:
        return self.ps.save_sometimes()

    @do.register
    def _(self, step: Fetch) -> bool:
        return self.ps.fetch(step.version)

    @do.register
    def _(self, step: KeepParameters) -> None:
        self.watched.append((step.epoch, self.ps.state))

    @do.register
    def _(self, step: Apply) -> tuple[int, list[int]] | None:
        brought = [call.brought for call in step.calls]
        answer = self.ps.apply(step.version, brought, host.monotonic() + SLOW_S)
        return None if answer is None else (answer["version"], answer["progress"])

    @do.register
    def _(self, step: Updated) -> None:
        """The loss is written to the job's log at most once per second."""
        now, progress = host.monotonic(), tuple(self.teams.progress)
        for chunks in step.chunks:
            self.replies.updated(chunks)
        for number in step.teams:
            self.first_s.setdefault(number, max(now - step.first_ago_s - self.put_at.get(number, now), 0.0))
        usual_s = self.clock.usual_s * self.program.local_steps
        note = ProgressNote(self.job, "", progress, usual_s=usual_s, updates=len(step.chunks))
        if now - self.said_at >= 1:
            self.said_at = now
            self.losses.append((step.version, step.loss))
            n_all = self.program.steps * self.program.chunks
            line = f"update {step.version}: {sum(progress)} of {n_all} mini-batches, loss {step.loss:.4g}"
            note = replace(note, line=line, loss=self.losses[-1])
        self.note(note)

    # -- rounds by calls ---------------------------------------------------------------------------------------------

    @do.register
    def _(self, _: Disconnect) -> None:
        self.workers.keep(())

    @do.register
    def _(self, step: Ask) -> MinibatchCall:
        agent, count = self.processes.agents[step.team.server], self.program.local_minibatches(step.step)
        limits = self.replies.limits(step.chunk, count)
        arguments = self.job_name, self.ps.sent, step.chunk, step.step, self.ps.state, limits
        ack, brought = host.call(agent, "gradient", *arguments, returns=2)
        return MinibatchCall(step.number, step.team.server, step.chunk, step.step, step.version, ack, brought)

    @do.register
    def _(self, step: Collect) -> Any:
        call = step.call
        answer = self.replies.of(call.ack, call.server, step.deadline, call.chunk)
        self.free_at[call.team] = host.monotonic()
        return _told(call, answer)

    @do.register
    def _(self, step: Comes) -> bool:
        return step.call.comes()

    @do.register
    def _(self, step: EndLate) -> None:
        for call in step.calls:
            with suppress(host.CallError):  # it then ends by itself
                host.call(self.processes.agents[call.server], "end", self.job_name, (call.key,))

    @do.register
    def _(self, _: LookForGone) -> bool:
        return self.replies.gone

    # -- windows -----------------------------------------------------------------------------------------------------

    @do.register
    def _(self, step: Connect) -> bool:
        return not self.replies.blame.suspects and all(map(self.workers.reaches, step.servers))

    @do.register
    def _(self, step: StartWindow) -> RoundWindow:
        rounds, pace = self.workers.connected_rounds(step), self.clock.pace
        longest_round = self.program.local_steps
        _, first_s, further_s = self.replies.limits(rounds[0][0].chunk, longest_round)
        due_s = self.clock.due + pace * max(minibatch.length for minibatch in rounds[0]) - step.started
        number, patience_s = self.ps.windows + 1, self.clock.patience_of(longest_round)
        window = RoundWindow(number, self.training.version, rounds, pace, due_s, (first_s, further_s), patience_s)
        self.workers.ask(window)
        self._window_call = self.ps.train(window)
        return window

    @do.register
    def _(self, step: AwaitWindow) -> Any:
        answer = self.replies.of(self._window_call, self.ps.server, step.deadline, step.about)
        if answer is None:
            return Missing.LATE if self.replies.timed_out else Missing.LOST
        self.ps.trained(answer)
        return answer

    @do.register
    def _(self, _: LookForLeft) -> bool:
        return self.workers.has_answer and not self.ps.revoked

    @do.register
    def _(self, step: Revoke) -> None:
        self.ps.revoke(kill=step.kill)

    @do.register
    def _(self, step: HearWorkers) -> list[tuple[MinibatchCall, Any]]:
        self.ps.window = 0
        self.free_at |= dict.fromkeys(step.teams, host.monotonic())
        return [(call, _told(call, answer)) for call, answer in self.workers.answers(step.late_chunks)]


def _next(steps: Steps[Any], outcome: Any) -> Instruction:
    """The next instruction, after what is told of the last one, or the error that it has raised."""
    return steps.throw(outcome) if isinstance(outcome, host.CallError) else steps.send(outcome)


def _told(call: MinibatchCall, answer: Any) -> Any:
    """The facts about a mini-batch, or why there are none."""
    if answer is None:
        return Missing.LATE if call.comes() else Missing.LOST
    return answer if "device" in answer else Missing.LOST


def _unheard(_: ProgressNote) -> None:
    """Ignores a note."""
