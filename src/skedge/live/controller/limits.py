"""Limits of a service: on one job, on one request, on its disk."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from skedge.core.errors import InputError
from skedge.live.worker.watchdog import WatchdogLimits

_OF_INDEX = re.compile(
    r"[A-Za-z0-9][\w.-]*(\s*\[[\w.,\s-]*\])?"  # a package, its extras,
    r"(\s*(~=|===?|!=|<=?|>=?)\s*[\w.*+!-]+(\s*,\s*(~=|===?|!=|<=?|>=?)\s*[\w.*+!-]+)*)?"  # its versions,
    r"\s*(;[^@/\\]*)?",  # and where it is needed
    re.ASCII,
)
_FILES = (".whl", ".zip", ".egg", ".tar", ".tgz", ".tbz", ".txz", ".tlz", ".gz", ".bz2", ".xz", ".lz", ".lzma")
"""What pip takes for a file by the end of its name."""

_SHIPPED = "skedge.live.examples"

_NAMED = 5
"""Most modules that a message names."""

_DEEPEST = 20
"""Most nested levels of a spec's mappings and lists."""


@dataclass(frozen=True)
class Limits:
    """Limits of a service.

    Attributes
    ----------
    chunks
        Most data chunks of one job; each costs memory on the controller and rows of the record.
    body_mb
        Largest body of a request [MB].
    free_mb
        Least free space on the disk of the state [MB]; with less, no job is accepted.
    keep_days
        How long checkpoints of jobs that have left are kept [days]; inf: for ever.
    per_minute
        Most requests with one token in a minute.
    allow
        Modules, or whole packages, whose functions may be the factory of a job, besides those that ship with skedge:
        a factory is code that runs on every server.
    minibatches
        Most mini-batches of one job, over all chunks and epochs.
    stall_s, stall_restarts
        A mini-batch is stalled after this time [s], or after ten times its usual time if that is longer; and how often
        its process is started again before its job is FAILED.
    prepare_s
        Longest time in which a job's process installs packages, imports its code and calls its factory [s].
    allow_pip
        Beginnings of the URLs, paths and ``git+`` sources that `train.pip` may name besides packages of pip's index.
    output_mb
        Most of the output of each worker of a job that is kept [MB].
    """

    chunks: int = 10_000
    body_mb: float = 1.0
    free_mb: float = 100.0
    keep_days: float = 30.0
    per_minute: int = 6000
    allow: tuple[str, ...] = ()
    minibatches: int = 10**9
    stall_s: float = 60.0
    stall_restarts: int = 2
    prepare_s: float = 600.0
    output_mb: float = 10.0
    allow_pip: tuple[str, ...] = ()

    def watch(self) -> WatchdogLimits:
        """How long jobs' code may take; the first mini-batch of a process three times as long as others."""
        return WatchdogLimits(
            self.stall_s, first_s=3 * self.stall_s, prepare_s=self.prepare_s, restarts=self.stall_restarts
        )

    def check_work(self, chunks: int, epochs: int, minibatches: int) -> None:
        """Check how much a job has to compute.

        Raises
        ------
        InputError
            If it has more chunks or mini-batches than a job may have.
        """
        if chunks > self.chunks:
            raise InputError(
                f"job spec: chunks: {chunks}; this service takes at most {self.chunks}: `skedge up --max-chunks`"
            )
        if (count := chunks * epochs * minibatches) > self.minibatches:
            raise InputError(
                f"job spec: epochs: {epochs} of {chunks} chunks with {minibatches} mini-batches are {count} "
                f"mini-batches; this service takes at most {self.minibatches} a job: `skedge up --max-minibatches`"
            )

    def check_factory(self, factory: str, shipped: Collection[str] = ()) -> None:
        """Check that a job's factory is in an allowed module.

        Parameters
        ----------
        factory
            ``module:function`` of the job.
        shipped
            Modules of the code shipped with the job; if there are any, the factory must be in one of them.

        Raises
        ------
        InputError
            If the module is not allowed.
        """
        module = factory.partition(":")[0]
        if shipped and module not in shipped:
            have = ", ".join(sorted(shipped)[:_NAMED])
            raise InputError(f"job spec: train.factory: {factory!r}: the job's code has no module {module} ({have})")
        if shipped:
            return
        if not any(module == name or module.startswith(f"{name}.") for name in (_SHIPPED, *self.allow)):
            have = ", ".join((_SHIPPED, *self.allow))
            raise InputError(
                f"job spec: train.factory: {factory!r}: is of no module that this service runs code of ({have}); "
                "`skedge up --allow MODULE` allows one, and `train.code` sends one with the job"
            )

    def check_pip(self, requirements: Iterable[str]) -> None:
        """Check that a job's packages come from pip's index, with or without versions, or from an allowed source.

        Raises
        ------
        InputError
            If one does not.
        """
        for requirement in requirements:
            if not _is_of_index(requirement) and not any(map(_source_of(requirement).within, self.allow_pip)):
                have = f"; allowed are also {', '.join(self.allow_pip)}" if self.allow_pip else ""
                raise InputError(
                    f"job spec: train.pip: {requirement!r}: must be a package with versions, such as einops==0.8.0"
                    f"{have}; `skedge up --allow-pip SOURCE` allows URLs, files and git+ that begin with SOURCE"
                )


class _Source(str):
    """A URL, a path or a ``git+`` source of a requirement."""

    __slots__ = ()

    def within(self, allowed: str) -> bool:
        """Whether it is `allowed`, or below it."""
        left = self.lower()
        if ".." in left or "\\" in left or "%2e" in left or "%2f" in left:  # would lead out of it again
            return False
        return self == allowed or self.startswith(allowed if allowed.endswith("/") else f"{allowed}/")


def _is_of_index(requirement: str) -> bool:
    """Whether pip looks for a requirement in its index."""
    name = re.split(r"[\s\[;~=!<>]", requirement, maxsplit=1)[0].lower()
    return _OF_INDEX.fullmatch(requirement) is not None and not name.endswith(_FILES)


def _source_of(requirement: str) -> _Source:
    """The source in ``NAME @ SOURCE``, or in a requirement that is one."""
    named = re.match(r"[A-Za-z0-9][\w.-]*(\s*\[[^\]]*\])?\s*@\s*", requirement)
    return _Source(requirement[named.end() :] if named else requirement)


def spec_in(body: bytes) -> dict[str, Any]:
    """The job spec in a request's body.

    Raises
    ------
    InputError
        If it is no JSON object, or contains what cannot be stored: numbers that are not finite, text that is not
        Unicode, more than 20 levels.
    """
    try:
        spec = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is not JSON: {str(error) or type(error).__name__}") from error
    if not isinstance(spec, dict):
        raise InputError(f"the body is a JSON {type(spec).__name__}; a job spec is an object of fields")
    for path, value in _leaves(spec, "", 1):
        if isinstance(value, str) and not _is_unicode(value):
            raise InputError(f"job spec: {path}: holds half of a surrogate pair, which is no character")
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"job spec: {path}: {value} is not finite")
    return spec


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number that JSON has")


def _leaves(value: Any, path: str, level: int) -> Iterator[tuple[str, Any]]:
    """(field, key or value) for all keys and values of a spec."""
    if level > _DEEPEST:
        raise InputError(f"job spec: {path[:80]}: is nested more than {_DEEPEST} levels deep")
    parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if parts is None:
        yield path, value
        return
    for key, part in parts:
        inside = f"{path}.{key}" if path else str(key)
        yield "a field's name", key
        yield from _leaves(part, inside, level + 1)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
