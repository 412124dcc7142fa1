"""A process that runs one job's code, as trusted code asks it: calls, their limits, and what the process prints."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from skedge.core.errors import TrainingError
from skedge.core.model.escape import escaped, one_line_values
from skedge.live.confinement.keeper import ENDED

from .answer_schemas import checked
from .print_pipe import PrintPipe
from .watchdog import PREPARE_S

Ack = dict[str, Any]
"""Facts about a call in JSON types, small enough to be fetched while tensors stay where they are."""

LIMIT_S = 300.0
"""Longest duration of one call of a job's code [s]."""

WAITS_S = 1000.0
"""How long a process may wait for others of its job [s]; these are waited for less long."""

_MOST_WAITS = 2
"""How often it may in a round; its code could otherwise say so for ever."""

Printed = tuple[str, str] | tuple[()]
"""A worker of a job, and what its process has printed in a call; empty if nothing."""

MOST_DEATHS = 4
"""Calls in which a process of a job ends, after which its code is blamed."""

_LONGEST_WORD = 4096

_SEND_S = 1.0
"""How long a revocation may take to be sent, before a process that ends anyway is killed [s]."""

_FACTS, _CONTENT = 2**26, 2**32
"""Most bytes of the facts of an answer, and of its content."""


class JobError(TrainingError):
    """A job's own code has failed, in a process of its own.

    Attributes
    ----------
    printed
        What its process has printed in the call.
    traceback
        Where the error was raised; empty if its code raised none.
    """

    printed: Printed = ()
    traceback: str = ""


class StalledError(JobError):
    """A call has not returned in time; its process was killed.

    Attributes
    ----------
    rounds
        How many rounds it had told of.
    chunk
        The chunk of the mini-batch that has not ended; None if that is of the call.
    """

    rounds: int = 0
    chunk: int | None = None


class EndedError(Exception):
    """A process of a job ended during a call.

    Attributes
    ----------
    printed
        What it has printed in the call.
    """

    printed: Printed = ()


def with_output(error: EndedError | StalledError, message: str) -> JobError:
    """The error that a job fails with, and what its process has printed."""
    failed = JobError(message)
    failed.printed = error.printed
    return failed


def repeated_death(calls: str, place: str, error: EndedError) -> JobError:
    """The error of a job whose processes end again and again, with what the last one has printed."""
    reason = f"its code ends the process that it runs in, or there is too little memory{place}"
    return with_output(error, f"{reason}: {calls}; the last: {error}")


