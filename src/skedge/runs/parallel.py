"""Tasks in several processes, with an orderly end on errors and signals."""

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

_START_S, _PAUSE_S, _IDLE_S, _POLL_S, _ALIVE_S = 20.0, 0.05, 300, 0.05, 1.0
"""Time limit for the start of processes, pause asked of each, idle time after which one ends, time after which it is
looked whether work has been added or all is over, and after which each process looks whether its parent lives [s]."""


def parallel(work: Iterable[Any], processes: int, *, use_this_process: bool = False) -> Generator[Any, None, None]:
    """Run joblib's tasks `work` in `processes` processes and yield results as they become available.

    There are no more processes than tasks; a single task runs in this process.

    Ctrl-C and SIGTERM do not reach those processes: this process ends them, in an orderly way, when it is ended itself
    or when the generator is closed.

    Parameters
    ----------
    work
        If it is a deque, tasks may be added to it while results are taken.
    processes
        At least 1, or -1: one per core.
    use_this_process
        This process is one of them. While it works, results of the others wait, but the others work on.
    """
    tasks = work if isinstance(work, deque) else deque(work)
    n_helpers = _helper_count(len(tasks), processes, use_this_process=use_this_process)
    with _suppressed_noise():
        if n_helpers:
            _start_trackers()
            with deferred_signals():  # one blocked while a process starts never reaches it
                _start(n_helpers)
        yield from _run_queue(tasks, n_helpers, use_this_process=use_this_process)


@contextmanager
def prestarted_workers(module: str, n_tasks: int, processes: int, *, use_this_process: bool = False) -> Iterator[None]:
    """Start the processes of the next :func:`parallel`, and let them import `module` meanwhile.

    An error inside the block ends them.

    Parameters
    ----------
    module
        What tasks will import.
    n_tasks
        Length of the `work` of :func:`parallel`.
    processes, use_this_process
        As :func:`parallel` will have them.
    """
    n_helpers = _helper_count(n_tasks, processes, use_this_process=use_this_process)
    if not n_helpers:
        yield
        return
    _start_trackers()
    executor = None
    try:
        with deferred_signals():
            executor = _executor(n_helpers)
            _early_futures[:] = [executor.submit(_pid_after_pause) for _ in range(n_helpers)]
            for _ in range(n_helpers):
                # loky shares one queue, so a process may take two of these imports and another none; the second is free
                executor.submit(import_module, module)
        yield
    except BaseException:
        if executor is not None:
            _end(executor)
        raise


_early_futures: list[Future[int]] = []
"""Futures of the ids of the processes started in advance."""


def _helper_count(n_tasks: int, processes: int, *, use_this_process: bool) -> int:
    """Number of processes beside this one."""
    processes = max(1, min(effective_n_jobs(processes), n_tasks))
    # a single process is this one: starting another for all the work would gain nothing
    return 0 if processes == 1 else processes - use_this_process


def _executor(n_helpers: int) -> Any:
    """Loky's executor, whose processes live on; libraries start one thread in each if the environment says nothing."""
    # processes share the cores already, so a pool of threads in each would only compete
    threads = {name: os.environ.get(name, "1") for name in _THREADS}
    # idle processes stay for the next call: starting one and its imports take longer than many a run
    return get_reusable_executor(
        n_helpers, timeout=_IDLE_S, env=threads, initializer=_initialise, initargs=(os.getpid(),)
    )


_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def _end(executor: Any) -> None:
    """End the processes at once."""
    with _suppressed_noise(), deferred_signals():
        # a task under way may take hours, so its process is killed rather than awaited
        executor.shutdown(wait=True, kill_workers=True)
    _early_futures.clear()


def _run_queue(tasks: deque[Any], n_helpers: int, *, use_this_process: bool) -> Generator[Any, None, None]:
    """Run `tasks` from the first on in `n_helpers` processes and, if `use_this_process`, from the last on here.

    One more task waits for each of those processes. Without them, all tasks run here.
    """
    folder = os.getcwd()
    if not n_helpers:
        while tasks:
            yield _in_caller_folder(folder, tasks.popleft())()
        return
    executor = _executor(n_helpers)
    # the helpers are fed by a thread, as this process may be busy with a task of its own
    team = _Team(executor, tasks, n_helpers, use_this_process=use_this_process)
    try:
        while team.is_busy():
            if use_this_process and (task := team.take_last()) is not None:
                # from the other end than the helpers, which take the first: both sides meet as late as possible
                yield _own_copy(_in_caller_folder(folder, task))()
            else:
                yield team.result()
            while team.has_result():
                yield team.result()
            team.wake()
    except BaseException:  # also where the generator is closed
        team.end()
        _end(executor)
        raise
    team.end()


