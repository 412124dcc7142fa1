"""Faults: a list drawn from the seed before the run, from which single ones can be left out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType

KINDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"kill": (0.0, 0.0), "freeze": (0.1, 30.0), "power": (0.0, 0.0), "jump": (-86_400.0, 86_400.0)}
)
"""Kinds of fault that every world has, each with the range of its seconds."""


@dataclass(frozen=True)
class Fault:
    """One fault: what happens, to which process, and when.

    Attributes
    ----------
    kind
        What happens: ``kill``; ``freeze`` for `seconds`; ``power``: the process's machine loses power; ``jump``: its
        wall clock is set by `seconds`; or a kind that the caller has added to the world.
    victim
        Name of a process.
    time_s
        Virtual time at which it happens [s]; None if `operation` says when.
    operation
        It happens before the operation of this number, from 1, of a process of that name; None if `time_s` says when.
    seconds
        Length or size of the fault [s].
    near
        How the operations begin that are counted for it, of all processes of that name; empty: all are, of each process
        by itself.
    """

    kind: str
    victim: str
    time_s: float | None = None
    operation: int | None = None
    seconds: float = 0.0
    near: str = ""

    def __str__(self) -> str:
        of = f" {self.near!r}" if self.near else ""
        moment = f"at {self.time_s:.6f} s" if self.operation is None else f"at operation {self.operation}{of}"
        return f"{self.kind} {self.victim} {moment}, {self.seconds:.6f} s"


def draw_faults(
    seed: int,
    victims: Sequence[str],
    n: int,
    kinds: Mapping[str, tuple[float, float]] = KINDS,
    horizon_s: float = 60.0,
    operations: int = 1000,
) -> list[Fault]:
    """Draw faults, half of them by time and half by operation.

    Parameters
    ----------
    seed
        Seed of the run; the schedule of threads is drawn from another stream of it.
    victims, n
        Names of processes, and the number of faults.
    kinds
        The kinds to draw from, each with the range of its seconds.
    horizon_s, operations
        Latest time [s], and highest number of an operation.
    """
    random = Random(f"{seed} faults")  # noqa: S311 - no secret
    faults = []
    for _ in range(n):
        kind, victim = random.choice(list(kinds)), random.choice(victims)
        time_s, operation = random.uniform(0.0, horizon_s), random.randint(1, operations)
        by_time, seconds = random.random() < 0.5, random.uniform(*kinds[kind])
        faults.append(Fault(kind, victim, time_s if by_time else None, None if by_time else operation, seconds))
    return faults


def without(faults: Sequence[Fault], numbers: Collection[int]) -> list[Fault]:
    """The faults but those of some numbers, from 0."""
    return [fault for number, fault in enumerate(faults) if number not in numbers]


def shrink(faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool]) -> list[Fault]:
    """Leave out faults one by one while the run still fails, until none can go.

    Parameters
    ----------
    faults
        Faults with which the run fails.
    fails
        Whether the run fails with some faults.
    """
    culprits, number = list(faults), 0
    while number < len(culprits):
        candidates = without(culprits, {number})
        if fails(candidates):
            culprits, number = candidates, 0
        else:
            number += 1
    return culprits
