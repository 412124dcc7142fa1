"""How long each stage of a call takes, measured where it happens."""

from __future__ import annotations

from skedge.live import host


class StageClock:
    """Divides the time since it was made into stages that follow each other.

    Attributes
    ----------
    stage_s
        Duration of each stage that has ended, of all its times together [s].
    """

    def __init__(self) -> None:
        self.stage_s: dict[str, float] = {}
        self._began = self._stage_began = host.perf_counter()

    @property
    def elapsed_s(self) -> float:
        """Time since it was made [s]."""
        return host.perf_counter() - self._began

    def end(self, stage: str) -> None:
        """Note that a stage ends now; it began when the one before it ended. Times of the same stage add up."""
        now = host.perf_counter()
        self.stage_s[stage] = self.stage_s.get(stage, 0.0) + now - self._stage_began
        self._stage_began = now
