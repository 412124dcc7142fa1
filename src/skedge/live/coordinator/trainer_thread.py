"""What the coordinator directs of a job's trainer: its teams, the place of its parameter server, and its pace."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skedge.live import host
from skedge.live.worker.job_process import Printed
from skedge.live.worker.program import Program

from .messages import Assignment, ProgressNote
from .replies import Replies
from .round_clock import RoundClock
from .teams import Team, Teams


class TrainerThread(host.Thread):
    """A trainer's thread as others direct it; all methods may be called from other threads.

    Parameters
    ----------
    job, name, program
        Number and name of the job, and what it trains.
    pace
        Least time of a round [s], which gives embedded servers the announced speed; 0 on real servers.
    note
        Called after each update, and with each line for the job's log.
    servers
        Names of the servers, for the log.

    Attributes
    ----------
    changes
        How often something was directed.
    site
        Server that the parameter server is assigned to; None if the job is paused.
    paused
        True while there is no controller for long: the trainer rests as if it had no parameter server.
    received
        Number of the last order by which each team was put to work.
    put_at, first_s
        By team: since when it holds its lanes, by ``host.monotonic()``, and the time from then to its first update [s].
    asked_at, free_at
        By team: when it was asked to leave, and when the answer to its last mini-batch was here, by
        ``host.monotonic()``.
    """

    def __init__(
        self,
        job: int,
        name: str,
        program: Program,
        pace: float,
        note: Callable[[ProgressNote], None],
        servers: Sequence[str],
    ) -> None:
        super().__init__(name=f"train {name}", daemon=True)
        self.job, self.job_name, self.program, self.note = job, name, program, note
        self.change, self.closed = host.Condition(), host.Event()
        self.teams, self.clock = Teams(program), RoundClock(pace)
        self.replies = Replies(servers, self.line, event=self.event, hear=self.hear)
        self.changes = 0
        self.site: int | None = None
        self.paused = False
        self.received: dict[int, int] = {}
        self.put_at: dict[int, float] = {}
        self.first_s: dict[int, float] = {}
        self.asked_at: dict[int, float] = {}
        self.free_at: dict[int, float] = {}

    def line(self, line: str) -> None:
        """Write a line to the job's log."""
        self.note(ProgressNote(self.job, line))

    def hear(self, printed: Printed) -> None:
        """Note what a process of the job has printed."""
        if printed:
            self.note(ProgressNote(self.job, "", printed=printed))

    def event(self, kind: str, sentence: str) -> None:
        """Report what has happened to a process of the job."""
        raise NotImplementedError

    def put(self, number: int, team: Team, lag_s: float = 0.0, order: int = 0) -> None:
        """Add a team, or replace it; it works from the next round on.

        Parameters
        ----------
        number, team
            The team, and its number within the job.
        lag_s
            For how long it has held its lanes already [s].
        order
            Number of the order, from 1: one that was received before, or is older, is ignored. 0: it has no number, and
            is always carried out.
        """
        with self.change:
            if 0 < order <= self.received.get(number, 0):
                return
            self.teams.put(number, team)
            self.clock.join(lag_s)
            for times in (self.first_s, self.asked_at, self.free_at):
                times.pop(number, None)
            self.received[number], self.put_at[number] = order, host.monotonic() - lag_s
            self._changed()

    def follow(self, assignment: Assignment, lag_s: Callable[[int], float]) -> None:
        """Do what an assignment says, and go on with what of it is done already.

        Parameters
        ----------
        assignment
            The assignment.
        lag_s
            Returns how long ago a time of the run's clock [µs] was [s]: teams of orders that were not received, or were
            lost with the coordinator, hold their lanes since then.
        """
        with self.change:
            if not self.received:
                self.teams.progress = list(assignment.teams.progress)
                self.teams.reported = set(assignment.teams.reported)
            for number, order in assignment.puts.items():
                if order <= self.received.get(number, 0):
                    continue
                if number in assignment.teams.held:
                    self.teams.held[number], self.received[number] = assignment.teams.held[number], order
                elif number in assignment.teams.working:
                    self.put(number, assignment.teams.working[number], lag_s(assignment.since[number]), order)
            for number in assignment.teams.leaving & assignment.teams.working.keys():
                self.take(number)
            self.replies.out = set(assignment.out)
            self.site = assignment.site
            self.clock.pace, self.clock.announced_s = assignment.pace, assignment.announced_s
            self.replies.blame.watch = assignment.watch
            self._changed()

    def keep_pace(self, pace: float) -> None:
        """Set the least time of a round [s]."""
        self.clock.pace = pace

    def pause(self, *, paused: bool) -> None:
        """Save a checkpoint and rest, or continue."""
        with self.change:
            self.paused = paused
            self._changed()

    def take(self, number: int) -> None:
        """Let a team leave after its mini-batch; ``stopped`` is reported then."""
        with self.change:
            self.teams.leaving.add(number)
            self.asked_at.setdefault(number, host.monotonic())
            self._changed()

    def serve_from(self, server: int) -> None:
        """Assign the job's parameter server to this server; it does not move if it is there already."""
        with self.change:
            self.site = server
            self._changed()

    def lose(self, server: int) -> None:
        """A server is out of service: stop waiting for its answers, and give up a parameter server there."""
        with self.change:
            self.replies.out = self.replies.out | {server}
            if self.site == server:
                self.site = None
            self._changed()

    def regain(self, server: int) -> None:
        """Note that a server is back in service."""
        self.replies.out = self.replies.out - {server}

    def rest(self) -> None:
        """Give up the parameter server of a paused job: its slot has been returned."""
        with self.change:
            self.site = None
            self._changed()

    def close(self) -> None:
        """End the thread after its round."""
        with self.change:
            self.closed.set()
            self._changed()

    def _changed(self) -> None:
        """Wake the thread, which looks anew at what it is to do: a window ends after its mini-batch."""
        self.changes += 1
        self.change.notify()
        self.end_window()

    def end_window(self) -> None:
        """Have the rounds that the parameter server's process trains by itself end."""

    def _place(self) -> int | None:
        """The server on which the parameter server is to be now."""
        return None if self.paused else self.site
