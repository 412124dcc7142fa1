"""Processes of the running world that run a module, with the names of :mod:`skedge.live.host.processes`.

A world has a program for each module that is run in it. A terminated process ends at once, unless it has a handler.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import IO

from . import scheduler
from .scheduler import Waiters, World, running_world

Program = Callable[..., int]
"""Gets the arguments of a module, and returns its exit status."""

_INIT = 1
"""The number of what takes the place of a parent that has ended; the processes of a world have the next ones."""


@dataclass(eq=False)
class Child:
    """What a process that runs a module has of its parent.

    Attributes
    ----------
    parent, command
        The process that has started it; module and arguments.
    lines, closed
        What is in its standard input, and whether no more comes.
    on_terminate
        Called when it is terminated; None: it ends.
    status
        Its exit status.
    forsaken
        Whether it is thought dead although it lives on.
    """

    parent: scheduler.Process
    command: str
    changed: Waiters
    lines: list[bytes] = field(default_factory=list)
    closed: bool = False
    on_terminate: Callable[[], object] | None = None
    status: int | None = None
    forsaken: bool = False


class Process:
    """A module that runs as a process of its own, on the machine of the running process."""

    def __init__(self, module: str, *arguments: str, log: IO[bytes] | None = None, files: Sequence[int] = ()) -> None:
        world = running_world()
        world.point(f"start {module}")
        parent, program = world.running().process, world.extras["programs"][module]
        child = Child(parent, " ".join((module, *arguments)), Waiters(world, world.name("process")))

        def main() -> None:
            status = 1
            try:
                status = program(*arguments)
            finally:
                if child.status is None:
                    child.status = status

        self._child, self._world = child, world
        self._process = world.process(module.rpartition(".")[2], main, parent.machine.name)
        self.pid = _number(world, self._process)
        self._process.extras["child"] = child
        self._process.on_death.append(partial(_end, child))
        parent.on_death.append(partial(_close, child))
        world.point(f"started {module}")

    def poll(self) -> int | None:
        """Its exit status; None if it runs."""
        self._world.point(f"poll {self.pid}")
        return None if self._is_up() else self._child.status

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait until it has ended, at most some time [s]; its exit status, or None if it runs."""
        self._child.changed.wait_until(lambda: not self._is_up(), timeout_s)
        return self.poll()

    def tell(self, line: bytes) -> None:
        """Write a line to its standard input, which then ends."""
        self._world.point(f"tell {self.pid}")
        self._child.lines.append(line)
        _close(self._child)

    def end(self, within_s: float) -> int:
        """Terminate it, and kill it if it has not ended within some time [s]; its exit status."""
        self._world.point(f"terminate {self.pid}")
        if self._is_up():
            if self._child.on_terminate is None:
                self._kill(signal.SIGTERM)
            else:
                self._world.spawn(self._process, self._child.on_terminate, "signal", daemon=True)
        if self.wait(within_s) is None:
            self._kill(signal.SIGKILL)
        return self._child.status or 0

    def _is_up(self) -> bool:
        return self._process.alive and not self._child.forsaken

    def _kill(self, number: int) -> None:
        self._child.status = -number
        self._world.kill(self._process)


def add_program(world: World, module: str, program: Program) -> None:
    """Have a world run a program wherever a module is run."""
    world.extras.setdefault("programs", {})[module] = program


def on_terminate(handler: Callable[[], object]) -> None:
    """Have a function called when the running process is terminated."""
    running_world().running().process.extras["child"].on_terminate = handler


def forsake(process: scheduler.Process) -> None:
    """Let the process that has started another one think it dead, as on a machine that is cut off."""
    child: Child = process.extras["child"]
    child.status, child.forsaken = -signal.SIGKILL, True
    child.changed.wake()


def is_forsaken(process: scheduler.Process) -> bool:
    """Whether a process lives on although it is thought dead."""
    return "child" in process.extras and bool(process.extras["child"].forsaken)


def read_line() -> bytes:
    """The next line of the running process's standard input; empty at its end."""
    world = running_world()
    world.point("read a line")
    child: Child = world.running().process.extras["child"]
    child.changed.wait_until(lambda: bool(child.lines) or child.closed)
    return child.lines.pop(0) if child.lines else b""


def getpid() -> int:
    """The number of the running process."""
    world = running_world()
    return _number(world, world.running().process)


def getppid() -> int:
    """The number of the process that has started the running one; 1 if there is none any more."""
    world = running_world()
    world.point("getppid")
    child: Child | None = world.running().process.extras.get("child")
    return _number(world, child.parent) if child is not None and child.parent.alive else _INIT


def runs(pid: int) -> bool:
    """Whether there is a process of this number."""
    world = running_world()
    world.point(f"look for {pid}")
    process = _process(world, pid)
    return process is not None and process.alive


def kill_named(pid: int, name: bytes) -> None:
    """Kill a process, if its module and arguments have this part."""
    world = running_world()
    if runs(pid) and (process := _process(world, pid)) is not None:
        child: Child | None = process.extras.get("child")
        if child is not None and name in child.command.encode():
            world.kill(process)


def _number(world: World, process: scheduler.Process) -> int:
    return _INIT + 1 + world.processes.index(process)


def _process(world: World, pid: int) -> scheduler.Process | None:
    index = pid - _INIT - 1
    return world.processes[index] if 0 <= index < len(world.processes) else None


def _end(child: Child) -> None:
    if child.status is None:
        child.status = -signal.SIGKILL
    child.changed.wake()


def _close(child: Child) -> None:
    child.closed = True
    child.changed.wake()
