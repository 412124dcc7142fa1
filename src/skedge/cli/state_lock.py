"""The lock of a service's state, which its process holds, and the numbers of processes."""

from __future__ import annotations

import fcntl
import getpass
import os
from contextlib import suppress
from pathlib import Path

from skedge.core.errors import InputError
from skedge.live.controller.settings import read_settings

from .client import address_in


def is_alive(pid: int) -> bool:
    """Whether a process exists, of any user."""
    try:
        # signal 0 only asks whether the process exists
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def lock_state(state: Path) -> int | None:
    """The lock of a state; creates the folder if needed, readable by its owner only. None if the lock is held.

    Raises
    ------
    InputError
        If the folder cannot be used.
    """
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        return try_lock(state)
    except OSError as error:
        raise InputError(f"{state}: a state cannot be kept there: {error.strerror}") from error


def lock_stopped(state: Path) -> int:
    """The lock of the state of a service that is down.

    Raises
    ------
    InputError
        If it is up, or there is no state.
    """
    read_settings(state)
    lock = lock_state(state)
    if lock is None:
        raise InputError(f"{state}: the service is up; `skedge down --state {state}` ends it")
    return lock


def try_lock(state: Path) -> int | None:
    """The lock of a state, held as long as the returned file is open; None if another process holds it."""
    lock = os.open(state / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # the lock belongs to the open file, so the supervisor inherits it
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def service_pid(state: Path) -> int | None:
    """Process id of the supervisor, or of a controller without one; None if there is no service."""
    if not state.is_dir():
        return None
    lock = try_lock(state)
    if lock is not None:
        os.close(lock)
        return None
    with suppress(OSError, ValueError):
        # left over if the supervisor was killed, hence the look whether it lives
        pid = int((state / "supervisor.pid").read_text(encoding="utf-8"))
        if is_alive(pid):
            return pid
    address = address_in(state)
    return None if address is None else int(address["pid"])


def local_user() -> str:
    """The local user, for the audit entry of a command that does not go through the service."""
    with suppress(OSError, KeyError):
        return f"user:{getpass.getuser()}"
    return f"user:{os.getuid()}"
