"""To which controller a coordinator is attached, and what it owes it: a machine without threads, clocks and calls.

Times come in as arguments, and what is to be done goes out as an answer: :class:`.coordinator.TrainingCoordinator` has
the threads and the trainers. Times ``now_s`` are of the machine's monotonic clock [s]; those of the run are in µs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from skedge.core.model.time import SECOND

from .messages import FencedError, LastReport, UnattachedError, Who
from .report import Report


class NewController(NamedTuple):
    """A controller has attached.

    Attributes
    ----------
    is_first
        Whether this coordinator has known no controller before.
    alone_s, updates
        How long none was heard before it [s], and the updates of parameters in that time.
    """

    is_first: bool
    alone_s: float
    updates: int


class Attachment:
    """The controller that is attached, the reports that it has not journaled yet, and the run's clock.

    Parameters
    ----------
    alone_s
        How long trainers continue without a controller [s].
    now_s
        The present.

    Attributes
    ----------
    who
        The controller that attached last; None if none ever has.
    reports
        Those that no journal has, ascending by number.
    number
        That of the last report.
    updates
        Updates of parameters so far.
    paused_at
        Since when the trainers pause, as no controller was heard; 0 while they train.
    """

    def __init__(self, alone_s: float, now_s: float) -> None:
        self.alone_s = alone_s
        self.who: Who | None = None
        self.reports: list[Report] = []
        self.number = self.updates = 0
        self.paused_at = 0.0
        self._ordered = self._updates_heard = 0
        self._clock, self._heard = 0, now_s
        self._attached = set[int]()

    # -- controllers ---------------------------------------------------------------------------------------------

    def attach(self, controller: Who, journaled: LastReport, now_s: float) -> NewController | None:
        """Take orders of this controller from now on, and of none before it; None if the call is a repeated one.

        Parameters
        ----------
        controller
            The controller.
        journaled
            The last report in its journal: those up to it are dropped, and numbers continue above it. Where another
            coordinator had made it, none of this one's is in the journal, and all are numbered anew.
        now_s
            The present.

        Raises
        ------
        FencedError
            If a later controller is attached.
        """
        if controller == self.who:
            return None
        if self.who is not None and controller[0] <= self.who[0]:
            raise FencedError
        change = NewController(self.who is None, now_s - self._heard, self.updates - self._updates_heard)
        if journaled.controller in self._attached:
            self._drop(journaled.number)
        else:
            self.reports = [replace(report, number=n) for n, report in enumerate(self.reports, journaled.number + 1)]
            self.number = journaled.number + len(self.reports)
        self.who, self._ordered = controller, 0
        self._attached.add(controller[0])
        return change

    def check(self, controller: Who) -> None:
        """Refuse a controller that is not the one attached.

        Raises
        ------
        FencedError
            If another one is.
        UnattachedError
            If none is.
        """
        if self.who is None:
            raise UnattachedError
        if controller != self.who:
            raise FencedError

    def takes(self, controller: Who, number: int) -> bool:
        """Whether the order of this number is to be carried out: not if it has been, and was asked for again.

        Raises
        ------
        FencedError, UnattachedError
            As :meth:`check` does.
        """
        self.check(controller)
        is_new = number > self._ordered
        self._ordered = max(number, self._ordered)
        return is_new

    def hear(self, clock: int, now_s: float) -> bool:
        """Note the run's clock [µs] of the controller attached; returns whether trainers that have paused continue."""
        self._clock, self._heard, self._updates_heard = clock, now_s, self.updates
        was_paused, self.paused_at = self.paused_at > 0, 0.0
        return was_paused

    def pauses(self, now_s: float) -> bool:
        """Whether the trainers are to pause from now on, as no controller was heard for long."""
        if self.who is None or self.paused_at or now_s - self._heard <= self.alone_s:
            return False
        self.paused_at = now_s
        return True

    def clock(self, now_s: float) -> int:
        """The run's clock [µs]: as it was when a controller was heard, and the time since then but for a pause."""
        return self._clock + int(((self.paused_at or now_s) - self._heard) * SECOND)

    # -- reports -------------------------------------------------------------------------------------------------

    def tell(self, report: Report, now_s: float) -> None:
        """Keep a report, with the next number, until it is journaled."""
        self.number += 1
        self.reports.append(replace(report, number=self.number).queued(now_s))

    def journaled(self, controller: Who, number: int) -> None:
        """Drop the reports up to this number, as they cannot be lost any more.

        Raises
        ------
        FencedError, UnattachedError
            As :meth:`check` does.
        """
        self.check(controller)
        self._drop(number)

    def has_news(self, controller: Who, after: int) -> bool:
        """Whether a controller is to have its answer: there are reports after this one, or it is not attached."""
        return self.who != controller or self.number > after

    def news(self, controller: Who, after: int, now_s: float) -> list[Report]:
        """The reports after this one, with their ages [s].

        Raises
        ------
        FencedError, UnattachedError
            As :meth:`check` does.
        """
        self.check(controller)
        self._updates_heard = self.updates
        return [replace(report, since=now_s - report.since) for report in self.reports if report.number > after]

    def _drop(self, number: int) -> None:
        self.reports = [report for report in self.reports if report.number > number]
