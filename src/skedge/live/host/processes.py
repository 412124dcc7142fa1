"""Child processes that run a module of ours, and processes that are known by their number."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO


class Process:
    """A module that runs as a process of its own, from when this object is made.

    Parameters
    ----------
    module, arguments
        Its name, as for ``python -m``, and its arguments.
    log
        Where it writes to; None: where this process does.
    files
        Numbers of open files that it has as well.

    Attributes
    ----------
    pid
        Its number.
    """

    def __init__(self, module: str, *arguments: str, log: IO[bytes] | None = None, files: Sequence[int] = ()) -> None:
        command = self.command(module, arguments)
        self._child = subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=files
        )
        self.pid = self._child.pid

    def command(self, module: str, arguments: Sequence[str]) -> list[str]:
        """The command that is executed."""
        return [sys.executable, "-P", "-m", module, *arguments]

    def poll(self) -> int | None:
        """Its exit status, that of a process which a signal has ended being negative; None if it runs."""
        status = self._child.poll()
        if status is not None:
            self._close()
        return status

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait until it has ended, at most some time [s]; its exit status, or None if it runs."""
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout_s)
        return self.poll()

    def tell(self, line: bytes) -> None:
        """Write a line to its standard input, which then ends; no effect if the process has ended."""
        with suppress(OSError):
            self._input.write(line)
        self._close()

    def end(self, within_s: float) -> int:
        """Terminate it, and kill it if it has not ended within some time [s]; its exit status."""
        self._child.terminate()
        if self.wait(within_s) is None:
            self._child.kill()
        status = self._child.wait()
        self._close()
        return status

    @property
    def _input(self) -> IO[bytes]:
        assert self._child.stdin is not None  # noqa: S101 - it is a pipe
        return self._child.stdin

    def _close(self) -> None:
        with suppress(OSError):  # what was written last cannot be delivered
            self._input.close()


def runs(pid: int) -> bool:
    """Whether there is a process of this number."""
    return Path(f"/proc/{pid}").exists()


def kill_named(pid: int, name: bytes) -> None:
    """Kill a process, if its command line has this part: it is still the one that is meant."""
    with suppress(OSError):  # it has ended meanwhile
        if name in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "):
            os.kill(pid, signal.SIGKILL)
