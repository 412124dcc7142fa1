"""Control groups (cgroup v2) of jobs, where the service has been given a tree of them: systemd's ``Delegate=yes``.

They hold exactly what :mod:`.usage_monitor` can only count now and then, and count memory that lies in files, too. The
service moves into a group of its own below the tree, as a group with processes cannot share out its resources; those of
the jobs on a server are beside it.
"""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import suppress
from pathlib import Path

from .confinement import Confinement, Usage

_TREE, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_SERVICE = "skedge-service"
_CONTROLLERS = frozenset({"memory", "pids", "cpu"})
_DELEGATED = ("user.delegate", "trusted.delegate")
"""Attributes by which systemd marks a group as delegated, to its user and as root."""

_PERIOD_US = 100_000
_MEGABYTE = 10**6
_ENTER_TIMES = 100
"""How often a process tries to enter a group that is removed meanwhile."""

_TEMPORARY_PLACES = 2
"""Places in memory where a confined process writes files."""


def own_group() -> Path | None:
    """The group of this process; None without a tree of cgroup v2."""
    with suppress(OSError):
        for line in _OWN.read_text(encoding="ascii").splitlines():
            number, _, path = line.partition("::")
            if number == "0" and (_TREE / "cgroup.controllers").exists():
                return _TREE / path.lstrip("/")
    return None


def move_into_tree() -> bool:
    """Let jobs have groups, and move this process into one beside them; whether the service has been given a tree."""
    own = own_group()
    if own is None or not _is_delegated(own):
        return False
    if not _controllers(own / "cgroup.controllers") >= _CONTROLLERS:
        return False
    (own / _SERVICE).mkdir(exist_ok=True)
    _write(own / _SERVICE / "cgroup.procs", os.getpid())
    _write(own / "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(_CONTROLLERS)))
    return True


class JobGroup:
    """The group of a job on a server; does nothing where the service has been given no tree.

    Attributes
    ----------
    folder
        None if there is no group.
    ended
        Processes of the group that the kernel had ended for their memory when this one entered.
    """

    def __init__(self, confinement: Confinement) -> None:
        own = own_group()
        self.usage = confinement.usage
        self.ended = 0
        self.folder: Path | None = None
        if own is not None and own.name == _SERVICE and confinement.group:
            name = hashlib.sha256(confinement.group.encode()).hexdigest()[:16]
            self.folder = own.parent / f"skedge-job-{name}"

    def enter(self) -> None:
        """Move this process into the group, which has the limits of the job."""
        left = _ENTER_TIMES
        while self.folder is not None and left:
            left -= 1
            try:
                self._enter(self.folder)
                left = 0
            except OSError as error:  # another process of the job was the last, and the group is removed meanwhile
                if error.errno not in (errno.ENOENT, errno.ENODEV) or not left:
                    raise

    def _enter(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for file, value in _limits(self.usage).items():
            _write(folder / file, value)
        self.ended = _ended_for_memory(folder)
        _write(folder / "cgroup.procs", os.getpid())

    def sentence(self) -> str:
        """What the kernel has ended a process of the group for since :meth:`enter`; empty if it has not."""
        if self.folder is None:
            return ""
        if _ended_for_memory(self.folder) <= self.ended:
            return ""
        return (
            f"its processes and temporary files use more memory than the {self.usage.most_memory_mb or 0:.0f} MB that "
            "a job may use on a server: skedge up --job-memory-mb"
        )

    def leave(self) -> None:
        """Remove the group, unless other processes of the job are in it."""
        if self.folder is not None:
            with suppress(OSError):
                self.folder.rmdir()


def _ended_for_memory(folder: Path) -> int:
    """Processes of a group that the kernel has ended for their memory; 0 if the group is gone."""
    with suppress(FileNotFoundError):
        events = dict(line.split() for line in (folder / "memory.events").read_text("ascii").splitlines())
        return int(events.get("oom_kill", 0))
    return 0


def _limits(usage: Usage) -> dict[str, int | str]:
    """Values of the files of a group."""
    values: dict[str, int | str] = {}
    if usage.most_memory_mb is not None:
        files_mb = _TEMPORARY_PLACES * (usage.disk_mb or 0)
        values["memory.max"] = int((usage.most_memory_mb + files_mb) * _MEGABYTE)
    if usage.processes is not None:
        values["pids.max"] = usage.processes + 2  # keeper and first process of the namespace
    if usage.cpus is not None:
        values["cpu.max"] = f"{usage.cpus * _PERIOD_US} {_PERIOD_US}"
    return values


def _is_delegated(group: Path) -> bool:
    for name in _DELEGATED:
        with suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return os.access(group / "cgroup.procs", os.W_OK)
    return False


def _controllers(file: Path) -> set[str]:
    with suppress(OSError):
        return set(file.read_text(encoding="ascii").split())
    return set()


def _write(file: Path, value: int | str) -> None:
    file.write_text(f"{value}\n", encoding="ascii")
