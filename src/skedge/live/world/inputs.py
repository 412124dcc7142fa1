"""Inputs of the live world: each is journaled before it is processed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter


@dataclass(frozen=True)
class Due:
    """Time has passed: an agenda entry may be due."""


@dataclass(frozen=True)
class Resumed:
    """A controller has taken over, or the coach was started anew; the run's clock stood still for `away` µs before.

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
class Report:
    """A report of a trainer.

    Attributes
    ----------
    what
        ``stopped``: a team has left; ``finished``: all its chunks are trained; ``trained``: chunks that take turns
        have trained one more chunk's worth of mini-batches, or an epoch; ``held``: a team has left because its chunks
        are ahead; ``released``: they may continue; ``failed``: the job cannot be trained; ``measured``: its rounds take
        `round_s`; ``result``: all chunks are trained, with this `result`; ``unmeasured``: the result could not be
        measured; ``stalled``: no mini-batch has come for long, and its process is started again; ``restarted``: a
        process has ended, and is started again: `reason` is a sentence; ``storage_away``: checkpoints cannot be written
        or read, which the job waits for; ``storage_back``: they can.
    team
        Team number given by the world: that of its first chunk on a lane, above all chunks for a gang.
    progress
        Mini-batches of each chunk that are in the parameters.
    round_s
        Mean time of the last rounds [s].
    late_s, recovery_s
        Since the last report: the delay of the job's teams, and duration of the rounds in which a process was lost
        [s]. Delays: rounds that took longer than announced, and time in which a team held its lanes before its first
        round, while its last checkpoint was written, and until the controller took its report.
    module
        SHA-256 of the code in the job's processes (:meth:`skedge.live.training.program.Program.module`).
    devices
        (server, device) of the job's workers so far: ``cpu``, or a GPU such as ``cuda:0``.
    freed_s
        Of a team that has ``stopped``: time from the order to suspend it until its workers had ended their mini-batches
        and their devices were free [s]; None if it has computed nothing, and in other reports.
    first_s
        Time from when the team was given its lanes to its first update [s]; None if there was none.
    number
        Its number among the reports of the run's trainers; 0 if none of them has made it.
    since
        While it is on its way to the controller: when it was made, by ``host.monotonic()``; else 0.
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
    devices: tuple[tuple[int, str], ...] = ()
    freed_s: float | None = None
    first_s: float | None = None
    number: int = 0
    since: float = 0.0

    def queued(self, now: float) -> Report:
        """Itself, made `now` [s]."""
        return replace(self, since=now)

    def taken(self, now: float) -> Report:
        """Itself, taken by the controller `now` [s]; a team that leaves has held its lanes meanwhile: a delay."""
        waited = now - self.since if self.since and self.what in ("stopped", "finished") else 0.0
        return replace(self, since=0.0, late_s=self.late_s + waited)


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


def to_json(given: Input) -> dict[str, Any]:
    """An input as plain JSON types."""
    return {"is": type(given).__name__, **asdict(given)}


def from_json(content: dict[str, Any]) -> Input:
    """The input that :func:`to_json` encoded."""
    fields = dict(content)
    return _KINDS[fields.pop("is")].validate_python(fields)
