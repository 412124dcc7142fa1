"""Processes that run jobs' own code, separate from those of skedge; each serves one job.

A :class:`Nursery` starts a process that imports PyTorch once and forks a :class:`Child` for each request of a job. The
environment of these processes has no tokens of Ray or of the API. The answers of a child are read as data, never as
code: facts in JSON, and bytes. A child that ends loses only its own work.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import repeat
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from skedge.core.errors import SkedgeError, TrainingError

Ack = dict[str, Any]
"""Facts about a call in JSON types, small enough to be fetched while tensors stay where they are."""

LIMIT_S = 300.0
"""Longest duration of one call of a job's code [s]."""

_WAITING = 64
"""Most connections that wait while a process imports its modules."""

_ORPHANED = """
import os, sys
if os.fork():
    os._exit(0)
from skedge.live.training.inside import main
main(int(sys.argv[1]))
"""
"""Double fork: Ray ends the children of a process that ends, but this process also serves other servers' actors."""

_SECRET = ("RAY_", "SKEDGE_")
"""Prefixes of environment variables withheld from jobs' processes: tokens, and the addresses to use them at."""


_VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable by which Ray gives an actor the GPUs that it asked for."""


class EndedError(Exception):
    """A child ended during a call."""


def sent(program: Any) -> bytes:
    """A program as bytes for the processes of its job; only these unpack it."""
    return pickle.dumps(program)


def environment(of: Mapping[str, str]) -> dict[str, str]:
    """The environment of jobs' processes: no tokens, and the import path of this process."""
    kept = {name: value for name, value in of.items() if not name.startswith(_SECRET)}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}


class Child:
    """A process of one job; one call at a time.

    Attributes
    ----------
    pid
        Process id.
    chunk
        The chunk of the last call.
    device
        The device that it computes on.
    """

    def __init__(self, connection: Connection, pid: int) -> None:
        self.connection, self.pid = connection, pid
        self.chunk, self.device = -1, "cpu"

    def ask(self, method: str, *given: Any, limit_s: float = LIMIT_S) -> tuple[Ack, bytes]:
        """Call a method of :class:`.inside.Inside`; returns facts and bytes.

        Raises
        ------
        TrainingError
            If the job's code fails, or does not return in time; in the latter case the process is killed.
        EndedError
            If the job's code ends the process.
        """
        try:
            self.connection.send_bytes(pickle.dumps((method, given)))
            if not self.connection.poll(limit_s):
                # it may never return: the process is of no use any more
                os.kill(self.pid, signal.SIGKILL)
                self.end()
                raise TrainingError(f"its code has not returned after {limit_s:g} s")
            facts = json.loads(self.connection.recv_bytes())
            content = self.connection.recv_bytes()
        except (OSError, EOFError, ValueError) as error:
            self.end()
            raise EndedError("its code ends the process that it runs in") from error
        if "failed" in facts:
            raise TrainingError(facts["failed"])
        return facts, content

    def end(self) -> None:
        """Close the connection, so that the process ends when it is idle."""
        with suppress(OSError):
            self.connection.close()


