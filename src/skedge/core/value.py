"""What a job is worth by the time it takes: the sigmoid of OASiS and PD-ORS."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .errors import ScenarioError

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
        if not (math.isfinite(self.height) and self.height > 0):
            raise ScenarioError(f"utility: theta1 = {self.height}; it must be above 0")
        if not (math.isfinite(self.steepness) and self.steepness >= 0):
            raise ScenarioError(
                f"utility: theta2 = {self.steepness}; below 0 the utility increases with time, it must be 0 or more"
            )
        if not math.isfinite(self.target):
            raise ScenarioError(f"utility: theta3 = {self.target}; it must be a finite number of slots")

    def __call__(self, slots: float) -> float:
        """Utility of a training time of so many slots; non-increasing, in (0, theta1)."""
        return self.height / (1 + math.exp(min(self.steepness * (slots - self.target), _LARGEST_EXPONENT)))
