"""Intervals of forecasts, from the measured errors of past forecasts.

They are conformal: an interval lies between quantiles of the last errors, and which quantiles is corrected by the share
of the last intervals that held their completion (adaptive conformal inference, Gibbs & Candes, NeurIPS 2021).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import numpy as np

from skedge.core.model.time import SECOND

SHARE = 0.8
"""Share of the completions that an interval should hold."""

_MEMORY, _GAIN = 500, 0.02
"""Errors that are remembered, and by how much an interval that held or did not moves the quantiles of the next."""

_UNKNOWN, _UNKNOWN_ERRORS = {False: 8.0, True: 4.0}, 20
"""Before there are so many errors they are completed by assumed ones, spread evenly (in their logarithm) up to this
factor either way: more for jobs whose speed has not been measured."""

_OFFSET = SECOND
"""Added to both times of a ratio [µs], so that a second more or less is little where only seconds are left."""


class PastForecast(NamedTuple):
    """A forecast that was made: when, of which completion, with which interval [µs], of a job whose speed was known."""

    time: int
    end: int
    interval: tuple[int, int]
    measured: bool


class Calibration:
    """The errors of one kind of job, and the intervals that follow from them.

    Attributes
    ----------
    missed
        The share of the errors that is left out of an interval, half on either side; it can fall below 0, where an
        interval is longer than all errors.
    """

    def __init__(self, unknown: float) -> None:
        self.unknown, self.missed = np.log(unknown), 1 - SHARE
        self._errors: deque[float] = deque(maxlen=_MEMORY)

    def interval(self, now: int, end: int) -> tuple[int, int]:
        """The interval of a forecast made at `now` [µs]; it begins at the present at the soonest."""
        left, level = max(end - now, 0) + _OFFSET, min(max(self.missed, 0.0), 1.0) / 2
        low, high = np.quantile(self._completed_errors(), [level, 1 - level])
        # a negative share asks for more than all errors seen: widen the interval in proportion
        room = max(-self.missed, 0.0) * (high - low)
        ends = (now - _OFFSET + round(left * float(np.exp(error))) for error in (low - room, high + room))
        first, last = (max(now, time) for time in ends)
        return first, last

    def learn(self, ratio: float, *, covered: bool) -> None:
        """Take in how far a forecast was off, and whether its interval held the completion."""
        self._errors.append(float(np.log(ratio)))
        # alpha_(t+1) = alpha_t + gamma (alpha - err_t) of Gibbs & Candes, where err_t is 1 for a miss
        self.missed = min(max(self.missed + _GAIN * (1 - SHARE - (not covered)), -1.0), 1.0)

    def _completed_errors(self) -> np.ndarray:
        """The errors, completed by assumed ones while they are few."""
        assumed = np.linspace(-self.unknown, self.unknown, max(_UNKNOWN_ERRORS - len(self._errors), 0))
        return np.concatenate([np.array(self._errors), assumed])


class Forecasts:
    """Forecasts whose jobs have not completed, and how far those of completed jobs were off.

    The error of a forecast is a ratio: the time that the job took from then on, divided by the time foreseen. A job's
    first forecast counts, and then each one at which the time left has halved since: a long job has more, but only by
    the logarithm. Jobs whose speed was measured have errors of their own.

    Parameters
    ----------
    off
        Called with each error when it is measured.
    """

    def __init__(self, off: Callable[[float], object] | None = None) -> None:
        self._on_error = off
        self._forecasts: dict[int, list[PastForecast]] = {}
        self._covered: deque[bool] = deque(maxlen=_MEMORY)
        self._calibrations = {measured: Calibration(unknown) for measured, unknown in _UNKNOWN.items()}

    def make(
        self, now: int, completions: Mapping[int, int], measured: Collection[int] = ()
    ) -> dict[int, tuple[int, int]]:
        """Keep forecasts made at `now`; returns the interval of each [µs]. `measured`: jobs whose speed is known."""
        intervals = {job: self._calibrations[job in measured].interval(now, end) for job, end in completions.items()}
        for job, end in completions.items():
            forecasts = self._forecasts.setdefault(job, [])
            if not forecasts or 2 * (end - now) <= forecasts[-1].end - forecasts[-1].time:
                forecasts.append(PastForecast(now, end, intervals[job], job in measured))
        return intervals

    def complete(self, job: int, time: int) -> None:
        """Measure the errors of a job's forecasts: it completed at `time` [µs]."""
        for past in self._forecasts.pop(job, ()):
            ratio = (time - past.time + _OFFSET) / (max(past.end - past.time, 0) + _OFFSET)
            self._covered.append(past.interval[0] <= time <= past.interval[1])
            self._calibrations[past.measured].learn(ratio, covered=self._covered[-1])
            if self._on_error is not None:
                self._on_error(ratio)

    def forget(self, job: int) -> None:
        """Drop the forecasts of a job that will not complete."""
        self._forecasts.pop(job, None)

    @property
    def measured(self) -> int:
        """Number of intervals that were checked against a completion, of those remembered."""
        return len(self._covered)

    @property
    def held(self) -> float | None:
        """Share of these intervals that held the completion; None if there are none."""
        return sum(self._covered) / len(self._covered) if self._covered else None
