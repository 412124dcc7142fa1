"""The virtual host: threads, locks, conditions, events, queues, futures, time, files and more of the running world.

Its names are those that the live part uses of the standard library, with the same behaviour: the tests of this package
run on both. Each operation is a switch point (:meth:`simulated.scheduler.World.point`). What may wake other threads has
one before its effect and one after it, the release of a lock only the latter. Objects belong to the world in which they
are made.
"""

from __future__ import annotations

import math
import re
import threading
import time as real_time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent import futures
from concurrent.futures._base import DoneAndNotDoneFutures
from queue import Empty, Full
from types import TracebackType
from typing import Any, Generic, TypeVar

from .actors import (
    actor_names,
    answer,
    call,
    connect,
    disconnect,
    end_actor,
    kill,
    nodes,
    put,
    ready,
    start_actor,
)
from .databases import transaction
from .disks import disk as disk_of
from .modules import Process, getpid, getppid, kill_named, runs
from .scheduler import Task, Waiters, World, running_world

__all__ = [
    "EPOCH_S",
    "Condition",
    "Empty",
    "Event",
    "Full",
    "Future",
    "Lock",
    "Process",
    "Queue",
    "RLock",
    "SimpleQueue",
    "Thread",
    "actor_names",
    "answer",
    "call",
    "connect",
    "disconnect",
    "disk",
    "end_actor",
    "get_ident",
    "getpid",
    "getppid",
    "is_alive",
    "join",
    "kill",
    "kill_named",
    "mark",
    "monotonic",
    "nodes",
    "perf_counter",
    "put",
    "ready",
    "runs",
    "sleep",
    "start",
    "start_actor",
    "strftime",
    "time",
    "transaction",
    "wait",
]

T = TypeVar("T")

EPOCH_S = 1_767_225_600.0
"""Wall clock of a machine when the run starts, before any jump: 2026-01-01, UTC [s]."""

# --- threads

_UNNAMED = re.compile(r"Thread-\d+")


class Thread(threading.Thread):
    """A thread of the running process; arguments and attributes are those of the standard library's class."""

    def start(self) -> None:
        """Start the thread."""
        start(self)

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended, at most `timeout` [s]; None: without limit."""
        join(self, timeout)

    def is_alive(self) -> bool:
        """Whether the thread has been started and has not ended."""
        return is_alive(self)


def start(thread: threading.Thread) -> None:
    """Start a thread in the running process."""
    world = running_world()
    if thread.ident is not None:
        raise RuntimeError("threads can only be started once")
    # the standard library numbers unnamed threads over all runs of this process
    name = "" if _UNNAMED.match(thread.name) else thread.name
    process = world.running().process
    world.point(f"start {name or 'thread'}")
    task = world.spawn(process, thread.run, name, daemon=thread.daemon)
    thread._ident = task.number  # type: ignore[attr-defined]
    thread._simulated = task  # type: ignore[attr-defined]
    world.point(f"started {task.name}")


def join(thread: threading.Thread, timeout: float | None = None) -> None:
    """Wait until a thread has ended, at most `timeout` [s]; None: without limit."""
    world, task = running_world(), _task(thread)
    if task is None:
        raise RuntimeError("cannot join thread before it is started")
    if task is world.task:
        raise RuntimeError("cannot join current thread")
    world.point(f"join {task.name}")
    task.ended.wait_until(lambda: task.done, timeout)


def is_alive(thread: threading.Thread) -> bool:
    """Whether a thread has been started and has not ended."""
    running_world().point(f"is_alive {thread.ident}")
    task = _task(thread)
    return task is not None and not task.done and task.process.alive


def get_ident() -> int:
    """A number of the running thread, which no other has."""
    return running_world().running().number


def _task(thread: threading.Thread) -> Task | None:
    return getattr(thread, "_simulated", None)


# --- locks


class Lock:
    """A lock that any thread may release."""

    _kind = "lock"

    def __init__(self) -> None:
        self._world = running_world()
        self._waiters = Waiters(self._world, self._world.name(self._kind))
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; False if it is held by another thread and `blocking` or `timeout` [s] end the wait."""
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        if timeout < 0 and timeout != -1:
            raise ValueError("timeout value must be a non-negative number")
        self._world.point(f"acquire {self._waiters.name}")
        return self._take(0 if not blocking else None if timeout == -1 else timeout)

    def release(self) -> None:
        """Let go of the lock."""
        if not self._world.over and not self._held:
            raise RuntimeError("release unlocked lock")
        self._free()
        self._world.point(f"release {self._waiters.name}")

    def locked(self) -> bool:
        """Whether a thread holds the lock."""
        self._world.point(f"locked {self._waiters.name}")
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _take(self, timeout: float | None) -> bool:
        if not self._waiters.wait_until(lambda: not self._held, timeout):
            return False
        self._held, self._waiters.holder = True, self._world.task
        return True

    def _free(self) -> None:
        self._held, self._waiters.holder = False, None
        self._waiters.wake()

    def _is_owned(self) -> bool:
        return self._held

    def _free_all(self) -> int:
        self._free()
        return 1

    def _take_again(self, depth: int) -> None:
        self._take(None)


