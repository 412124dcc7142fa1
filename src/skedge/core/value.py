"""What a job is worth by the time it takes: the sigmoid of OASiS and PD-ORS."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .fields import Number

_LARGEST_EXPONENT = 700.0
"""exp overflows beyond; a utility is then 1e-304 of its height and no more than a number above nought."""


@dataclass(frozen=True, slots=True)
class Sigmoid:
    """u(y) = theta1 / (1 + exp(theta2 (y - theta3))), y the training time in slots (PD-ORS, Sec. V).

    Attributes
    ----------
    height
        theta1 > 0, the job's priority [utility].
    steepness
        theta2 >= 0 [1/slot]: 0 time-insensitive, about 0.01 to 1 time-sensitive, about 4 to 6 time-critical. Below 0
        the utility would grow with time.
    target
        theta3, the time that the user hopes for [slots].

    Raises
    ------
    ScenarioError
        If a value is out of its range.
    """

    height: float
    steepness: float
    target: float

    def __post_init__(self) -> None:
        for name, symbol, rule in _RULES:
            object.__setattr__(self, name, rule(f"utility: {symbol}", getattr(self, name)))

    def __call__(self, slots: float) -> float:
        """Utility of a training time of so many slots; non-increasing, in (0, theta1)."""
        return self.height / (1 + math.exp(min(self.steepness * (slots - self.target), _LARGEST_EXPONENT)))


_RULES = (
    ("height", "theta1", Number("above 0", 0, above=True)),
    ("steepness", "theta2", Number("0 or more: below 0 the utility increases with time", 0)),
    ("target", "theta3", Number("a finite number of slots")),
)
