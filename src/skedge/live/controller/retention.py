"""What is kept of jobs that have left: of their checkpoints the newest whole one, for some days of service time.

Servers keep nothing of them; each is told so when a job leaves, and is asked at each sweep what it has, as it may have
been away.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from skedge.core.model.time import SECOND
from skedge.live import host
from skedge.live.worker.checkpoint import Checkpoints

_DAY_S = 86_400
_LOOK_S = 60.0
"""Pause between two sweeps [s]."""


class Retention:
    """Removes old checkpoints, in its own thread.

    It uses the run's time, so that a jump of the machine's clock removes nothing.

    Parameters
    ----------
    checkpoints
        Those of the service.
    now
        Returns the run's time [µs].
    keep_days
        How long checkpoints are kept [days]; inf: for ever.
    sweep_servers
        Removes what servers still have of such jobs.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        now: Callable[[], int],
        keep_days: float,
        sweep_servers: Callable[[], None] = lambda: None,
    ) -> None:
        self.sweep_servers = sweep_servers
        self.checkpoints, self.now, self.keep = checkpoints, now, keep_days * _DAY_S * SECOND
        self.left: dict[str, int] = {}
        self.thinned: set[str] = set()
        self.ended = host.Event()
        self.thread = host.Thread(target=self._look, name="retention", daemon=True)

    def note(self, job: str, time: int) -> None:
        """Note that a job has left at `time` [µs]."""
        self.left[job] = time

    def sweep(self) -> None:
        """Keep one checkpoint of each job that has left, and none of jobs that left more than `keep_days` ago."""
        for job, time in list(self.left.items()):
            if self.now() - time > self.keep:
                self.checkpoints.forget(job)
                del self.left[job]
            elif job not in self.thinned:
                self.checkpoints.thin(job)
                self.thinned.add(job)

    def _look(self) -> None:
        while not self.ended.wait(_LOOK_S):
            self.sweep_servers()
            with suppress(OSError):  # storage that does not answer is tried again at the next sweep
                self.sweep()

    def end(self) -> None:
        """End the thread."""
        self.ended.set()
