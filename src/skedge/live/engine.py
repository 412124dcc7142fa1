"""Ray: a cluster whose nodes are the scenario's servers, and the actors on them.

Embedded, one Ray node per server is started on this machine, on loopback and with a token. Servers are found by their
``server`` label, never by a node's number: a node that comes back has a new one.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from skedge.core.errors import SkedgeError
from skedge.core.model import Cluster

from .agent import Agent
from .ps import PSActor

_HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
"""Finds a dead node in 1.4 s and a frozen one in 4.4 s; Ray's own settings need 14 and 65 s."""

_STORE_BYTES = 128 * 2**20
_PIDS = "ray-pids.json"
_START_S = 120.0
_PATIENCE_S = 2.0


class Engine:
    """Agents by server and parameter servers by job, on a running Ray cluster.

    Parameters
    ----------
    address
        Of a Ray cluster whose nodes carry ``server`` labels; None starts one on this machine.
    folder
        Where embedded servers keep their chunks.
    checkpoints
        fsspec URL of the checkpoints.
    cloud_ps
        Parameter servers that are kept warm in the cloud, which has no number of slots.
    """

    def __init__(
        self, cluster: Cluster, folder: Path, checkpoints: str, address: str | None = None, *, cloud_ps: int = 1
    ) -> None:
        self.cluster, self.folder, self.url = cluster, folder, checkpoints
        self.nodes: dict[str, Any] = {}
        self.local: Any = None
        self.cloud_ps, self.emulates = cloud_ps, address is None
        self.agents: dict[int, Any] = {}
        self.idle: dict[int, list[Any]] = {}
        self.returned = threading.Condition()
        self._start(address)

    def _start(self, address: str | None) -> None:
        if address is None:
            end_stale(self.folder)
            _on_loopback()  # before Ray is imported: it reads these once
            address = self._embedded()
        ray = _ray()
        ray.init(address=address, log_to_driver=False, logging_level="error", configure_logging=False)
        labels = {node["Labels"].get("server") for node in ray.nodes() if node["Alive"]}
        missing = [s.id for s in self.cluster.servers if s.id not in labels]
        if missing:
            self.stop()
            raise SkedgeError(f"the Ray cluster has no node with the label server={missing[0]!r}")
        self.agents = {i: self._agent(i) for i in range(len(self.cluster.servers))}
        self.idle = {i: [self._ps_actor(i) for _ in range(self._ps_slots(i))] for i in self.agents}
        waits = [agent.warm.remote() for agent in self.agents.values()]
        waits += [actor.warm.remote() for idle in self.idle.values() for actor in idle]
        ray.get(waits, timeout=_START_S)

    def _embedded(self) -> str:
        from ray.cluster_utils import Cluster as Nodes  # noqa: PLC0415 - only where Ray is started here

        head = {"num_cpus": 0, "node_ip_address": "127.0.0.1", "include_dashboard": False, "_system_config": _HEALTH}
        self.local = Nodes(initialize_head=True, head_node_args={**head, "object_store_memory": _STORE_BYTES})
        for server in self.cluster.servers:
            self.nodes[server.id] = self.local.add_node(
                num_cpus=1,
                node_ip_address="127.0.0.1",
                object_store_memory=_STORE_BYTES,
                labels={"server": server.id},
                wait=False,
            )
        self.local.wait_for_nodes()
        (self.folder / _PIDS).write_text(json.dumps(self._pids()), encoding="utf-8")
        return str(self.local.address)

    def _pids(self) -> list[int]:
        nodes = self.local.list_all_nodes()
        return [info.process.pid for node in nodes for infos in node.all_processes.values() for info in infos]

    def _on(self, server: int) -> Mapping[str, Any]:
        return {"num_cpus": 0, "label_selector": {"server": self.cluster.server_ids[server]}, "max_restarts": -1}

    def _agent(self, server: int) -> Any:
        name = self.cluster.server_ids[server]
        lanes = 4 + int(self.cluster.workers[server].sum()) + (64 if server == self.cluster.cloud else 0)
        make = _ray().remote(Agent).options(**self._on(server), max_concurrency=lanes)
        return make.remote(name, str(self.folder / "servers" / name))

    def _ps_slots(self, server: int) -> int:
        return self.cloud_ps if server == self.cluster.cloud else int((self.cluster.ps_server == server).sum())

    def _ps_actor(self, server: int) -> Any:
        return _ray().remote(PSActor).options(**self._on(server)).remote(self.url)

    def parameter_server(self, server: int) -> Any:
        """A process for a job's parameter server: a warm one of the server's PS slots.

        Where the job that had the slot before is still saving, it is waited for; a new process would take longer.
        """
        with self.returned:
            self.returned.wait_for(lambda: bool(self.idle[server]), timeout=_PATIENCE_S)
            return self.idle[server].pop() if self.idle[server] else self._ps_actor(server)

    def release(self, server: int, actor: Any) -> None:
        """Give back the process of a parameter server; it stays warm for the next job."""
        actor.unload.remote()
        with self.returned:
            self.idle[server].append(actor)
            self.returned.notify_all()

    def stop(self) -> None:
        """End every actor, and the embedded cluster."""
        ray = _ray()
        ray.shutdown()
        if self.local is not None:
            with suppress(ValueError):  # an interrupt can leave the driver connected to a node
                self.local.shutdown()
            self.local = None
            end_stale(self.folder)
            (self.folder / _PIDS).unlink(missing_ok=True)


def end_stale(folder: Path) -> None:
    """End what a controller that was killed has left of Ray, by the process numbers in its state folder."""
    path = folder / _PIDS
    for pid in json.loads(path.read_text(encoding="utf-8")) if path.exists() else ():
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists() and b"ray" in command.read_bytes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _ray() -> Any:
    import ray  # noqa: PLC0415 - Ray is an extra

    return ray


def _on_loopback() -> None:
    """Ray's settings for one machine: listen on loopback, ask for a token, one thread for torch."""
    if "ray" in sys.modules and os.environ.get("RAY_AUTH_MODE") != "token":
        raise SkedgeError(
            "Ray was imported before its settings were made: import it after skedge.live has started, or set "
            "RAY_AUTH_MODE=token in the environment"
        )
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # otherwise the driver turns 127.0.0.1 into an outer address
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # a failed job is told as such
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    if os.environ["RAY_AUTH_MODE"] == "token" and not os.environ.get("RAY_AUTH_TOKEN"):
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
