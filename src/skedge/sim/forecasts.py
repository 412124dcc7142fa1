"""Intervals of forecasts, from the measured errors of past forecasts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

SHARE = 0.8
"""Share of the completions that an interval should hold."""

FEWEST, _KEPT = 20, 500
"""Errors from which intervals are given, and the errors that are remembered."""


class PastForecast(NamedTuple):
    """A forecast that was made: when, of which completion, with which interval if there was one [µs]."""

    at: int
    end: int
    interval: tuple[int, int] | None


class Forecasts:
    """Forecasts whose jobs have not completed, and how far those of completed jobs were off.

    The error of a forecast is a ratio: the time that the job took from then on, divided by the time foreseen. The
    interval of a new forecast lies between the 10 % and the 90 % quantile of the last errors times the time foreseen.
    A job's first forecast counts, and then each one at which the time left has halved since: a long job has more, but
    only by the logarithm.

    Parameters
    ----------
    off
        Called with each error when it is measured.
    """

    def __init__(self, off: Callable[[float], object] | None = None) -> None:
        self._off = off
        self._made: dict[int, list[PastForecast]] = {}
        self._errors: deque[float] = deque(maxlen=_KEPT)
        self._inside: deque[bool] = deque(maxlen=_KEPT)

    def make(self, now: int, completions: Mapping[int, int]) -> dict[int, tuple[int, int] | None]:
        """Keep forecasts made at `now`; returns the interval of each [µs], None while too few errors are known."""
        ends = self._quantiles()
        found = {job: None if ends is None else _interval(now, end, ends) for job, end in completions.items()}
        for job, end in completions.items():
            before = self._made.setdefault(job, [])
            if not before or 2 * (end - now) <= before[-1].end - before[-1].at:
                before.append(PastForecast(now, end, found[job]))
        return found

    def complete(self, job: int, time: int) -> None:
        """Measure the errors of a job's forecasts: it completed at `time` [µs]."""
        for made in self._made.pop(job, ()):
            if made.end <= made.at:
                continue
            self._errors.append((time - made.at) / (made.end - made.at))
            if self._off is not None:
                self._off(self._errors[-1])
            if made.interval is not None:
                self._inside.append(made.interval[0] <= time <= made.interval[1])

    def forget(self, job: int) -> None:
        """Drop the forecasts of a job that will not complete."""
        self._made.pop(job, None)

    @property
    def measured(self) -> int:
        """Number of intervals that were checked against a completion, of those remembered."""
        return len(self._inside)

    @property
    def held(self) -> float | None:
        """Share of these intervals that held the completion; None if there are none."""
        return sum(self._inside) / len(self._inside) if self._inside else None

    def _quantiles(self) -> tuple[float, float] | None:
        if len(self._errors) < FEWEST:
            return None
        low, high = np.quantile(np.array(self._errors), [(1 - SHARE) / 2, (1 + SHARE) / 2])
        return float(low), float(high)


def _interval(now: int, end: int, errors: tuple[float, float]) -> tuple[int, int]:
    low, high = (now + round(error * (end - now)) for error in errors)
    return low, high
