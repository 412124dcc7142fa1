"""The API's socket in the state folder, for commands of its owner on the same machine.

A socket's path has at most 107 characters, a state folder's any number: both sides name it by the open folder.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skedge.core.errors import InputError


@contextmanager
def reaching(path: Path) -> Iterator[str]:
    """A short path of a socket, as long as the context lasts."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen_at(path: Path) -> socket.socket:
    """A socket at a path that only its owner can connect to; one left by a process that was killed is replaced.

    Raises
    ------
    InputError
        If there can be none.
    """
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    try:
        with reaching(path) as short:
            listening.bind(short)
        path.chmod(0o600)  # before it listens: nobody has connected
        listening.listen()
    except OSError as error:
        raise InputError(f"{path}: the API cannot listen there: {error.strerror}") from error
    return listening