class RLock(Lock):
    """A lock that its thread may take several times, and only this thread may release."""

    _kind = "rlock"

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def release(self) -> None:
        """Let go of the lock, once."""
        if not self._world.over and not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        super().release()

    def _take(self, timeout: float | None) -> bool:
        if not self._is_owned() and not super()._take(timeout):
            return False
        self._depth += 1
        return True

    def _free(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            super()._free()

    def _is_owned(self) -> bool:
        return self._held and self._waiters.holder is self._world.task

    def _free_all(self) -> int:
        depth, self._depth = self._depth, 1
        self._free()
        return depth

    def _take_again(self, depth: int) -> None:
        super()._take(None)
        self._depth = depth


class Condition:
    """A lock with threads that wait for a notification; without an argument the lock is a new :class:`RLock`."""

    def __init__(self, lock: Lock | None = None) -> None:
        self._world = running_world()
        self._waiters = Waiters(self._world, self._world.name("condition"))
        self._lock = RLock() if lock is None else lock
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait for a notification, take the lock again; False if `timeout` [s] passed first."""
        self._owned("cannot wait on un-acquired lock")
        self._world.point(f"wait {self._waiters.name}")
        depth = self._lock._free_all()
        notified = self._waiters.wait(timeout)
        self._lock._take_again(depth)
        return notified

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Wait until a predicate is true, at most `timeout` [s]; its last value."""
        end = math.inf if timeout is None else self._world.now + timeout
        while not (value := predicate()) and self._world.now < end:
            self.wait(None if timeout is None else end - self._world.now)
        return value

    def notify(self, n: int = 1) -> None:
        """Wake up to `n` waiting threads."""
        self._owned("cannot notify on un-acquired lock")
        self._world.point(f"notify {self._waiters.name}")
        self._waiters.wake(n)

    def notify_all(self) -> None:
        """Wake all waiting threads."""
        self.notify(len(self._waiters))

    def _owned(self, refusal: str) -> None:
        if not self._world.over and not self._lock._is_owned():
            raise RuntimeError(refusal)


class Event:
    """A flag that threads wait for."""

    def __init__(self) -> None:
        self._world = running_world()
        self._waiters = Waiters(self._world, self._world.name("event"))
        self._flag = False

    def is_set(self) -> bool:
        """Whether the flag is set."""
        self._world.point(f"is_set {self._waiters.name}")
        return self._flag

    def set(self) -> None:
        """Set the flag and wake all waiting threads."""
        self._world.point(f"set {self._waiters.name}")
        self._flag = True
        self._waiters.wake()
        self._world.point(f"was set {self._waiters.name}")

    def clear(self) -> None:
        """Clear the flag."""
        self._world.point(f"clear {self._waiters.name}")
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set, at most `timeout` [s]; False if that passed first."""
        self._world.point(f"wait {self._waiters.name}")
        return self._flag or self._waiters.wait(timeout)


# --- queues and futures


class SimpleQueue(Generic[T]):
    """A queue without limit."""

    def __init__(self) -> None:
        self._world = running_world()
        name = self._world.name("queue")
        self._items: deque[T] = deque()
        self._getters, self._putters = Waiters(self._world, name), Waiters(self._world, f"space in {name}")
        self.maxsize = 0

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        """Append an item; Full if there is no space and `block` or `timeout` [s] end the wait."""
        timeout = _limit(block, timeout)
        self._world.point(f"put {self._getters.name}")
        if not self._putters.wait_until(lambda: not 0 < self.maxsize <= len(self._items), timeout):
            raise Full
        self._items.append(item)
        self._getters.wake(1)
        self._world.point(f"was put {self._getters.name}")

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Take the first item; Empty if there is none and `block` or `timeout` [s] end the wait."""
        timeout = _limit(block, timeout)
        self._world.point(f"get {self._getters.name}")
        if not self._getters.wait_until(lambda: bool(self._items), timeout):
            raise Empty
        self._putters.wake(1)
        return self._items.popleft()

    def put_nowait(self, item: T) -> None:
        """Append an item; Full if there is no space."""
        self.put(item, block=False)

    def get_nowait(self) -> T:
        """Take the first item; Empty if there is none."""
        return self.get(block=False)

    def qsize(self) -> int:
        """Number of items."""
        self._world.point(f"qsize {self._getters.name}")
        return len(self._items)

    def empty(self) -> bool:
        """Whether there is no item."""
        return self.qsize() == 0


class Queue(SimpleQueue[T]):
    """A queue of at most `maxsize` items; 0: without limit."""

    def __init__(self, maxsize: int = 0) -> None:
        super().__init__()
        self.maxsize = maxsize

    def full(self) -> bool:
        """Whether there is no space."""
        size = self.qsize()
        return 0 < self.maxsize <= size


def _limit(block: bool, timeout: float | None) -> float | None:
    if block and timeout is not None and timeout < 0:
        raise ValueError("'timeout' must be a non-negative number")
    return timeout if block else 0


class Future(futures.Future[T]):
    """A result to come: the standard library's class, which waits and notifies through its condition alone."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = Condition()  # type: ignore[assignment]


def wait(fs: Iterable[Future[Any]], timeout: float | None = None) -> DoneAndNotDoneFutures[Any]:
    """Wait until all futures are done, at most `timeout` [s]."""
    end, waited = None if timeout is None else running_world().now + timeout, list(fs)
    for future in waited:
        with future._condition:
            future._condition.wait_for(future.done, None if end is None else end - running_world().now)
    done = {future for future in waited if future.done()}
    return DoneAndNotDoneFutures(done, set(waited) - done)  # type: ignore[arg-type]


# --- time, and the mark


def monotonic() -> float:
    """The process's clock [s]."""
    world = _at_point("monotonic")
    return world.now + (world.task.process.clock_s if world.task else 0.0)


perf_counter = monotonic


def time() -> float:
    """The machine's wall clock [s]."""
    world = _at_point("time")
    return EPOCH_S + world.now + (world.task.process.machine.jump_s if world.task else 0.0)


def strftime(template: str) -> str:
    """The machine's wall clock as a text; its zone is UTC."""
    return real_time.strftime(template, real_time.gmtime(time()))


def sleep(seconds: float) -> None:
    """Wait for some virtual time [s]."""
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    world = running_world()
    world.point(f"sleep {seconds:.6f}")
    world.sleepers.wait(seconds)


def mark() -> str:
    """A random text that no other process has."""
    world = _at_point("mark")
    return f"{world.marks.getrandbits(64):016x}"


# --- files


class RunningDisk:
    """The disk of the machine of the running process (:class:`simulated.disks.Disk`)."""

    def __getattr__(self, name: str) -> Any:
        return getattr(disk_of(running_world().running().process.machine.name), name)


disk = RunningDisk()


def _at_point(name: str) -> World:
    world = running_world()
    world.point(name)
    return world
