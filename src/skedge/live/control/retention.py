"""How long checkpoints are kept of jobs that have left: the newest whole one, for some days of the service's time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from skedge.core.time import SECOND
from skedge.live.training.checkpoint import Checkpoints

_DAY_S = 86_400
_LOOK_S = 60.0
"""Pause between two looks [s]."""


class Retention:
    """Removes what is not kept, in a thread of its own.

    Time is the run's: a clock of the machine that jumps removes nothing.

    Parameters
    ----------
    now
        The run's time [µs].
    keep_days
        inf: for ever.
    """

    def __init__(self, checkpoints: Checkpoints, now: Callable[[], int], keep_days: float) -> None:
        self.checkpoints, self.now, self.keep = checkpoints, now, keep_days * _DAY_S * SECOND
        self.left: dict[str, int] = {}
        self.thinned: set[str] = set()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._look, name="retention", daemon=True)

    def note(self, job: str, time: int) -> None:
        """A job has left at `time` [µs]."""
        self.left[job] = time

    def sweep(self) -> None:
        """Keep one checkpoint of each job that has left, none of those that left long ago."""
        for job, time in list(self.left.items()):
            if self.now() - time > self.keep:
                self.checkpoints.forget(job)
                del self.left[job]
            elif job not in self.thinned:
                self.checkpoints.thin(job)
                self.thinned.add(job)

    def _look(self) -> None:
        while not self.ended.wait(_LOOK_S):
            with suppress(OSError):  # storage that does not answer now is asked again
                self.sweep()

    def end(self) -> None:
        """Let the thread end."""
        self.ended.set()
