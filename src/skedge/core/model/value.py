"""Value of a job as a function of its training time: the sigmoid of OASiS and PD-ORS."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .fields import Number

_LARGEST_EXPONENT = 700.0
"""Largest exponent, as exp overflows beyond; the utility is then 1e-304 of its height, still above 0."""


@dataclass(frozen=True, slots=True)
class Sigmoid:
    """u(y) = theta1 / (1 + exp(theta2 (y - theta3))), y the training time in slots (PD-ORS, Sec. V).

    Attributes
    ----------
    height
        theta1 > 0, the job's priority [utility].
    steepness
        theta2 >= 0 [1/slot]: 0 for time-insensitive jobs, about 0.01 to 1 for time-sensitive, about 4 to 6 for
        time-critical ones. Below 0 the utility would increase with time.
    target
        theta3, the target training time [slots].

    Raises
    ------
    ScenarioError
        If a value is out of its range.
    """

    height: float
    steepness: float
    target: float

    def __post_init__(self) -> None:
        for name, (symbol, rule) in UTILITY_RULES.items():
            object.__setattr__(self, name, rule(f"utility: {symbol}", getattr(self, name)))

    def __call__(self, slots: float) -> float:
        """Utility of a training time of `slots` slots; non-increasing, in (0, theta1)."""
        return self.height / (1 + math.exp(min(self.steepness * (slots - self.target), _LARGEST_EXPONENT)))


UTILITY_RULES = {
    "height": ("theta1", Number("above 0", 0, above=True)),
    "steepness": ("theta2", Number("0 or more: below 0 the utility increases with time", 0)),
    "target": ("theta3", Number("a finite number of slots")),
}
"""Symbol and rule of each field."""
