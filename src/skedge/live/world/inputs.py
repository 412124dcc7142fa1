"""What reaches the live world from outside: each is journaled before it is taken in."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter


@dataclass(frozen=True)
class Due:
    """Time has passed: something on the agenda may be due."""


@dataclass(frozen=True)
class Resumed:
    """A controller has taken over from one that had ended `away` µs before, by the machine's clock.

    Below 0 where that was set back: the run's own clock never is.
    """

    away: int = 0


@dataclass(frozen=True)
class Told:
    """What a trainer tells.

    Attributes
    ----------
    what
        ``stopped``: a team has left; ``finished``: all its chunks are trained; ``trained``: its chunks have taken
        turns on, and have trained as much as one more, or an epoch; ``held``: a team has left as its chunks are ahead;
        ``released``: they may go on; ``failed``: the job cannot be trained;
        ``measured``: its rounds take `round_s`; ``result``: all chunks are trained, and this is what came out;
        ``unmeasured``: that could not be told.
    team
        Number that the world gave the team: of its first chunk for a lane, above all chunks for a gang.
    progress
        Mini-batches of each chunk that are in the parameters.
    round_s
        Time of a round, a mean over the last ones [s].
    late_s, recovery_s
        By how much its rounds took longer than announced since the trainer last told, and how long those rounds took
        in which a process was lost [s].
    module
        SHA-256 of the code that the job's processes have (:meth:`.training.Program.module`).
    """

    what: str
    job: int
    team: int = -1
    progress: tuple[int, ...] = ()
    reason: str = ""
    result: Any = None
    round_s: float = 0.0
    late_s: float = 0.0
    recovery_s: float = 0.0
    module: str = ""


@dataclass(frozen=True)
class Uploaded:
    """An upload is complete, by its number."""

    upload: int


@dataclass(frozen=True)
class Server:
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
"""What ends what, of :attr:`Server.what`."""


@dataclass(frozen=True)
class Submitted:
    """A job has been submitted.

    Attributes
    ----------
    job
        The fields of a job of a scenario file.
    key, spec
        The submission's idempotency key, and the digest of what was submitted with it; empty without one.
    """

    job: dict[str, Any]
    key: str = ""
    spec: str = ""


@dataclass(frozen=True)
class Cancelled:
    """A job is to be cancelled."""

    job: int


Input = Due | Resumed | Told | Uploaded | Server | Submitted | Cancelled

_KINDS: dict[str, TypeAdapter[Input]] = {
    kind.__name__: TypeAdapter(kind) for kind in (Due, Resumed, Told, Uploaded, Server, Submitted, Cancelled)
}


def to_json(given: Input) -> dict[str, Any]:
    """An input in plain JSON types."""
    return {"is": type(given).__name__, **asdict(given)}


def from_json(content: dict[str, Any]) -> Input:
    """The input that :func:`to_json` gave."""
    fields = dict(content)
    return _KINDS[fields.pop("is")].validate_python(fields)
