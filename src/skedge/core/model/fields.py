"""Rules that check and cast the fields of the public dataclasses; errors name the field, its value and the rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from reprlib import Repr
from typing import Any

import numpy as np

from skedge.core.errors import ScenarioError

Rule = Callable[[str, Any], Any]
"""Called with a field's name and value; returns the value in its type, or raises a ScenarioError."""

_NUMBERS: Any = Real
_SHORT = Repr()
_SHORT.maxlong = _SHORT.maxstring = _SHORT.maxother = 40


def cast_fields(instance: Any, rules: Mapping[str, Rule], owner: str, link: str = ".") -> None:
    """Check and cast the fields of a frozen dataclass.

    Parameters
    ----------
    instance
        The dataclass object; its fields are replaced by their cast values.
    rules
        The rule of each field.
    owner, link
        Name of the object in errors, and what stands between it and the field's name.

    Raises
    ------
    ScenarioError
        If a rule rejects a value.
    """
    for name, rule in rules.items():
        # past the __setattr__ of a frozen dataclass
        object.__setattr__(instance, name, rule(f"{owner}{link}{name}", getattr(instance, name)))


def refuse(name: str, value: Any, right: str) -> None:
    """Raise the error for a wrong field; `right` is what is allowed."""
    raise ScenarioError(f"{name} = {short_repr(value)}; it must be {right}")


def short_repr(value: Any) -> str:
    """The repr of `value`, shortened; a NumPy number is shown as a plain number."""
    return _SHORT.repr(value.item() if isinstance(value, np.generic) else value)


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number from `low` to `high`.

    Attributes
    ----------
    right
        Description of the allowed values, for messages.
    whole
        True: it must be an integer; 3.0 counts as one.
    above
        True: `low` itself is not allowed.
    endless
        True: inf is allowed.
    """

    right: str
    low: float = -math.inf
    high: float = math.inf
    whole: bool = False
    above: bool = False
    endless: bool = False

    def __call__(self, name: str, value: Any) -> Any:
        """Cast `value`."""
        number = self._cast(value)
        if number is None or not self._in_range(number):
            refuse(name, value, self.right)
        return number

    def _cast(self, value: Any) -> Any:
        # True is an int in Python, and a mistake in place of a number
        if isinstance(value, bool | np.bool_) or not isinstance(value, _NUMBERS):
            return None
        try:
            number = float(value)
            if self.whole:
                # compared as given: as floats 2**53 + 1 and 2**53 are equal
                return int(value) if math.isfinite(number) and int(value) == value else None
        except (OverflowError, ValueError):  # too large for a float
            return None
        return number

    def _in_range(self, number: float) -> bool:
        finite = math.isfinite(number) or (self.endless and number == math.inf)
        return finite and self.low <= number <= self.high and not (self.above and number == self.low)


def text(name: str, value: Any) -> str:
    """Non-empty text."""
    if not isinstance(value, str) or not value:
        refuse(name, value, "text, not empty")
    return str(value)


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        refuse(name, value, "True or False")
    return bool(value)


def one_of(*choices: str) -> Rule:
    """One of these texts."""

    def rule(name: str, value: Any) -> Any:
        if not isinstance(value, str) or value not in choices:
            refuse(name, value, " or ".join(map(repr, choices)))
        return value

    return rule


def instance_of(*kinds: type) -> Rule:
    """An instance of one of these classes."""

    def rule(name: str, value: Any) -> Any:
        if not isinstance(value, kinds):
            refuse(name, value, " or ".join(kind.__name__ for kind in kinds))
        return value

    return rule


@dataclass(frozen=True, slots=True)
class Maybe:
    """None, or a value that `rule` accepts."""

    rule: Rule

    def __call__(self, name: str, value: Any) -> Any:
        """Cast `value`."""
        return None if value is None else self.rule(name, value)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two values, each of which `rule` accepts."""

    rule: Rule

    def __call__(self, name: str, value: Any) -> Any:
        """Cast both values."""
        values = value.tolist() if isinstance(value, np.ndarray) else value
        if not isinstance(values, tuple | list) or len(values) != 2:
            refuse(name, value, "a pair (low, high)")
        return tuple(self.rule(f"{name}[{i}]", item) for i, item in enumerate(values))


@dataclass(frozen=True, slots=True)
class ValuesOf:
    """A mapping from names to values that `rule` accepts."""

    rule: Rule

    def __call__(self, name: str, value: Any) -> Any:
        """Cast all values."""
        return mapping(lambda _: self.rule)(name, value)


def mapping(rule_of: Callable[[str], Rule]) -> Rule:
    """A mapping from names to values that ``rule_of(name)`` accepts."""

    def rule(name: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            refuse(name, value, "a mapping of names to numbers")
        return {text(f"{name}: a name", key): rule_of(key)(f"{name}[{key}]", item) for key, item in value.items()}

    return rule
