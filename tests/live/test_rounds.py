"""The rounds of a small job in every case: each instruction ends in each way it can, and each order comes at each time.

Rounds call nothing and wait for nothing, so a case is a list of choices: what an instruction is told, and what is
directed before the next one. All cases with at most two choices that are not the usual ones are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from skedge.live import host
from skedge.live.coordinator import instructions as do
from skedge.live.coordinator.call_rounds import CallRounds
from skedge.live.coordinator.instructions import Loaded, Missing
from skedge.live.coordinator.replies import MinibatchCall
from skedge.live.coordinator.round_clock import RoundClock
from skedge.live.coordinator.rounds import Rounds
from skedge.live.coordinator.rounds_state import RoundsState
from skedge.live.coordinator.teams import Team, Teams
from skedge.live.coordinator.windows import Windows
from skedge.live.worker.minibatch_ledger import MinibatchLedger
from skedge.live.worker.program import Program
from skedge.live.worker.round_window import RoundMinibatch, RoundWindow

PROGRAM = Program("m:f", {}, 2, 1, 2)
"""Two chunks of two mini-batches."""

LOCAL = Program("m:f", {}, 2, 1, 3, local_steps=2)
"""Two chunks of three mini-batches, of which workers train two in a round by themselves."""

FACTS = {"module": "", "loss": 1.0, "device": "cpu"}

MOST_STEPS = 400
"""More than any case takes: one that takes more does not end."""


class Case:
    """A job with two teams on two servers, whose processes and disk do what a list of choices says.

    Parameters
    ----------
    choices
        Which outcome each choice has, from the first on; those after it have the usual one, 0.
    windows
        Whether workers can be connected.

    Attributes
    ----------
    offered
        How many outcomes each choice had.
    """

    def __init__(self, choices: list[int], program: Program, *, windows: bool) -> None:
        self.choices, self.offered, self.connects = choices, list[int](), windows
        self.now = 1.0
        self.program, self.teams, self.clock = program, Teams(program), RoundClock(0.0)
        self.training = RoundsState(program, self.teams, self.clock)
        self.place: int | None = 0
        self.changes, self.closed, self.revoked = 0, False, False
        self.memory: MinibatchLedger | None = None
        self.disk, self.outstanding = [0, 0], dict[tuple[int, int], MinibatchCall]()
        self.window: RoundWindow | None = None
        self.came: MinibatchCall | None = None
        self.told = list[tuple[str, int]]()
        for number in (0, 1):
            self.put(number, number)

    def choose(self, n_outcomes: int) -> int:
        """Which of these outcomes comes."""
        self.offered.append(n_outcomes)
        return self.choices[len(self.offered) - 1] if len(self.offered) <= len(self.choices) else 0

    # -- what is directed --------------------------------------------------------------------------------------------

    def put(self, number: int, server: int) -> None:
        """Put a team with the chunk of its number to work on a server."""
        self.teams.put(number, Team(server, (number,), 1))
        self.clock.join(0.0)
        self._directed()

    def direct(self) -> None:
        """Suspend a team, move the parameter server, take its server away, or nothing, which is usual."""
        match self.choose(4):
            case 1 if 0 in self.teams.working:
                self.teams.leaving.add(0)
                self._directed()
            case 2:
                self.place = 1
                self._directed()
            case 3:
                self.place = None
                self._directed()
            case _:
                pass

    def go_on(self) -> bool:
        """Put to work again what rests; False if nothing does."""
        stopped = [number for what, number in self.told if what == "stopped"]
        idle = [n for n in stopped if n not in self.teams.working and not self.trained(n)]
        for number in idle:
            self.put(number, 1)
        if self.place is None:
            self.place = 1
            self._directed()
            return True
        return bool(idle)

    def _directed(self) -> None:
        self.changes, self.revoked = self.changes + 1, True

    def trained(self, number: int) -> bool:
        """Whether a team was reported as finished."""
        return ("finished", number) in self.told

    # -- what instructions end with ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Train the job to its end, and check each step."""
        rounds, outcome, kind = Rounds(self.training).run(), None, type(None)
        for _ in range(MOST_STEPS):
            self.training.look(self.place, self.changes, closed=self.closed)
            try:
                step = rounds.send(outcome)
                while isinstance(step, do.AtOnce):
                    step = rounds.send(self.outcome(step))
            except StopIteration:
                # who leaves with its last mini-batch does not finish; the controller knows from its progress
                assert all(self.trained(n) or ("stopped", n) in self.told for n in (0, 1))
                assert max(self.told.count(("finished", n)) for n in (0, 1)) == 1
                return
            kind = type(step)
            if isinstance(step, do.Rest):
                assert self.go_on(), f"it waits for ever; told {self.told}"
                outcome = None
                continue
            outcome = self.outcome(step)
            self.direct()
        raise AssertionError(f"it does not end: {kind}, {self.told}")

    def outcome(self, step: do.Instruction) -> Any:
        """What an instruction is told."""
        return getattr(self, type(step).__name__)(step)

    def Begin(self, _: do.Begin) -> None:
        """Time passes."""
        self.now += 0.01

    def Pause(self, step: do.Pause) -> None:
        """Time passes."""
        self.now += step.seconds

    def KeepAnnouncedPace(self, _: do.KeepAnnouncedPace) -> None:
        """Rounds last as long as announced: no time."""

    def Say(self, _: do.Say) -> None:
        """A line of the log."""

    def TellRoundTime(self, _: do.TellRoundTime) -> None:
        """A report that says nothing of teams."""

    def Disconnect(self, _: do.Disconnect) -> None:
        """Connections are of no interest here."""

    def Tell(self, step: do.Tell) -> None:
        """What is finished is on the disk, and who has stopped computes nothing."""
        self.told.append((step.what, step.team))
        if step.what == "finished":
            assert self.disk[step.team] == self.program.steps
        assert not [call for call in self.outstanding.values() if call.team == step.team]

    def MeasureResult(self, _: do.MeasureResult) -> None:
        """All is trained."""
        assert self.memory is not None
        assert self.memory.progress == [self.program.steps] * 2
        self.memory, self.closed = None, True

    def Load(self, step: do.Load) -> Loaded | None:
        """It is loaded, or lost meanwhile."""
        assert step.server == self.place or self.changes != self.training.seen
        self.memory = None
        if self.choose(2):
            return None
        self.memory = MinibatchLedger(self.program)
        self.memory.progress, self.memory.version = list(self.disk), sum(self.disk)
        return Loaded(step.server, self.memory.version, list(self.disk), "", trains=True)

    def GiveUp(self, _: do.GiveUp) -> None:
        """It is saved, or lost before."""
        if self.memory and not self.choose(2):
            self.disk = list(self.memory.progress)
        self.memory = None

    def Save(self, _: do.Save) -> list[int] | None:
        """It is saved, lost before, or lost after."""
        assert self.memory is not None
        match self.choose(3):
            case 0:
                self.disk = list(self.memory.progress)
                return list(self.disk)
            case 2:
                self.disk = list(self.memory.progress)
        self.memory = None
        return None

    def SaveSometimes(self, _: do.SaveSometimes) -> bool:
        """It is not time, it is saved, or lost."""
        assert self.memory is not None
        match self.choose(3):
            case 1:
                self.disk = list(self.memory.progress)
            case 2:
                self.memory = None
        return self.memory is not None

    def Fetch(self, step: do.Fetch) -> bool:
        """It is there, or lost."""
        assert self.memory is not None
        assert step.version == self.memory.version
        if self.choose(2):
            self.memory = None
        return self.memory is not None

    def Ask(self, step: do.Ask) -> MinibatchCall:
        """A worker computes one mini-batch at a time."""
        assert step.number in self.teams.working or self.changes != self.training.seen
        at = step.team.server, step.chunk
        assert at not in self.outstanding, "it is asked for while it comes"
        call = MinibatchCall(step.number, step.team.server, step.chunk, step.step, step.version, object())
        self.outstanding[at] = call
        return call

    def Collect(self, step: do.Collect) -> Any:
        """It comes, or is lost or late, unless it has come."""
        outcomes = (FACTS, Missing.LOST) if step.call is self.came else (FACTS, Missing.LOST, Missing.LATE)
        answer = outcomes[self.choose(len(outcomes))]
        if answer is not Missing.LATE:
            del self.outstanding[step.call.server, step.call.chunk]
        self.now = max(self.now, step.deadline if answer is Missing.LATE else 0.0)
        return answer

    def Comes(self, step: do.Comes) -> bool:
        """It has come, or still comes."""
        self.came = None if (comes := self.choose(2) == 1) else step.call
        return comes

    def EndLate(self, step: do.EndLate) -> None:
        """Nobody waits for it any more."""
        for call in step.calls:
            del self.outstanding[call.server, call.chunk]

    def LookForGone(self, _: do.LookForGone) -> bool:
        """Nothing has gone, or the parameters have."""
        return self.choose(2) == 1

    def Apply(self, step: do.Apply) -> tuple[int, list[int]] | None:
        """They are updated, lost before, or updated and the answer is lost."""
        assert self.memory is not None
        outcome = self.choose(3)
        if outcome != 1:
            new = self.memory.new(step.version, step.calls)
            assert len(new) == len(step.calls), "what was computed counts"
            self.memory.count(new)
        return None if outcome else (self.memory.version, list(self.memory.progress))

    def Updated(self, step: do.Updated) -> None:
        """The rounds know what the parameter server has."""
        assert self.memory is not None
        assert (step.version, self.teams.progress) == (self.memory.version, self.memory.progress)

    def Connect(self, _: do.Connect) -> bool:
        """As this job is, or not."""
        return self.connects != (self.choose(2) == 1)

    def StartWindow(self, step: do.StartWindow) -> RoundWindow:
        """Nothing was directed since its teams were looked at."""
        assert self.memory is not None
        assert dict(step.teams) == self.teams.working
        assert not self.teams.leaving
        assert self.place == (self.training.ps and self.training.ps.server)
        rounds = tuple(
            tuple(
                RoundMinibatch(
                    p.chunk,
                    p.step,
                    0 if p.team == step.colocated else p.team + 1,
                    self.program.local_minibatches(p.step),
                )
                for p in minibatches
            )
            for minibatches in step.rounds
        )
        self.revoked, self.window = False, RoundWindow(1, self.training.version, rounds)
        return self.window

    def AwaitWindow(self, step: do.AwaitWindow) -> Any:
        """All rounds are trained; a worker is late in the first, or in the last; all is late; or lost."""
        assert self.memory is not None
        assert self.window is not None
        outcome = self.choose(5)
        if outcome == 3:
            self.now = max(self.now, step.deadline)
            return Missing.LATE
        if outcome == 4:
            self.memory = None
            return Missing.LOST
        rounds = self.window.rounds[:1] if outcome == 1 or self.revoked else self.window.rounds
        last = [minibatch for minibatch in rounds[-1] if minibatch.link][:1] if outcome in (1, 2) else []
        n_trained = 0
        for minibatches in rounds:
            came = [m for m in minibatches if minibatches is not rounds[-1] or m not in last]
            if came:
                new = self.memory.new(self.memory.version, came)
                assert len(new) == len(came), "each is the next of its chunk"
                self.memory.count(new)
                n_trained += 1
        answer = {"loss": 1.0, "first_ago_s": 0.0, "rounds": n_trained, "missing": [(m.chunk, m.link) for m in last]}
        return answer | {"version": self.memory.version, "progress": list(self.memory.progress)}

    def LookForLeft(self, _: do.LookForLeft) -> bool:
        """A worker has left, or none."""
        return not self.revoked and self.choose(2) == 1

    def Revoke(self, step: do.Revoke) -> None:
        """The window ends after its round, or the process is lost."""
        self.revoked = True
        if step.kill:
            self.memory = None

    def HearWorkers(self, step: do.HearWorkers) -> list[tuple[MinibatchCall, Any]]:
        """Who was late comes later, or is lost; all others have ended."""
        assert self.window is not None
        heard = list[tuple[MinibatchCall, Any]]()
        for link in sorted(self.window.links):
            team = self.teams.working.get(link - 1)
            chunk = step.late_chunks.get(link, self.window.chunks(link)[0])
            call = MinibatchCall(link - 1, team.server if team else 1, chunk, -1, -1, object(), link=(link, ""))
            answer: Any = FACTS
            if link in step.late_chunks:
                answer = (Missing.LATE, Missing.LOST)[self.choose(2)]
            if answer is Missing.LATE:
                self.outstanding[call.server, chunk] = call
            heard.append((call, answer))
        return heard


