"""Windows: rounds without a call for each, which the process of the parameter server trains with connected workers.

One worker on the parameter server's server is that process itself; the others are connected to it
(:mod:`skedge.live.worker.links`). Whatever is directed of the job revokes the window, so that it ends after its round.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from skedge.core.errors import TrainingError
from skedge.live import host
from skedge.live.worker.job_process import Ack
from skedge.live.worker.round_window import RoundMinibatch, RoundWindow

from .replies import PS
from .report import Report
from .round_clock import SLOW_S
from .rounds import Rounds
from .teams import Team
from .window_workers import WindowWorkers

_WINDOW_S, _MOST = 0.5, 1000
"""How long a window is to be [s], and its most rounds."""

_DEVICE = "cpu"
"""What the process of the parameter server trains on."""

_LOOK_S = 0.2
"""Interval at which workers are looked after while a window is trained [s]."""

_PAUSE_S = 0.5
"""Pause after a window in which nothing was trained, although nothing was directed [s]."""


class Windows(Rounds):
    """The rounds of one job, by calls or in windows."""

    seen = 0
    """How often something had been directed when the round was begun."""

    @cached_property
    def workers(self) -> WindowWorkers:
        """The connected workers."""
        return WindowWorkers(self.job_name, self.processes, self.ps, self.replies)

    def end_window(self) -> None:
        """Have the rounds that the parameter server's process trains by itself end."""
        self.ps.revoke()

    def _in_windows(self, teams: Mapping[int, Team]) -> bool:
        """Whether rounds are trained in windows.

        Not while processes of the job end or stall: the parameters would be lost with that of the parameter server.
        """
        if self.late or self.replies.blame.suspects or not any(map(self.teams.next_chunks, teams.values())):
            return False
        colocated = self._colocated_team(teams)
        return all(
            (number == colocated and team.width == 1) or self.workers.reaches(team.server)
            for number, team in teams.items()
        )

    def _colocated_team(self, teams: Mapping[int, Team]) -> int | None:
        """The team whose first worker is the parameter server's process; None if there is none."""
        numbers = [number for number, team in teams.items() if team.server == self.ps.server]
        return numbers[0] if numbers and self.processes.trains(teams[numbers[0]].server) else None

    def _train_window(self, teams: Mapping[int, Team]) -> None:
        """Have the parameter server's process train a window of rounds."""
        started, patience_s = host.monotonic(), self.clock.patience_s
        usual_s = self.replies.usual_s = self.clock.usual_s
        window = self._window(teams, started)
        with self.change:
            if self.seen != self.changes:
                return
            self.workers.ask(window)
            call = self.ps.train(window)
        try:
            due = started + len(window.rounds) * usual_s + (patience_s if window.links else 0.0)
            answer = self._window_answer(call, teams, window, due)
        finally:
            self.ps.window = 0
        took_s = host.monotonic() - started
        self.free_at |= dict.fromkeys(teams, started + took_s)
        missing = self._hear_workers(window, answer)
        if answer is None:
            self.clock.fail(took_s)
            if not self.closed.is_set():
                self.ps.load()
            return
        rounds: int = answer["rounds"]
        if rounds:
            self._trained(teams, window, answer)
        elif self.seen == self.changes:
            self.closed.wait(_PAUSE_S)
        if missing:
            self.clock.fail(max(took_s - max(rounds - 1, 0) * usual_s, 0.0))
        elif rounds and (mean := self.clock.measure((host.monotonic() - started) / rounds, rounds)) is not None:
            self.tell(Report("measured", self.job, round_s=mean))
        self.clock.keep(rounds, window.pace_s)

    def _window(self, teams: Mapping[int, Team], started: float) -> RoundWindow:
        """The next window, which begins at this time of ``host.monotonic()`` [s]."""
        n_rounds = min(max(int(_WINDOW_S / self.clock.usual_s), 1), _MOST) if self.clock.round_s else 1
        colocated, pace = (self._colocated_team(teams), 0), self.clock.pace
        rounds = tuple(
            tuple(
                RoundMinibatch(
                    planned.chunk,
                    planned.step,
                    0
                    if (planned.team, planned.worker) == colocated
                    else self.workers.link(planned.team, planned.worker, teams[planned.team].server),
                )
                for planned in minibatches
            )
            for minibatches in self.teams.ahead(teams, n_rounds, watch=self.program.watch)
        )
        _, *limits = self.replies.limits(rounds[0][0].chunk)
        due_s = self.clock.due + pace - started
        number, patience_s = self.ps.windows + 1, self.clock.patience_s
        return RoundWindow(number, self.ps.version, rounds, pace, due_s, (limits[0], limits[1]), patience_s)

    def _hear_workers(self, window: RoundWindow, answer: Ack | None) -> list[int]:
        """Hear how the workers' part of a window has ended; returns the chunks whose mini-batch has not come.

        Raises
        ------
        TrainingError
            If a worker has other code than the parameter server, or the job's own code has failed in it.
        """
        missing = [] if answer is None else answer["missing"]
        late_chunks = {link: chunk for chunk, link in missing}
        if answer is None:
            late_chunks = {minibatch.link: minibatch.chunk for minibatch in window.rounds[0]}
        for call, facts in self.workers.answers(late_chunks):
            if facts is None and call.comes():
                self.late[call.chunk] = call
            elif facts is not None and "device" in facts:
                self.program.check_same_as(self.ps.module, facts["module"])
                self.devices.add((call.server, facts["device"]))
        return [chunk for chunk, _ in missing]

    def _trained(self, teams: Mapping[int, Team], window: RoundWindow, answer: Ack) -> None:
        """Note the rounds of a window."""
        if window.own_chunk(0) is not None and self.ps.server is not None:
            self.devices.add((self.ps.server, _DEVICE))
        for minibatches in window.rounds[: answer["rounds"]]:
            self.replies.updated([minibatch.chunk for minibatch in minibatches])
        at_work = [number for number, team in teams.items() if self.teams.working.get(number) is team]
        self._updated(answer["progress"], at_work, answer["loss"], answer["rounds"], answer["first_ago_s"])

    def _window_answer(self, call: Any, teams: Mapping[int, Team], window: RoundWindow, due: float) -> Ack | None:
        """The answer to a window; None if its process is lost, or was late and is killed.

        Parameters
        ----------
        call
            Reference to the answer.
        teams
            The teams that train it.
        window
            The window.
        due
            When it is due, by ``host.monotonic()`` [s].
        """
        deadline, last = due + self.clock.patience_s, due + max(window.limits) + SLOW_S
        chunk, colocated = window.own_chunk(0), self._colocated_team(teams)
        about = PS if chunk is None else chunk
        while (
            answer := self.replies.of(call, self.ps.server, min(deadline, host.monotonic() + _LOOK_S), about)
        ) is None:
            if not self.replies.timed_out:
                return None
            if self.workers.has_answer and not self.ps.revoked:
                self.ps.revoke()  # the others need not wait for a worker that takes no part any more
            if host.monotonic() < deadline:
                continue
            # who is to leave has no time for a mini-batch that is late; who may stay waits for it
            leaves = colocated is not None and self.ps.revoked and self._is_to_leave(colocated, teams[colocated])
            kill = leaves or host.monotonic() > last
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
        rounds, progress, missing = answer["rounds"], list(self.teams.progress), {*map(tuple, answer["missing"])}
        for minibatches in window.rounds[:rounds]:
            for minibatch in minibatches:
                progress[minibatch.chunk] += 1
        lacks = {
            chunk: expected - told
            for chunk, (expected, told) in enumerate(zip(progress, answer["progress"], strict=False))
            if expected != told
        }
        is_whole = len(progress) == len(answer["progress"]) and {*lacks.values()} <= {1}
        is_of_window = missing <= {
            (minibatch.chunk, minibatch.link) for minibatches in window.rounds for minibatch in minibatches
        }
        is_right = is_whole and is_of_window and lacks.keys() <= {chunk for chunk, _ in missing}
        if rounds > len(window.rounds) or answer["version"] != window.version + rounds or not is_right:
            raise TrainingError(
                f"its parameter server tells of {rounds} of {len(window.rounds)} rounds, version "
                f"{answer['version']} and progress {answer['progress'][:8]}; it had version {window.version}"
            )
