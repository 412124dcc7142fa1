"""The processes below a process, and what they use, by ``/proc``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_KILOBYTE = 1024
_PARENT = 1
"""Place of a process's parent in what follows its name in ``/proc/PID/stat``."""


def descendants(pid: int) -> list[int]:
    """Living processes below a process, parents first."""
    below = children()
    pids = list(below.get(pid, ()))
    for child in pids:  # grows while it is read
        pids += below.get(child, ())
    return pids


def children() -> dict[int, list[int]]:
    """Living processes of this machine by their parent."""
    by_parent: dict[int, list[int]] = {}
    for pid in _processes():
        with suppress(OSError):  # it has ended meanwhile
            after_name = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            if len(after_name) > _PARENT and after_name[0] != b"Z":
                by_parent.setdefault(int(after_name[_PARENT]), []).append(pid)
    return by_parent


def is_first(pid: int) -> bool:
    """Whether a process is the first of its pid namespace."""
    return _field(pid, "status", b"NSpid:", -1) == 1


def tasks(pid: int) -> int:
    """Number of threads of a process; 0 if it has ended."""
    return _field(pid, "status", b"Threads:")


def memory_bytes(pid: int) -> int:
    """Memory that belongs to a process [B]: a page that n processes share counts as 1/n of one; 0 if it has ended.

    A process that lets nobody look into it counts with all pages that it shares.
    """
    try:
        return (_field(pid, "smaps_rollup", b"Pss_Anon:") + _field(pid, "smaps_rollup", b"Pss_Shmem:")) * _KILOBYTE
    except PermissionError:
        return (_field(pid, "status", b"RssAnon:") + _field(pid, "status", b"RssShmem:")) * _KILOBYTE


def _processes() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _field(pid: int, file: str, name: bytes, place: int = 1) -> int:
    """A number in a line of a file of a process; 0 if the process has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for line in Path(f"/proc/{pid}/{file}").read_bytes().splitlines():
            if line.startswith(name):
                return int(line.split()[place])
    return 0
