"""Work in several processes, with an orderly end on errors and signals."""

from __future__ import annotations

import atexit
import gc
import os
import signal
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
from joblib.executor import get_memmapping_executor
from joblib.externals.loky.backend import resource_tracker as loky_tracker

_START_S, _PAUSE_S = 20.0, 0.05
"""Time limit for the start of processes, and length of the pause asked of each [s]."""


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
            with _held_back(signal.SIGINT, signal.SIGTERM):  # one blocked while a process starts never reaches it
                _start(others)
        yield from _done([_at(os.getcwd(), *one) for one in work], others, joining=joining or not others)


def start_ahead(module: str, pieces: int, processes: int, *, joining: bool = False) -> None:
    """Start the processes of the next :func:`parallel`, and let them import `module` meanwhile.

    `pieces` is the length of its `work`.
    """
    others = _others(pieces, processes, joining=joining)
    if not others:
        return
    _start_trackers()
    with _held_back(signal.SIGINT, signal.SIGTERM):
        executor = _executor(others)
        _ahead[:] = [executor.submit(_process, module) for _ in range(others)]


_ahead: list[Future[int]] = []
"""The ids of the processes started ahead."""


def _others(pieces: int, processes: int, *, joining: bool) -> int:
    """Number of processes beside this one."""
    processes = max(1, min(effective_n_jobs(processes), pieces))
    return 0 if processes == 1 else processes - joining


def _executor(others: int) -> Any:
    """Joblib's executor, whose processes live on; they share the cores, so libraries start few threads in them."""
    threads = str(max(1, effective_n_jobs(-1) // others))
    return get_memmapping_executor(others, env={name: os.environ.get(name, threads) for name in _THREADS})


_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


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
            yield from (future.result() for future in done)
    except BaseException:  # also where the generator is closed
        if executor is not None:
            with _held_back(signal.SIGINT, signal.SIGTERM):
                executor.shutdown(wait=True, kill_workers=True)
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
        loky_tracker.ensure_running()
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def _start(processes: int) -> None:
    """Wait until joblib's processes have started: one that is ended during its start prints a traceback."""
    up, deadline = {one.result() for one in _ahead}, time.monotonic() + _START_S
    _ahead.clear()
    while len(up) < processes and time.monotonic() < deadline:
        executor = _executor(processes)
        up.update(one.result() for one in [executor.submit(_process) for _ in range(processes)])


def _process(module: str | None = None) -> int:
    """The id of this process, after a pause in which the others start; imports `module`."""
    gc.set_threshold(100_000)  # as in the command itself: imports create many objects and no garbage
    atexit.register(gc.freeze)  # likewise: the command waits for the end of its processes
    time.sleep(_PAUSE_S)
    if module is not None:
        import_module(module)
    return os.getpid()


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress what users need not know.

    Joblib warns about abandoned work, and when it replaces a process that has come to hold much memory, which loses
    nothing; its thread prints an error when it finds its queue closed.
    """
    before = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if type(args.thread).__name__ != "_ExecutorManagerThread":
            before(args)

    threading.excepthook = hook
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*tasks which were still being processed.*")
            warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given.*")
            yield
    finally:
        threading.excepthook = before


@contextmanager
def _held_back(*signals: signal.Signals) -> Iterator[None]:
    """Defer `signals` until the end, here and in processes started meanwhile.

    Processes inherit the mask. Here the mask is not enough: another thread may receive a signal, which Python then
    handles in this one.
    """
    came = list[int]()
    main = threading.current_thread() is threading.main_thread()
    answers = {n: signal.signal(n, lambda number, _: came.append(number)) for n in signals} if main else {}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, answer in answers.items():
            signal.signal(number, answer)
    if came:
        signal.raise_signal(came[0])
