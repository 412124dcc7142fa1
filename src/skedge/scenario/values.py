"""Values in a scenario file: durations, numbers and ranges, each a type with its check and its JSON schema."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, WithJsonSchema

from skedge.core.model.time import LONGEST_S

_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([a-zµ]*)\s*")


def duration_s(value: object) -> object:
    """A duration in seconds, from a number of seconds or text such as ``1h``, ``30min``, ``15s``, ``250ms``.

    Raises
    ------
    ValueError
        If the text is not a duration.
    """
    if value is True or value is False:
        raise ValueError(_NO_DURATION)
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value)
    if match is None or (match[2] or "s") not in _UNITS:
        raise ValueError(_NO_DURATION)
    try:
        return float(match[1]) * _UNITS[match[2] or "s"]
    except ValueError:
        # the pattern lets 1.2.3 through
        raise ValueError(_NO_DURATION) from None


_NO_DURATION = "it must be a duration: seconds, or text like 1h, 30min, 15s, 250ms"


def _pair(value: object) -> object:
    return (value, value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _ascending(pair: tuple[float, float]) -> tuple[float, float]:
    if pair[0] > pair[1]:
        raise ValueError("it must be a range [low, high] with low at most high")
    return pair


def no_bool(value: object) -> object:
    """The value; a ValueError for true and false, which Python takes for numbers."""
    if value is True or value is False:
        raise ValueError("it must be a number")
    return value


_ANY_DURATION = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": f"^{_DURATION.pattern}$"}]}
_RANGE = {
    "anyOf": [
        {"type": "number"},
        {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
    ]
}

Name = Annotated[str, Field(min_length=1)]
Requirement = Annotated[str, Field(pattern=r"^[A-Za-z0-9][^\r\n]*$", max_length=500)]
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
"""1 to 65535."""

Address = Annotated[str, Field(pattern=rf"^[A-Za-z0-9.\[\]:_-]+:{_PORT}$", max_length=300)]
Number = Annotated[float, BeforeValidator(no_bool)]
# above 2**53 a float does not hold every whole number
Count = Annotated[int, Field(le=2**53), BeforeValidator(no_bool)]
Duration = Annotated[float, Field(ge=0, le=LONGEST_S), BeforeValidator(duration_s), WithJsonSchema(_ANY_DURATION)]
Slots = Annotated[Count, Field(ge=0, le=100_000)]
Span = Annotated[float, Field(gt=0, le=LONGEST_S), BeforeValidator(duration_s), WithJsonSchema(_ANY_DURATION)]
Durations = Annotated[
    tuple[Duration, Duration],
    AfterValidator(_ascending),
    WithJsonSchema({"type": "array", "items": _ANY_DURATION, "minItems": 2, "maxItems": 2}),
]

End = TypeVar("End")
_Range = Annotated[tuple[End, End], BeforeValidator(_pair), AfterValidator(_ascending), WithJsonSchema(_RANGE)]
NumberRange = _Range[Annotated[float, Field(ge=0)]]
PositiveRange = _Range[Annotated[float, Field(gt=0)]]
CountRange = _Range[Annotated[int, Field(ge=1, le=1_000_000)]]
NeedRange = _Range[Annotated[int, Field(ge=0, le=1_000_000)]]
Amount = Annotated[float, Field(ge=0, le=1e15), BeforeValidator(no_bool)]


def _mix(value: object) -> object:
    if value == "classes":
        return value
    if isinstance(value, list | tuple) and len(value) == 3 and all(_is_share(part) for part in value):
        return tuple(map(float, value))
    raise ValueError("it must be three shares from 0 to 1, or classes")


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


_SHARES = {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}, "minItems": 3, "maxItems": 3}
Mix = Annotated[
    tuple[float, float, float] | Literal["classes"],
    PlainValidator(_mix),
    WithJsonSchema({"anyOf": [_SHARES, {"const": "classes"}]}),
]
