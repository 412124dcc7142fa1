"""Inputs of the live world: each is journaled before it is processed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter

from skedge.live.coordinator.report import Report


@dataclass(frozen=True)
class Due:
    """Time has passed: an agenda entry may be due."""


@dataclass(frozen=True)
class Resumed:
    """A new controller, or a coordinator that was started anew; the run's clock stood still for `away` µs before.

    Time in which training went on without a controller is not part of that. Below 0 if the machine's clock was set
    back; the run's own clock never goes back.

    Attributes
    ----------
    lost
        Whether training did not go on, so that jobs are loaded from their checkpoints.
    """

    away: int = 0
    lost: bool = True


@dataclass(frozen=True)
class Uploaded:
    """The upload of this number is complete."""

    upload: int


@dataclass(frozen=True)
class ServerChanged:
    """A server has changed.

    Attributes
    ----------
    what
        ``lost`` or ``back``; ``cordoned`` or ``uncordoned`` by an operator. It is in service when it is neither lost
        nor cordoned.
    """

    server: int
    what: str


ENDS = {"back": "lost", "uncordoned": "cordoned"}
"""The state that each of these values of :attr:`ServerChanged.what` ends."""


@dataclass(frozen=True)
class Submitted:
    """A job has been submitted.

    Attributes
    ----------
    job
        The fields of a job of a scenario file.
    key, spec
        The submission's idempotency key, and the digest of the spec submitted with it; empty without a key.
    """

    job: dict[str, Any]
    key: str = ""
    spec: str = ""


@dataclass(frozen=True)
class Cancelled:
    """A request to cancel a job."""

    job: int


Input = Due | Resumed | Report | Uploaded | ServerChanged | Submitted | Cancelled

_KINDS: dict[str, TypeAdapter[Input]] = {
    kind.__name__: TypeAdapter(kind) for kind in (Due, Resumed, Report, Uploaded, ServerChanged, Submitted, Cancelled)
}
_KINDS |= {"Told": _KINDS["Report"], "Server": _KINDS["ServerChanged"]}  # their names in older journals


def to_json(item: Input) -> dict[str, Any]:
    """An input as plain JSON types."""
    return {"is": type(item).__name__, **asdict(item)}


def from_json(content: dict[str, Any]) -> Input:
    """The input that :func:`to_json` encoded."""
    fields = dict(content)
    return _KINDS[fields.pop("is")].validate_python(fields)
