"""The process behind ``skedge up``: a supervisor that keeps Ray's host and a controller up.

``python -m skedge.live.service.supervisor LOCK STATE`` runs it. It imports neither PyTorch nor Ray nor the API. Beside
the controller waits a standby, which has imported all that a controller needs and takes over when the controller dies.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
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

from .keeping import (
    WRONG,
    EndService,
    Keeping,
    KeepingInstruction,
    LogDeath,
    PauseService,
    Role,
    StartProcess,
    TakeOver,
)

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

    It reports what it sees of them to :class:`.keeping.Keeping`, and carries out what that decides.

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

    Attributes
    ----------
    processes
        The last process of each role; it may have ended.
    """

    def __init__(self, state: Path, log: IO[bytes], is_over: host.Event, lock: int, *, embedded: bool) -> None:
        self.state, self.log, self.is_over, self.lock = state, log, is_over, lock
        self.keeping = Keeping(embedded=embedded, tries=_TRIES)
        self.processes: dict[Role, host.Process] = {}

    def run(self) -> int:
        """Keep the processes up until all have to end, or one cannot be kept up; returns the controller's status."""
        try:
            status = self._perform(self.keeping.begin())
            while status is None:
                if self.is_over.wait(_LOOK_S):
                    return self.processes[Role.CONTROLLER].end(_END_S)
                status = self._look()
            return status
        finally:
            for role in reversed(Role):  # the host last
                if role in self.processes:
                    self.processes[role].end(_END_S)

    def _look(self) -> int | None:
        """Report what is seen, and do what is to be done; the exit status if the service has to end, else None."""
        for role in Role:
            if role in self.keeping.up and (status := self.processes[role].poll()) is not None:
                instructions = self.keeping.ended(role, status, serves=self._serves())
                if (final := self._perform(instructions)) is not None:
                    return final
        return self._perform(self.keeping.look(serves=self.keeping.lacks_standby and self._serves()))

    def _perform(self, instructions: Sequence[KeepingInstruction]) -> int | None:
        """Carry out instructions in order; the exit status if the service has to end, else None."""
        for instruction in instructions:
            match instruction:
                case StartProcess(role):
                    self.processes[role] = self._started(role)
                case TakeOver():
                    controller = self.processes[Role.CONTROLLER] = self.processes.pop(Role.STANDBY)
                    controller.tell(GO)  # if it has ended meanwhile, that is seen next
                case LogDeath(role):
                    self._log_death(role, self.processes[role])
                case PauseService(status):
                    if self.is_over.wait(_PAUSE_S):
                        return status
                case EndService(status):
                    return status
        return None

    def _started(self, role: Role) -> host.Process:
        module, files = (_RAY_HOST, []) if role is Role.HOST else (_CONTROLLER, [self.lock])
        return host.Process(module, str(self.state), log=self.log, files=files)

    def _log_death(self, role: Role, process: host.Process) -> None:
        with suppress(OSError):  # a full disk costs the line, not the supervisor
            self.log.write(f"{role}, process {process.pid}, ended with status {process.poll()}\n".encode())
            self.log.flush()

    def _serves(self) -> bool:
        """Whether the controller, which may have ended since, has got far enough to answer."""
        controller = self.processes.get(Role.CONTROLLER)
        return controller is not None and _served(self.state, controller.pid)


def _served(state: Path, pid: int) -> bool:
    """Whether a controller got far enough to answer: it has taken its journal in again."""
    with suppress(OSError, ValueError):
        address = json.loads(read_text(state / ADDRESS))
        return bool(address["pid"] == pid and address["ready"])
    return False


if __name__ == "__main__":
    sys.exit(supervise(Path(sys.argv[2]), int(sys.argv[1])))
