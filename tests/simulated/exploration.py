"""A breadth-first search over all sequences of events of a small system, for the shortest one that breaks a check.

It is for machines without I/O: a state is any object, such as a machine together with what is around it.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

S = TypeVar("S")
E = TypeVar("E")

_PLAIN = (str, int, float, bytes, Enum, type(None))
"""Values that are compared as they are."""


class BrokenError(AssertionError):
    """A check does not hold, or an event raises an error, after a `sequence` of events; no shorter one does that."""

    def __init__(self, sequence: Sequence[Any], error: Exception) -> None:
        lines = [f"{type(error).__name__} after {len(sequence)} events: {error}", *map(str, sequence)]
        super().__init__("\n  ".join(lines))
        self.sequence = tuple(sequence)


@dataclass(frozen=True)
class Explored:
    """What a search has covered.

    Attributes
    ----------
    states
        Number of different states.
    all_reachable
        True if these are all that can be reached, by sequences of any length.
    """

    states: int
    all_reachable: bool


def explore(
    start: S,
    events: Callable[[S], Iterable[E]],
    step: Callable[[S, E], object],
    check: Callable[[S], object],
    depth: int,
) -> Explored:
    """Check every state that a sequence of at most `depth` events leads to.

    Parameters
    ----------
    start
        The first state; it stays as it is. States are pickled, so their classes are those of a module.
    events
        Those that can happen in a state.
    step
        Changes a state by an event.
    check
        Raises an error if a state is wrong; it must not change the state.
    depth
        Most events of a sequence.

    Raises
    ------
    BrokenError
        If a check or a step raises an error.
    """
    _apply(check, start, sequence=())
    visited = {contents(start)}
    layer: list[tuple[S, tuple[E, ...]]] = [(start, ())]
    for _ in range(depth):
        following = []
        for state, sequence in layer:
            for event in events(state):
                after, longer = copied(state), (*sequence, event)
                _apply(step, after, event, sequence=longer)
                content = contents(after)
                if content not in visited:
                    visited.add(content)
                    _apply(check, after, sequence=longer)
                    following.append((after, longer))
        layer = following
    return Explored(len(visited), all_reachable=not layer)


def _apply(function: Callable[..., object], *arguments: Any, sequence: Sequence[Any]) -> None:
    try:
        function(*arguments)
    except Exception as error:
        raise BrokenError(sequence, error) from error


def copied(state: S) -> S:
    """A copy that shares nothing with a state."""
    copy: S = pickle.loads(pickle.dumps(state))  # noqa: S301 - of this process; ten times as fast as copy.deepcopy
    return copy


def contents(value: Any) -> Hashable:
    """What a value consists of, by which states are compared: of an object its attributes, however deep."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        return dict, frozenset((contents(key), contents(item)) for key, item in value.items())
    if isinstance(value, list | tuple | deque):
        return type(value), *map(contents, value)
    if isinstance(value, set | frozenset):
        return set, frozenset(map(contents, value))
    return type(value), contents(vars(value))
