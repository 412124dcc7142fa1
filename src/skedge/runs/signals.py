"""Ctrl-C, SIGTERM and SIGHUP where they must not interrupt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_back() -> Iterator[None]:
    """Defer Ctrl-C, SIGTERM and SIGHUP until the end, here and in processes started meanwhile.

    Processes inherit the mask. Here the mask is not enough: another thread may receive a signal, which Python then
    handles in this one.
    """
    came = list[int]()
    main = threading.current_thread() is threading.main_thread()
    answers = {n: signal.signal(n, lambda number, _: came.append(number)) for n in _ENDING} if main else {}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, answer in answers.items():
            signal.signal(number, answer)
    if came:
        signal.raise_signal(came[0])
