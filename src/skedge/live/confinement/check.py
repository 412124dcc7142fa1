"""Whether this machine lets jobs be confined."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from skedge.core.errors import InputError

from .confinement import Confinement
from .keeper import ProcessFiles, keep

_IN = b"in"
_CHECK_S = 60.0


def check_platform() -> None:
    """Check that jobs can be confined on this machine, by a process that is.

    Raises
    ------
    InputError
        If they cannot.
    """
    command = [sys.executable, "-P", "-m", "skedge.live.confinement"]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=_CHECK_S, check=False)  # noqa: S603 - our own module
    if completed.returncode:
        lines = (completed.stdout or completed.stderr).strip().splitlines() or ["jobs cannot be confined here"]
        raise InputError(lines[-1])


def refusal(confinement: Confinement | None = None) -> str:
    """Why no process can be confined here; empty if one can. To be called in a process with one thread."""
    client_end, connection = socket.socketpair()
    word_end, word = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ignored = (os.open(os.devnull, os.O_WRONLY) for _ in range(2))
        ends = ProcessFiles(connection.fileno(), word.fileno(), *ignored)
        keep(confinement or Confinement(trusted=False), ends, lambda: _say_in(ends.connection))
    connection.close()
    word.close()
    with client_end, word_end:
        inside, sentence = client_end.recv(len(_IN)), word_end.recv(1 << 16).decode()
    os.waitpid(pid, 0)
    return "" if inside == _IN else sentence or "a confined process ends before it begins"


def _say_in(connection: int) -> None:
    os.write(connection, _IN)
