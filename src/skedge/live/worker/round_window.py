"""A window of rounds: what the process of a parameter server trains by itself, with the job's other workers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple


class RoundMinibatch(NamedTuple):
    """A mini-batch of a round.

    Attributes
    ----------
    chunk, step
        The chunk, and the number of its mini-batch, counted over all epochs from 0.
    link
        Number of the connection (:mod:`.links`) to the worker that computes it; 0: the parameter server's process does.
    length
        How many the worker trains from it on (:meth:`.program.Program.local_minibatches`).
    """

    chunk: int
    step: int
    link: int = 0
    length: int = 1


@dataclass(frozen=True)
class RoundWindow:
    """Rounds that are trained one after the other without a call for each.

    The coordinator may revoke it: it then ends after the round that is computed. It also ends after a round in which a
    worker was late or lost; what the others have computed counts.

    Attributes
    ----------
    number
        Its number among those of the parameter server's life, from 1: by which it is revoked.
    version
        Version of the parameters at which it begins; at any other one nothing is trained.
    rounds
        The mini-batches of each round, which are computed at the same time; of at most one by the process itself.
    pace_s
        Least time of a mini-batch [s].
    due_s
        When the first round is due to end, from the start of the window [s]; less than 0 if the job is behind.
    limits
        Longest first mini-batch of a process, and longest further one [s].
    patience_s
        How long a round waits for a worker [s].
    """

    number: int
    version: int
    rounds: tuple[tuple[RoundMinibatch, ...], ...]
    pace_s: float = 0.0
    due_s: float = 0.0
    limits: tuple[float, float] = (300.0, 300.0)
    patience_s: float = 10.0

    def wait_s(self, rounds: int, after_s: float) -> float:
        """How long the next round waits, once `rounds` have been trained, `after_s` after the start [s]."""
        return max(self.due_s + (self.length(rounds) - self.length(1)) * self.pace_s - after_s, 0.0)

    def length(self, rounds: int) -> int:
        """Mini-batches, one after the other, of the first `rounds` rounds."""
        return self._lengths[rounds]

    @property
    def lengths(self) -> list[list[int]]:
        """How many mini-batches each worker trains in each round."""
        return [[minibatch.length for minibatch in minibatches] for minibatches in self.rounds]

    @cached_property
    def _lengths(self) -> tuple[int, ...]:
        return (0, *accumulate(map(max, self.lengths)))

    @property
    def links(self) -> frozenset[int]:
        """Numbers of the connections that it uses."""
        return frozenset(minibatch.link for minibatches in self.rounds for minibatch in minibatches if minibatch.link)

    def chunks(self, link: int) -> list[int]:
        """The chunks of the mini-batches of one connection, by its number, round by round."""
        return [minibatch.chunk for minibatches in self.rounds for minibatch in minibatches if minibatch.link == link]

    def own_chunk(self, rounds: int) -> int | None:
        """The chunk that the process trains itself in the round after `rounds` others, or in the last one."""
        minibatches = self.rounds[min(rounds, len(self.rounds) - 1)]
        return next((minibatch.chunk for minibatch in minibatches if not minibatch.link), None)
