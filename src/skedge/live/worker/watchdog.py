"""How long a job's code may take before its process is ended and started again, and how often that is done."""

from __future__ import annotations

from dataclasses import dataclass

PREPARE_S = 600.0
"""Longest time in which a process installs the job's packages, imports its code and calls its factory [s]."""


@dataclass(frozen=True)
class WatchdogLimits:
    """The limits of the progress watchdog.

    Attributes
    ----------
    least_s
        A mini-batch is stalled after this time at the earliest [s], or after `rounds` times its usual one.
    rounds
        See `least_s`.
    first_s
        Least time of the first mini-batch of a process [s], in which libraries and devices are made ready; not after a
        stall: the mini-batch is then known.
    prepare_s
        Longest time in which a process installs packages, imports the job's code and calls its factory [s].
    restarts
        Times that the process of a stalled mini-batch is started again before the job is FAILED.
    """

    least_s: float = 60.0
    rounds: float = 10.0
    first_s: float = 180.0
    prepare_s: float = PREPARE_S
    restarts: int = 2

    def limits(self, usual_s: float, *, stalled: bool) -> tuple[float, float]:
        """(longest first, longest further) mini-batch of a process [s], where they usually take `usual_s`."""
        further = max(self.rounds * usual_s, self.least_s)
        return (further if stalled else max(self.first_s, further)), further


WATCH = WatchdogLimits()
"""The limits where none are given."""
