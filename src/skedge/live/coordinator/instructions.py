"""What the rounds of a job (:class:`.rounds.Rounds`) have done by its trainer, and what they are told of it then.

Rounds decide and the trainer acts: they call nothing and wait for nothing, so each case of theirs can be tried without
a process (``tests/live/test_rounds.py`` tries all of small jobs).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, TypeVar

from .replies import MinibatchCall
from .teams import PlannedMinibatch, Team

T = TypeVar("T")


class Missing(Enum):
    """Why there is no answer: it comes later, or its process or server is lost and it comes no more."""

    LATE = "late"
    LOST = "lost"


class Instruction:
    """Something to do; what is told of it then stands in each."""


Steps: TypeAlias = Generator[Instruction, Any, T]
"""Instructions one after the other; each is told how it has ended, and the last returns a value."""


class AtOnce(Instruction):
    """It waits for nothing: it is done before anything else can be directed."""


@dataclass(frozen=True)
class Loaded:
    """What a parameter server has loaded.

    Attributes
    ----------
    server
        Where it is.
    version, progress
        Those of the checkpoint.
    module
        SHA-256 of the code in its process.
    trains
        Whether it may train chunks that are on its server itself.
    """

    server: int
    version: int
    progress: list[int]
    module: str
    trains: bool


# -- the job ---------------------------------------------------------------------------------------------------------


class Rest(Instruction):
    """Wait until something is directed."""


@dataclass(frozen=True)
class Pause(Instruction):
    """Wait for this time [s], unless the training is closed."""

    seconds: float


@dataclass(frozen=True)
class Say(AtOnce):
    """Write a line to the job's log."""

    line: str


@dataclass(frozen=True)
class Tell(AtOnce):
    """Report this of a team (:class:`.report.Report`)."""

    what: str
    team: int


@dataclass(frozen=True)
class TellRoundTime(AtOnce):
    """Report the mean time of the last mini-batches [s]."""

    round_s: float


class Begin(Instruction):
    """Be ready to make calls; a round begins."""


@dataclass(frozen=True)
class KeepAnnouncedPace(Instruction):
    """Wait until so many mini-batches have lasted as long as announced, each `pace_s` [s]; None: that of now."""

    minibatches: int
    pace_s: float | None = None


@dataclass(frozen=True)
class MeasureResult(Instruction):
    """Give up the parameter server, measure the parameters of a version, and report the result."""

    version: int


# -- the parameter server --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load(Instruction):
    """Load the newest checkpoint into a parameter server's process on a server. Told: `Loaded`, or None.

    A process elsewhere is given up before. None: that process is lost, or late, and released.
    """

    server: int


class GiveUp(Instruction):
    """Write a checkpoint and release the process."""


class Save(Instruction):
    """Write a checkpoint, however long that takes. Told: the progress in it; None if the process is lost, or closed."""


class SaveSometimes(Instruction):
    """Write a checkpoint if the last one is old enough. Told: False if the process is lost."""


@dataclass(frozen=True)
class Fetch(Instruction):
    """Have a reference to the parameters of this version. Told: False if the process is lost."""

    version: int


@dataclass(frozen=True)
class KeepParameters(AtOnce):
    """Keep the parameters of now, after this epoch, to be measured at the end."""

    epoch: int


@dataclass(frozen=True)
class Apply(Instruction):
    """Update parameters of this version with what these calls have brought.

    Told: (version, progress) then; None if the process is lost or late.
    """

    version: int
    calls: Sequence[MinibatchCall]


@dataclass(frozen=True)
class Updated(AtOnce):
    """Note updates of the parameters.

    Attributes
    ----------
    version
        That of the parameters now.
    chunks
        Those of each update.
    teams
        Numbers of the teams that have trained them.
    loss
        Mean of the last update.
    first_ago_s
        How long ago the first of them was [s].
    """

    version: int
    chunks: Sequence[Sequence[int]]
    teams: Sequence[int]
    loss: float
    first_ago_s: float = 0.0


# -- rounds by calls -------------------------------------------------------------------------------------------------


class Disconnect(AtOnce):
    """Use the connections of workers no more."""


@dataclass(frozen=True)
class Ask(Instruction):
    """Have the agent of a team train from a mini-batch on at a version. Told: a `MinibatchCall`."""

    number: int
    team: Team
    chunk: int
    step: int
    version: int


@dataclass(frozen=True)
class Collect(Instruction):
    """Wait for the answer to a call until `deadline`, by ``host.monotonic()``. Told: its facts, or `Missing`."""

    call: MinibatchCall
    deadline: float


@dataclass(frozen=True)
class Comes(AtOnce):
    """Look whether the answer to a call is not there yet. Told: whether."""

    call: MinibatchCall


@dataclass(frozen=True)
class EndLate(AtOnce):
    """End late mini-batches: their team leaves."""

    calls: Sequence[MinibatchCall]


class LookForGone(AtOnce):
    """Look whether an object that calls needed has gone since the last load. Told: whether."""


# -- windows ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Connect(Instruction):
    """Connect workers of these servers to the parameter server. Told: whether all can be, and none is suspected."""

    servers: Sequence[int]


@dataclass(frozen=True)
class StartWindow(AtOnce):
    """Have the parameter server train these rounds. Told: the :class:`skedge.live.worker.round_window.RoundWindow`.

    Attributes
    ----------
    rounds
        The mini-batches of each.
    teams
        The teams that train them, by number.
    colocated
        Number of the team whose first worker is the parameter server's process; None if there is none.
    started
        When the first round begins, by ``host.monotonic()``.
    """

    rounds: Sequence[Sequence[PlannedMinibatch]]
    teams: Mapping[int, Team]
    colocated: int | None
    started: float


@dataclass(frozen=True)
class AwaitWindow(Instruction):
    """Wait for the answer to the window until `deadline`, by ``host.monotonic()``. Told: it, or `Missing`.

    `about`: the chunk that the process itself is to train, or :data:`.replies.PS`.
    """

    about: int
    deadline: float


class LookForLeft(AtOnce):
    """Look whether a worker takes no part any more in the window, which is not revoked. Told: whether."""


@dataclass(frozen=True)
class Revoke(AtOnce):
    """Have the window end after its round, or kill the process of the parameter server."""

    kill: bool = False


@dataclass(frozen=True)
class HearWorkers(Instruction):
    """Hear how the workers' part of a window has ended. Told: (call, its facts or `Missing`) of each.

    Attributes
    ----------
    teams
        Numbers of the teams that have trained it.
    late_chunks
        By number of the connection, the chunk whose mini-batch has not come.
    """

    teams: Sequence[int]
    late_chunks: Mapping[int, int]
