"""Ray in this process: calls to actors are carried out at once, or when a test says so.

Arguments and answers are not copied. :func:`stage` puts it in the place of ``ray.get``, ``ray.wait`` and ``ray.put``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest


class Ref:
    """A reference to a value that will be there."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.value: Any = None
        self.error: Exception | None = None

    def settle(self, value: Any = None, error: Exception | None = None) -> None:
        """Note the value, or the error in place of it."""
        self.value, self.error = value, error
        self.ready.set()


def failed(cause: Exception) -> Exception:
    """The error of Ray by which a method's own error arrives."""
    from ray.exceptions import RayTaskError  # not earlier: Ray reads its settings when it is imported

    return RayTaskError("method", "traceback", cause)


class Staged:
    """A handle of an actor in this process.

    Attributes
    ----------
    held
        None: calls are carried out when they are made. Else the list that each call is put into; the test calls it.
    """

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.held: list[Callable[[], None]] | None = None

    def __getattr__(self, name: str) -> Method:
        return Method(self, name)


class Method:
    """A method of an actor."""

    def __init__(self, staged: Staged, name: str, returns: int = 1) -> None:
        self.staged, self.name, self.returns = staged, name, returns

    def options(self, num_returns: int) -> Method:
        """The method with several answers."""
        return Method(self.staged, self.name, num_returns)

    def remote(self, *given: Any, **named: Any) -> Any:
        """Call the method, now or when the test says so."""
        refs = [Ref() for _ in range(self.returns)]

        def call() -> None:
            try:
                found = getattr(self.staged.actor, self.name)(*map(_value, given), **named)
            except Exception as error:
                for ref in refs:
                    ref.settle(error=failed(error))
            else:
                for ref, value in zip(refs, [found] if self.returns == 1 else found, strict=True):
                    ref.settle(value)

        if self.staged.held is None:
            call()
        else:
            self.staged.held.append(call)
        return refs[0] if self.returns == 1 else refs


def _value(given: Any) -> Any:
    return get(given) if isinstance(given, Ref) else given


def get(ref: Any, timeout: float | None = None) -> Any:
    """Stands for ``ray.get``."""
    from ray.exceptions import GetTimeoutError

    if isinstance(ref, list):
        return [get(one, timeout) for one in ref]
    if not ref.ready.wait(timeout):
        raise GetTimeoutError
    if ref.error is not None:
        raise ref.error
    return ref.value


def wait(refs: Sequence[Ref], num_returns: int, timeout: float | None = None) -> tuple[list[Ref], list[Ref]]:
    """Stands for ``ray.wait`` of one reference."""
    (ref,) = refs
    return ([ref], []) if ref.ready.wait(timeout) else ([], [ref])


def put(content: Any) -> Ref:
    """Stands for ``ray.put``."""
    ref = Ref()
    ref.settle(content)
    return ref


def stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put these functions in the place of Ray's."""
    import ray

    for function in (get, wait, put):
        monkeypatch.setattr(ray, function.__name__, function)