class JobProcess:
    """A process of one job; one call at a time.

    Attributes
    ----------
    pid
        Process id of its keeper (:mod:`skedge.live.confinement.keeper`).
    worker
        Its name among the processes of its job.
    chunk
        The chunk of the last call.
    link
        Number and address of the last connection to the parameter server that it was given.
    device
        The device that it computes on.
    calls
        Number of calls that have returned.
    """

    def __init__(
        self, connection: Connection, word: socket.socket, links: socket.socket, pid: int, output: PrintPipe
    ) -> None:
        self.connection, self.word, self.links, self.pid, self.output = connection, word, links, pid, output
        self.worker, self.chunk, self.device, self.calls, self.link = "", -1, "cpu", 0, (0, "")
        self._ready = False
        self._linked: socket.socket | None = None
        self._sending, self._keeping, self._keeper = threading.Lock(), threading.Lock(), _file_of(pid)

    def ask(
        self,
        method: str,
        *arguments: Any,
        limit_s: float = LIMIT_S,
        prepare_s: float = PREPARE_S,
        rounds: tuple[int, float] = (0, 0.0),
    ) -> tuple[Ack, bytes]:
        """Call a method of :class:`.worker_main.JobWorker`; returns facts and bytes.

        Text in the facts is escaped. What the process has printed is in ``printed`` of the facts, with the worker.
        Facts with stages (``stage_s``) also have ``call_s``, the duration of the call, and ``receive_s``, the part of
        it in which the bytes come, after the facts [s].

        Parameters
        ----------
        method, arguments
            Name of the method, and its arguments.
        limit_s
            Longest duration of the call [s], from when the process has its packages, code and factory.
        prepare_s
            Longest time until it has [s].
        rounds
            How many rounds the process tells of before it answers, at most, and the longest time after each [s].

        Raises
        ------
        JobError
            If the job's code fails, or uses more than it may; :class:`StalledError` if it does not return in time. In
            the last two cases the process is ended.
        EndedError
            If the job's code ends the process.
        """
        start = time.monotonic()
        try:
            facts, content, came_at = self._asked(method, arguments, limit_s, prepare_s, rounds)
            if "failed" not in facts:
                facts = _checked(method, facts)
        except (JobError, EndedError) as error:
            error.printed = self._printed()
            self.end()
            raise
        self.calls += 1
        ended_at, printed = time.monotonic(), self._printed()
        if "failed" in facts:
            failed = JobError(str(facts["failed"]))
            failed.printed, failed.traceback = printed, escaped(content.decode("utf-8", "replace"))
            raise failed
        if "stage_s" in facts:
            facts |= {"call_s": ended_at - start, "receive_s": ended_at - came_at}
        return ({**facts, "printed": printed} if printed else facts), content

    def _asked(
        self, method: str, arguments: tuple[Any, ...], limit_s: float, prepare_s: float, rounds: tuple[int, float]
    ) -> tuple[Ack, bytes, float]:
        """Facts and bytes of the answer, and when the facts came, by ``time.monotonic()``."""
        stalled = threading.Event()
        try:
            with self._killed_after(max(limit_s, prepare_s), stalled):  # it may stop to read
                self._send(method, *arguments)
            facts = self._facts(limit_s, prepare_s, rounds, stalled)
            came_at = time.monotonic()
            with self._killed_after(limit_s, stalled):
                return facts, self.connection.recv_bytes(_CONTENT), came_at
        except (OSError, EOFError, ValueError, RecursionError) as error:
            if stalled.is_set():
                raise StalledError(f"its code has not returned after {limit_s:.3g} s") from None
            raise self._ended() from error

    def give(self, end: socket.socket, link: tuple[int, str] = (0, "")) -> None:
        """Give it a socket by which it is connected to other processes of the job, and its number and address."""
        self.cut()
        self.link, self._linked = link, end.dup() if link[0] else None
        try:
            socket.send_fds(self.links, [b"."], [end.fileno()], socket.MSG_DONTWAIT)
        except OSError:  # it has ended, or takes nothing that it is given
            self.kill()

    def cut(self) -> None:
        """End its connection to the parameter server, which both ends see."""
        linked, self._linked = self._linked, None
        if linked is not None:
            with suppress(OSError):
                linked.shutdown(socket.SHUT_RDWR)
            linked.close()

    def revoke(self, window: int) -> None:
        """Have a window, by its number, end after the mini-batch that is computed; may come before the window."""
        with suppress(OSError):  # the process has ended
            self._send("revoke", window)

    def _send(self, method: str, *arguments: Any) -> None:
        content = pickle.dumps((method, arguments))
        with self._sending:
            self.connection.send_bytes(content)

    def _ended(self) -> JobError | EndedError:
        """Why there is no answer: what the job may not do, or how its process has ended."""
        words = list(self._words())
        for word in words:
            if not word.startswith(ENDED):
                return JobError(escaped(word))
        return EndedError(words[0] if words else "its code ends the process that it runs in")

    def _words(self) -> Iterator[str]:
        """What trusted code has said about the process."""
        with suppress(OSError):  # there is no more
            while content := self.word.recv(_LONGEST_WORD, socket.MSG_DONTWAIT):
                yield content.decode(errors="replace")

    def _facts(self, limit_s: float, prepare_s: float, rounds: tuple[int, float], stalled: threading.Event) -> Ack:
        """The facts of the answer; what the process prints meanwhile is read."""
        deadline = time.monotonic() + (limit_s if self._ready else prepare_s)
        (n_most, further_s), n_told, n_waits, is_waiting = rounds, 0, 0, False
        while True:
            if not self._comes(deadline):
                reason = "returned" if self._ready else "become ready (packages, imports, factory)"
                self.kill()
                stalled_error = StalledError(
                    f"its code has not {reason} after {limit_s if self._ready else prepare_s:.3g} s"
                )
                stalled_error.rounds = n_told
                raise stalled_error
            with self._killed_after(limit_s, stalled):
                facts = json.loads(self.connection.recv_bytes(_FACTS))
            if not isinstance(facts, dict):
                raise ValueError(facts)  # noqa: TRY004 - as any other answer that is none
            if isinstance(number := facts.get("round"), int) and n_told < number <= n_most:
                n_told, limit_s, n_waits, is_waiting = number, further_s, 0, False
                deadline = time.monotonic() + limit_s
                continue
            if facts.get("waits") == n_told and not is_waiting and n_waits < _MOST_WAITS:
                n_waits, is_waiting, deadline = n_waits + 1, True, time.monotonic() + WAITS_S
                continue
            if facts.get("computes") == n_told and is_waiting:
                is_waiting, deadline = False, time.monotonic() + limit_s
                continue
            if "ready" not in facts:
                return dict(one_line_values(facts))
            if not self._ready:  # the first time alone: the job's code could say so for ever
                self._ready, deadline = True, time.monotonic() + limit_s

    def _comes(self, deadline: float) -> bool:
        """Whether an answer begins before the deadline."""
        while (left := deadline - time.monotonic()) > 0:
            printed = () if self.output.over else (self.output.number,)
            readable = wait([self.connection, *printed], left)
            if self.output.number in readable:
                self.output.read()
            if self.connection in readable:
                return True
        return False

    @contextmanager
    def _killed_after(self, limit_s: float, stalled: threading.Event) -> Iterator[None]:
        """Kill the process if an answer that has begun does not end in time."""

        def kill() -> None:
            stalled.set()
            self.kill()

        timer = threading.Timer(limit_s, kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _printed(self) -> Printed:
        """What the process has printed since the last call."""
        text = self.output.take()
        return (self.worker, text) if text else ()

    def kill(self) -> None:
        """Have its keeper kill the process and all that it has started; a call to it ends then."""
        with self._keeping, suppress(ProcessLookupError):
            if self._keeper is not None:
                signal.pidfd_send_signal(self._keeper, signal.SIGTERM)

    def wait(self, limit_s: float) -> None:
        """Wait until its keeper has ended, and so all that it has started.

        Raises
        ------
        TrainingError
            If it has not after `limit_s` [s].
        """
        file = _file_of(self.pid)
        if file is None:
            return
        try:
            if not wait([file], limit_s):
                raise TrainingError(f"a process of a job has not ended after {limit_s:.3g} s")
        finally:
            os.close(file)

    def end(self) -> None:
        """Close the connection: the process is ended, with all that it has started."""
        if not self._sending.acquire(timeout=_SEND_S):  # a process that does not read: its end ends the wait
            self.kill()
            self._sending.acquire()
        with suppress(OSError):
            self.connection.close()
        self._sending.release()
        with self._keeping:
            if self._keeper is not None:
                os.close(self._keeper)
            self._keeper = None
        self.cut()
        self.word.close()
        self.links.close()
        self.output.close()


def _checked(method: str, facts: Ack) -> Ack:
    try:
        return checked(method, facts)
    except ValueError as error:
        raise JobError(escaped(str(error))) from None


def _file_of(pid: int) -> int | None:
    """An open file that stands for a process, whatever has its number later; None if it has ended."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
