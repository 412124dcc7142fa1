"""Counts what the processes of each job use on a server, and ends those of a job that uses more than it may."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from .confinement import Confinement
from .processes import children, is_first, memory_bytes, tasks

_MEGABYTE = 10**6


@dataclass(frozen=True)
class MonitoredProcess:
    """A process of a job.

    Attributes
    ----------
    keeper
        Process id of its keeper.
    word
        Takes a sentence for the client of the process, before it is ended.
    """

    keeper: int
    confinement: Confinement
    word: socket.socket

    def end(self, sentence: str) -> None:
        """End it, and all that it has started."""
        with suppress(OSError):  # the client is gone, and the process with it
            self.word.send(sentence.encode())
        with suppress(ProcessLookupError):
            os.kill(self.keeper, signal.SIGTERM)


def end_above_limits(watched: Iterable[MonitoredProcess]) -> None:
    """End all processes of each job that uses more than it may."""
    of_group: dict[str, list[MonitoredProcess]] = {}
    for process in watched:
        of_group.setdefault(process.confinement.group, []).append(process)
    below = children() if of_group else {}
    for group in of_group.values():
        pids = [pid for process in group for pid in _own(process, below)]
        sentence = _too_much(group[0].confinement, pids)
        for process in group if sentence else ():
            process.end(sentence)


def _own(process: MonitoredProcess, below: dict[int, list[int]]) -> list[int]:
    """The job's own process and what it has started, without keeper and first process of the namespace."""
    confined = not process.confinement.trusted
    above = filter(is_first, below.get(process.keeper, ())) if confined else [process.keeper]
    pids = [child for pid in above for child in below.get(pid, ())]
    for pid in pids:  # grows while it is read
        pids += below.get(pid, ())
    return pids


def _too_much(confinement: Confinement, pids: list[int]) -> str:
    """What a job's processes use more of than it may, in a sentence; empty if they do not."""
    usage = confinement.usage
    if usage.processes is not None and (count := _sum(tasks, pids)) > usage.processes:
        return (
            f"its code runs {count} processes and threads, more than the {usage.processes} that a job may have on a "
            "server: skedge up --job-processes"
        )
    limit_mb = usage.most_memory_mb
    if limit_mb is not None and (size := _sum(memory_bytes, pids) / _MEGABYTE) > limit_mb:
        return (
            f"its processes use {_size(size)} of memory, more than the {_size(limit_mb)} that a job may use on "
            "a server: skedge up --job-memory-mb"
        )
    return ""


def _sum(measure: Callable[[int], int], pids: list[int]) -> int:
    return sum(measure(pid) for pid in pids)


def _size(megabytes: float) -> str:
    return f"{megabytes / 1000:.3g} GB" if megabytes >= 1000 else f"{megabytes:.3g} MB"
