"""The live world at sites: training goes slot by slot, and what happens within a slot is reported at its end."""

from __future__ import annotations

from typing import Any

from skedge.core.events import Allocate, Event, Suspend, Transfer
from skedge.core.model.job_fields import Kind
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.live.coordinator.report import Report

from .inputs import ServerChanged
from .ray_world import RayWorld
from .site_work import SiteWork
from .uploads import Transport

_LATE_S = 1.0
"""Interval at which an overdue slot is checked for completion [s]."""


class SiteWorld(RayWorld):
    """A :class:`.ray_world.RayWorld` whose jobs are trained at sites.

    The clock stops at the end of a slot until the slot's work is done.
    """

    TICK = 0  # all that happens in a slot is one event, at its end

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sites = SiteWork(self)
        self._performers |= {
            Allocate: self.sites.allocate,
            Suspend: self.sites.suspend,
            Transfer: self.sites.transfer,
        }

    def real_now(self) -> int:
        """Time since the start [µs], at most the end of a slot whose work is not done."""
        now = super().real_now()
        return min(now, self.sites.end) if self.sites.open else now

    def meta(self) -> dict[str, Any]:
        """The metadata of a live run, with the time by which slots took longer than their length."""
        return {**super().meta(), "slot_overrun_s": self.sites.overrun / SECOND}

    def _timed(self) -> Event | None:
        """All events are reported at slot boundaries, from which the clock then continues.

        Jobs reach the limits of their time there, too (:meth:`.site_work.SiteWork.end_slot`).
        """
        self.sites.begin()
        if self.now() < self.sites.end or self.sites.open:
            return None
        delay = 0 if self.inbox.rebuilding else self.inbox.elapsed() - self.sites.end
        self.inbox.away += delay
        self.sites.overrun += delay
        self.inbox.clock = self.sites.end
        return self.sites.end_slot()

    def next_due(self) -> int:
        """The end of the slot [µs]."""
        # what the agenda has within the slot is reported at its end: to wake for it earlier would be in vain
        return self.sites.end

    def patience(self) -> float:
        """How long to wait for the next input [s]; a slot that is late is looked at again soon."""
        is_late = self.sites.open and self.inbox.elapsed() >= self.sites.end
        return _LATE_S if is_late else super().patience()

    def _uploaded(self, transport: Transport) -> None:
        super()._uploaded(transport)
        self.sites.uploaded(transport)

    def _progress(self, report: Report) -> None:
        self.sites.report(report)

    def _failed(self, job: int, reason: str) -> None:
        """The job leaves at the end of the slot."""
        self.sites.fail(job, reason)

    def _changed(self, change: ServerChanged, *, was_out: bool, is_out: bool) -> None:
        self.sites.changed(change, reported=was_out != is_out)


_WORLDS: dict[Kind, type[RayWorld]] = {"slots": RayWorld, "resources": RayWorld, "sites": SiteWorld}


def world_of(scenario: Scenario) -> type[RayWorld]:
    """The live world for the cluster of a scenario."""
    return _WORLDS[scenario.cluster.kind]
