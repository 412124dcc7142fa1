"""The process that jobs' processes are forked from, and what a client asks it.

A client sends a :class:`.confinement.Confinement` and four open files (:class:`.keeper.ProcessFiles`).
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from . import kernel
from .cgroups import JobGroup
from .confinement import Confinement, from_json
from .keeper import ProcessFiles, keep, reap
from .processes import children, descendants
from .usage_monitor import MonitoredProcess, end_above_limits

_SIZE = 4
"""Bytes of a number in a message."""

_FILES = 4
_ASK_S = 10.0
"""Longest wait for the rest of a request [s]."""

LOOK_S = 0.25
"""How often the processes of jobs are counted [s]."""


def ask_for(control: socket.socket, confinement: Confinement, ends: ProcessFiles) -> int:
    """Ask for a new process of a job; returns the process id of its keeper, 0 if there is none."""
    content = confinement.as_json()
    socket.send_fds(control, [len(content).to_bytes(_SIZE, "little")], list(ends))
    control.sendall(content)
    return int.from_bytes(control.recv(_SIZE), "little")


class ForkServer:
    """Forks a process for each request, until no client is left.

    It must have one thread. What a keeper leaves that was itself killed falls to it, and is ended.

    Parameters
    ----------
    listening
        Where clients connect.
    body
        What a job's process does, given its connection and where its links come.
    alone_s
        Time without clients after which it ends [s].
    """

    def __init__(self, listening: socket.socket, body: Callable[[int, int], None], alone_s: float) -> None:
        self.listening, self.body, self.alone_s = listening, body, alone_s
        self.ready = selectors.DefaultSelector()
        self.watched: dict[int, MonitoredProcess] = {}
        self.orphans = False

    def run(self) -> None:
        """Serve clients."""
        kernel.adopt_orphans()
        self.ready.register(self.listening, selectors.EVENT_READ, self._accept)
        alone_since = time.monotonic()
        while len(self.ready.get_map()) > 1 or time.monotonic() - alone_since < self.alone_s:
            for key, _ in self.ready.select(LOOK_S if self.watched or self.orphans else self.alone_s):
                key.data()
            end_above_limits(self.watched.values())
            self.orphans = self.orphans and _end_orphans(self.watched)
            if len(self.ready.get_map()) > 1:
                alone_since = time.monotonic()

    def _accept(self) -> None:
        client, _ = self.listening.accept()
        client.settimeout(_ASK_S)
        self.ready.register(client, selectors.EVENT_READ, lambda: self._answer(client))
        with suppress(OSError):  # the client ended while it waited
            client.send(b"r")

    def _answer(self, client: socket.socket) -> None:
        """Fork a process for a client, or drop a client that has closed."""
        try:
            files, confinement = _request(client)
        except (OSError, EOFError):
            self.ready.unregister(client)
            client.close()
            return
        pid = self._forked(confinement, ProcessFiles(*files))
        with suppress(OSError):  # the client has ended, and the process's connection with it
            client.send(pid.to_bytes(_SIZE, "little"))

    def _forked(self, confinement: Confinement, ends: ProcessFiles) -> int:
        """Process id of a new keeper; 0 if the machine has no room for one."""
        word = socket.socket(fileno=ends.word)
        try:
            pid = os.fork()
            if pid == 0:
                keep(confinement, ends, lambda: self.body(ends.connection, ends.links))
            self._watch(MonitoredProcess(pid, confinement, word))
        except OSError as error:  # no more processes, or no more open files
            ends.say(f"no process can be started for the job: {error.strerror}")
            word.close()
            return 0
        finally:  # the process has its own copies: open ones here would hide that it has ended
            os.close(ends.connection)
            ends.leave_to_job()
        return pid

    def _watch(self, process: MonitoredProcess) -> None:
        """Notice the end of a process; it is ended at once if that cannot be."""
        try:
            file = os.pidfd_open(process.keeper)
        except OSError:
            os.kill(process.keeper, signal.SIGTERM)
            os.waitpid(process.keeper, 0)
            raise
        self.watched[process.keeper] = process
        self.ready.register(file, selectors.EVENT_READ, lambda: self._ended(process, file))

    def _ended(self, process: MonitoredProcess, file: int) -> None:
        del self.watched[process.keeper]
        self.ready.unregister(file)
        os.close(file)
        process.word.close()
        os.waitpid(process.keeper, 0)
        self.orphans = True
        JobGroup(process.confinement).leave()


def _end_orphans(keepers: Collection[int]) -> bool:
    """Kill the children of this process that are no keepers, and what they have started; whether there was one."""
    orphans = set(children().get(os.getpid(), ())).difference(keepers)
    for pid in (pid for orphan in orphans for pid in (orphan, *descendants(orphan))):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    reap(*keepers)
    return bool(orphans)


def _request(client: socket.socket) -> tuple[list[int], Confinement]:
    """The sockets and the confinement of a request.

    Raises
    ------
    EOFError
        If the client has closed.
    """
    head, files, *_ = socket.recv_fds(client, _SIZE, _FILES)
    if len(head) < _SIZE or len(files) < _FILES:
        raise EOFError
    left, content = int.from_bytes(head, "little"), b""
    while len(content) < left:
        piece = client.recv(left - len(content))
        if not piece:
            raise EOFError
        content += piece
    return files, from_json(content)
