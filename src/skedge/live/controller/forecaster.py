"""The forecasts of a service, made outside the controller's thread: every ten seconds, and on request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from skedge.core.errors import StateError
from skedge.live import host
from skedge.sim.forecasts import Forecasts
from skedge.sim.what_if import Foreseen, Present

from .submissions import BusyError

_LOOK_S = 10.0
"""Pause between two forecasts that no request asked for [s]."""


@dataclass(frozen=True)
class Forecast:
    """A forecast of every job in the system: next starts, completions, and the intervals of these [µs].

    Attributes
    ----------
    never
        Jobs that never complete if nothing changes.
    """

    starts: dict[int, int] = field(default_factory=dict)
    completions: dict[int, int] = field(default_factory=dict)
    intervals: dict[int, tuple[int, int]] = field(default_factory=dict)
    never: frozenset[int] = frozenset()


class Forecaster:
    """Makes forecasts in the thread of whoever asks, and in a thread of its own so that errors are measured.

    Parameters
    ----------
    present
        Returns a copy of the present state, or None if no job is in the system; it is made by the controller's thread.
    off
        Called with each error that is measured (:class:`~skedge.sim.forecasts.Forecasts`).
    """

    def __init__(self, present: Callable[[], Present | None], off: Callable[[float], object]) -> None:
        self._present, self.forecasts, self._lock = present, Forecasts(off), host.Lock()
        self._ended = host.Event()
        self._thread = host.Thread(target=self._look, name="forecasts", daemon=True)

    def start(self) -> None:
        """Begin to make forecasts now and then."""
        self._thread.start()

    def end(self) -> None:
        """End the thread."""
        self._ended.set()

    def forecast(self) -> Forecast:
        """The forecast from the present state."""
        present = self._present()
        if present is None:
            return Forecast()
        jobs = present.kernel.active().tolist()
        foreseen: Foreseen = present.run_out()
        with self._lock:
            intervals = self.forecasts.make(present.now, foreseen.completions, present.kernel.factor)
        never = frozenset(jobs) - foreseen.completions.keys()
        return Forecast(foreseen.starts, foreseen.completions, intervals, never)

    def completed(self, job: int, time: int) -> None:
        """Note that a job has completed at `time` [µs]."""
        with self._lock:
            self.forecasts.complete(job, time)

    def left(self, job: int) -> None:
        """Note that a job has left without completing."""
        with self._lock:
            self.forecasts.forget(job)

    def calibration(self) -> dict[str, float | int | None]:
        """Intervals that were checked, and the share of them that held the completion."""
        with self._lock:
            return {"checked": self.forecasts.measured, "held": self.forecasts.held}

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_S):
            with suppress(BusyError, StateError):  # asked again at the next look
                self.forecast()
