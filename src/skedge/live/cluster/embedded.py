"""The embedded Ray cluster: a head, and a node per server of the scenario, on this machine's loopback, with a token.

It belongs to the process that starts it. That is the process of ``skedge live``, or, for a service, one of its own
(:mod:`skedge.live.service.ray_host`), so that the cluster outlives the service's controllers.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from skedge.core.errors import SkedgeError
from skedge.core.model.cluster import Cluster
from skedge.platform.signals import unwind

from .embedded_state import EmbeddedRay, end_stale
from .gpus import Gpus
from .health_checks import HEALTH
from .loopback import on_loopback

STORE_BYTES = 128 * 2**20
"""Shared memory of a node for the objects of its calls; what does not fit is on disk."""

_AT_ONCE = min(4, os.cpu_count() or 1)  # Ray nodes that are started at the same time: each must be up within 15 s
_END_S = 120.0
_LOOK_S = 0.5


def unheard(_: str) -> None:
    """Ignores a progress message."""


class EmbeddedCluster:
    """The embedded cluster; a node that ends is started again.

    Parameters
    ----------
    cluster
        Its servers are nodes of Ray, on this machine.
    folder
        The state folder, in which other processes find the cluster.
    gpus
        Those of the servers.
    say
        Called with a description of what is being started, whenever that changes.
    store_bytes
        Shared memory of each node for the objects of its calls.

    Attributes
    ----------
    address
        Address of the head.
    nodes
        Ray's node of each server, by name.
    ended
        Set when the cluster ends.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        gpus: Gpus,
        say: Callable[[str], None] = unheard,
        store_bytes: int = STORE_BYTES,
    ) -> None:
        self.cluster, self.folder, self.gpus, self.say, self.store_bytes = cluster, folder, gpus, say, store_bytes
        self.nodes: dict[str, Any] = {}
        self.local: Any = None
        self.address = ""
        self.ended = threading.Event()
        self.keeper: threading.Thread | None = None

    def start_head(self) -> None:
        """Start the head; what an earlier cluster of this folder has left is ended first."""
        end_stale(self.folder)
        exit_on_sigterm()
        on_loopback()  # before Ray is imported: it reads these once
        self.say("starting Ray's head")
        from ray.cluster_utils import Cluster as Nodes  # noqa: PLC0415 - needed only to start Ray here

        head = {
            "num_cpus": 0,
            "node_ip_address": "127.0.0.1",
            "include_dashboard": False,
            "include_log_monitor": False,
            "no_monitor": True,  # of the autoscaler
            "_system_config": dict(HEALTH),
        }
        self.local = Nodes(initialize_head=True, head_node_args={**head, "object_store_memory": self.store_bytes})
        self.address = str(self.local.address)
        self._note()

    def start_servers(self) -> None:
        """Start the servers' nodes, some at a time: most of a start is Ray's wait for the node's registration."""
        count = len(self.cluster.servers)
        self.local._shutdown_at_exit = False  # noqa: SLF001 - only the main thread can set signal handlers
        pool = ThreadPoolExecutor(_AT_ONCE)
        try:
            for number, _ in enumerate(pool.map(self._add_node, self.cluster.server_ids)):
                self.say(f"starting the Ray nodes of the servers: {number + 1} of {count} are up")
        finally:
            pool.shutdown(cancel_futures=True)
        self.say("waiting for the Ray nodes")
        self.local.wait_for_nodes()
        self._note(self.address)
        self.keeper = threading.Thread(target=self._keep, name="nodes", daemon=True)
        self.keeper.start()

    def stop(self) -> None:
        """End the cluster."""
        self.ended.set()
        if self.keeper is not None:
            self.keeper.join(timeout=_END_S)
        if self.local is not None:
            with suppress(ValueError):  # an interrupt can leave the driver connected to a node
                self.local.shutdown()
            self.local = None
            end_stale(self.folder)

    def head_is_up(self) -> bool:
        """Whether the head's processes run."""
        return self.local is not None and not _has_ended(self.local.head_node, "gcs_server", "raylet")

    def _add_node(self, server: str) -> None:
        # names of our own, as two nodes that start at the same time would take the same ones
        sockets, mark = self.local.head_node.get_sockets_dir_path(), secrets.token_hex(4)
        try:
            self.nodes[server] = self.local.add_node(
                num_cpus=1,
                num_gpus=int(self.gpus.of(self.cluster.server_ids.index(server))),
                node_ip_address="127.0.0.1",
                object_store_memory=self.store_bytes,
                labels={"server": server},
                raylet_socket_name=f"{sockets}/raylet.{mark}",
                plasma_store_socket_name=f"{sockets}/plasma_store.{mark}",
                wait=False,
            )
        except Exception as error:  # Ray raises a bare Exception here
            raise SkedgeError(
                f"Ray could not start a node for server {server!r}: {error}; is this machine busy with other work?"
            ) from error

    def _keep(self) -> None:
        """Restart nodes that have ended, until the cluster ends; on a busy machine a new one can die, too."""
        while not self.ended.wait(_LOOK_S):
            for server in self.cluster.server_ids:
                if _has_ended(self.nodes[server], "raylet"):
                    self._restart(server)

    def _restart(self, server: str) -> None:
        with suppress(Exception):  # the node may be gone altogether
            self.local.remove_node(self.nodes[server], allow_graceful=False)
        if self.ended.is_set():
            return
        with suppress(Exception):  # if it does not start now, the next check tries again
            self._add_node(server)
            self._note(self.address)

    def _note(self, address: str = "") -> None:
        """Write down where the cluster is; without an address, only what must be ended."""
        nodes = self.local.list_all_nodes()
        every = tuple(pid for node in nodes for kind in node.all_processes for pid in _pids(node, kind))
        raylets = {name: pid for name, node in self.nodes.items() for pid in _pids(node, "raylet")}
        EmbeddedRay(address, os.getpid(), every, raylets).write(self.folder)


def _pids(node: Any, kind: str) -> list[int]:
    return [info.process.pid for info in node.all_processes.get(kind, ())]


def _has_ended(node: Any, *kinds: str) -> bool:
    """Whether a node has no process of one of these kinds any more."""
    return any(all(info.process.poll() is not None for info in node.all_processes.get(kind, ())) for kind in kinds)


def exit_on_sigterm() -> None:
    """Let SIGTERM unwind the main thread, so that what is started here is ended even before Ray handles signals."""
    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, unwind)
