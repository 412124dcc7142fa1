"""Work in a process of the lowest priority, beside this one."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

from skedge.platform.signals import unwind

_PATIENCE_S = 10.0
"""Time limit for the process to end before it is killed [s]."""


@contextmanager
def background_process(work: Callable[..., None], *args: Any) -> Iterator[None]:
    """Do `work`, a function that can be pickled, in another process, with the processor time that others leave.

    On leaving, the process and all that it has started are ended, as by SIGTERM, if they have not ended before.
    """
    process = multiprocessing.get_context("spawn").Process(target=_at_lowest_priority, args=(work, *args))
    process.start()
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            process.terminate()  # it may not have a group of its own yet
            with suppress(ProcessLookupError):
                os.killpg(cast("int", process.pid), number)
            process.join(_PATIENCE_S)


def _at_lowest_priority(work: Callable[..., None], *args: Any) -> None:
    # a group of its own, so that one signal reaches all that it starts, and Ctrl-C in the terminal none of it
    os.setsid()
    signal.signal(signal.SIGTERM, unwind)
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)  # macOS has no idle class
    work(*args)
