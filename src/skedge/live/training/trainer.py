"""One job's training: the coordinating side of synchronous SGD.

One thread per job drives rounds. In a round every worker of the job computes one mini-batch at the current version. The
gradients that have arrived by the deadline go to the parameter server together. A preempted worker leaves between two
rounds: its mini-batch is finished and counted, and its data stay where they are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from skedge.core.errors import TrainingError
from skedge.core.time import SECOND
from skedge.live.world.inputs import Report

from .answers import Answers
from .apart import sent
from .assignment import Assignment, Note
from .processes import Processes
from .program import Program
from .ps_process import PSProcess
from .round_clock import RoundClock
from .team import Team, Teams

_PATIENCE_S = 0.5
"""Pause before a round is repeated after a process was lost [s]."""


class Trainer(threading.Thread):
    """Trains one job; all methods may be called from other threads.

    Parameters
    ----------
    processes
        Lends the process of the parameter server, and measures the result.
    pace
        Least time of a round [s], which gives embedded servers the announced speed; 0 on real servers.
    note
        Called after each update, and with each line for the job's log.
    servers
        Names of the servers, for the log.
    controllers
        Returns the number of controllers that the run had before this one.

    Attributes
    ----------
    site
        Server that the parameter server is assigned to; None if the job is paused.
    paused
        True while there is no controller for long: the trainer rests as if it had no parameter server.
    received
        Number of the last order by which each team was put to work.
    put_at, first_s
        By team: since when it holds its lanes, by ``time.monotonic()``, and the time from then to its first update [s].
    watched
        (epoch, reference to the parameters) after each epoch, if the program asks for it.
    devices
        (server, device) of the workers so far.
    asked_at, free_at
        By team: when it was asked to leave, and when the answer to its last mini-batch was here, by
        ``time.monotonic()``.
    """

    def __init__(
        self,
        job: int,
        name: str,
        program: Program,
        tell: Callable[[Report], None],
        processes: Processes,
        pace: float = 0.0,
        *,
        note: Callable[[Note], None] | None = None,
        servers: Sequence[str],
        controllers: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(name=f"train {name}", daemon=True)
        self.job, self.job_name, self.program, self.tell, self.processes = job, name, program, tell, processes
        self.note = note or _unheard
        self.change, self.closed = threading.Condition(), threading.Event()
        self.teams, self.clock = Teams(program), RoundClock(pace)
        self.answers = Answers(servers, self.line)
        self.ps = PSProcess(name, processes, self.answers, controllers, self._go_back, self.closed)
        self.site: int | None = None
        self.paused = False
        self.received: dict[int, int] = {}
        self.put_at: dict[int, float] = {}
        self.first_s: dict[int, float] = {}
        self.watched: list[tuple[int, Any]] = []
        self.devices: set[tuple[int, str]] = set()
        self.asked_at: dict[int, float] = {}
        self.free_at: dict[int, float] = {}
        self.said_at, self.losses = 0.0, list[tuple[float, float]]()

    # -- orders of the controller, by the coach ------------------------------------------------------------------

    def put(self, number: int, team: Team, lag_s: float = 0.0, order: int = 0) -> None:
        """Add a team, or replace it; it works from the next round on, and holds its lanes since `lag_s` ago."""
        with self.change:
            if 0 < order <= self.received.get(number, 0):
                return
            self.teams.put(number, team)
            self.clock.join(lag_s)
            for times in (self.first_s, self.asked_at, self.free_at):
                times.pop(number, None)
            self.received[number], self.put_at[number] = order, time.monotonic() - lag_s
            self.change.notify()

    def follow(self, given: Assignment, now: int, silent_s: float | None = None) -> None:
        """Do what an assignment says, and go on with what of it is done already.

        Parameters
        ----------
        now
            The run's clock [µs]: teams of orders that were not received hold their lanes since an earlier time.
        silent_s
            If the teams were lost with the coach: their delay [s].
        """
        with self.change:
            if not self.received:
                self.teams.progress, self.teams.reported = list(given.teams.progress), set(given.teams.reported)
            for number, order in given.puts.items():
                if order <= self.received.get(number, 0):
                    continue
                if number in given.teams.held:
                    self.teams.held[number], self.received[number] = given.teams.held[number], order
                elif number in given.teams.working:
                    lag_s = (now - given.since[number]) / SECOND if silent_s is None else silent_s
                    self.put(number, given.teams.working[number], lag_s, order)
            for number in given.teams.leaving & given.teams.working.keys():
                self.take(number)
            self.answers.out = set(given.out)
            self.site, self.clock.pace = given.site, given.pace
            self.change.notify()

    def keep_pace(self, pace: float) -> None:
        """Set the least time of a round [s]."""
        self.clock.pace = pace

    def pause(self, *, paused: bool) -> None:
        """Save a checkpoint and rest, or continue."""
        with self.change:
            self.paused = paused
            self.change.notify()

    def take(self, number: int) -> None:
        """Let a team leave after its mini-batch; ``stopped`` is reported then."""
        with self.change:
            self.teams.leaving.add(number)
            self.asked_at.setdefault(number, time.monotonic())
            self.change.notify()

    def serve_from(self, server: int) -> None:
        """Assign the job's parameter server to this server; it does not move if it is there already."""
        with self.change:
            self.site = server
            self.change.notify()

    def lose(self, server: int) -> None:
        """A server is out of service: stop waiting for its answers, and give up a parameter server there."""
        with self.change:
            self.answers.out = self.answers.out | {server}
            if self.site == server:
                self.site = None
            self.change.notify()

    def regain(self, server: int) -> None:
        """Note that a server is back in service."""
        self.answers.out = self.answers.out - {server}

    def rest(self) -> None:
        """Give up the parameter server of a paused job: its slot has been returned."""
        with self.change:
            self.site = None
            self.change.notify()

    def close(self) -> None:
        """End the thread after its round."""
        with self.change:
            self.closed.set()
            self.change.notify()

    # -- the rounds ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Train round by round until the job is trained, fails, or is closed."""
        try:
            self.ps.sent = _shared(sent(self.program))
            while (teams := self._next_teams()) is not None:
                if (site := self._place()) is None:
                    self.ps.give_up()
                elif self.ps.move(site):
                    self._round(teams)
                    if not self._dismiss_finished():
                        self.ps.save_sometimes()
        except TrainingError as error:
            self._fail(str(error))
        except Exception as error:  # any error: a thread that ends silently would leave the job hanging
            self._fail(f"its training has ended: {type(error).__name__}: {error}")
        finally:
            self.ps.release()

    def _fail(self, reason: str) -> None:
        self.tell(Report("failed", self.job, progress=tuple(self.teams.progress), reason=reason))

    def _next_teams(self) -> dict[int, Team] | None:
        """The teams of the next round; waits until there is something to do. None at the end."""
        with self.change:
            while True:
                for number in self.teams.let_go():
                    self.tell(self._fact("stopped", number))
                for what, number in self.teams.hold_back():
                    self.tell(self._fact(what, number))
                if self.closed.is_set():
                    return None
                rests = self._place() is None
                if (self.teams.working and not rests) or (self.ps.server is not None and rests):
                    self.clock.begin()
                    return dict(self.teams.working)
                # nothing to train: what the job is behind is not made up for after the pause
                self.clock.write_off()
                self.change.wait()

    def _place(self) -> int | None:
        """The server on which the parameter server is to be now."""
        return None if self.paused else self.site

    def line(self, line: str) -> None:
        """Write a line to the job's log."""
        self.note(Note(self.job, line))

    def _fact(self, what: str, team: int) -> Report:
        late, lost = self.clock.report()
        progress, devices = tuple(self.teams.progress), tuple(sorted(self.devices))
        fact = Report(
            what,
            self.job,
            team,
            progress,
            late_s=late,
            recovery_s=lost,
            module=self.ps.module,
            devices=devices,
            first_s=self.first_s.get(team),
        )
        return replace(fact, freed_s=self._freed_s(team)) if what == "stopped" else fact

    def _freed_s(self, team: int) -> float | None:
        """Time from the order to suspend a team until its workers had ended their mini-batches [s].

        0 if none was under way, None if the team has computed nothing at all.
        """
        asked = self.asked_at.pop(team, None)
        return max(self.free_at[team] - asked, 0.0) if asked is not None and team in self.free_at else None

    def _go_back(self, progress: list[int]) -> None:
        """Continue from a checkpoint's progress; mini-batches that are not in it are trained again.

        Raises
        ------
        TrainingError
            If one of them belongs to a chunk that was reported as trained: no worker would train it again.
        """
        for chunk in sorted(self.teams.reported):
            if progress[chunk] < self.program.steps:
                raise TrainingError(
                    f"its trained parameters are lost: the checkpoint that can be read holds {progress[chunk]} of "
                    f"{self.program.steps} mini-batches of chunk {chunk}, which was reported as trained"
                )
        again = max(before - now for before, now in zip(self.teams.progress, progress, strict=True))
        if again > 0:
            self.line(f"goes back by {again} mini-batches a chunk: that is what its newest whole checkpoint lacks")
            self.clock.late_s += again * max(self.clock.round_s, self.clock.pace)
        self.teams.progress = progress

    def _round(self, teams: dict[int, Team]) -> None:
        started = time.monotonic()
        asked = self._ask(teams)
        deadline = started + self.clock.patience_s
        answers = [(self._answer(teams[team].server, team, ack, deadline), brought) for team, ack, brought in asked]
        ready = [brought for answer, brought in answers if answer is not None]
        for answer, _ in answers:
            # before the update: gradients of other code must not get into the parameters
            self.program.check_same_as(self.ps.module, self.ps.module if answer is None else answer["module"])
        whole = True
        if ready:
            progress = self.ps.apply(ready, time.monotonic() + self.clock.patience_s)
            if progress is None:
                self.ps.load()
                whole = False
            else:
                self._updated(progress, teams, [answer["loss"] for answer, _ in answers if answer is not None])
        elif asked:
            time.sleep(_PATIENCE_S)
        took = time.monotonic() - started
        if not whole or len(ready) < len(asked):
            # a round that lost a worker says nothing about how long rounds take
            self.clock.fail(took)
        elif (mean := self.clock.measure(took)) is not None:
            self.tell(Report("measured", self.job, round_s=mean))
        self.clock.keep()

    def _ask(self, teams: dict[int, Team]) -> list[tuple[int, Any, Any]]:
        """Have every worker compute a mini-batch; (team, reference to facts, reference to gradients) of each."""
        asked = []
        for number, team in teams.items():
            for chunk in self.teams.next_chunks(team):
                call = self.processes.agents[team.server].gradient.options(num_returns=2)
                step = self.teams.progress[chunk]
                ack, brought = call.remote(self.job_name, self.ps.sent, chunk, step, self.ps.state)
                asked.append((number, ack, brought))
        return asked

    def _answer(self, server: int, number: int, ack: Any, deadline: float) -> Any:
        """The facts about a mini-batch of a team on a server; None if its process is lost or late."""
        answer = self.answers.of(ack, server, deadline)
        self.free_at[number] = time.monotonic()
        if answer is not None:
            self.devices.add((server, answer["device"]))
        return answer

    def _updated(self, progress: list[int], teams: dict[int, Team], losses: list[float]) -> None:
        """Note an update of the parameters."""
        self.teams.progress = progress
        self.answers.deaths = 0
        now = time.monotonic()
        for number in teams:
            self.first_s.setdefault(number, now - self.put_at.get(number, now))
        self._watch()
        self._say(losses, now)

    def _say(self, losses: list[float], now: float) -> None:
        """Note the progress, and at most once per second write the loss to the job's log."""
        progress = tuple(self.teams.progress)
        if now - self.said_at < 1:
            self.note(Note(self.job, "", progress))
            return
        self.said_at = now
        done, steps = sum(progress), self.program.steps * self.program.chunks
        self.losses.append((self.ps.version, sum(losses) / len(losses)))
        line = f"update {self.ps.version}: {done} of {steps} mini-batches, loss {self.losses[-1][1]:.4g}"
        self.note(Note(self.job, line, progress, self.losses[-1]))

    def _watch(self) -> None:
        """Keep the parameters after each epoch's worth of mini-batches; they are measured at the end of training."""
        epoch = self.teams.epochs()
        if self.program.watch and epoch > (self.watched[-1][0] if self.watched else 0):
            self.watched.append((epoch, self.ps.state))

    def _dismiss_finished(self) -> bool:
        """Report teams whose chunks are all trained, once a checkpoint holds that; returns whether there was one."""
        with self.change:
            done = self.teams.finished()
        if not done:
            return False
        began = time.monotonic()
        # a chunk that was reported as trained is never trained again, so a checkpoint must hold it first
        saved = self.ps.save_or_load()
        self.clock.postpone(time.monotonic() - began)
        if not saved:
            return False
        with self.change:
            for number in done:
                self.teams.dismiss(number)
        for number in done:
            self.tell(self._fact("finished", number))
        if self.teams.all_trained():
            self._tell_result()
        return True

    def _tell_result(self) -> None:
        """Have the result measured on the controller's node, as the parameter server's slot is for the next job."""
        losses, state = self.ps.losses(), self.answers.of(self.ps.state, self.ps.server)
        kept = [(epoch, found) for epoch, ref in self.watched if (found := self.answers.of(ref, None)) is not None]
        self.ps.give_up()
        if state is None or losses is None:
            self.tell(Report("unmeasured", self.job))
            return
        result = self.processes.maker.outcome(self.program, losses, state, kept)
        if "unmeasured" in result:
            self.line(result["unmeasured"])
        self.tell(Report("result", self.job, result=result))


def _unheard(_: Note) -> None:
    """Ignores a note."""


def _shared(content: bytes) -> Any:
    """A reference to `content` in Ray's object store, so that it is not sent with each call."""
    import ray  # noqa: PLC0415 - Ray is an extra

    return ray.put(content)
