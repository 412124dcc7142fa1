"""The controller's link to the coordinator: commands go out in order, reports come in, each once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Protocol

from skedge.core.errors import SkedgeError
from skedge.live import host

from .messages import Assignment, AttachReply, Backlog, Command, FencedError, LastReport, ProgressNote, UnattachedError
from .report import Report

_WAIT_S = 0.5
"""How long a request for news waits for a report [s]: the interval at which the coordinator hears the controller."""

_ANSWER_S, _START_S = 20.0, 120.0
"""How long an answer of the coordinator, and its start, may take [s]."""

_PAUSE_S = 0.2
"""Pause before a coordinator that does not answer is asked again [s]."""


class CoordinatorLostError(Exception):
    """The coordinator's process is lost or does not answer."""


class CoordinatorEndpoint(Protocol):
    """The coordinator, here or in a process of its own."""

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the coordinator; `CoordinatorLostError` if its process is lost."""


class LocalCoordinator:
    """A coordinator in this process."""

    def __init__(self, coordinator: Any) -> None:
        self.coordinator = coordinator

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the coordinator."""
        return getattr(self.coordinator, method)(*arguments)


class RemoteCoordinator:
    """A coordinator that is a Ray actor."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the coordinator.

        Raises
        ------
        CoordinatorLostError
            If its process is lost or does not answer.
        """
        try:
            return host.answer(host.call(self.actor, method, *arguments), _ANSWER_S)
        except host.FailedError as error:
            raise error.cause from None
        except host.CallError as error:
            raise CoordinatorLostError(str(error)) from error


def clock_of(
    coordinator: CoordinatorEndpoint, is_wanted: Callable[[], bool] = lambda: True, within_s: float = _START_S
) -> int | None:
    """The run's clock at the coordinator [µs]; waits for one that is lost or late, as long as it `is_wanted`.

    None if the coordinator knows no controller, or is wanted no more.

    Raises
    ------
    SkedgeError
        If it does not answer within that time [s].
    """
    deadline = host.monotonic() + within_s
    while is_wanted():
        try:
            clock: int | None = coordinator.ask("clock")
        except CoordinatorLostError as error:
            if host.monotonic() > deadline:
                raise SkedgeError(f"the coordinator, which hosts the trainers, does not answer: {error}") from error
            host.sleep(_PAUSE_S)
        else:
            return clock
    return None


class CoordinatorClient:
    """One controller's link, from when it attaches until it ends or is replaced.

    Parameters
    ----------
    coordinator
        What trains the jobs.
    number
        Number of controllers that the run had before this one.
    tell, note
        Called with each report and each note, from a thread.
    lost
        Called, from a thread, when the coordinator was lost and answers again: a new link must be made.
    broken
        Called, from a thread, with the error that ends the controller: another one has attached, or the coordinator
        does not answer at all.
    journaled
        Returns the last report in the journal.
    now
        Returns the run's clock [µs].
    """

    def __init__(
        self,
        coordinator: CoordinatorEndpoint,
        number: int,
        *,
        tell: Callable[[Report], None],
        note: Callable[[ProgressNote], None],
        lost: Callable[[], None],
        broken: Callable[[Exception], None],
        journaled: Callable[[], LastReport],
        now: Callable[[], int],
    ) -> None:
        self.coordinator, self.who = coordinator, (number, host.mark())
        self.tell, self.note, self.lost, self.broken = tell, note, lost, broken
        self.journaled, self.now = journaled, now
        self._joined_after = journaled()
        self.after = self._joined_after.number
        self.ended = host.Event()
        self._commands: host.SimpleQueue[Command | None] = host.SimpleQueue()
        self._threads = [self._thread(run) for run in (self._send, self._receive)]

    def attach(self, assignments: Mapping[int, Assignment]) -> tuple[AttachReply | None, list[Report]]:
        """Attach to the coordinator; returns also the reports that were missed.

        If the coordinator is lost or late before the first news are here, (None, []): `lost` is called once it answers.
        A new link has a number of its own, so a late call of this one has no effect then.

        Raises
        ------
        FencedError
            If a later controller is attached.
        """
        try:
            reply: AttachReply = self.coordinator.ask("attach", self.who, self._joined_after, self.now(), assignments)
            missed = self._news(0.0)
        except (CoordinatorLostError, UnattachedError):
            self._thread(self._wait_for_coordinator).start()
            return None, []
        for thread in self._threads:
            thread.start()
        return reply, missed

    def send(self, command: Command) -> None:
        """Have a command carried out, after those before it."""
        self._commands.put(command)

    def leave(self) -> None:
        """End the threads; the trainers continue."""
        self.ended.set()
        self._commands.put(None)

    def close(self, wait_s: float) -> None:
        """End the trainers, and tell what they have reported until then."""
        self.leave()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout=wait_s)
        try:
            self.coordinator.ask("close", self.who, wait_s)
            self._take(0.0)
        except (CoordinatorLostError, FencedError, UnattachedError):
            return  # it has no trainers of this controller

    def _thread(self, run: Callable[[], None]) -> host.Thread:
        return host.Thread(target=self._guarded, args=(run,), name="coordinator", daemon=True)

    def _guarded(self, run: Callable[[], None]) -> None:
        """Run a thread; an error ends the controller, as a thread that ends silently would leave it hanging."""
        try:
            run()
        except Exception as error:
            if not self.ended.is_set():  # else another controller is this one's next link
                self.broken(error)

    def _send(self) -> None:
        for number in count(1):
            commands = [self._commands.get()]
            while not self._commands.empty():
                commands.append(self._commands.get())
            batch = [command for command in commands if command is not None]
            if not self._ordered(number, batch) or len(batch) < len(commands):
                return

    def _ordered(self, number: int, commands: list[Command]) -> bool:
        """Have commands carried out, asking again while the answer is late; False if the coordinator takes no more."""
        while True:
            try:
                self.coordinator.ask("order", self.who, number, commands)
            except CoordinatorLostError:
                # it may be carried out yet, or have been: the number tells the coordinator that this is the same order
                if self.ended.wait(_PAUSE_S):
                    return False
            except (FencedError, UnattachedError):
                return False  # the other thread finds out as well; a new link gives every trainer its assignment
            else:
                return True

    def _receive(self) -> None:
        while not self.ended.is_set():
            try:
                self._take(_WAIT_S)
            except (CoordinatorLostError, UnattachedError):
                self._wait_for_coordinator(math.inf)
                return

    def _take(self, wait_s: float) -> None:
        for report in self._news(wait_s):
            self.tell(report)

    def _news(self, wait_s: float) -> list[Report]:
        """Reports that have come, with the time by this machine's clock; notes are passed on."""
        news: Backlog = self.coordinator.ask("news", self.who, self.after, self.journaled().number, self.now(), wait_s)
        received = host.monotonic()
        for note in news.notes:
            self.note(note)
        if news.reports:
            self.after = news.reports[-1].number
        return [replace(report, since=received - report.since) for report in news.reports]

    def _wait_for_coordinator(self, within_s: float = _START_S) -> None:
        """Wait until a coordinator that was lost answers again, and report that."""
        clock_of(self.coordinator, lambda: not self.ended.is_set(), within_s)
        if not self.ended.is_set():
            self.lost()
