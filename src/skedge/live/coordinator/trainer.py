"""One job's training: the thread that decides what is trained next, and reports what has been.

A preempted worker leaves between two rounds: its mini-batch is finished and counted, and its data stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from skedge.core.errors import TrainingError
from skedge.live import host
from skedge.live.worker.job_processes import sent
from skedge.live.worker.program import Program

from .messages import ProgressNote
from .report import Report
from .teams import Team
from .training_actors import TrainingActors
from .windows import Windows

_PATIENCE_S = 0.5
"""Pause before a round is repeated after a process was lost [s]."""


class Trainer(Windows):
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
        super().__init__(job, name, program, pace, note or _unheard, servers, tell, processes, controllers)

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
            if self._in_windows(teams):
                self._train_window(teams)
            else:
                self.workers.keep(())
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
                    self.seen = self.changes
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
        losses = self.ps.losses()
        state = self.replies.of(self.ps.state, self.ps.server) if self.ps.fetch() else None
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
