"""Windows: rounds without a call for each, which the process of the parameter server trains with connected workers.

One worker on the parameter server's server is that process itself; the others are connected to it
(:mod:`skedge.live.worker.links`). Whatever is directed of the job revokes the window, so that it ends after its round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skedge.core.errors import TrainingError
from skedge.live import host
from skedge.live.worker.job_process import Ack
from skedge.live.worker.round_window import RoundWindow

from .instructions import (
    AwaitWindow,
    Connect,
    HearWorkers,
    KeepAnnouncedPace,
    LookForLeft,
    Missing,
    Pause,
    Revoke,
    StartWindow,
    Steps,
    TellRoundTime,
    Updated,
)
from .replies import PS, MinibatchCall
from .round_clock import SLOW_S
from .rounds_state import RoundsState
from .teams import Team

_WINDOW_S, _MOST = 0.5, 1000
"""How long a window is to be [s], and its most rounds."""

_DEVICE = "cpu"
"""What the process of the parameter server trains on."""

_LOOK_S = 0.2
"""Interval at which workers are looked after while a window is trained [s]."""

_PAUSE_S = 0.5
"""Pause after a window in which nothing was trained, although nothing was directed [s]."""


class Windows:
    """The rounds of one job in windows."""

    def __init__(self, training: RoundsState) -> None:
        self.training = training

    def apply(self, teams: Mapping[int, Team]) -> Steps[bool]:
        """Whether rounds of these teams are trained in windows.

        Not while processes of the job end or stall: the parameters would be lost with that of the parameter server.
        """
        training, colocated = self.training, self._colocated_team(teams)
        if training.late or not any(map(training.teams.next_chunks, teams.values())):
            return False
        other_servers = [team.server for number, team in teams.items() if number != colocated or team.width > 1]
        connected: bool = yield Connect(other_servers)
        return connected

    @property
    def _patience_s(self) -> float:
        """How long a round waits for a worker [s]."""
        return self.training.clock.patience_of(self.training.program.local_steps)

    def _colocated_team(self, teams: Mapping[int, Team]) -> int | None:
        """The team whose first worker is the parameter server's process; None if there is none."""
        ps = self.training.ps
        if ps is None or not ps.trains:
            return None
        return next((number for number, team in teams.items() if team.server == ps.server), None)

    def train(self, teams: Mapping[int, Team]) -> Steps[None]:
        """Have the parameter server's process train a window of rounds."""
        training, clock = self.training, self.training.clock
        if not training.is_undisturbed():
            return
        started, patience_s, usual_s = host.monotonic(), self._patience_s, clock.usual_s
        round_s = usual_s * training.program.local_steps
        n_rounds = min(max(int(_WINDOW_S / round_s), 1), _MOST) if clock.round_s else 1
        rounds = training.teams.ahead(teams, n_rounds, watch=training.program.watch)
        window: RoundWindow = yield StartWindow(rounds, teams, self._colocated_team(teams), started)
        due = started + window.length(len(window.rounds)) * usual_s + (patience_s if window.links else 0.0)
        answer = yield from self._answer(teams, window, due)
        took_s = host.monotonic() - started
        missing = yield from self._hear_workers(teams, window, answer)
        if answer is None:
            clock.fail(took_s)
            if not training.closed:
                yield from training.load()
            return
        n_trained: int = answer["rounds"]
        if n_trained:
            yield from self._trained(teams, window, answer)
        elif training.is_undisturbed():
            yield Pause(_PAUSE_S)
        length = window.length(n_trained)
        if missing:
            clock.fail(max(took_s - window.length(max(n_trained - 1, 0)) * usual_s, 0.0))
        elif length and (mean := clock.measure((host.monotonic() - started) / length, length)) is not None:
            yield TellRoundTime(mean)
        waits = sum(max(lengths) - min(lengths) for lengths in window.lengths[:n_trained])
        clock.late_s += waits * window.pace_s  # a worker with fewer mini-batches waits for the others
        yield KeepAnnouncedPace(length, window.pace_s)

    def _hear_workers(self, teams: Mapping[int, Team], window: RoundWindow, answer: Ack | None) -> Steps[list[int]]:
        """Hear how the workers' part of a window has ended; returns the chunks whose mini-batch has not come.

        Raises
        ------
        TrainingError
            If a worker has other code than the parameter server.
        """
        training = self.training
        missing = [] if answer is None else answer["missing"]
        late_chunks = {link: chunk for chunk, link in missing}
        if answer is None:
            late_chunks = {minibatch.link: minibatch.chunk for minibatch in window.rounds[0]}
        heard: list[tuple[MinibatchCall, Any]] = yield HearWorkers(list(teams), late_chunks)
        for call, facts in heard:
            if facts is Missing.LATE:
                training.late[call.chunk] = call
            elif not isinstance(facts, Missing):
                training.program.check_same_as(training.module, facts["module"])
                training.devices.add((call.server, facts["device"]))
        return [chunk for chunk, _ in missing]

    def _trained(self, teams: Mapping[int, Team], window: RoundWindow, answer: Ack) -> Steps[None]:
        """Note the rounds of a window."""
        training, n_trained = self.training, answer["rounds"]
        if window.own_chunk(0) is not None and training.ps is not None:
            training.devices.add((training.ps.server, _DEVICE))
        chunks = [[minibatch.chunk for minibatch in minibatches] for minibatches in window.rounds[:n_trained]]
        at_work = [number for number, team in teams.items() if training.is_at_work(number, team)]
        update = Updated(answer["version"], chunks, at_work, answer["loss"], answer["first_ago_s"])
        yield from training.updated(answer["progress"], update)

    def _answer(self, teams: Mapping[int, Team], window: RoundWindow, due: float) -> Steps[Ack | None]:
        """The answer to a window; None if its process is lost, or was late and is killed.

        Parameters
        ----------
        teams
            The teams that train it.
        window
            The window.
        due
            When it is due, by ``host.monotonic()`` [s].
        """
        deadline, last = due + self._patience_s, due + max(window.limits) + SLOW_S
        chunk, colocated = window.own_chunk(0), self._colocated_team(teams)
        about = PS if chunk is None else chunk
        while (answer := (yield AwaitWindow(about, min(deadline, host.monotonic() + _LOOK_S)))) is Missing.LATE:
            if (yield LookForLeft()):
                yield Revoke()  # the others need not wait for a worker that takes no part any more
            if host.monotonic() < deadline:
                continue
            # who is to leave has no time for a mini-batch that is late; who may stay waits for it
            leaves = colocated is not None and self._is_to_leave(colocated, teams[colocated])
            kill = leaves or host.monotonic() > last
            yield Revoke(kill=kill)
            if kill:
                return None
            deadline = host.monotonic() + self._patience_s
        if answer is Missing.LOST:
            return None
        self._check_answer(answer, window)
        return dict(answer)

    def _is_to_leave(self, number: int, team: Team) -> bool:
        training = self.training
        stays = training.is_at_work(number, team) and number not in training.teams.leaving
        return training.closed or not stays or training.ps is None or training.place != training.ps.server

    def _check_answer(self, answer: Ack, window: RoundWindow) -> None:
        """Check what the process says of a window: the job's code runs in it.

        Raises
        ------
        TrainingError
            If it is not what comes of the first of its mini-batches.
        """
        progress, missing = list(self.training.teams.progress), {*map(tuple, answer["missing"])}
        rounds: int = answer["rounds"]
        last = dict[int, int]()
        for minibatches in window.rounds[:rounds]:
            last = {minibatch.chunk: minibatch.length for minibatch in minibatches}
            for chunk, count in last.items():
                progress[chunk] += count
        lacks = {
            chunk: expected - told_steps
            for chunk, (expected, told_steps) in enumerate(zip(progress, answer["progress"], strict=False))
            if expected != told_steps
        }
        is_whole = len(progress) == len(answer["progress"]) and lacks.items() <= last.items()
        is_of_window = missing <= {
            (minibatch.chunk, minibatch.link) for minibatches in window.rounds for minibatch in minibatches
        }
        is_right = is_whole and is_of_window and lacks.keys() <= {chunk for chunk, _ in missing}
        if rounds > len(window.rounds) or answer["version"] != window.version + rounds or not is_right:
            raise TrainingError(
                f"its parameter server tells of {rounds} of {len(window.rounds)} rounds, version "
                f"{answer['version']} and progress {answer['progress'][:8]}; it had version {window.version}"
            )
