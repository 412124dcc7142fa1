"""The controller's link to the coach: commands go out in order, reports come in, each once."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from skedge.core.errors import SkedgeError
from skedge.live.training.assignment import (
    Assignment,
    Attached,
    Command,
    FencedError,
    News,
    Note,
    UnattachedError,
)

from .inputs import Report

_WAIT_S = 0.5
"""How long one question for news waits for a report [s]; also the interval at which the coach hears the controller."""

_ANSWER_S, _START_S = 20.0, 120.0
"""How long an answer of the coach, and its start, may take [s]."""

_PAUSE_S = 0.2
"""Pause before a coach that does not answer is asked again [s]."""


class CoachLostError(Exception):
    """The coach's process is lost or does not answer."""


class AskedCoach(Protocol):
    """The coach, here or in a process of its own."""

    def ask(self, method: str, *given: Any) -> Any:
        """Call a method of :class:`~skedge.live.training.coach.Coach`; `CoachLostError` if its process is lost."""


class CoachHere:
    """A coach in this process."""

    def __init__(self, coach: Any) -> None:
        self.coach = coach

    def ask(self, method: str, *given: Any) -> Any:
        """Call a method of the coach."""
        return getattr(self.coach, method)(*given)


class CoachThere:
    """A coach that is a Ray actor."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def ask(self, method: str, *given: Any) -> Any:
        """Call a method of the coach.

        Raises
        ------
        CoachLostError
            If its process is lost or does not answer.
        """
        import ray  # noqa: PLC0415 - Ray is an extra

        try:
            return ray.get(getattr(self.actor, method).remote(*given), timeout=_ANSWER_S)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            raise CoachLostError(str(error)) from error


class CoachLink:
    """One controller's link, from when it attaches until it ends or is replaced.

    Parameters
    ----------
    number
        Number of controllers that the run had before this one.
    tell, note
        Called with each report and each note, from a thread.
    lost
        Called, from a thread, when the coach was lost and answers again: a new link must be made.
    fenced
        Called, from a thread, with the error if another controller has attached.
    journaled
        Returns the number of the last report in the journal.
    now
        Returns the run's clock [µs].
    """

    def __init__(
        self,
        coach: AskedCoach,
        number: int,
        *,
        tell: Callable[[Report], None],
        note: Callable[[Note], None],
        lost: Callable[[], None],
        fenced: Callable[[FencedError], None],
        journaled: Callable[[], int],
        now: Callable[[], int],
    ) -> None:
        self.coach, self.who = coach, (number, secrets.token_hex(8))
        self.tell, self.note, self.lost, self.fenced = tell, note, lost, fenced
        self.journaled, self.now = journaled, now
        self.after = journaled()
        self.heard = time.monotonic()
        self.ended = threading.Event()
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=run, name="coach", daemon=True) for run in (self._send, self._receive)]

    def attach(self, assignments: Mapping[int, Assignment], silent_s: float) -> tuple[Attached, list[Report]]:
        """Attach to the coach, waiting for it if it is being started; returns also the reports that were missed.

        Raises
        ------
        FencedError
            If a later controller is attached.
        SkedgeError
            If the coach does not answer.
        """
        deadline = time.monotonic() + _START_S
        while True:
            try:
                found: Attached = self.coach.ask("attach", self.who, self.after, self.now(), assignments, silent_s)
                break
            except CoachLostError as error:
                if time.monotonic() > deadline:
                    raise SkedgeError(f"the coach, which hosts the trainers, does not answer: {error}") from error
                time.sleep(_PAUSE_S)
        missed = self._news(0.0)
        for thread in self._threads:
            thread.start()
        return found, missed

    def send(self, command: Command) -> None:
        """Have a command carried out, after those before it."""
        self._commands.put(command)

    def leave(self) -> None:
        """End the threads; the trainers continue."""
        self.ended.set()
        self._commands.put(None)

    def close(self, wait_s: float) -> None:
        """End the trainers, and tell what they have reported until then."""
        self.ended.set()
        self._commands.put(None)
        for thread in self._threads:
            thread.join(timeout=wait_s)
        try:
            self.coach.ask("close", self.who, wait_s)
            self._take(0.0)
        except (CoachLostError, FencedError, UnattachedError):
            return  # it has no trainers of this controller

    def _send(self) -> None:
        while True:
            commands = [self._commands.get()]
            while not self._commands.empty():
                commands.append(self._commands.get())
            sent = [command for command in commands if command is not None]
            try:
                self.coach.ask("order", self.who, sent)
            except (CoachLostError, FencedError, UnattachedError):
                return  # the other thread finds out as well; a new link gives every trainer its assignment
            if len(sent) < len(commands):
                return

    def _receive(self) -> None:
        while not self.ended.is_set():
            try:
                self._take(_WAIT_S)
            except FencedError as error:
                if not self.ended.is_set():  # else by this controller's next link
                    self.fenced(error)
                return
            except (CoachLostError, UnattachedError):
                self._wait_for_coach()
                return

    def _take(self, wait_s: float) -> None:
        for report in self._news(wait_s):
            self.tell(report)

    def _news(self, wait_s: float) -> list[Report]:
        """Reports that have come, with the time by this machine's clock; notes are passed on."""
        news: News = self.coach.ask("news", self.who, self.after, self.journaled(), self.now(), wait_s)
        self.heard = time.monotonic()
        for note in news.notes:
            self.note(note)
        if news.reports:
            self.after = news.reports[-1].number
        return [replace(report, since=self.heard - report.since) for report in news.reports]

    def _wait_for_coach(self) -> None:
        """Wait until a coach that was lost answers again, and report that."""
        while not self.ended.is_set():
            try:
                self.coach.ask("clock")
            except CoachLostError:
                time.sleep(_PAUSE_S)
            else:
                self.lost()
                return
