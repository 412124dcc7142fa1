"""What can become of a call to an actor: the one table that maps Ray's errors to four of our own.

Ray has some forty errors, and which of them is raised depends on the instant at which a process, a node or an object is
lost. Callers act on four: the call is repeated (:class:`LostError`, :class:`LateError`), what it needed is made anew
(:class:`GoneError`), or the method that was called has raised an error (:class:`FailedError`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class CallError(Exception):
    """A call to an actor has no answer."""


class LostError(CallError):
    """The actor's process, its node or the way to it is lost, or there is no room for the call now."""


class LateError(CallError):
    """The answer is late; the call may still be carried out."""


class GoneError(CallError):
    """An object that the call needs or returns is gone."""


class FailedError(CallError):
    """The method that was called has raised an error, the `cause`."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.cause = cause


def call_error(error: Exception) -> CallError:
    """The error of ours that an error of Ray stands for."""
    from ray import exceptions  # noqa: PLC0415 - Ray is an extra

    if isinstance(error, exceptions.RayTaskError):
        # an argument that could not be had is an error of Ray again
        return call_error(error.cause) if isinstance(error.cause, exceptions.RayError) else FailedError(error.cause)
    if isinstance(error, exceptions.GetTimeoutError):
        return LateError(str(error))
    kind = GoneError if isinstance(error, exceptions.ObjectLostError) else LostError
    return kind(f"{type(error).__name__}: {error}")


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of ours in place of Ray's."""
    from ray.exceptions import RayError  # noqa: PLC0415 - Ray is an extra

    try:
        yield
    except RayError as error:
        raise call_error(error) from error


def answer(ref: Any, timeout_s: float | None = None) -> Any:
    """The answer to a call, or those to several.

    Raises
    ------
    CallError
        One of the four, if there is none.
    """
    import ray  # noqa: PLC0415 - Ray is an extra

    with translated():
        return ray.get(ref, timeout=timeout_s)
