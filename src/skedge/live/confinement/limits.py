"""The limits of a job that the kernel holds for each of its processes; :mod:`.usage_monitor` counts them together."""

from __future__ import annotations

import os
import resource
import zlib
from pathlib import Path

from .confinement import Usage

_MEGABYTE = 10**6
_KILOBYTE = 1024
_RESERVED = 2
"""Memory that a process may reserve at most, as a multiple of what its job may use: what grows at once stops there."""

_FURTHER, _NICE = 2, 5
"""Processes that a confined job may start at most, as a multiple of what it may have; and by how much it stands behind
the service where they want the same CPU."""

_OPEN_FILES = 1024
"""Files that a process of a confined job may have open: what lies in pipes and sockets is memory of no process."""

_ENDED_FIRST = 1000
"""Of ``oom_score_adj``: where the machine's memory ends, processes of jobs are ended before all others."""


def limit(usage: Usage, group: str, *, alone: bool) -> None:
    """Limit this process and what it starts.

    Parameters
    ----------
    usage, group
        The limits; and the group of processes that it is in, all of which get the same CPUs.
    alone
        True if all processes of its user are of this job.
    """
    Path("/proc/self/oom_score_adj").write_text(str(_ENDED_FIRST), encoding="ascii")
    _set(resource.RLIMIT_CORE, 0)
    if alone:
        os.nice(_NICE)
        _set(resource.RLIMIT_NOFILE, _OPEN_FILES)
    if alone and usage.processes is not None:
        # more than it may: what starts more is seen, and told, before the kernel refuses to start any
        _set(resource.RLIMIT_NPROC, _FURTHER * usage.processes)
    if usage.disk_mb is not None:
        _set(resource.RLIMIT_FSIZE, int(usage.disk_mb * _MEGABYTE))
    if (memory_mb := usage.most_memory_mb) is not None:
        _set(resource.RLIMIT_DATA, _data_bytes() + int(_RESERVED * memory_mb * _MEGABYTE))
    if usage.cpus is not None:
        os.sched_setaffinity(0, cpus_of(group, sorted(os.sched_getaffinity(0)), usage.cpus))


def cpus_of(group: str, cpus: list[int], count: int) -> list[int]:
    """`count` CPUs of those that there are, the same for all processes of a job on a server."""
    first = zlib.crc32(group.encode()) % len(cpus)
    return [*cpus[first:], *cpus[:first]][:count]


def _set(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (limit, limit))


def _data_bytes() -> int:
    """Private memory that this process has reserved [B]."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmData:")) * _KILOBYTE
