"""The rounds of one job: what is trained next, and what is reported of it.

A preempted worker leaves between two rounds: its mini-batch is finished and counted, and its data stay where they are.
"""

from __future__ import annotations

from skedge.live import host

from .call_rounds import CallRounds
from .instructions import Begin, GiveUp, MeasureResult, Pause, Rest, SaveSometimes, Say, Steps, Tell
from .rounds_state import RoundsState
from .teams import Team
from .windows import Windows

_PATIENCE_S = 0.5
"""Pause before a round is begun again after a process was lost [s]."""


class Rounds:
    """Decides what a job trains, round by round; it does nothing itself (:mod:`.instructions`).

    Each step of it, from an instruction to the next one that waits, is one moment: nothing is directed meanwhile.
    """

    def __init__(self, training: RoundsState) -> None:
        self.training = training
        self.by_calls, self.windows = CallRounds(training), Windows(training)

    def run(self) -> Steps[None]:
        """Train round by round until the training is closed."""
        while True:
            try:
                if (teams := (yield from self.next_teams())) is None:
                    return
                yield from self._round(teams)
            except host.CallError as error:  # a call could not even be made, as there is no room for its arguments
                yield Say(f"a call cannot be made, and is tried again: {error}")
                yield Pause(_PATIENCE_S)

    def next_teams(self) -> Steps[dict[int, Team] | None]:
        """The teams of the next round; waits until there is something to do. None at the end."""
        training = self.training
        teams, clock = training.teams, training.clock
        while True:
            for number in teams.let_go():
                yield from self.by_calls.end_late(number)
                yield Tell("stopped", number)
            for kind, number in teams.hold_back():
                yield Tell(kind, number)
            if training.closed:
                return None
            rests = training.place is None
            if (teams.working and not rests) or (training.ps is not None and rests):
                clock.begin()
                training.seen = training.changes
                return dict(teams.working)
            # nothing to train: what the job is behind is not made up for after the pause
            clock.write_off()
            yield Rest()

    def _round(self, teams: dict[int, Team]) -> Steps[None]:
        """Give up the parameter server, or have it where it belongs, train and save."""
        training = self.training
        yield Begin()
        if training.place is None:
            yield GiveUp()
            training.ps = None
            return
        is_there = training.ps is not None and training.ps.server == training.place
        if not is_there and not (yield from training.load(training.place)):
            yield Pause(_PATIENCE_S)
            return
        if (yield from self.windows.apply(teams)):
            yield from self.windows.train(teams)
        else:
            yield from self.by_calls.train(teams)
        if not (yield from self.dismiss_finished()) and training.ps is not None and not (yield SaveSometimes()):
            yield from training.load()

    def dismiss_finished(self) -> Steps[bool]:
        """Report teams whose chunks are all trained, once a checkpoint holds that; returns whether there was one."""
        training = self.training
        teams = training.teams
        if training.ps is None or not (finished := teams.finished()):
            return False
        start = host.monotonic()
        # a chunk that was reported as trained is never trained again, so a checkpoint must hold it first
        saved = yield from training.save()
        training.clock.postpone(host.monotonic() - start)
        if not saved:
            return False
        for number, team in finished.items():
            # a team that was put meanwhile has the number, too, but other chunks: it is looked at in its turn
            if teams.dismiss(number, team):
                yield Tell("finished", number)
        if teams.all_trained() and not teams.finished():
            yield MeasureResult(training.version)
            training.ps = None
        return True
