"""The decisions of a supervisor: what is started, who takes over, and when it gives up.

It has neither processes nor clocks nor files: :class:`Keeping` receives what the supervisor sees and returns what that
has to do, in order. ``tests/live/test_keeping.py`` goes through all interleavings of the deaths of its processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

WRONG = 2
"""Exit status of a controller that must not be restarted: its settings are wrong."""


class Role(StrEnum):
    """What a process of a service is for; the value is its name in the log."""

    HOST = "the host of Ray"
    CONTROLLER = "the controller"
    STANDBY = "the standby"


@dataclass(frozen=True)
class StartProcess:
    """Start the host of Ray, or a standby."""

    role: Role


@dataclass(frozen=True)
class TakeOver:
    """Let the standby be the controller."""


@dataclass(frozen=True)
class LogDeath:
    """Log with which status the process of a role has ended."""

    role: Role


@dataclass(frozen=True)
class PauseService:
    """Pause; a service that is ended meanwhile ends with this status."""

    status: int


@dataclass(frozen=True)
class EndService:
    """End all processes, and the service with this status."""

    status: int


KeepingInstruction = StartProcess | TakeOver | LogDeath | PauseService | EndService


class Keeping:
    """Keeps up the processes of a service: Ray's host, a controller, and a standby that takes over when that dies.

    Parameters
    ----------
    embedded
        True if the service has a Ray cluster of its own, which needs a host.
    tries
        Deaths in a row before a controller serves, of the host or of controllers, after which the service ends.

    Attributes
    ----------
    up
        Processes that have been started and not been reported to have ended.
    deaths
        Deaths in a row so far.
    has_served
        Whether the present controller was seen to serve; one that ends takes its address away.
    """

    def __init__(self, *, embedded: bool, tries: int) -> None:
        self.embedded, self.tries = embedded, tries
        self.up, self.has_served = set[Role](), False
        self.deaths = {Role.HOST: 0, Role.CONTROLLER: 0}

    def begin(self) -> Sequence[KeepingInstruction]:
        """The service begins: it has no process yet."""
        start = [self._start(Role.HOST)] if self.embedded else []
        return [*start, *self.look(serves=False)]

    def ended(self, role: Role, status: int, *, serves: bool) -> Sequence[KeepingInstruction]:
        """A process has ended.

        Parameters
        ----------
        role, status
            Which process, and its exit status.
        serves
            Whether the controller, which may be this process, was seen to serve.
        """
        self.up.discard(role)
        if role is Role.STANDBY:
            return []
        if role is Role.CONTROLLER and status in (0, WRONG):
            return [EndService(status)]
        serves = serves or (role is Role.CONTROLLER and self.has_served)
        self.deaths[role] = 0 if serves else self.deaths[role] + 1
        if self.deaths[role] >= self.tries:
            return [LogDeath(role), EndService(status)]
        pause = [] if serves else [PauseService(status)]
        host = [self._start(role)] if role is Role.HOST else []
        return [LogDeath(role), *pause, *host]

    def look(self, *, serves: bool) -> Sequence[KeepingInstruction]:
        """All processes that have ended were reported: replace the controller, or start a standby beside it.

        Parameters
        ----------
        serves
            Whether the controller is seen to serve: a standby, which takes memory and time to start, waits for that.
        """
        if Role.CONTROLLER not in self.up:
            start = [] if Role.STANDBY in self.up else [self._start(Role.STANDBY)]
            self.up.remove(Role.STANDBY)
            self.up.add(Role.CONTROLLER)
            self.has_served = False
            return [*start, TakeOver()]
        self.has_served = self.has_served or serves
        return [self._start(Role.STANDBY)] if serves and self.lacks_standby else []

    @property
    def lacks_standby(self) -> bool:
        """Whether no standby is beside the controller, so that it matters whether that serves."""
        return Role.CONTROLLER in self.up and Role.STANDBY not in self.up

    def _start(self, role: Role) -> StartProcess:
        self.up.add(role)
        return StartProcess(role)
