"""The history of a run: each operation and event, and digests by which two runs are compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

BLOCK = 1000
"""Steps after which a digest is noted, so that two runs that differ can be compared part by part."""


class Step(NamedTuple):
    """One line of the history."""

    time_s: float
    process: str
    thread: str
    operation: str

    def __str__(self) -> str:
        return f"{self.time_s:.6f} {self.process}/{self.thread} {self.operation}"


class History:
    """All steps of a run so far.

    Attributes
    ----------
    digests
        Digest of everything up to each :data:`BLOCK` steps.
    """

    def __init__(self) -> None:
        self.digests: list[str] = []
        self._steps: list[Step] = []
        self._hash, self._hashed = hashlib.blake2b(digest_size=8), 0

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self._steps)

    def note(self, time_s: float, process: str, thread: str, operation: str) -> None:
        """Add a step.

        Parameters
        ----------
        time_s
            Virtual time [s].
        process, thread
            Who did it; the thread is ``-`` for what happens to a process or machine.
        operation
            What was done.
        """
        self._steps.append(Step(time_s, process, thread, operation))
        if len(self._steps) - self._hashed == BLOCK:
            self._hash.update(_bytes(self._steps[self._hashed :]))
            self._hashed += BLOCK
            self.digests.append(self._hash.hexdigest())

    @property
    def digest(self) -> str:
        """Digest of all steps."""
        total = self._hash.copy()
        total.update(_bytes(self._steps[self._hashed :]))
        return total.hexdigest()

    def text(self, last: int | None = None, processes: Sequence[str] = ()) -> str:
        """The history as lines.

        Parameters
        ----------
        last
            Number of lines, the last ones; None: all.
        processes
            Names of those shown; none: all.
        """
        steps = [step for step in self._steps if not processes or step.process in processes]
        return "\n".join(map(str, steps[-last:] if last else steps))


def _bytes(steps: Sequence[Step]) -> bytes:
    return "".join(f"{step}\n" for step in steps).encode()
