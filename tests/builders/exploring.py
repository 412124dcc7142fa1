"""All states that a small machine can reach, by breadth-first search."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

S = TypeVar("S")


def explore(
    start: S,
    steps: Callable[[S], Iterable[tuple[str, S]]],
    key: Callable[[S], Hashable],
    broken: Callable[[S], str],
) -> tuple[int, str, list[str]]:
    """Look at all states that can be reached, the nearest first, until one is broken.

    Returns (number of states, what is broken: empty if nothing is, the shortest way there).
    """
    ways: dict[Hashable, tuple[Hashable, str] | None] = {key(start): None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if what := broken(state):
            return len(ways), what, _way(ways, key(state))
        for label, following in steps(state):
            if (mark := key(following)) not in ways:
                ways[mark] = key(state), label
                queue.append(following)
    return len(ways), "", []


def _way(ways: dict[Hashable, tuple[Hashable, str] | None], mark: Hashable) -> list[str]:
    labels = list[str]()
    while (before := ways[mark]) is not None:
        mark, label = before
        labels.insert(0, label)
    return labels
