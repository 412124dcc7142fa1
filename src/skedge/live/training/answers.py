"""Answers of a job's processes: waited for, and judged where a process was lost or the job's code has failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from skedge.core.errors import TrainingError

from .apart import EndedError
from .ps import NotLoadedError
from .round_clock import SLOW_S

_DEATHS = 4
"""Consecutive calls in which a process of the job ends, after which the job's code is blamed."""

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
    """

    def __init__(self, servers: Sequence[str], line: Callable[[str], None]) -> None:
        self.servers, self.line = servers, line
        self.out: set[int] = set()
        self.deaths = 0

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
            while not ray.wait([ref], timeout=min(_LOOK_S, max(deadline - time.monotonic(), 0.01)))[0]:
                if server in self.out or time.monotonic() > deadline:
                    return None
            return ray.get(ref)
        except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError):
            if server is not None and server not in self.out:
                self.line(f"a process on {self.servers[server]} was lost: what it was asked for is done again")
            return None
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, EndedError):
                return self._ended(server)
            if isinstance(error.cause, ray.exceptions.RayError | NotLoadedError):
                return None
            if isinstance(error.cause, TrainingError):
                raise error.cause from None  # Ray's own error contains the whole traceback
            raise TrainingError(f"{type(error.cause).__name__}: {error.cause}") from error

    def _ended(self, server: int | None) -> None:
        """Count a process of this job that ended in a call; it may also have been killed from outside.

        Raises
        ------
        TrainingError
            If that happens repeatedly without an update in between.
        """
        self.deaths += 1
        where = "" if server is None else f" on {self.servers[server]}"
        if self.deaths >= _DEATHS:
            raise TrainingError(
                f"its code ends the process that it runs in, or there is too little memory{where}: "
                f"{self.deaths} calls in a row ended so"
            )
        self.line(f"a process of this job{where} has ended: what it was asked for is done again")
