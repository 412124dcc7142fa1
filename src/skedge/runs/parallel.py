"""Work in several processes, with an orderly end on errors and signals."""

from __future__ import annotations

import atexit
import gc
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import resource_tracker
from typing import Any

from joblib import delayed, effective_n_jobs
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.backend import resource_tracker as loky_tracker

from .signals import held_back

_START_S, _PAUSE_S, _IDLE_S = 20.0, 0.05, 300
"""Time limit for the start of processes, pause asked of each, and idle time after which one ends [s]."""


def parallel(work: Sequence[Any], processes: int, *, joining: bool = False) -> Generator[Any, None, None]:
    """Do joblib's `work` in `processes` processes (-1: one per core) and yield the results as they become available.

    There are no more processes than pieces of work; a single piece is done in this process.

    Ctrl-C and SIGTERM do not reach those processes: this process ends them, in an orderly way, when it is ended itself
    or when the generator is closed.

    Parameters
    ----------
    joining
        This process is one of them: for short work, as results of the others wait while it works.
    """
    others = _others(len(work), processes, joining=joining)
    with _quiet():
        if others:
            _start_trackers()
            with held_back():  # one blocked while a process starts never reaches it
                _start(others)
        yield from _done([_at(os.getcwd(), *one) for one in work], others, joining=joining or not others)


@contextmanager
def started_ahead(module: str, pieces: int, processes: int, *, joining: bool = False) -> Iterator[None]:
    """Start the processes of the next :func:`parallel`, and let them import `module` meanwhile.

    `pieces` is the length of its `work`. An error inside the block ends them.
    """
    others = _others(pieces, processes, joining=joining)
    if not others:
        yield
        return
    _start_trackers()
    executor = None
    try:
        with held_back():
            executor = _executor(others)
            _ahead[:] = [executor.submit(_process) for _ in range(others)]
            for _ in range(others):
                executor.submit(import_module, module)
        yield
    except BaseException:
        if executor is not None:
            _end(executor)
        raise


_ahead: list[Future[int]] = []
"""The ids of the processes started ahead."""


def _others(pieces: int, processes: int, *, joining: bool) -> int:
    """Number of processes beside this one."""
    processes = max(1, min(effective_n_jobs(processes), pieces))
    return 0 if processes == 1 else processes - joining


def _executor(others: int) -> Any:
    """Loky's executor, whose processes live on; libraries start one thread in each if the environment says nothing."""
    return get_reusable_executor(others, timeout=_IDLE_S, env={name: os.environ.get(name, "1") for name in _THREADS})


_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def _end(executor: Any) -> None:
    """End the processes at once."""
    with _quiet(), held_back():
        executor.shutdown(wait=True, kill_workers=True)
    _ahead.clear()


def _done(tasks: Sequence[Any], others: int, *, joining: bool) -> Generator[Any, None, None]:
    """Do `tasks` in `others` from the first one on, one waiting for each, and `joining` in this one from the last."""
    left, sent = deque(tasks), set[Future[Any]]()
    executor = _executor(others) if others else None
    try:
        while left or sent:
            while executor is not None and len(left) > joining and len(sent) < 2 * others:
                function, given, named = left.popleft()
                sent.add(executor.submit(function, *given, **named))
            if left and joining:
                function, given, named = left.pop() if others else left.popleft()
                yield function(*given, **named)
            done, sent = wait(sent, timeout=0 if left and joining else None, return_when=FIRST_COMPLETED)
            # an error comes after the results that came with it
            for future in sorted(done, key=lambda future: future.exception() is not None):
                yield future.result()
    except BaseException:  # also where the generator is closed
        if executor is not None:
            _end(executor)
        raise


def _at(folder: str, function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """A task in the caller's folder: processes that joblib uses again are still in that of the first call."""
    return delayed(_in_folder)(folder, function, given, named)


def _in_folder(folder: str, function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    os.chdir(folder)
    return function(*given, **named)


def _start_trackers() -> None:
    """Start the trackers of joblib and of Python first, because their start unblocks signals.

    When work is abandoned they remove what it leaves behind; their messages about it are suppressed.
    """
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (before, "ignore:resource_tracker")))
    try:
        with held_back():  # the trackers leave out Ctrl-C and SIGTERM by themselves, but not SIGHUP
            loky_tracker.ensure_running()
            resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def _start(processes: int) -> None:
    """Wait until the processes have started: one that is ended during its start prints a traceback."""
    executor, ahead, deadline = _executor(processes), list(_ahead), time.monotonic() + _START_S
    _ahead.clear()
    up = {one.result() for one in ahead}
    while len(up) != processes and time.monotonic() < deadline:
        up = {one.result() for one in [executor.submit(_process) for _ in range(processes)]}


def _process() -> int:
    """The id of this process, after a pause in which the others start."""
    gc.set_threshold(100_000)  # as in the command itself: imports create many objects and no garbage
    atexit.register(gc.freeze)  # likewise: the command waits for the end of its processes
    time.sleep(_PAUSE_S)
    return os.getpid()


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress what users need not know.

    Loky warns when it replaces a process that has come to hold much memory, and when it waits for work to be over to
    have another number of them, which loses nothing; its thread prints an error when it finds its queue closed.
    """
    before = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if type(args.thread).__name__ != "_ExecutorManagerThread":
            before(args)

    threading.excepthook = hook
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Trying to resize an executor with running jobs.*")
            warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given.*")
            yield
    finally:
        threading.excepthook = before
