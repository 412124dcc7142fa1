"""The process behind ``skedge up``: a supervisor that keeps Ray's host and a controller up.

``python -m skedge.live.service.supervisor LOCK STATE`` runs it. It imports neither PyTorch nor Ray nor the API. Beside
the controller waits a standby, which has imported all that a controller needs and takes over when the controller dies.
"""

from __future__ import annotations

import json
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

from skedge.live import host
from skedge.live.cluster.embedded_state import end_stale
from skedge.live.cluster.loopback import on_loopback
from skedge.live.confinement.cgroups import move_into_tree
from skedge.live.controller.settings import ADDRESS, LOG, SOCKET, STARTING, SUPERVISOR, read_settings
from skedge.live.durable import read_text, remove
from skedge.live.secret_files import write_aside

_RAY_HOST, _CONTROLLER, _END_ACTORS = (
    f"skedge.live.service.{module}" for module in ("ray_host", "controller_process", "end_orphaned_actors")
)
"""Modules that run as processes of their own."""

_TRIES = 5
"""Consecutive deaths of a process before a controller answers, after which the supervisor gives up."""

_LOOK_S, _END_S = 0.1, 30.0
"""How often the supervisor looks at its processes, and how long each may take to end [s]."""

_PAUSE_S = 1.0
"""Pause before a process that did not get far is started again [s]."""

WRONG = 2
"""Exit status of a controller that must not be restarted: its settings are wrong."""

GO = b"go\n"
"""What a standby reads when it is to take over."""


def supervise(state: Path, lock: int) -> int:
    """Run the controller, and replace it when it dies. Returns its exit status.

    `lock` is the open file that holds the state's lock: no other service can start while the supervisor or the
    controller runs. SIGTERM, or Ctrl-C in the foreground, ends both, whatever the controller is doing.
    """
    is_over = host.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: is_over.set())
    write_aside(state / SUPERVISOR, f"{host.getpid()}\n")
    move_into_tree()
    embedded = read_settings(state).ray is None
    if embedded:
        on_loopback(state)  # the host and all controllers need the same token
    try:
        with (state / LOG).open("ab") as log:
            status = Supervisor(state, log, is_over, lock, embedded=embedded).run()
            if not embedded and status not in (0, WRONG):
                process = host.Process(_END_ACTORS, str(state), log=log)
                if process.wait(_END_S) is None:
                    process.end(0)
            return status
    finally:
        end_stale(state)
        for name in (ADDRESS, SUPERVISOR, STARTING, SOCKET):
            remove(state / name)


class Supervisor:
    """The processes of a service: Ray's host, a controller, and a standby.

    Parameters
    ----------
    state, log
        Folder of the service's state, and the log of its processes.
    is_over
        Set when all have to end.
    lock
        The state's lock, which controllers hold as well.
    embedded
        True if the service has a Ray cluster of its own, which needs a host.
    """

    def __init__(self, state: Path, log: IO[bytes], is_over: host.Event, lock: int, *, embedded: bool) -> None:
        self.state, self.log, self.ended, self.lock, self.embedded = state, log, is_over, lock, embedded
        self.host: host.Process | None = None
        self.controller: host.Process | None = None
        self.standby: host.Process | None = None
        self.quick = {"the host of Ray": 0, "the controller": 0}

    def run(self) -> int:
        """Keep the processes up until all have to end, or one cannot be kept up; returns the controller's status."""
        try:
            while True:
                status = self._look()
                if status is not None:
                    return status
                if self.ended.wait(_LOOK_S):
                    return 0 if self.controller is None else self.controller.end(_END_S)
        finally:
            for process in (self.standby, self.controller, self.host):
                if process is not None:
                    process.end(_END_S)

    def _look(self) -> int | None:
        """Replace processes that have ended; the exit status if the service has to end, else None."""
        if self.embedded and (self.host is None or self.host.poll() is not None):
            served = self.controller is not None and _served(self.state, self.controller.pid)
            if self.host is not None and self._gives_up("the host of Ray", self.host, got_far=served):
                return self.host.poll()
            self.host = self._started(_RAY_HOST)
        if self.controller is None or (status := self.controller.poll()) is not None:
            if self.controller is not None:
                served = _served(self.state, self.controller.pid)
                if status in (0, WRONG) or self._gives_up("the controller", self.controller, got_far=served):
                    return status
            self._take_over()
        elif (self.standby is None or self.standby.poll() is not None) and _served(self.state, self.controller.pid):
            self.standby = self._started(_CONTROLLER)
        return None

    def _take_over(self) -> None:
        """Let the standby, or a new process, be the controller."""
        standby = self.standby if self.standby is not None and self.standby.poll() is None else None
        self.controller, self.standby = standby or self._started(_CONTROLLER), None
        self.controller.tell(GO)  # if it has ended meanwhile, that is seen next

    def _started(self, module: str) -> host.Process:
        files = [self.lock] if module == _CONTROLLER else []
        return host.Process(module, str(self.state), log=self.log, files=files)

    def _gives_up(self, name: str, process: host.Process, *, got_far: bool) -> bool:
        """Log that a process has ended; whether it has too often, each time before it got far."""
        self.quick[name] = 0 if got_far else self.quick[name] + 1
        with suppress(OSError):  # a full disk costs the line, not the supervisor
            self.log.write(f"{name}, process {process.pid}, ended with status {process.poll()}\n".encode())
            self.log.flush()
        return self.quick[name] >= _TRIES or (not got_far and self.ended.wait(_PAUSE_S))


def _served(state: Path, pid: int) -> bool:
    """Whether a controller got far enough to answer: it has taken its journal in again."""
    with suppress(OSError, ValueError):
        address = json.loads(read_text(state / ADDRESS))
        return bool(address["pid"] == pid and address["ready"])
    return False


if __name__ == "__main__":
    sys.exit(supervise(Path(sys.argv[2]), int(sys.argv[1])))
