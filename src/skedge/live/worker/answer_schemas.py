"""The facts that the process of a job may answer with, by method: whatever its code sends, trusted code sees no other.

A job shares its process with :mod:`.worker_main`, so it can send what it likes in place of an answer.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_Count = Annotated[int, Field(ge=0, le=2**53)]
_Seconds = Annotated[float, Field(ge=0, le=1e9)]
_Text = Annotated[str, Field(max_length=1_000_000)]
_Stages = Annotated[dict[Annotated[str, Field(max_length=20)], _Seconds], Field(max_length=20)]


class _Facts(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, protected_namespaces=())


class _Gpus(_Facts):
    gpus: _Count


class _GradientStages(_Facts):
    deserialize: _Seconds
    compute: _Seconds
    serialize: _Seconds


class _UpdateStages(_Facts):
    deserialize: _Seconds
    update: _Seconds
    serialize: _Seconds


class _Gradient(_Facts):
    chunk: _Count
    step: _Count
    loss: float
    samples: _Count
    stage_s: _GradientStages
    module: _Text
    device: _Text


class _Loaded(_Facts):
    version: _Count
    progress: list[_Count]
    module: _Text


class _Applied(_Loaded):
    stage_s: _UpdateStages
    bytes: _Count


class _Trained(_Loaded):
    rounds: _Count
    missing: list[tuple[_Count, _Count]]
    samples: _Count
    loss: float
    first_ago_s: _Seconds
    stage_s: _Stages


class _Worked(_Facts):
    rounds: _Count
    closed: bool
    device: _Text
    module: _Text
    stage_s: _Stages


class _Dumped(_Facts):
    version: _Count
    progress: list[_Count]


class _Losses(_Facts):
    losses: list[tuple[_Count, float]]


class _Contents(_Facts):
    sizes: list[_Count]
    labels: list[tuple[_Count, list[tuple[int, _Count]]]]


class _Accuracies(_Facts):
    accuracies: list[float]
    metric: _Text | None


class _Folder(_Facts):
    folder: Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]


_OF: dict[str, type[_Facts]] = {
    "gpus": _Gpus, "gradient": _Gradient, "load": _Loaded, "apply": _Applied, "train": _Trained, "work": _Worked,
    "state": _Loaded, "dump": _Dumped, "losses": _Losses, "contents": _Contents, "accuracies": _Accuracies,
    "saved": _Losses, "packages": _Folder, "install": _Facts,
}  # fmt: skip


def checked(method: str, facts: dict[str, Any]) -> dict[str, Any]:
    """The facts that an answer to `method` has; others are left out.

    Raises
    ------
    ValueError
        Names the first that is missing or wrong.
    """
    try:
        return _OF[method].model_validate_json(json.dumps(facts)).model_dump()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "form"
        raise ValueError(f"its process answers {method!r} with a wrong {field}: {first['msg']}") from error