class _Team:
    """The other processes, which a thread keeps busy while this process works, too.

    Attributes
    ----------
    queue
        Tasks that no process has begun; more may be added at any time.
    n_helpers
        Number of the other processes; for each of them another task waits.
    use_this_process
        Whether this process works, too; the last task is then left to it.
    """

    def __init__(self, executor: Any, tasks: deque[Any], n_helpers: int, *, use_this_process: bool) -> None:
        self.queue, self.n_helpers, self.use_this_process = tasks, n_helpers, use_this_process
        self._executor, self._folder = executor, os.getcwd()
        # the lock guards the queue and the number of unfinished tasks, which both threads change
        self._lock, self._wake_event, self._n_unfinished, self._has_ended = (
            threading.Lock(),
            threading.Event(),
            0,
            False,
        )
        self._results = SimpleQueue[Future[Any]]()
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        with deferred_signals():  # loky may start a process in it, in place of one that was idle for long
            self._feeder.start()

    def is_busy(self) -> bool:
        """Whether a task or a result remains."""
        with self._lock:
            return bool(self.queue) or self._n_unfinished > 0

    def take_last(self) -> Any | None:
        """Take the last task for this process; None if the queue is empty."""
        with self._lock:
            return self.queue.pop() if self.queue else None

    def has_result(self) -> bool:
        """Whether :meth:`result` would return at once."""
        return not self._results.empty()

    def result(self) -> Any:
        """Wait for the next result; raises what the task has raised."""
        future = self._results.get()
        with self._lock:
            self._n_unfinished -= 1
        return future.result()

    def wake(self) -> None:
        """Make the thread look for tasks that have been added."""
        self._wake_event.set()

    def end(self) -> None:
        """Start no more tasks; when this returns, none is being started."""
        self._has_ended = True
        self._wake_event.set()
        self._feeder.join()

    def _feed(self) -> None:
        futures = set[Future[Any]]()
        while not self._has_ended:
            while (
                # one task runs and one waits per helper, so that none idles while this thread sleeps
                len(futures) < 2 * self.n_helpers
                and (task := self._take_first(must_wait=len(futures) >= self.n_helpers)) is not None
            ):
                futures.add(self._submit(task))
            if not futures:
                self._wake_event.wait()
                self._wake_event.clear()
                continue
            finished, futures = wait(futures, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            # an error comes after the results that came with it
            for future in sorted(finished, key=lambda future: future.exception() is not None):
                self._results.put(future)

    def _take_first(self, *, must_wait: bool) -> Any | None:
        with self._lock:
            # with all helpers busy, the last task starts sooner in this process than behind them
            if len(self.queue) <= (self.use_this_process and must_wait):
                return None
            self._n_unfinished += 1
            return self.queue.popleft()

    def _submit(self, task: Any) -> Future[Any]:
        try:
            future: Future[Any] = self._executor.submit(_in_caller_folder(self._folder, task))
        except Exception as error:  # it is raised where the result is taken
            future = Future()
            future.set_exception(error)
        return future


def _in_caller_folder(folder: str, task: Any) -> Callable[[], Any]:
    """A task in the caller's folder: processes that joblib uses again are still in that of the first call."""
    function, args, kwargs = task
    return partial(_in_folder, folder, function, args, kwargs)


def _own_copy(task: Callable[[], Any]) -> Callable[[], Any]:
    """A copy of a task, as another process would get it.

    Threads of joblib pickle what tasks share (a scenario) at any time, so that no task may change it: what this process
    notes in a scenario while it works on it goes into its own copy.
    """
    return cast("Callable[[], Any]", pickle.loads(cloudpickle.dumps(task)))  # noqa: S301 - just pickled


def _in_folder(folder: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    os.chdir(folder)
    return function(*args, **kwargs)


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
    executor, prestarted, deadline = _executor(processes), list(_early_futures), time.monotonic() + _START_S
    _early_futures.clear()
    # a set, as one process may have answered for two
    pids = {future.result() for future in prestarted}
    while len(pids) != processes and time.monotonic() < deadline:
        pids = {future.result() for future in [executor.submit(_pid_after_pause) for _ in range(processes)]}


def _initialise(parent: int) -> None:
    """Set up one of the processes."""
    gc.set_threshold(100_000)  # as in the command itself: imports create many objects and no garbage
    atexit.register(gc.freeze)  # likewise: the command waits for the end of its processes
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()


def _exit_with_parent(parent: int) -> None:
    """End this process when its parent has been killed, which cannot end it then."""
    while os.getppid() == parent:
        time.sleep(_ALIVE_S)
    # not sys.exit: handlers at exit would wait for pipes to the parent that is gone
    os._exit(1)


def _pid_after_pause() -> int:
    """The id of this process, after a pause in which the others start."""
    time.sleep(_PAUSE_S)
    return os.getpid()


@contextmanager
def _suppressed_noise() -> Iterator[None]:
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
