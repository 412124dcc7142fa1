"""How long each stage of a call takes, measured where it happens."""

from __future__ import annotations

from skedge.live import host


class StageClock:
    """Divides the time since it was made into stages that follow each other.

    Attributes
    ----------
    stage_s
        Duration of each stage that has ended [s].
    """

    def __init__(self) -> None:
        self.stage_s: dict[str, float] = {}
        self._began = host.perf_counter()

    def end(self, stage: str) -> None:
        """Note that a stage ends now; it began when the one before it ended."""
        now = host.perf_counter()
        self.stage_s[stage], self._began = now - self._began, now
