"""GPUs of a live run: which of them the agents ask Ray for, and whether they were found.

Parameters stay on the CPU of their parameter server; only agents compute on GPUs. On an embedded cluster all servers
are on this machine and share its GPUs. On a cluster at an address each server has the number that its cluster file
states, and its Ray node must offer them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from skedge.core.errors import InputError, SkedgeError
from skedge.core.model.cluster import Cluster
from skedge.live import host

Device = Literal["cpu", "cuda", "auto"]
"""Where agents compute: on the CPU; on GPUs, which every server must have; or on GPUs where a server has some."""


def check_device(device: str) -> None:
    """Check the name of a :data:`Device`.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if device not in get_args(Device):
        raise InputError(f"device {device!r}: is unknown; it must be one of {', '.join(get_args(Device))}")


class Gpus:
    """The GPUs of a cluster's servers.

    Parameters
    ----------
    device, cluster
        ``cpu``, ``cuda`` or ``auto``; and the servers.
    embedded
        True if all servers are on this machine.

    Raises
    ------
    InputError
        If there is no such device.
    """

    def __init__(self, device: str, cluster: Cluster, *, embedded: bool) -> None:
        check_device(device)
        self.device, self.cluster = device, cluster
        count = _here() if embedded and device != "cpu" else 0
        self._each = [0.0 if device == "cpu" else float(count) if embedded else s.gpus for s in cluster.servers]

    def of(self, server: int) -> float:
        """Number of GPUs that the agent of a server asks Ray for."""
        return self._each[server]

    def check_offered(self, offered: Mapping[str, float]) -> None:
        """Check that Ray's nodes offer the GPUs that their servers state.

        Raises
        ------
        SkedgeError
            If one offers fewer: Ray would wait forever for it.
        """
        for server, gpus in zip(self.cluster.servers, self._each, strict=True):
            if offered.get(server.id, 0.0) < gpus:
                raise SkedgeError(
                    f"server {server.id!r} has gpus: {gpus:g}, but its Ray node offers "
                    f"{offered.get(server.id, 0.0):g}: `ray start --num-gpus`"
                )

    def check_found(self, counts: list[int]) -> None:
        """Check the number of GPUs that each agent has found.

        Raises
        ------
        SkedgeError
            If one has found none although all servers must have some.
        """
        for server, count in zip(self.cluster.servers, counts, strict=True):
            if self.device == "cuda" and not count:
                raise SkedgeError(
                    f"server {server.id!r} has no GPU that PyTorch can use; state gpus in the cluster file, or take "
                    "--device auto, which trains on the CPU there"
                )


def offered(nodes: Iterable[host.Node]) -> dict[str, float]:
    """Number of GPUs that the Ray nodes offer, by the label ``server``."""
    return {node.labels.get("server", ""): node.gpus for node in nodes if node.alive}


def _here() -> int:
    from skedge.live.worker.device import gpus_here  # noqa: PLC0415 - imports PyTorch

    return gpus_here()
