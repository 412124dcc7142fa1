"""Ctrl-C, SIGTERM and SIGHUP: they unwind a command, but not where they must not interrupt."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def unwind_on_signals() -> Iterator[None]:
    """Let these signals unwind the main thread by an exception, so that no partial output is left.

    Those that are ignored, or handled by others, stay so.
    """
    main = threading.current_thread() is threading.main_thread()
    # Python lets only the main thread set handlers
    previous = {n: before for n in END_SIGNALS if main and (before := signal.getsignal(n)) in _DEFAULT_HANDLERS}
    for number in previous:
        signal.signal(number, unwind)
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


_DEFAULT_HANDLERS = (signal.SIG_DFL, signal.default_int_handler)


def unwind(number: int, _: object = None) -> None:
    """A signal's handler: KeyboardInterrupt for Ctrl-C, SystemExit with 128 + `number` for another.

    Within :data:`uninterruptible` it waits for the end.
    """
    if uninterruptible.depth:
        uninterruptible.pending.append(number)
    elif number == signal.SIGINT:
        raise KeyboardInterrupt
    else:
        sys.exit(128 + number)


class _Uninterruptible:
    """A block of the main thread that :func:`unwind` does not interrupt. It costs 0.2 µs.

    Attributes
    ----------
    depth
        Number of blocks that have begun and not ended.
    pending
        Signals that wait for their end.
    """

    def __init__(self) -> None:
        self.depth, self.pending, self._main = 0, list[int](), threading.main_thread().ident

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            # handlers run in the main thread alone, so blocks of other threads are not counted
            self.depth += 1

    def __exit__(self, *_: object) -> None:
        if threading.get_ident() != self._main:
            return
        self.depth -= 1
        if self.pending and not self.depth:
            # one signal is enough to end a command
            number = self.pending[0]
            self.pending.clear()
            unwind(number)


uninterruptible = _Uninterruptible()


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Defer these signals until the end, whoever handles them, here and in processes started meanwhile.

    Processes inherit the mask. Here the mask is not enough: another thread may receive a signal, which Python then
    handles in this one.
    """
    pending = list[int]()
    main = threading.current_thread() is threading.main_thread()
    handlers = {n: signal.signal(n, lambda number, _: pending.append(number)) for n in END_SIGNALS} if main else {}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    try:
        yield
    finally:
        # before the handlers: a signal that the mask held back arrives now, and ours only notes it
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if pending:
        # for the handlers that were there before; one signal is enough to end a command
        signal.raise_signal(pending[0])
