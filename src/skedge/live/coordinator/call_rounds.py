"""Rounds by calls: the coordinating side of synchronous SGD, where workers and parameter server are not connected.

In a round every worker of the job computes one mini-batch at the current version, and the gradients that have arrived
by the deadline go to the parameter server together.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from skedge.live import host

from .instructions import (
    Apply,
    Ask,
    Collect,
    Comes,
    Disconnect,
    EndLate,
    Fetch,
    KeepAnnouncedPace,
    LookForGone,
    Missing,
    Pause,
    Steps,
    TellRoundTime,
    Updated,
)
from .replies import MinibatchCall
from .rounds_state import RoundsState
from .teams import Team

_PATIENCE_S = 0.5
"""Pause after a round in which no gradient has come [s]."""


class CallRounds:
    """The rounds of one job by calls."""

    def __init__(self, training: RoundsState) -> None:
        self.training = training

    def train(self, teams: Mapping[int, Team]) -> Steps[None]:
        """Have every worker compute a mini-batch, and the parameters updated by those that come in time."""
        training, clock = self.training, self.training.clock
        started = host.monotonic()
        yield Disconnect()
        if not (yield Fetch(training.version)):
            yield from training.load()
            return
        calls = yield from self._ask(teams)
        lengths = [training.program.local_minibatches(call.step) for call in calls] or [1]
        n_each = max(lengths)
        deadline = started + clock.patience_of(n_each)
        answers = dict[int, Any]()
        for call in calls:
            if (answer := (yield from self._collect(call, deadline))) is not None:
                answers[call.chunk] = answer
        for answer in answers.values():
            # before the update: gradients of other code must not get into the parameters
            training.program.check_same_as(training.module, answer["module"])
        complete = True
        if answers:
            complete = yield from self._apply([call for call in calls if call.chunk in answers], teams, answers)
        elif calls or training.late:
            yield Pause(_PATIENCE_S)
            if (yield LookForGone()):
                yield from training.load()  # the parameters themselves: only their server can give them again
        took_s = host.monotonic() - started
        if not complete or len(answers) < len(calls):
            clock.fail(took_s)  # it says nothing about how long rounds take
        elif training.late:
            clock.recovery_s += took_s
        elif (mean := clock.measure(took_s / n_each, n_each)) is not None:
            yield TellRoundTime(mean)
        clock.late_s += (n_each - min(lengths)) * clock.pace  # a worker with fewer mini-batches waits for the others
        yield KeepAnnouncedPace(n_each)

    def end_late(self, team: int) -> Steps[None]:
        """End the late mini-batches of a team that leaves: its lanes are for others."""
        late = self.training.late
        if calls := [call for call in late.values() if call.team == team]:
            yield EndLate(calls)
        for call in calls:
            del late[call.chunk]

    def _apply(self, calls: list[MinibatchCall], teams: Mapping[int, Team], answers: Mapping[int, Any]) -> Steps[bool]:
        """Update the parameters with what calls have brought; returns success."""
        training = self.training
        applied: tuple[int, list[int]] | None = yield Apply(training.version, calls)
        if applied is None:
            yield from training.load()
            return False
        version, progress = applied
        loss = statistics.fmean(answer["loss"] for answer in answers.values())
        yield from training.updated(progress, Updated(version, [list(answers)], list(teams), loss))
        return True

    def _ask(self, teams: Mapping[int, Team]) -> Steps[list[MinibatchCall]]:
        """Have every worker compute a mini-batch; those that were late are waited for instead."""
        training, calls = self.training, list[MinibatchCall]()
        for number, team in teams.items():
            for chunk in training.teams.next_chunks(team):
                overdue, step = training.late.get(chunk), training.teams.progress[chunk]
                if overdue is not None and overdue.server == team.server:
                    if (overdue.version, overdue.step) == (training.version, step):
                        calls.append(overdue)
                        continue
                    if (yield Comes(overdue)):
                        continue
                    # of parameters that have changed: only whether it has stalled is of interest
                    yield from self._collect(overdue, 0.0)
                call: MinibatchCall = yield Ask(number, team, chunk, step, training.version)
                calls.append(call)
        return calls

    def _collect(self, call: MinibatchCall, deadline: float) -> Steps[Any]:
        """The facts about a mini-batch of a team on a server; None if its process is lost or late."""
        training, answer = self.training, (yield Collect(call, deadline))
        training.late.pop(call.chunk, None)
        if answer is Missing.LATE:
            training.late[call.chunk] = call
        if isinstance(answer, Missing):
            return None
        training.devices.add((call.server, answer["device"]))
        return answer
