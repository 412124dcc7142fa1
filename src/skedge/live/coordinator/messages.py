"""Messages between controller and coordinator: assignments and commands one way, reports and notes the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from skedge.core.errors import StateError
from skedge.live.worker.job_process import Printed
from skedge.live.worker.program import Program
from skedge.live.worker.watchdog import WATCH, WatchdogLimits

from .report import Report
from .teams import Team, Teams

Who = tuple[int, str]
"""A controller: the number of controllers that the run had before it, and a mark of its own."""


class LastReport(NamedTuple):
    """The last report in a journal: its number, and the controller that took it from the coordinator."""

    number: int = 0
    controller: int = 0


class FencedError(StateError):
    """Another controller has taken over the run."""

    def __init__(self, message: str = "another controller has taken over this run; this one ends") -> None:
        super().__init__(message)


class UnattachedError(Exception):
    """The coordinator knows no controller: it was lost, and has been started anew."""


@dataclass
class Assignment:
    """What the controller has a job's trainer do.

    It follows from the journal alone, so that a new controller has the same one.

    Attributes
    ----------
    teams
        The teams as of the last report, with the progress of the chunks then.
    puts
        Number of the order by which each team was put to work, which tells whether the trainer has received it.
    since
        When each team was put to work, by the run's clock [µs].
    site
        Server that the parameter server is assigned to; None if the job is paused.
    pace
        Least time of a round [s].
    out
        Servers that are lost.
    announced_s
        Announced time of a round [s].
    watch
        How long the job's code may take.
    """

    job: int
    name: str
    program: Program
    teams: Teams
    pace: float = 0.0
    site: int | None = None
    puts: dict[int, int] = field(default_factory=dict)
    since: dict[int, int] = field(default_factory=dict)
    out: set[int] = field(default_factory=set)
    count: int = 0
    announced_s: float = 0.0
    watch: WatchdogLimits = WATCH

    def put(self, number: int, team: Team, now: int) -> int:
        """Add a team, or replace it; returns the number of the order."""
        self.count += 1
        self.teams.put(number, team)
        self.puts[number], self.since[number] = self.count, now
        return self.count

    def take(self, number: int) -> None:
        """Let a team leave."""
        self.teams.held.pop(number, None)
        self.teams.leaving.add(number)


@dataclass(frozen=True)
class Command:
    """A call of a method of a job's trainer, or of the coordinator."""

    method: str
    job: int
    given: tuple[Any, ...] = ()


@dataclass(frozen=True)
class ProgressNote:
    """What is shown of a job in training, and is in no journal: a line of its log, and its progress and loss then.

    Attributes
    ----------
    printed
        What a process of the job has printed.
    usual_s
        Usual time of its mini-batches [s], with its progress.
    updates
        Updates of the parameters since the last progress.
    """

    job: int
    line: str
    progress: tuple[int, ...] = ()
    loss: tuple[float, float] | None = None
    printed: Printed = ()
    usual_s: float = 0.0
    updates: int = 0


@dataclass(frozen=True)
class Backlog:
    """What a controller has not received yet; `since` of a report is its age [s]."""

    reports: list[Report]
    notes: list[ProgressNote]


@dataclass(frozen=True)
class AttachReply:
    """What a controller finds at the coordinator.

    Attributes
    ----------
    measuring
        Jobs whose result is being measured, or is among the reports.
    losses
        (version, loss) of updates so far, one a second, by job.
    alone_s, updates
        How long no controller was heard before this one [s], and the updates of parameters in that time.
    """

    measuring: frozenset[int] = frozenset()
    losses: Mapping[int, list[tuple[float, float]]] = field(default_factory=dict)
    alone_s: float = 0.0
    updates: int = 0

    def alone(self) -> dict[str, float]:
        """How training went on without a controller, for the API."""
        return {"after_s": self.alone_s, "updates": self.updates}
