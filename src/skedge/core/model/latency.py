"""Cost of a job's response time: the three latency cost functions of Okita, Sec. V-B.

Decisions compare sums of a bandwidth cost and a latency cost. The exponential function exceeds 1e16 after 150 slots and
overflows after 2,800. Decisions therefore use differences (:meth:`Exponential.rise`), whose sign and order are correct
at any magnitude (ADR 18), and reported costs are capped at about 1e300 of their unit (O24). All functions are
non-decreasing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from skedge.core.errors import ScenarioError

from .fields import Number

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LARGEST_EXPONENT = 690.0
"""Cap of exponents: exp(690) = 1e299.7, and sums of many such numbers are still finite."""

_START, _GROWTH = 600.0, 90.0
"""A difference is its start value times its growth; together they are capped at exp(690)."""


@dataclass(frozen=True, slots=True)
class Exponential:
    """f(x) = tau e^(rate x), the default; the paper calls it "sigmoid".

    Attributes
    ----------
    tau
        Cost at time 0, > 0.
    rate
        Growth per slot, > 0; 0.25 in the paper.

    Raises
    ------
    ScenarioError
        If a value is out of its range.
    """

    tau: float
    rate: float = 0.25
    family: ClassVar[Literal["slope", "deadline"]] = "slope"

    def __post_init__(self) -> None:
        _cast_fields(self, tau=("tau", _ABOVE_0), rate=("rate", _ABOVE_0))

    def __call__(self, slots: float) -> float:
        """Cost of a response after `slots` slots; finite (see the module)."""
        return self.tau * math.exp(min(self.rate * slots, LARGEST_EXPONENT))

    def log(self, slots: float) -> float:
        """Natural logarithm of the cost, correct at any magnitude."""
        return math.log(self.tau) + self.rate * slots

    def rise(self, start: float, ends: Ints) -> Floats:
        """f(end) - f(start) for each end: finite, with the correct sign, 0 only if the two are equal."""
        # e^b - e^a as e^a (e^(b - a) - 1): exact where the two are close, finite where they are huge
        growth = np.expm1(np.minimum(self.rate * (ends - start), _GROWTH))
        return np.asarray(self.tau * math.exp(min(self.rate * start, _START)) * growth)

    def waiting(self, slots: float) -> float:
        """Weight of a wait, tau (t - a): the first term of Eq. (4) before division by the largest."""
        return self.tau * slots


@dataclass(frozen=True, slots=True)
class Linear:
    """f(x) = tau x + base.

    Attributes
    ----------
    tau
        Cost per slot, > 0.
    base
        Cost at time 0, >= 0.

    Raises
    ------
    ScenarioError
        If a value is out of its range.
    """

    tau: float
    base: float = 0.0
    family: ClassVar[Literal["slope", "deadline"]] = "slope"

    def __post_init__(self) -> None:
        _cast_fields(self, tau=("tau", _ABOVE_0), base=("base", _NOT_NEGATIVE))

    def __call__(self, slots: float) -> float:
        """Cost of a response after `slots` slots."""
        return self.tau * slots + self.base

    def log(self, slots: float) -> float:
        """Natural logarithm of the cost."""
        return _log(self(slots))

    def rise(self, start: float, ends: Ints) -> Floats:
        """f(end) - f(start) for each end."""
        return np.asarray(self.tau * (ends - start))

    def waiting(self, slots: float) -> float:
        """Weight of a wait, as for :class:`Exponential`."""
        return self.tau * slots


@dataclass(frozen=True, slots=True)
class Piecewise:
    """f(x) = early if x < deadline else late.

    Attributes
    ----------
    early, late
        tau_1 and tau_2; 0 <= early <= late.
    deadline
        c [slots].

    Raises
    ------
    ScenarioError
        If a value is out of its range.
    """

    early: float
    late: float
    deadline: float
    family: ClassVar[Literal["slope", "deadline"]] = "deadline"

    def __post_init__(self) -> None:
        # first, as the bound on `late` refers to it
        _cast_fields(self, early=("tau_1", _NOT_NEGATIVE))
        not_less = Number(f"at least tau_1 = {self.early:.15g}", self.early)
        _cast_fields(self, late=("tau_2", not_less), deadline=("c", _ABOVE_0))

    def __call__(self, slots: float) -> float:
        """Cost of a response after `slots` slots."""
        return self.early if slots < self.deadline else self.late

    def log(self, slots: float) -> float:
        """Natural logarithm of the cost."""
        return _log(self(slots))

    def rise(self, start: float, ends: Ints) -> Floats:
        """f(end) - f(start) for each end."""
        return np.where(np.asarray(ends) < self.deadline, self.early, self.late) - self(start)

    def waiting(self, slots: float) -> float:
        """Slots past the deadline, t - a - c, below 0 before it: the modified priority of Sec. V-C."""
        return slots - self.deadline


LatencyCost = Exponential | Linear | Piecewise


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


_ABOVE_0 = Number("above 0", 0, above=True)
_NOT_NEGATIVE = Number("0 or more", 0)


def _cast_fields(cost: LatencyCost, **rules: tuple[str, Number]) -> None:
    """Check and cast fields, each with its symbol and its rule."""
    for name, (symbol, rule) in rules.items():
        object.__setattr__(cost, name, rule(f"latency cost: {symbol}", getattr(cost, name)))


KINDS: dict[str, type[Exponential] | type[Linear] | type[Piecewise]] = {
    "exponential": Exponential,
    "linear": Linear,
    "piecewise": Piecewise,
}
"""The functions by their names in files."""


def latency_columns(cost: LatencyCost) -> dict[str, str | float]:
    """The columns of a jobs table for `cost`: its kind, and its parameters as ``latency_<name>``."""
    kind = next(name for name, cls in KINDS.items() if isinstance(cost, cls))
    return {"latency": kind} | {f"latency_{name}": float(getattr(cost, name)) for name in parameter_names(kind)}


def parameter_names(kind: str) -> list[str]:
    """Names of the parameters of a kind, in order."""
    return [f.name for f in fields(KINDS[kind])]


def latency_from(row: Mapping[str, str | float | None]) -> LatencyCost | None:
    """The latency cost function in a row of a jobs table; None if there is none.

    Raises
    ------
    ScenarioError
        If the kind is unknown, or a parameter is missing or out of range.
    """
    kind = row.get("latency")
    if kind is None:
        return None
    if kind not in KINDS:
        raise ScenarioError(f"latency = {kind!r}; it must be one of {', '.join(KINDS)}")
    parameters = {name: row.get(f"latency_{name}") for name in parameter_names(str(kind))}
    cls = KINDS[str(kind)]
    needed = [f.name for f in fields(cls) if f.default is MISSING]
    for name in needed:
        if parameters[name] is None:
            raise ScenarioError(f"latency_{name} is missing; a latency cost that is {kind} has {', '.join(needed)}")
    return cls(**{name: float(value) for name, value in parameters.items() if value is not None})
