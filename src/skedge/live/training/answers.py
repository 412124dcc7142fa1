"""Answers of a job's processes: waited for, and judged where a process was lost or the job's code has failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from skedge.core.errors import TrainingError

from .apart import EndedError
from .ps import NotLoadedError
from .ray_errors import CallError, FailedError, GoneError, answer, translated
from .round_clock import SLOW_S

DEATHS = 4
"""Consecutive calls in which a process of the job ends, after which the job's code is blamed."""

_TROUBLES = 60
"""Consecutive calls that fail by no fault of the job, as storage is away, after which the job is given up."""

_LOOK_S = 0.2
"""Interval at which a pending call checks whether its server is out of service [s]."""


class Answers:
    """Waits for the answers to one job's calls.

    Parameters
    ----------
    servers
        Names of the servers, for the log.
    line
        Called with each line for the job's log.

    Attributes
    ----------
    out
        Servers out of service: their answers are not waited for.
    deaths
        Calls in a row, without an update in between, in which a process of the job has ended.
    troubles
        Calls in a row, without an update in between, that failed for another reason than the job's code.
    gone
        Whether an object that a call needed has gone since the last load of the parameter server.
    """

    def __init__(self, servers: Sequence[str], line: Callable[[str], None]) -> None:
        self.servers, self.line = servers, line
        self.out: set[int] = set()
        self.deaths = self.troubles = 0
        self.gone = False

    def progressed(self) -> None:
        """Note an update: what failed before it does not count any more."""
        self.deaths = self.troubles = 0

    def of(self, ref: Any, server: int | None, deadline: float | None = None) -> Any:
        """The answer to a call on a server; None if its process is lost or late.

        Raises
        ------
        TrainingError
            If the job's own code fails.
        """
        import ray  # noqa: PLC0415 - Ray is an extra

        deadline = time.monotonic() + SLOW_S if deadline is None else deadline
        try:
            with translated():
                while not ray.wait([ref], timeout=min(_LOOK_S, max(deadline - time.monotonic(), 0.01)))[0]:
                    if server in self.out or time.monotonic() > deadline:
                        return None
            return answer(ref)
        except FailedError as error:
            return self._failed(error.cause, server)
        except CallError as error:
            self.gone = self.gone or isinstance(error, GoneError)
            if server is not None and server not in self.out:
                self.line(f"a process on {self.servers[server]} was lost: what it was asked for is done again")
            return None

    def _failed(self, cause: BaseException, server: int | None) -> None:
        """Judge an error that a call has raised; returns if the call is to be repeated.

        Raises
        ------
        TrainingError
            If the job's own code has failed, or the trouble does not end.
        """
        if isinstance(cause, NotLoadedError):
            return
        if isinstance(cause, TrainingError):
            raise cause from None  # Ray's own error contains the whole traceback
        if isinstance(cause, EndedError):
            self._ended(server)
            return
        # storage that is away, no process that can be forked: nothing that the job's code does
        self.troubles += 1
        where = "" if server is None else f" on {self.servers[server]}"
        reason = f"{type(cause).__name__}: {cause}"
        if self.troubles >= _TROUBLES:
            raise TrainingError(f"{self.troubles} calls in a row failed{where}: {reason}") from cause
        if self.troubles == 1:
            self.line(f"a call{where} failed, and is done again: {reason}")

    def _ended(self, server: int | None) -> None:
        """Count a process of this job that ended in a call; it may also have been killed from outside.

        Raises
        ------
        TrainingError
            If that happens repeatedly without an update in between.
        """
        self.deaths += 1
        where = "" if server is None else f" on {self.servers[server]}"
        if self.deaths >= DEATHS:
            raise TrainingError(died(self.deaths, where))
        self.line(f"a process of this job{where} has ended: what it was asked for is done again")


def died(deaths: int, where: str = "") -> str:
    """The reason of a job whose processes end again and again."""
    return (
        f"its code ends the process that it runs in, or there is too little memory{where}: "
        f"{deaths} calls in a row ended so"
    )
