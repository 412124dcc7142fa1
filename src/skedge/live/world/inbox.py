"""The inputs of a live run, in order: from its journal while it is rebuilt, then as they come; and the run's clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from skedge.core.errors import SkedgeError
from skedge.core.model.time import SECOND
from skedge.live import host
from skedge.live.coordinator.messages import LastReport
from skedge.live.coordinator.report import Report
from skedge.live.journal.journal import SqlJournal

from .inputs import Due, Input, Resumed, from_json, to_json

if TYPE_CHECKING:
    from .ray_world import RayWorld

_BLOCKED_S = 1.0
"""Pause before a journal write that failed on a full disk is repeated [s]."""

Ask = Callable[[], Input | None]
"""A question to the controller, answered between two inputs; what it returns is an input itself."""


class Inbox:
    """Gives the inputs one by one, each with a time that never goes back; each is journaled before it is given.

    Parameters
    ----------
    world
        Of the run.
    journal
        Where each input is written; None: nowhere.
    began
        Start of the run, by ``host.time()``; None: now.

    Attributes
    ----------
    waiting
        What has come and was not given yet; any thread may put something here.
    clock
        Time of the last input [µs].
    joined
        When this controller went on after the rebuild, by ``host.monotonic()``: earlier reports it has missed.
    rebuilding
        True while the inputs are those of the journal.
    ending
        True: no input is waited for any more.
    away
        Total time in which no controller ran, or slots took longer than their length [µs]: the clock stops then.
    resumed
        Number of controllers that the run had before this one, and of the times that the coordinator was lost.
    lost
        How often of these training did not go on.
    told
        Number of the last report of a trainer that was taken in.
    """

    def __init__(self, world: RayWorld, journal: SqlJournal | None, began: float | None) -> None:
        self.world, self.journal = world, journal
        self.rebuilding = journal is not None and len(journal.inputs) > 0
        self.clock = self.away = self.resumed = self.lost = 0
        self.told = LastReport()
        self.joined = host.monotonic()
        self.ending = False
        self.waiting: host.SimpleQueue[Input | Ask] = host.SimpleQueue()  # safe in signal handlers
        self._later: deque[Input] = deque()
        self._began = host.monotonic() - (0.0 if began is None else host.time() - began)
        if journal is not None:
            journal.meanwhile, journal.unless_over = self._answer, self._check_end

    def begin(self) -> None:
        """Begin as the first controller; that is journaled before it attaches, so the next one has a higher number."""
        # the run's clock begins now: the machine's may have been set, either way, since the run was made
        self.away = self.elapsed()
        if self.journal is not None and self.world.engine.acts:
            self.journal.take(0, to_json(Resumed(self.away, lost=False)))
            self.resumed += 1
        self.world.trainers.go_on()  # nothing trains yet: there is nothing to take in

    def elapsed(self) -> int:
        """Time since the start, by the machine's clock, without the time in which the run's clock stopped [µs]."""
        return int((host.monotonic() - self._began) * SECOND) - self.away

    def tell(self, fact: Input) -> None:
        """Queue a fact for the controller; ignored in a rebuild, where the journal already holds it."""
        if not self.rebuilding:
            if isinstance(fact, Report) and not fact.since:
                fact = fact.queued(host.monotonic())
            self.waiting.put(fact)

    def take(self) -> Input:
        """The next input: from the journal while the run is rebuilt, then from trainers, uploads and the clock."""
        earlier = self.journal.again() if self.rebuilding and self.journal is not None else None
        if earlier is not None:
            now, received = earlier[0], from_json(earlier[1])
        # only reads the journal: at its end there is nothing to wait for
        elif not self.world.engine.acts:
            self.ending = True
            return Due()
        else:
            now, received = self._new()
            if self.journal is not None:
                # in the journal first: what is acted on must be there if the controller dies in the middle
                self.journal.take(now, to_json(received))
        if isinstance(received, Report) and received.number > self.told.number:
            self.told = LastReport(received.number, self.resumed)
        if isinstance(received, Resumed):
            self.away += received.away
            self.resumed += 1
            self.lost += received.lost
            if earlier is None:
                self._resume()
        self.clock = now
        return received

    def _resume(self) -> None:
        """Continue after the rebuild, or, at any other time, with a coordinator that was lost and is there again."""
        rebuilt, self.rebuilding = self.rebuilding, False
        self._later.extend(self.world.trainers.go_on())  # before all that has come meanwhile: they are older
        if rebuilt:
            self.joined = host.monotonic()
            self.world.go_on()

    def _new(self) -> tuple[int, Input]:
        """(time, input) that is in no journal yet."""
        if self.rebuilding:
            trained_until = self.world.trainers.clock()
            away = self.elapsed() - max(trained_until or 0, self.clock)
            return self.clock, Resumed(away, lost=trained_until is None or away > SECOND)
        received = self._wait()
        now, made_at = self._time_of(received)
        if self.world.TICK and self.world.next_due() <= now and not isinstance(received, Due):
            self._later.appendleft(received)
            return now, Due()
        if isinstance(received, Report) and received.since:
            received = received.taken(received.since + max(now - made_at, 0) / SECOND)
        return now, received

    def _time_of(self, received: Input) -> tuple[int, int]:
        """The time of an input on the run's clock, and when it was made [µs]."""
        earliest, real_now = self.clock + self.world.TICK, self.world.real_now()
        if not isinstance(received, Report) or not received.since:
            return max(earliest, real_now), real_now
        made_at = self.elapsed() - int((host.monotonic() - received.since) * SECOND)
        # one that was made while no controller was there has the time at which it was true
        return max(earliest, min(real_now, made_at) if received.since < self.joined else real_now), made_at

    def _wait(self) -> Input:
        """The next input from the queue, or :class:`Due` when an agenda entry is due; answers questions meanwhile."""
        while not self.ending:
            if self._later:
                return self._later.popleft()
            try:
                item = self.waiting.get(timeout=self.world.patience())
            except host.Empty:
                break
            received = item() if callable(item) else item
            if received is not None:
                return received
        return Due()

    def _answer(self) -> None:
        """Answer questions for a second while the journal cannot be written, so that no input can be processed.

        Raises
        ------
        SkedgeError
            If the service has to end meanwhile.
        """
        until = host.monotonic() + _BLOCKED_S
        with suppress(host.Empty):
            while True:
                item = self.waiting.get(timeout=max(until - host.monotonic(), 0.0))
                received = item() if callable(item) else item
                if received is not None:
                    # inputs cannot be acted on before they are written: they keep their order until then
                    self._later.append(received)
        self._check_end()

    def end(self) -> None:
        """Wait for no input any more, once those that wait are dealt with; any thread and signal handler may say so."""
        self.waiting.put(self._end)
        if self.journal is not None and self.journal.blocked:
            self._end()

    def _end(self) -> None:
        self.ending = True

    def _check_end(self) -> None:
        """End a controller that has to end and waits for its journal: what waits to be written does not take effect."""
        if self.ending:
            raise SkedgeError(f"the service ends while {self.journal.blocked if self.journal is not None else ''}")
