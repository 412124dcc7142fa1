"""Windows: the rounds of a job whose only worker is in the process of its parameter server.

That process trains a window of rounds by itself (:mod:`skedge.live.worker.round_window`); whatever is directed of the
job revokes it, so that it ends after its mini-batch.
"""

from __future__ import annotations

from typing import Any

from skedge.core.errors import TrainingError
from skedge.live import host
from skedge.live.worker.job_process import Ack
from skedge.live.worker.round_window import RoundWindow

from .report import Report
from .round_clock import SLOW_S
from .rounds import Rounds
from .teams import Team

_WINDOW_S, _MOST = 0.5, 1000
"""How long a window is to be [s], and its most rounds."""

_DEVICE = "cpu"
"""What windows are trained on."""

_PAUSE_S = 0.5
"""Pause after a window in which nothing was trained, although nothing was directed [s]."""


class Windows(Rounds):
    """The rounds of one job, by calls or in windows."""

    seen = 0
    """How often something had been directed when the round was begun."""

    def end_window(self) -> None:
        """Have the rounds that the parameter server's process trains by itself end."""
        self.ps.revoke()

    def _alone(self, teams: dict[int, Team]) -> int | None:
        """The team of the job's only worker, if the parameter server's process may train its chunks.

        Not while processes of the job end or stall: the parameters would be lost with them.
        """
        if len(teams) != 1 or self.late or self.replies.blame.suspects:
            return None
        ((number, team),) = teams.items()
        is_here = team.server == self.ps.server and self.processes.trains(team.server)
        return number if is_here and len(self.teams.next_chunks(team)) == 1 else None

    def _train_alone(self, number: int, team: Team) -> None:
        """Have the parameter server's process train a window of rounds."""
        started = host.monotonic()
        usual_s = self.replies.usual_s = self.clock.usual_s
        n_rounds = min(max(int(_WINDOW_S / usual_s), 1), _MOST) if self.clock.round_s else 1
        minibatches, pace = tuple(self.teams.ahead(team, n_rounds, watch=self.program.watch)), self.clock.pace
        _, *limits = self.replies.limits(minibatches[0][0])
        due_s = self.clock.due + pace - started
        window = RoundWindow(self.ps.windows + 1, self.ps.version, minibatches, pace, due_s, (limits[0], limits[1]))
        with self.change:
            if self.seen != self.changes:
                return
            call = self.ps.train(window)
        try:
            answer = self._window_answer(call, number, team, window, started + n_rounds * usual_s)
        finally:
            self.ps.window = 0
        self.free_at[number] = host.monotonic()
        if answer is None:
            self.clock.fail(host.monotonic() - started)
            if not self.closed.is_set():
                self.ps.load()
        elif not (rounds := answer["rounds"]):
            if self.seen == self.changes:
                self.closed.wait(_PAUSE_S)
        else:
            self._trained(number, team, window, answer)
            if (mean := self.clock.measure((host.monotonic() - started) / rounds, rounds)) is not None:
                self.tell(Report("measured", self.job, round_s=mean))
            self.clock.keep(rounds, pace)

    def _trained(self, number: int, team: Team, window: RoundWindow, answer: Ack) -> None:
        """Note the rounds of a window."""
        self.devices.add((team.server, _DEVICE))
        for chunk, _ in window.minibatches[: answer["rounds"]]:
            self.replies.updated((chunk,))
        teams = (number,) if self.teams.working.get(number) is team else ()
        self._updated(answer["progress"], teams, answer["loss"], answer["rounds"], answer["first_ago_s"])

    def _window_answer(self, call: Any, number: int, team: Team, window: RoundWindow, due: float) -> Ack | None:
        """The answer to a window; None if its process is lost, or was late and is killed.

        Parameters
        ----------
        call
            Reference to the answer.
        number, team
            The team that trains it.
        window
            The window.
        due
            When it is due, by ``host.monotonic()`` [s].
        """
        deadline, last = due + self.clock.patience_s, due + max(window.limits) + SLOW_S
        while (answer := self.replies.of(call, self.ps.server, deadline, window.minibatches[0][0])) is None:
            if not self.replies.timed_out:
                return None
            # who is to leave has no time for a mini-batch that is late; who may stay waits for it
            kill = host.monotonic() > last or (self.ps.revoked and self._is_to_leave(number, team))
            self.ps.revoke(kill=kill)
            if kill:
                return None
            deadline = host.monotonic() + self.clock.patience_s
        self._check_window(answer, window)
        self.ps.trained(answer)
        return dict(answer)

    def _is_to_leave(self, number: int, team: Team) -> bool:
        with self.change:
            stays = self.teams.working.get(number) is team and number not in self.teams.leaving
            return self.closed.is_set() or not stays or self._place() != self.ps.server

    def _check_window(self, answer: Ack, window: RoundWindow) -> None:
        """Check what the process says of a window: the job's code runs in it.

        Raises
        ------
        TrainingError
            If it is not what comes of the first of its mini-batches.
        """
        rounds, progress = answer["rounds"], list(self.teams.progress)
        for chunk, _ in window.minibatches[:rounds]:
            progress[chunk] += 1
        expected = window.version + rounds, progress
        if rounds > len(window.minibatches) or (answer["version"], answer["progress"]) != expected:
            raise TrainingError(
                f"its parameter server tells of {rounds} of {len(window.minibatches)} mini-batches, version "
                f"{answer['version']} and progress {answer['progress'][:8]}; it had version {window.version}"
            )
