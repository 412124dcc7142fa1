"""The embedded Ray cluster of a state folder, as other processes find it: its address, and the processes to end.

A module of its own, importable without Ray and torch.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from skedge.live import host
from skedge.live.durable import read_text, remove, write_whole

EMBEDDED = "ray.json"
"""Name of the file with the :class:`EmbeddedRay` of a cluster, in the state folder."""


@dataclass(frozen=True)
class EmbeddedRay:
    """An embedded cluster.

    Attributes
    ----------
    address
        Address of its head; empty until all nodes are up.
    host
        Process that started it and restarts nodes that end.
    processes
        Ray's processes.
    raylets
        Process of the node of each server.
    """

    address: str
    host: int
    processes: tuple[int, ...] = ()
    raylets: dict[str, int] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write it to a state folder, atomically."""
        write_whole(folder / EMBEDDED, json.dumps(asdict(self)))


def found_in(folder: Path) -> EmbeddedRay | None:
    """The embedded cluster of a state folder; None if it has none."""
    with suppress(OSError, ValueError, TypeError):
        return EmbeddedRay(**json.loads(read_text(folder / EMBEDDED)))
    return None


def end_raylet(pid: int) -> None:
    """Kill the process of a node of the embedded cluster, which may be frozen; its host starts the node again."""
    host.kill_named(pid, b"raylet")


def end_stale(folder: Path) -> None:
    """Kill the processes of an embedded cluster left by a process that was killed, and that process."""
    cluster = found_in(folder)
    if cluster is None:
        return
    if cluster.host != host.getpid():
        host.kill_named(cluster.host, b"skedge.live.service.ray_host")
    for pid in cluster.processes:
        host.kill_named(pid, b"ray")
    remove(folder / EMBEDDED)
