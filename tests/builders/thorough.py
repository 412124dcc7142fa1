"""Cases that `make test` leaves to `make thorough`: they show more of what others show, or are slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def thorough_after(count: int, values: Iterable[Any]) -> list[Any]:
    """The values as parameters of a test; those after the first `count` have the mark `thorough`."""
    return [value if number < count else _marked(value) for number, value in enumerate(values)]


def thorough_except(quick: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """The values as parameters of a test; those that are not in `quick` have the mark `thorough`.

    Raises
    ------
    ValueError
        If one of `quick` is not among the values.
    """
    unmarked, parameters = list(quick), list(values)
    if missing := [value for value in unmarked if value not in parameters]:
        raise ValueError(f"no parameters of the test: {missing}")
    return [value if value in unmarked else _marked(value) for value in parameters]


def _marked(value: Any) -> ParameterSet:
    """As pytest reads values: a tuple has one for each argument of the test."""
    if not isinstance(value, ParameterSet):
        value = pytest.param(*value) if isinstance(value, tuple) else pytest.param(value)
    return value._replace(marks=[*value.marks, pytest.mark.thorough])
