"""What the live part takes of its machine: threads, clocks, marks, files, transactions, processes, actors.

All of :mod:`skedge.live` takes them from here, as attributes of this module: ``host.sleep(1.0)``, ``host.Event()``.
They are the standard library's own objects, so a call costs no more than there, the machine's files (:mod:`.files`) and
processes (:mod:`.processes`), and functions over Ray (:mod:`.actors`). :func:`installed` replaces them by those of
another host, such as a simulator that decides which thread runs next and what the time is. It sets attributes of this
module. So no module imports them one by one: after ``from skedge.live.host import sleep`` that module would keep the
function that it has. A base class is bound as early, so :class:`Thread` asks the host whenever a thread is started,
joined or watched. Errors and options of actors are the same on every host.

What waits for real processes and sockets (the processes of jobs, the embedded cluster, the server of the API) cannot
be simulated and does not use this module; ``pyproject.toml`` lists these files (TID251). Secrets never come from here.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager
from os import getpid, getppid
from queue import Empty, Full, Queue, SimpleQueue
from threading import Condition, Event, Lock, get_ident
from time import monotonic, perf_counter, sleep, strftime, time
from typing import Any

from . import actors
from .actors import (
    ActorOptions,
    CallError,
    FailedError,
    GoneError,
    LateError,
    LostError,
    Node,
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
from .files import Disk
from .processes import Process, kill_named, runs

__all__ = [
    "NAMES",
    "ActorOptions",
    "CallError",
    "Condition",
    "Empty",
    "Event",
    "FailedError",
    "Full",
    "Future",
    "GoneError",
    "LateError",
    "Lock",
    "LostError",
    "Node",
    "Process",
    "Queue",
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
    "installed",
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

NAMES = (
    *("start", "join", "is_alive", "get_ident"),
    *("Lock", "Condition", "Event", "SimpleQueue", "Queue", "Future", "wait"),
    *("monotonic", "perf_counter", "sleep", "time", "strftime"),
    *("mark", "disk", "transaction"),
    *("Process", "getpid", "getppid", "runs", "kill_named"),
    *actors.NAMES,
)
"""What a host provides: threads, what they wait for, time; mark, files and transactions; processes; and actors."""

disk = Disk()

start, join, is_alive = threading.Thread.start, threading.Thread.join, threading.Thread.is_alive


class Thread(threading.Thread):
    """A thread that the host starts, joins and watches: ``start``, ``join`` and ``is_alive`` of :data:`NAMES`.

    Arguments and attributes are those of the standard library's class. A simulator calls ``run`` where it likes, and
    sets ``_ident`` when it starts the thread.
    """

    def start(self) -> None:
        """Start the thread."""
        start(self)

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended, at most `timeout` [s]; None: without limit."""
        join(self, timeout)

    def is_alive(self) -> bool:
        """Whether the thread has been started and has not ended."""
        return is_alive(self)


def mark() -> str:
    """A random text that no other controller has. It is no secret."""
    return secrets.token_hex(8)


def transaction(engine: Any) -> AbstractContextManager[Any]:
    """A transaction on a database, as a block with its connection; it is committed at the end of the block.

    Parameters
    ----------
    engine
        SQLAlchemy's engine of the database.
    """
    return engine.begin()


@contextmanager
def installed(host: object) -> Iterator[None]:
    """Replace what this module provides by that of another host, until the end of the block.

    Locks, events and queues that exist already stay as they are, those that a module makes on its import included.

    Parameters
    ----------
    host
        An object with every name of :data:`NAMES` as an attribute; each is used like the standard library's. If it
        simulates several processes, its functions look up the process of the running thread.

    Raises
    ------
    AttributeError
        If the host lacks a name; nothing is replaced then.
    """
    names = globals()
    replaced, provided = {name: names[name] for name in NAMES}, {name: getattr(host, name) for name in NAMES}
    names.update(provided)
    try:
        yield
    finally:
        names.update(replaced)
