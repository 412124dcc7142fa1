"""Answers of a job's processes: waited for, and judged where a process was lost or the job's code has failed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from skedge.core.errors import TrainingError
from skedge.live import host
from skedge.live.worker.checkpoint import UnreadError
from skedge.live.worker.job_process import (
    MOST_DEATHS,
    EndedError,
    Printed,
    StalledError,
    repeated_death,
    with_output,
)
from skedge.live.worker.links import key_of
from skedge.live.worker.ps_actor import NotLoadedError
from skedge.live.worker.watchdog import WATCH

from .round_clock import SLOW_S

_FORGIVEN = 50
"""Updates that make good for a call in which a process has ended, or for a stall of the same chunk."""

PS = -1
"""What stands for the parameter server where others are numbers of chunks."""

_TROUBLES = 60
"""Consecutive calls that fail by no fault of the job, as no process can be forked, after which the job is given up."""

_LOOK_S = 0.2
"""Interval at which a pending call checks whether its server is out of service [s]."""


class FailureCount:
    """Counts what happens to the processes of one job, until its code is to blame.

    Attributes
    ----------
    deaths
        Updates that would make good for the calls in which a process has ended.
    stalls
        The same for those that were late, by chunk, or :data:`PS`.
    """

    def __init__(self) -> None:
        self.watch = WATCH
        self.deaths = 0
        self.stalls: dict[int, int] = {}

    @property
    def suspects(self) -> bool:
        """Whether a process has ended or stalled for which updates have not made good."""
        return self.deaths > 0 or bool(self.stalls)

    def updated(self, chunks: Collection[int]) -> None:
        """Note an update of the parameters, with mini-batches of these chunks."""
        self.deaths = max(self.deaths - 1, 0)
        for about in self.stalls.keys() & {*chunks, PS}:
            self.stalls[about] -= 1
            if not self.stalls[about]:
                del self.stalls[about]

    def ended(self, error: EndedError, place: str) -> str:
        """Count a call in which a process has ended, or was killed from outside; returns what is told of it.

        Raises
        ------
        TrainingError
            If that happens more often than updates make good for.
        """
        self.deaths += _FORGIVEN
        if self.deaths >= MOST_DEATHS * _FORGIVEN:
            calls = f"{MOST_DEATHS} calls or more ended so, with fewer than {_FORGIVEN} updates for each"
            raise repeated_death(calls, place, error)
        return f"{error}{place}: it is started again, and what it was asked for is done again"

    def stalled(self, error: StalledError, about: int, place: str, usual_s: float) -> str:
        """Count a call that was late and whose process was killed; returns what is told of it.

        Parameters
        ----------
        error
            What the call has raised.
        about
            The chunk that the call was about, or :data:`PS`.
        place
            " on SERVER"; empty if the call is about no server.
        usual_s
            Usual time of a mini-batch [s]; 0 if none is known.

        Raises
        ------
        TrainingError
            If that happens more often than restarts are allowed and updates make good for.
        """
        self.stalls[about] = self.stalls.get(about, 0) + _FORGIVEN
        times = math.ceil(self.stalls[about] / _FORGIVEN)
        failure = "no update by the parameter server" if about == PS else f"no mini-batch of chunk {about}"
        usually = f"; a mini-batch usually takes {usual_s:.3g} s" if usual_s else ""
        if times > self.watch.restarts:
            raise with_output(error, f"{failure}{place}, {times} times in a row or nearly so: {error}{usually}")
        consequence = f"its process is started again, {times} of {self.watch.restarts} times"
        return f"{failure}{place}: {error}{usually}; {consequence}"


@dataclass(frozen=True)
class MinibatchCall:
    """Mini-batches that the agent of a team was asked for: one, or those of a window.

    Attributes
    ----------
    team, server
        Number of the team, and its server.
    chunk
        The chunk; of a window that of the first mini-batch, or of the one that is late.
    step, version
        The mini-batch, and the version of the parameters; -1 for those of a window.
    ack, brought
        References to the facts and to the gradients, which those of a window have not.
    link
        The connection by which a worker takes part in a window; None for a mini-batch by call.
    """

    team: int
    server: int
    chunk: int
    step: int
    version: int
    ack: Any
    brought: Any = None
    link: tuple[int, str] | None = None

    @property
    def key(self) -> int:
        """What the agent knows it by: the chunk, or what stands for the connection."""
        return self.chunk if self.link is None else key_of(self.link[0])

    def comes(self) -> bool:
        """Whether its answer is not there yet."""
        return not host.ready([self.ack], 0)[0]


class Replies:
    """Waits for the answers to one job's calls.

    Parameters
    ----------
    servers
        Names of the servers, for the log.
    line
        Called with each line for the job's log.
    event
        Called with each thing that happens to its processes, one word and a sentence.
    hear
        Called with what its processes have printed.

    Attributes
    ----------
    out
        Servers out of service: their answers are not waited for.
    usual_s
        Usual time of a mini-batch [s]; 0 if none is known.
    troubles
        Calls in a row, without an update in between, that failed for another reason than the job's code.
    gone
        Whether an object that a call needed has gone since the last load of the parameter server.
    timed_out
        Whether the last wait has ended by its deadline.
    away
        Whether the job waits for the storage of checkpoints.
    """

    def __init__(
        self,
        servers: Sequence[str],
        line: Callable[[str], None],
        *,
        event: Callable[[str, str], None],
        hear: Callable[[Printed], None],
    ) -> None:
        self.servers, self.line, self.event, self.hear = servers, line, event, hear
        self.blame = FailureCount()
        self.out: set[int] = set()
        self.usual_s, self.troubles, self.gone, self.away, self.timed_out = 0.0, 0, False, False, False

    def updated(self, chunks: Collection[int]) -> None:
        """Note an update of the parameters, with mini-batches of these chunks."""
        self.troubles = 0
        self.blame.updated(chunks)

    def limits(self, chunk: int, count: int = 1) -> tuple[float, float, float]:
        """Longest time in which a process becomes ready, of its first mini-batch, and of a further one [s].

        With `count`: of so many mini-batches, one after the other.
        """
        watch = self.blame.watch
        return watch.prepare_s, *watch.limits(self.usual_s * count, stalled=chunk in self.blame.stalls)

    def of(self, ref: Any, server: int | None, deadline: float | None = None, about: int = PS) -> Any:
        """The answer to a call; None if its process is lost or late.

        Parameters
        ----------
        ref
            Reference to the answer.
        server
            Where the process is; the wait ends when that server is out of service. None: no server is watched.
        deadline
            End of the wait, by ``host.monotonic()`` [s]; None: :data:`SLOW_S` from now.
        about
            The chunk that the call was about, or :data:`PS`.

        Raises
        ------
        TrainingError
            If the job's own code fails.
        """
        deadline = host.monotonic() + SLOW_S if deadline is None else deadline
        self.timed_out = False
        try:
            while not host.ready([ref], min(_LOOK_S, max(deadline - host.monotonic(), 0.01)))[0]:
                self.timed_out = host.monotonic() > deadline
                if server in self.out or self.timed_out:
                    return None
            return self._heard(host.answer(ref))
        except host.FailedError as error:
            return self._failed(error.cause, server, about)
        except host.CallError as error:
            self.gone = self.gone or isinstance(error, host.GoneError)
            if server is not None and server not in self.out:
                self.line(f"a process on {self.servers[server]} was lost: what it was asked for is done again")
            return None

    def _heard(self, answer: Any) -> Any:
        """An answer without what the process has printed, which is passed on."""
        facts = answer[0] if isinstance(answer, tuple) else answer
        if isinstance(facts, dict):
            self.hear(tuple(facts.pop("printed", ())))
        return answer

    def _failed(self, cause: BaseException, server: int | None, about: int) -> None:
        """Judge an error that a call about a chunk has raised; returns if the call is to be repeated.

        Raises
        ------
        TrainingError
            If the job's own code has failed, or the trouble does not end.
        """
        self.hear(getattr(cause, "printed", ()))
        place = "" if server is None else f" on {self.servers[server]}"
        match cause:
            case NotLoadedError():
                return
            case UnreadError():
                self.storage_is_away(f"{cause}; it is loaded once they can be")
            case EndedError():
                self.event("restarted", self.blame.ended(cause, place))
            case StalledError():
                self.event(
                    "stalled",
                    self.blame.stalled(cause, about if cause.chunk is None else cause.chunk, place, self.usual_s),
                )
            case TrainingError():
                raise cause from None  # Ray's own error contains the whole traceback
            case _:
                self._trouble(cause, place)

    def storage_is_away(self, sentence: str) -> None:
        """Report, once, that the job waits for the storage of checkpoints."""
        if not self.away:
            self.away = True
            self.event("storage_away", sentence)

    def storage_answers(self) -> None:
        """Report that the storage answers again, if the job has waited for it."""
        if self.away:
            self.away = False
            self.event("storage_back", "its checkpoints can be written and read again")

    def _trouble(self, cause: BaseException, place: str) -> None:
        """Count a call that failed by no fault of the job: no process can be forked, say."""
        self.troubles += 1
        reason = f"{type(cause).__name__}: {cause}"
        if self.troubles >= _TROUBLES:
            raise TrainingError(f"{self.troubles} calls in a row failed{place}: {reason}") from cause
        if self.troubles == 1:
            self.line(f"a call{place} failed, and is done again: {reason}")
