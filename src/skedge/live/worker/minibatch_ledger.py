"""Which mini-batches are in the parameters of a job: the rule by which each counts exactly once, without arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from .program import Program


class Minibatch(Protocol):
    """A mini-batch, or the first of those that a worker trains in a round."""

    @property
    def chunk(self) -> int:
        """The chunk."""

    @property
    def step(self) -> int:
        """The number of the mini-batch in its chunk, counted over all epochs from 0."""


M = TypeVar("M", bound=Minibatch)


class MinibatchLedger:
    """The mini-batches that are in the parameters of one job.

    Attributes
    ----------
    version
        Number of updates so far.
    progress
        Mini-batches of each chunk that are in the parameters.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.version, self.progress = 0, [0] * program.chunks

    def new(self, version: int, minibatches: Sequence[M]) -> list[M]:
        """Those of the mini-batches that an update by gradients at a version counts.

        None if the version has passed, so a repeated call changes nothing; and only those that are their chunk's next
        one.
        """
        if version != self.version:
            return []
        return [m for m in minibatches if self.progress[m.chunk] == m.step < self.program.steps]

    def count(self, new: Sequence[Minibatch]) -> None:
        """Count an update by these mini-batches."""
        for minibatch in new:
            self.progress[minibatch.chunk] += self.program.local_minibatches(minibatch.step)
        self.version += 1