def cases(most: int, program: Program, *, windows: bool) -> Iterator[Case]:
    """All cases with at most so many choices that are not the usual one; each has been run."""
    todo = [list[int]()]
    while todo:
        choices = todo.pop()
        yield (case := Case(choices, program, windows=windows))
        if sum(map(bool, choices)) < most:
            todo += [
                [*choices, *[0] * (place - len(choices)), outcome]
                for place in range(len(choices), len(case.offered))
                for outcome in range(1, case.offered[place])
            ]


def run(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a case in its own time."""
    monkeypatch.setattr(host, "monotonic", lambda: case.now)
    case.run()


def run_all(most: int, monkeypatch: pytest.MonkeyPatch, program: Program = PROGRAM, *, windows: bool) -> int:
    """Run all cases; returns their number.

    Raises
    ------
    AssertionError
        With the choices of a case that is wrong.
    """
    n_cases = 0
    for case in cases(most, program, windows=windows):
        n_cases += 1
        try:
            run(case, monkeypatch)
        except Exception as error:
            raise AssertionError(f"choices {case.choices}: {type(error).__name__}: {error}") from error
    return n_cases


@pytest.mark.parametrize("program", [PROGRAM, LOCAL], ids=["one", "local"])
@pytest.mark.parametrize("windows", [False, True], ids=["calls", "windows"])
def test_every_case_trains_each_mini_batch_once_and_ends(
    monkeypatch: pytest.MonkeyPatch, program: Program, *, windows: bool
) -> None:
    assert run_all(2, monkeypatch, program, windows=windows) > 1000


@pytest.mark.thorough
@pytest.mark.parametrize("windows", [False, True], ids=["calls", "windows"])
def test_every_case_of_three_troubles_ends(monkeypatch: pytest.MonkeyPatch, *, windows: bool) -> None:
    assert run_all(3, monkeypatch, windows=windows) > 100_000


def _saved(_: RoundsState) -> do.Steps[bool]:
    return True
    yield


def _nothing(*_: Any) -> do.Steps[None]:
    return
    yield


def _asked_anew(rounds: CallRounds, teams: dict[int, Team]) -> do.Steps[list[MinibatchCall]]:
    calls = list[MinibatchCall]()
    training = rounds.training
    for number, team in teams.items():
        for chunk in training.teams.next_chunks(team):
            call = yield do.Ask(number, team, chunk, training.teams.progress[chunk], training.version)
            calls.append(call)
    return calls


PLANTED: dict[str, tuple[type, str, Callable[..., Any], bool]] = {
    "a team is told finished before a checkpoint is written": (RoundsState, "save", _saved, False),
    "the late mini-batch of a team that leaves goes on": (CallRounds, "end_late", _nothing, False),
    "a mini-batch that is late is asked for anew": (CallRounds, "_ask", _asked_anew, False),
    "progress is not that of the checkpoint": (RoundsState, "_go_back", _nothing, False),
    "a window begins although something was directed": (RoundsState, "is_undisturbed", lambda _: True, True),
    "the rounds of a window are not noted": (Windows, "_trained", _nothing, True),
}
"""Mistakes: where, the method that is replaced, by what, and whether workers are connected."""


@pytest.mark.parametrize("mistake", PLANTED)
def test_each_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of, method, replacement, windows = PLANTED[mistake]
    monkeypatch.setattr(of, method, replacement)
    with pytest.raises(AssertionError, match="choices"):
        run_all(2, monkeypatch, windows=windows)