class Nursery:
    """Starts children on this machine; all clients of one Ray job share the process that children are forked from.

    That process is orphaned on purpose, so that it survives its clients; it ends after a while without clients.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.control: socket.socket | None = None

    def start(self) -> None:
        """Connect to the process that children are forked from, and start it if there is none.

        Raises
        ------
        SkedgeError
            If it does not start.
        """
        with self.lock:
            if self.control is None:
                self.control = self._connected()

    def child(self) -> Child:
        """A new child."""
        ours, theirs = socket.socketpair()
        with theirs:
            for _ in range(2):  # again if the process was lost
                self.start()
                with self.lock, suppress(OSError):
                    assert self.control is not None  # noqa: S101 - it was just started
                    socket.send_fds(self.control, [b"c"], [theirs.fileno()])
                    if pid := int.from_bytes(self.control.recv(4), "little"):
                        return Child(Connection(ours.detach()), pid)
                self.end()
        raise SkedgeError("the process for jobs' code cannot be kept up")

    def end(self) -> None:
        """Disconnect; no more children are requested."""
        with self.lock:
            if self.control is not None:
                self.control.close()
                self.control = None

    def _connected(self) -> socket.socket:
        place = _place()
        path = str(place / f"{_shared_by()}.sock")
        with (place / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            control = _connection(path)
            if control is None:
                _tidy(place)
                self._fork_from(path)
                control = _connection(path)
        with suppress(OSError):
            if control is not None and control.recv(1):
                return control
        raise SkedgeError("the process for jobs' code ended before it was ready; its output is in Ray's log")

    def _fork_from(self, path: str) -> None:
        """Start the process, listening at a path; it answers clients once it has imported its modules."""
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen(_WAITING)
            subprocess.run(  # noqa: S603 - our own module
                [sys.executable, "-c", _ORPHANED, str(listening.fileno())],
                env=environment(os.environ),
                stdin=subprocess.DEVNULL,
                pass_fds=[listening.fileno()],
                start_new_session=True,
                check=True,
            )


def _tidy(place: Path) -> None:
    """Remove the sockets of processes that were killed."""
    for path in place.glob("*.sock"):
        one = _connection(str(path))
        if one is None:
            path.unlink(missing_ok=True)
        else:
            one.close()


def _connection(path: str) -> socket.socket | None:
    """A connection to the process that listens at a path; None if there is none."""
    one = socket.socket(socket.AF_UNIX)
    try:
        one.connect(path)
    except OSError:
        one.close()
        return None
    return one


def _place() -> Path:
    """A folder that only this user can access.

    Raises
    ------
    SkedgeError
        If others own it or can access it.
    """
    place = Path(tempfile.gettempdir()) / f"skedge-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    found = place.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise SkedgeError(f"{place}: must be this user's alone (mode 700)")
    return place


def _shared_by() -> str:
    """Key of the clients that share a process: their Ray job, GPUs and import path; without Ray, this process alone."""
    ray, parts = sys.modules.get("ray"), [sys.executable, os.environ.get(_VISIBLE, "all"), *sys.path]
    if ray is None or not ray.is_initialized():
        parts += [str(os.getpid())]
    else:
        here = ray.get_runtime_context()
        parts += [here.get_session_name(), here.get_job_id()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


class Children:
    """The children of several jobs; idle ones are reused.

    Parameters
    ----------
    only_last
        True: only the children of the last job are kept.

    Attributes
    ----------
    devices
        Devices that children compute on, each new one on the next in turn.
    """

    def __init__(self, *, only_last: bool = False) -> None:
        self.nursery, self.only_last = Nursery(), only_last
        self.devices: Iterator[str] = repeat("cpu")
        self.lock = threading.Lock()
        self.idle: dict[str, list[Child]] = {}

    @contextmanager
    def of(self, job: str, chunk: int = -1) -> Iterator[Child]:
        """A child of a job, preferably the one that last had this chunk; it is ended if its call fails."""
        child = self._take(job, chunk) or self._new()
        try:
            yield child
        except BaseException:
            child.end()
            raise
        child.chunk = chunk
        with self.lock:
            if job in self.idle:
                self.idle[job].append(child)
            else:  # the job has left meanwhile
                child.end()

    def _new(self) -> Child:
        child = self.nursery.child()
        with self.lock:
            child.device = next(self.devices)
        return child

    def _take(self, job: str, chunk: int) -> Child | None:
        with self.lock:
            idle = self.idle.setdefault(job, [])
            others = [other for other in self.idle if other != job] if self.only_last else []
            for child in (one for other in others for one in self.idle.pop(other)):
                child.end()
            best = min(range(len(idle)), key=lambda n: idle[n].chunk != chunk, default=None)
            return None if best is None else idle.pop(best)

    def forget(self, job: str) -> None:
        """End the processes of a job that has left."""
        with self.lock:
            for child in self.idle.pop(job, ()):
                child.end()


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends (Linux)."""
    import ctypes  # noqa: PLC0415 - in children alone

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
