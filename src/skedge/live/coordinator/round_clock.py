"""The time of a job's rounds: how long they take, when they are due, and by how much the job is late."""

from __future__ import annotations

from skedge.live import host

_DEADLINE_S, SLOW_S = 10.0, 300.0
"""Deadlines of a call [s]. A worker that exceeds the first (or three mean rounds, if longer) is left out of the round;
each such round doubles the deadline, up to the second. Loading and saving use the second from the start."""

_LONGEST_S = 900.0
"""Longest wait for a worker that trains several mini-batches [s]: less than a parameter server may wait."""

_NEW, _ENOUGH, _CHANGED = 0.1, 20, 1.2
"""Least weight of a round in the mean round time, most rounds between two reports of it, and the factor that is
reported."""


class RoundClock:
    """Keeps the announced speed of one job, and adds up its delays.

    Attributes
    ----------
    pace
        Least time of a round [s], which gives embedded servers the announced speed; 0 on real servers.
    due
        When the next round is due, by ``host.monotonic()``; 0 if none is.
    late_s, behind_s
        Delay since the last report, and the part of it that later rounds may make up for [s].
    recovery_s
        Duration of the rounds in which a process was lost, since the last report [s].
    round_s
        Mean time of a round [s].
    patience_s
        How long a round waits for a worker [s].
    announced_s
        Announced time of a round [s].
    """

    def __init__(self, pace: float) -> None:
        self.pace = pace
        self.announced_s = pace
        self.due = self.late_s = self.behind_s = self.recovery_s = self.round_s = 0.0
        self.patience_s = min(max(_DEADLINE_S, 3 * pace), SLOW_S)
        self._joined: list[float] = []
        self._reported_s, self._rounds, self._next = 0.0, 0, 2

    @property
    def usual_s(self) -> float:
        """Usual time of a round [s]: the mean, or the announced one if that is longer."""
        return max(self.round_s, self.announced_s)

    def patience_of(self, minibatches: int) -> float:
        """How long a round of several mini-batches waits for a worker [s]."""
        return (
            max(self.patience_s, min(3 * self.usual_s * minibatches, _LONGEST_S))
            if minibatches > 1
            else self.patience_s
        )

    def join(self, lag_s: float) -> None:
        """Note a team that joins; it holds its lanes since `lag_s` ago."""
        self._joined.append(host.monotonic() - lag_s)

    def forget_joins(self) -> None:
        """Forget the teams that have joined: the time since then is no delay."""
        self._joined.clear()

    def begin(self) -> None:
        """Begin a round; the time in which new teams held their lanes before it is a delay."""
        now = host.monotonic()
        if self._joined:
            self.write_off()
            self.late_s += now - min(self._joined)
            self._joined.clear()
        # a round that follows another is due when that was, so a slow one can be made up for
        self.due = self.due or now

    def write_off(self) -> None:
        """Drop the accumulated delay: a chunk that joins must not train faster to make up for earlier slow rounds."""
        self._look()
        self.late_s, self.behind_s, self.due = self.late_s + self.behind_s, 0.0, 0.0

    def postpone(self, by_s: float) -> None:
        """Note a delay [s] that later rounds do not make up for."""
        self.late_s, self.due = self.late_s + by_s, self.due + by_s

    def report(self) -> tuple[float, float]:
        """(delay, recovery) since the last report [s]."""
        self._look()
        delay_s, lost = self.late_s + self.behind_s, self.recovery_s
        # what is behind is reported now; if later rounds make up for it, the next report takes it back
        self.late_s, self.recovery_s = -self.behind_s, 0.0
        return delay_s, lost

    def _look(self) -> None:
        """Note how far behind a round is that was due and has not been kept, as while storage is away."""
        if self.due:
            self.behind_s = max(self.behind_s, host.monotonic() - self.due)

    def fail(self, took_s: float) -> None:
        """Note a round in which a process was lost or late; the next one waits longer."""
        self.recovery_s += took_s
        self.patience_s = min(2 * self.patience_s, SLOW_S)

    def measure(self, took_s: float, rounds: int = 1) -> float | None:
        """Update the mean time of a round, at least the announced one; returns it when it has changed by a fifth.

        `took_s` is that of each of `rounds` [s]. If workers train several mini-batches in a round, each counts as one.

        That is asked after 2, 4, 8, 16 rounds, and then every 20. The first round includes starting: it counts only
        while there is no other, and is not reported, as a decision would take the whole job to be as slow.
        """
        means = [mean for _ in range(rounds) if (mean := self._measured(max(took_s, self.pace))) is not None]
        return means[-1] if means else None

    def _measured(self, took_s: float) -> float | None:
        self._rounds += 1
        new = max(_NEW, 1 / max(self._rounds - 1, 1))
        self.round_s = (1 - new) * self.round_s + new * took_s
        self.patience_s = min(max(_DEADLINE_S, 3 * self.round_s), SLOW_S)
        if self._rounds < self._next:
            return None
        self._next = min(2 * self._next, self._next + _ENOUGH)
        reported = self._reported_s or self.pace
        if reported and 1 / _CHANGED < self.round_s / reported < _CHANGED:
            return None
        self._reported_s = self.round_s
        return self.round_s

    def keep(self, rounds: int = 1, pace: float | None = None) -> None:
        """Wait until `rounds` have lasted as long as announced; those after a slow one may make up for it.

        `pace`: the announced time of these rounds [s]; None: that of now.
        """
        self.due += (self.pace if pace is None else pace) * rounds
        wait = self.due - host.monotonic()
        self.behind_s = max(0.0, -wait)
        if wait > 0:
            host.sleep(wait)
