"""Secrets in files that only their owner can read, so that no environment or command line has them."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from skedge.core.errors import SkedgeError
from skedge.live.durable import PRIVATE, read_text, write_whole

from . import host


def private_folder() -> Path:
    """A temporary folder that only this user can access.

    Raises
    ------
    SkedgeError
        If others own it or can access it.
    """
    place = Path(tempfile.gettempdir()) / f"skedge-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    status = place.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise SkedgeError(f"{place}: must be this user's alone (mode 700)")
    return place


def write_aside(path: Path, content: str | bytes) -> None:
    """Write a file as a whole; only its owner may read it."""
    write_whole(path, content, PRIVATE)


def secret_of(path: Path, variable: str) -> str:
    """The secret in a file, which is that of an environment variable, if it is set, or a new one.

    The variable is removed from the environment: that of processes started from now on does not have it.
    """
    set_now = os.environ.pop(variable, "")
    if set_now or not host.disk.exists(path):
        write_aside(path, set_now or secrets.token_hex(32))
    return read_text(path).strip()
