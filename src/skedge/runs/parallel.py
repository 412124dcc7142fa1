"""Work in several processes, with an orderly end on errors and signals."""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from multiprocessing import resource_tracker
from queue import SimpleQueue
from typing import Any, cast

import cloudpickle
from joblib import effective_n_jobs
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.backend import resource_tracker as loky_tracker

from skedge.platform.signals import deferred_signals

_START_S, _PAUSE_S, _IDLE_S, _LOOK_S, _ALIVE_S = 20.0, 0.05, 300, 0.05, 1.0
"""Time limit for the start of processes, pause asked of each, idle time after which one ends, time after which it is
looked whether work has been added or all is over, and after which each process looks whether its parent lives [s]."""


def parallel(work: Iterable[Any], processes: int, *, joining: bool = False) -> Generator[Any, None, None]:
    """Do joblib's `work` in `processes` processes (-1: one per core) and yield the results as they become available.

    There are no more processes than pieces of work; a single piece is done in this process.

    Ctrl-C and SIGTERM do not reach those processes: this process ends them, in an orderly way, when it is ended itself
    or when the generator is closed.

    Parameters
    ----------
    work
        If it is a deque, pieces may be added to it while results are taken.
    joining
        This process is one of them. Results of the others wait while it works; they do not.
    """
    left = work if isinstance(work, deque) else deque(work)
    others = _others(len(left), processes, joining=joining)
    with _quiet():
        if others:
            _start_trackers()
            with deferred_signals():  # one blocked while a process starts never reaches it
                _start(others)
        yield from _done(left, others, joining=joining)


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
        with deferred_signals():
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
    threads = {name: os.environ.get(name, "1") for name in _THREADS}
    return get_reusable_executor(others, timeout=_IDLE_S, env=threads, initializer=_begin, initargs=(os.getpid(),))


_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def _end(executor: Any) -> None:
    """End the processes at once."""
    with _quiet(), deferred_signals():
        executor.shutdown(wait=True, kill_workers=True)
    _ahead.clear()


def _done(left: deque[Any], others: int, *, joining: bool) -> Generator[Any, None, None]:
    """Do the pieces `left` in `others` from the first one on, one waiting for each, and `joining` here from the last.

    Without others all are done here.
    """
    folder = os.getcwd()
    if not others:
        while left:
            yield _at(folder, left.popleft())()
        return
    executor = _executor(others)
    team = _Team(executor, left, others, joining=joining)
    try:
        while team.busy():
            if joining and (piece := team.last()) is not None:
                yield _own(_at(folder, piece))()
            else:
                yield team.result()
            while team.has_result():
                yield team.result()
            team.look()
    except BaseException:  # also where the generator is closed
        team.end()
        _end(executor)
        raise
    team.end()


class _Team:
    """Other processes, which a thread of its own keeps at work while this process works, too.

    Attributes
    ----------
    left
        Pieces that nobody has begun; others may be added at any time.
    others, joining
        Number of those processes, for each of which another piece waits; whether this process works, too. The last
        piece waits for nobody then.
    """

    def __init__(self, executor: Any, left: deque[Any], others: int, *, joining: bool) -> None:
        self.left, self.others, self.joining = left, others, joining
        self._executor, self._folder = executor, os.getcwd()
        self._lock, self._woken, self._out, self._over = threading.Lock(), threading.Event(), 0, False
        self._results = SimpleQueue[Future[Any]]()
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        with deferred_signals():  # loky may start a process in it, in place of one that was idle for long
            self._feeder.start()

    def busy(self) -> bool:
        """Whether a piece is left, or a result not taken."""
        with self._lock:
            return bool(self.left) or self._out > 0

    def last(self) -> Any | None:
        """Take the last piece for this process; None if none is left."""
        with self._lock:
            return self.left.pop() if self.left else None

    def has_result(self) -> bool:
        """Whether :meth:`result` would return at once."""
        return not self._results.empty()

    def result(self) -> Any:
        """Wait for the next result; raises what the piece has raised."""
        future = self._results.get()
        with self._lock:
            self._out -= 1
        return future.result()

    def look(self) -> None:
        """Look for pieces that have been added."""
        self._woken.set()

    def end(self) -> None:
        """Give out no more pieces; when this returns, none is being given out."""
        self._over = True
        self._woken.set()
        self._feeder.join()

    def _feed(self) -> None:
        sent = set[Future[Any]]()
        while not self._over:
            while len(sent) < 2 * self.others and (piece := self._first(waits=len(sent) >= self.others)) is not None:
                sent.add(self._submitted(piece))
            if not sent:
                self._woken.wait()
                self._woken.clear()
                continue
            done, sent = wait(sent, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
            # an error comes after the results that came with it
            for future in sorted(done, key=lambda future: future.exception() is not None):
                self._results.put(future)

    def _first(self, *, waits: bool) -> Any | None:
        with self._lock:
            if len(self.left) <= (self.joining and waits):
                return None
            self._out += 1
            return self.left.popleft()

    def _submitted(self, piece: Any) -> Future[Any]:
        try:
            given: Future[Any] = self._executor.submit(_at(self._folder, piece))
        except Exception as error:  # it is raised where the result is taken
            given = Future()
            given.set_exception(error)
        return given


def _at(folder: str, piece: Any) -> Callable[[], Any]:
    """A piece in the caller's folder: processes that joblib uses again are still in that of the first call."""
    function, given, named = piece
    return partial(_in_folder, folder, function, given, named)


def _own(task: Callable[[], Any]) -> Callable[[], Any]:
    """A copy of a task, as another process would get it.

    Threads of joblib pickle what tasks share (a scenario) at any time, so that no task may change it: what this process
    notes in a scenario while it works on it goes into its own copy.
    """
    return cast("Callable[[], Any]", pickle.loads(cloudpickle.dumps(task)))  # noqa: S301 - just pickled


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
        with deferred_signals():  # the trackers leave out Ctrl-C and SIGTERM by themselves, but not SIGHUP
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


def _begin(parent: int) -> None:
    """Set up one of the processes."""
    gc.set_threshold(100_000)  # as in the command itself: imports create many objects and no garbage
    atexit.register(gc.freeze)  # likewise: the command waits for the end of its processes
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent has been killed, which cannot end it then."""
    while os.getppid() == parent:
        time.sleep(_ALIVE_S)
    os._exit(1)


def _process() -> int:
    """The id of this process, after a pause in which the others start."""
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
