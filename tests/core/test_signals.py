"""Signals unwind a command, but not in the midst of a call of a kernel."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from skedge.platform.jit import CompiledFunction
from skedge.platform.signals import unwind, unwind_on_signals

ENDS = [(signal.SIGINT, KeyboardInterrupt, None), (signal.SIGTERM, SystemExit, 143), (signal.SIGHUP, SystemExit, 129)]


def kernel(called: Callable[[], object]) -> CompiledFunction:
    """A kernel whose dispatcher is a Python function, as numba's is while it learns types."""
    made = CompiledFunction(called)
    made.__dict__["dispatcher"] = called
    return made


@pytest.mark.usefixtures("_heeding_hangups")
@pytest.mark.parametrize(("number", "error", "code"), ENDS)
def test_a_signal_waits_for_the_end_of_the_kernel(
    number: signal.Signals, error: type[BaseException], code: int | None
) -> None:
    done = []

    def inner() -> None:
        signal.raise_signal(number)
        done.append("inner")

    def outer() -> None:
        kernel(inner)()
        done.append("outer")

    with unwind_on_signals(), pytest.raises(error) as found:
        kernel(outer)()
    assert done == ["inner", "outer"]
    assert getattr(found.value, "code", None) == code


def test_a_signal_comes_after_an_error_of_the_kernel_and_only_once() -> None:
    def broken() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        raise ValueError("of the kernel")

    with unwind_on_signals():
        with pytest.raises(KeyboardInterrupt) as found:
            kernel(broken)()
        assert isinstance(found.value.__context__, ValueError)
        kernel(lambda: None)()


def test_a_kernel_in_another_thread_does_not_hold_back_signals() -> None:
    began, go_on = threading.Event(), threading.Event()

    def waits() -> None:
        began.set()
        go_on.wait(20)

    other = threading.Thread(target=kernel(waits))
    with unwind_on_signals():
        other.start()
        assert began.wait(20)
        try:
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        finally:
            go_on.set()
            other.join()


def test_signals_that_others_handle_stay_theirs() -> None:
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with unwind_on_signals():
            signal.raise_signal(signal.SIGTERM)
            assert signal.getsignal(signal.SIGINT) is unwind
        assert came == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)
