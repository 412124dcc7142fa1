"""Processes that run jobs' own code, separate from those of skedge; each serves one job.

A :class:`ForkServerClient` starts a process that imports PyTorch once and forks a :class:`.job_process.JobProcess` for
each request of a job, confined as :mod:`skedge.live.confinement` says. The environment of these processes has no tokens
of Ray or of the API. The answers of a child are read as data, never as code: facts in JSON, and bytes. A child that
ends loses only its own work; what it has started ends with it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count, repeat
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from skedge.core.errors import SkedgeError
from skedge.live import host
from skedge.live.confinement.confinement import TRUSTED, Confinement
from skedge.live.confinement.fork_server import ask_for
from skedge.live.confinement.keeper import ProcessFiles
from skedge.live.secret_files import private_folder

from .job_confinement import confined
from .job_process import JobProcess
from .pip_packages import PACKAGES, packages
from .print_pipe import PrintPipe

_WAITING = 64
"""Most connections that wait while a process imports its modules."""

_ORPHANED = """
import os, sys
if os.fork():
    os._exit(0)
from skedge.live.worker.worker_main import main
main(int(sys.argv[1]))
"""
"""Double fork: Ray ends the children of a process that ends, but this process also serves other servers' actors."""

_SECRET = ("RAY_", "SKEDGE_")
"""Prefixes of environment variables withheld from trusted jobs' processes: tokens, and the addresses to use them at."""

_PLAIN = (
    "CUDA_", "HIP_", "LANG", "LC_", "LD_LIBRARY_PATH", "MKL_", "NCCL_", "NUMEXPR_", "NVIDIA_", "OMP_", "OPENBLAS_",
    "PATH", "PYTORCH_", "ROCR_", "TORCH_", "TZ",
)  # fmt: skip
"""Prefixes of environment variables that confined jobs' processes have; any other may be a secret."""

_KEPT_MEMORY, _KEPT_BYTES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), 2**30
"""Settings of glibc by which the memory of the gradients of a round is that of the next round's, up to this size; by
default it goes back to the system, and new pages take up to two fifths of the time of a mini-batch."""

_HOME = "/tmp"  # noqa: S108 - a confined process has one of its own
_VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable by which Ray gives an actor the GPUs that it asked for."""


def sent(program: Any) -> bytes:
    """A program as bytes for the processes of its job; only these unpack it."""
    return pickle.dumps(program)


def environment(variables: Mapping[str, str], *, trusted: bool = True) -> dict[str, str]:
    """The environment of jobs' processes: no tokens, and the import path of this process."""
    own = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1", PACKAGES: str(packages())}
    own |= dict.fromkeys(_KEPT_MEMORY, str(_KEPT_BYTES))
    if trusted:
        return {**{name: value for name, value in variables.items() if not name.startswith(_SECRET)}, **own}
    return {**{name: value for name, value in variables.items() if name.startswith(_PLAIN)}, "HOME": _HOME, **own}


class ForkServerClient:
    """Starts children on this machine; all clients of one Ray job share the process that children are forked from.

    That process is orphaned on purpose, so that it survives its clients; it ends after a while without clients.

    Parameters
    ----------
    confinement
        That of the children where none is asked for.
    """

    def __init__(self, confinement: Confinement = TRUSTED) -> None:
        self.confinement = confinement
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

    def fork(self, confinement: Confinement | None = None) -> JobProcess:
        """A new child."""
        own_end, far_end = socket.socketpair()
        word_end, word = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        links_end, links = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        links.shutdown(socket.SHUT_WR)  # nobody reads what the job would send there
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        ends = ProcessFiles(far_end.fileno(), word.fileno(), writing, links.fileno())
        with far_end, word, links, os.fdopen(writing, "wb"):
            for _ in range(2):  # again if the process was lost
                self.start()
                with self.lock, suppress(OSError):
                    assert self.control is not None  # noqa: S101 - it was just started
                    if pid := ask_for(self.control, confinement or self.confinement, ends):
                        return JobProcess(Connection(own_end.detach()), word_end, links_end, pid, PrintPipe(reading))
                self.end()
        os.close(reading)
        raise SkedgeError("the process for jobs' code cannot be kept up")

    def end(self) -> None:
        """Disconnect; no more children are requested."""
        with self.lock:
            if self.control is not None:
                self.control.close()
                self.control = None

    def _connected(self) -> socket.socket:
        place = private_folder()
        path = str(place / f"{_shared_by(trusted=self.confinement.trusted)}.sock")
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
                env=environment(os.environ, trusted=self.confinement.trusted),
                stdin=subprocess.DEVNULL,
                pass_fds=[listening.fileno()],
                start_new_session=True,
                check=True,
            )


