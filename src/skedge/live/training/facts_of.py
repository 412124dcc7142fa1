"""The facts that the process of a job may answer with, by method: whatever its code sends, trusted code sees no other.

A job shares its process with :mod:`.inside`, so it can send what it likes in place of an answer.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, TypedDict

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

_STRICT = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
_Count = Annotated[int, Field(ge=0, le=2**53)]
_Seconds = Annotated[float, Field(ge=0, le=1e9)]
_Text = Annotated[str, Field(max_length=1_000_000)]


@with_config(_STRICT)
class _Gpus(TypedDict):
    gpus: _Count


@with_config(_STRICT)
class _Gradient(TypedDict):
    chunk: _Count
    step: _Count
    loss: float
    samples: _Count
    seconds: _Seconds
    module: _Text
    device: _Text


@with_config(_STRICT)
class _Loaded(TypedDict):
    version: _Count
    progress: list[_Count]
    module: _Text


@with_config(_STRICT)
class _Applied(_Loaded):
    seconds: _Seconds
    bytes: _Count


@with_config(_STRICT)
class _Dumped(TypedDict):
    version: _Count
    progress: list[_Count]


@with_config(_STRICT)
class _Losses(TypedDict):
    losses: list[tuple[_Count, float]]


@with_config(_STRICT)
class _Contents(TypedDict):
    sizes: list[_Count]


@with_config(_STRICT)
class _Unlike(TypedDict):
    unlike: tuple[_Count, float] | None


@with_config(_STRICT)
class _Accuracies(TypedDict):
    accuracies: list[float]
    metric: _Text | None


@with_config(_STRICT)
class _Folder(TypedDict):
    folder: Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]


@with_config(_STRICT)
class _Nothing(TypedDict):
    pass


_OF: dict[str, TypeAdapter[Any]] = {
    method: TypeAdapter(facts)
    for method, facts in (
        ("gpus", _Gpus), ("gradient", _Gradient), ("load", _Loaded), ("apply", _Applied), ("dump", _Dumped),
        ("losses", _Losses), ("contents", _Contents), ("unlike", _Unlike), ("accuracies", _Accuracies),
        ("saved", _Losses), ("packages", _Folder), ("install", _Nothing),
    )
}  # fmt: skip


def checked(method: str, facts: dict[str, Any]) -> dict[str, Any]:
    """The facts that an answer to `method` has; others are left out.

    Raises
    ------
    ValueError
        Names the first that is missing or wrong.
    """
    try:
        found: dict[str, Any] = _OF[method].validate_json(json.dumps(facts))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "form"
        raise ValueError(f"its process answers {method!r} with a wrong {where}: {first['msg']}") from error
    return found
