"""What numba remembers of an operation is what it finds; a compiled form is called without another look at types."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from numba import types
from numba.core.compiler import Flags
from numba.core.registry import cpu_target
from numba.core.targetconfig import ConfigStack

from skedge.platform import resolution
from skedge.platform.jit import CompiledFunction, interpreted

ARRAY = types.Array(types.int64, 1, "C")
CALLS: list[tuple[Any, tuple[Any, ...]]] = [
    (operator.add, (types.int64, types.int64)),
    (operator.add, (types.int64, types.float64)),
    (operator.add, (types.literal(1), types.int64)),
    (operator.getitem, (ARRAY, types.int64)),
    (operator.getitem, (ARRAY, types.slice2_type)),
    (operator.lt, (types.UniTuple(types.int64, 2), types.UniTuple(types.int64, 2))),
    (max, (types.int64, types.int64)),
]
"""Operations, with the types of their arguments."""


def _total(values: Any, factor: Any) -> Any:
    result = 0
    for value in values:
        result += value * factor
    return result


total: Any = CompiledFunction(_total, _nrt=True)
"""The sum of the values, times a factor."""


@pytest.fixture
def context() -> Any:
    """Numba's typing context, as a compiled function of this package has left it."""
    total(np.arange(3), 2)
    typing: Any = cpu_target.typing_context
    return typing


def options(**chosen: bool) -> Any:
    """Options of compiling of which these are set."""
    flags: Any = Flags()
    for name, value in chosen.items():
        setattr(flags, name, value)
    return flags


@pytest.mark.parametrize(("operation", "arguments"), CALLS)
def test_what_is_remembered_is_what_numba_finds(context: Any, operation: Any, arguments: tuple[Any, ...]) -> None:
    """The same signature and implementation: numba's own way, the first time, and from memory."""
    function = context.resolve_value_type(operation)
    with ConfigStack().enter(options(nrt=True)):
        plain = resolution._resolve(function, context, arguments, {})
        implementation = function._impl_keys[plain.args]
        for _ in range(2):
            function._impl_keys[plain.args] = None
            assert resolution._get_call_type(function, context, arguments, {}) == plain
            assert function._impl_keys[plain.args] == implementation


def test_an_operation_that_does_not_exist_is_an_error_each_time(context: Any) -> None:
    function = context.resolve_value_type(operator.add)
    for _ in range(2):
        with ConfigStack().enter(options()), pytest.raises(Exception, match="No implementation"):
            resolution._get_call_type(function, context, (types.none, types.int64), {})


def test_options_are_equal_if_all_their_values_are() -> None:
    """Also where one has set what is the default of the other; numba's own comparison is the oracle."""
    every = [options(), options(nrt=False), options(nrt=True), options(nrt=True, release_gil=True)]
    for one in every:
        for other in every:
            assert (one == other) == (one.values() == other.values())
            assert hash(one) == hash(tuple(sorted(one.values())))
    assert options() == options(nrt=False)
    assert options() != options(nrt=True)
    assert options() != "options"


def test_a_form_is_the_function_for_these_types() -> None:
    """It gives what the function gives, and another form is made for other types."""
    whole, real = total.form(np.arange(4), 3), total.form(np.arange(4), 0.5)
    assert whole(np.arange(5), 2) == 20
    assert real(np.arange(4), 0.5) == pytest.approx(3.0)


def test_a_form_while_interpreted_is_pythons_function() -> None:
    with interpreted():
        assert total.form([1, 2], 2)([1, 2], 2) == 6
