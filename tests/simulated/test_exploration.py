"""The search over sequences of events."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest

from skedge.live.service.keeping import Role

from .exploration import BrokenError, Explored, contents, explore


@dataclass
class Counter:
    """A number, with its digits in a list."""

    digits: list[int] = field(default_factory=lambda: [0])


def add(counter: Counter, n: int) -> None:
    counter.digits[0] = (counter.digits[0] + n) % 10


def search(wrong: int, depth: int = 20) -> Explored:
    def check(counter: Counter) -> None:
        assert counter.digits != [wrong], f"it is {wrong}"

    return explore(Counter(), lambda _: (1, 4), add, check, depth)


def test_all_states_are_reached_once() -> None:
    assert search(wrong=10) == Explored(10, all_reachable=True)


def test_a_search_that_is_not_deep_enough_says_so() -> None:
    """After two events 0, 1, 4, 2, 5 and 8."""
    assert search(wrong=10, depth=2) == Explored(6, all_reachable=False)


@pytest.mark.parametrize(("wrong", "sequence"), [(0, ()), (8, (4, 4)), (9, (1, 4, 4)), (3, (1, 1, 1))])
def test_the_shortest_sequence_is_reported(wrong: int, sequence: tuple[int, ...]) -> None:
    with pytest.raises(BrokenError, match=f"AssertionError after {len(sequence)} events: it is {wrong}") as error:
        search(wrong)
    assert error.value.sequence == sequence


def test_an_event_that_raises_an_error_is_reported() -> None:
    def divide(counter: Counter, n: int) -> None:
        add(counter, n)
        1 // (counter.digits[0] - 5)

    with pytest.raises(BrokenError, match="ZeroDivisionError after 2 events") as error:
        explore(Counter(), lambda _: (1, 4), divide, lambda _: None, 20)
    assert error.value.sequence == (1, 4)


def test_states_are_compared_by_all_that_they_hold() -> None:
    same = [Counter([1, 2]), {Role.HOST: deque([1])}, {1, 2}, None]
    assert contents(same) == contents([Counter([1, 2]), {Role.HOST: deque([1])}, {2, 1}, None])
    for changed in (
        [Counter([1, 3]), {Role.HOST: deque([1])}, {1, 2}, None],
        [Counter([1, 2]), {Role.STANDBY: deque([1])}, {1, 2}, None],
        [Counter([1, 2]), {Role.HOST: deque([1, 1])}, {1, 2}, None],
        [Counter([1, 2]), {Role.HOST: deque([1])}, {1}, None],
        [Counter([1, 2]), {Role.HOST: deque([1])}, {1, 2}],
    ):
        assert contents(same) != contents(changed)