def _tidy(place: Path) -> None:
    """Remove the sockets of processes that were killed."""
    for path in place.glob("*.link"):
        # by the process's number: one that serves a job may not accept a connection
        if not host.runs(int(path.name.partition("-")[0])):
            path.unlink(missing_ok=True)
    for path in place.glob("*.sock"):
        connection = _connection(str(path))
        if connection is None:
            path.unlink(missing_ok=True)
        else:
            connection.close()


def _connection(path: str) -> socket.socket | None:
    """A connection to the process that listens at a path; None if there is none."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


def _shared_by(*, trusted: bool) -> str:
    """Key of the clients that share a process: their Ray job, GPUs and import path; without Ray, this process alone."""
    ray = sys.modules.get("ray")
    parts = [sys.executable, os.environ.get(_VISIBLE, "all"), str(trusted), str(packages()), *sys.path]
    if ray is None or not ray.is_initialized():
        parts += [str(os.getpid())]
    else:
        context = ray.get_runtime_context()
        parts += [context.get_session_name(), context.get_job_id()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


class JobProcessPool:
    """The children of several jobs; idle ones are reused.

    Parameters
    ----------
    name
        What the names of workers begin with.
    confinement
        That of all jobs' processes here.
    only_last
        True: only the children of the last job are kept.

    Attributes
    ----------
    devices
        Devices that children compute on, each new one on the next in turn.
    idle, busy
        Children by job: those that wait for a call, and those in one.
    """

    def __init__(self, name: str, confinement: Confinement = TRUSTED, *, only_last: bool = False) -> None:
        self.fork_server, self.name, self.only_last = ForkServerClient(confinement), name, only_last
        self.devices: Iterator[str] = repeat("cpu")
        self.lock = threading.Lock()
        self.idle: dict[str, list[JobProcess]] = {}
        self.busy: dict[str, list[JobProcess]] = {}

    @contextmanager
    def of(
        self, job: str, program: bytes, chunk: int = -1, own: tuple[str, ...] = (), link: tuple[int, str] | None = None
    ) -> Iterator[JobProcess]:
        """A child of a job, preferably the one with this connection or chunk; it is ended if its call fails.

        Parameters
        ----------
        job
            What tells jobs apart here: an id, or a digest of the program.
        program
            The job's program (:func:`sent`), from which a new child is confined.
        chunk
            Number of the chunk that the call is about; -1: it is about none.
        own
            Paths that a new child may read besides what those of all jobs may.
        link
            Number and address of its connection to the parameter server; None: it needs none.
        """
        child = self._take(job, chunk, link) or self._new(job, program, own)
        child.chunk = chunk
        try:
            yield child
        except BaseException:
            self._rest(job, child)
            child.end()
            raise
        self._rest(job, child)
        with self.lock:
            if job in self.idle:
                self.idle[job].append(child)
            else:  # the job has left meanwhile
                child.end()

    def _new(self, job: str, program: bytes, own: tuple[str, ...]) -> JobProcess:
        child = self.fork_server.fork(confined(self.fork_server, job, program, own))
        with self.lock:
            child.device = next(self.devices)
            busy = self.busy.setdefault(job, [])
            names = {process.worker for process in (*busy, *self.idle.get(job, ()))}
            child.worker = next(name for n in count(1) if (name := f"{self.name}-{n}") not in names)
            busy.append(child)
        return child

    def _take(self, job: str, chunk: int, link: tuple[int, str] | None) -> JobProcess | None:
        with self.lock:
            idle = self.idle.setdefault(job, [])
            other_jobs = [other_job for other_job in self.idle if other_job != job] if self.only_last else []
            for child in (process for other_job in other_jobs for process in self.idle.pop(other_job)):
                child.end()
            best = min(
                range(len(idle)),
                key=lambda n: (link is not None and idle[n].link != link, idle[n].chunk != chunk),
                default=None,
            )
            if best is None:
                return None
            self.busy.setdefault(job, []).append(idle[best])
            return idle.pop(best)

    def _rest(self, job: str, child: JobProcess) -> None:
        """Note that a child's call has ended."""
        with self.lock:
            self.busy[job].remove(child)
            if not self.busy[job]:
                del self.busy[job]

    def jobs(self) -> set[str]:
        """The jobs that have processes."""
        with self.lock:
            return {job for processes in (self.idle, self.busy) for job, children in processes.items() if children}

    def forget(self, job: str) -> None:
        """End the processes of a job that has left; those in a call are killed."""
        with self.lock:
            for child in self.idle.pop(job, ()):
                child.end()
        self.kill(job)

    def cut(self, job: str, link: tuple[int, str]) -> None:
        """Cut a connection of the processes of a job to their parameter server."""
        with self.lock:
            for child in (*self.busy.get(job, ()), *self.idle.get(job, ())):
                if child.link == link:
                    child.cut()

    def kill(self, job: str, chunks: Collection[int] = ()) -> None:
        """Kill the processes of a job that are in a call, or only those with one of these chunks."""
        with self.lock:
            for child in self.busy.get(job, ()):
                if not chunks or child.chunk in chunks:
                    child.kill()
