"""The process behind ``skedge up``: a supervisor that starts the controller, and restarts it when it dies.

``python -m skedge.live.control.daemon LOCK STATE`` runs it. It imports neither PyTorch nor Ray nor the API.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from skedge.live.stale import end_stale

from .settings import ADDRESS, LOG, STARTING, SUPERVISOR, write_aside

_TRIES = 5
"""Consecutive deaths of a controller before it answers, after which the supervisor gives up."""

_LOOK_S, _END_S = 0.2, 30.0
"""How often the supervisor checks whether the controller has to end, and how long that may take [s]."""

WRONG = 2
"""Exit status of a controller that must not be restarted: its settings are wrong."""


def supervise(state: Path, lock: int) -> int:
    """Run the controller, and restart it from the journal when it dies. Returns its exit status.

    `lock` is the open file that holds the state's lock: no other service can start while the supervisor or the
    controller runs. SIGTERM, or Ctrl-C in the foreground, ends both, whatever the controller is doing.
    """
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    write_aside(state / SUPERVISOR, f"{os.getpid()}\n")
    try:
        with (state / LOG).open("ab") as log:
            return _keep_up(state, log, ended, lock)
    finally:
        end_stale(state)
        for name in (ADDRESS, SUPERVISOR, STARTING):
            (state / name).unlink(missing_ok=True)


def _keep_up(state: Path, log: IO[bytes], ended: threading.Event, lock: int) -> int:
    quick = 0
    while True:
        child = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "skedge.live.control.controller", str(state)],
            stdout=log,
            stderr=log,
            pass_fds=[lock],
        )
        status = _wait(child, ended)
        if ended.is_set() or status in (0, WRONG):
            return status
        quick = 0 if _served(state, child.pid) else quick + 1
        with suppress(OSError):  # a full disk costs the line, not the supervisor
            log.write(f"the controller, process {child.pid}, ended with status {status}\n".encode())
            log.flush()
        if quick >= _TRIES or ended.wait(1):
            return status


def _served(state: Path, pid: int) -> bool:
    """Whether a controller got far enough to answer."""
    with suppress(OSError, ValueError):
        return bool(json.loads((state / ADDRESS).read_text(encoding="utf-8"))["pid"] == pid)
    return False


def _wait(child: subprocess.Popen[bytes], ended: threading.Event) -> int:
    """Wait for the controller; if it has to end, terminate it, and kill it after a while."""
    while child.poll() is None:
        if not ended.wait(_LOOK_S):
            continue
        child.terminate()
        try:
            child.wait(_END_S)
        except subprocess.TimeoutExpired:
            child.kill()
    return child.wait()


if __name__ == "__main__":
    sys.exit(supervise(Path(sys.argv[2]), int(sys.argv[1])))
