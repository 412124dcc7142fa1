"""A window of rounds: what the process of a parameter server trains by itself, as it has the job's only worker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RoundWindow:
    """Rounds of one mini-batch each, trained one after the other without a call for each.

    The coordinator may revoke it: it then ends after the mini-batch that is computed.

    Attributes
    ----------
    number
        Its number among those of the parameter server's life, from 1: by which it is revoked.
    version
        Version of the parameters at which it begins; at any other one nothing is trained.
    minibatches
        (chunk, step) of each round.
    pace_s
        Least time of a round [s].
    due_s
        When the first round is due to end, from the start of the window [s]; less than 0 if the job is behind.
    limits
        Longest first mini-batch of a process, and longest further one [s].
    """

    number: int
    version: int
    minibatches: tuple[tuple[int, int], ...]
    pace_s: float = 0.0
    due_s: float = 0.0
    limits: tuple[float, float] = (300.0, 300.0)

    def wait_s(self, rounds: int, after_s: float) -> float:
        """How long the next round waits, once `rounds` have been trained, `after_s` after the start [s]."""
        return max(self.due_s + (rounds - 1) * self.pace_s - after_s, 0.0)
