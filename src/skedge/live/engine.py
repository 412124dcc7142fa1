"""Ray: a cluster whose nodes are the scenario's servers, and the actors on them.

In embedded mode, one Ray node per server is started on this machine, on loopback and with a token. Servers are found by
their ``server`` label, never by node id: a node that comes back has a new id.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from skedge.core.errors import SkedgeError
from skedge.core.kinds import kind_of
from skedge.core.model import Cluster
from skedge.live.control.health import HEALTH
from skedge.live.gpus import Gpus, offered
from skedge.live.training.agent import Agent
from skedge.live.training.maker import CALLS, Calls, Maker
from skedge.live.training.ps import PSActor
from skedge.runs.cluster import check_answers

from .stale import PIDS, end_stale

_STORE_BYTES = 128 * 2**20
_AT_ONCE = min(4, os.cpu_count() or 1)  # Ray nodes that are started at the same time: each must be up within 15 s
_START_S = 120.0
_PATIENCE_S = 2.0
_MANY = 64  # concurrent workers on a server that sets no limit
_LOOK_S = 0.5
_FROZEN_S = 20.0
_ANSWER_S = 5.0


def _unheard(_: str) -> None:
    """Ignores a progress message."""


class Engine:
    """Agents by server and parameter servers by job, on a running Ray cluster.

    Parameters
    ----------
    address
        Address of a Ray cluster whose nodes have ``server`` labels; None starts one on this machine.
    folder
        Where embedded servers keep their chunks.
    checkpoints
        fsspec URL of the checkpoints.
    cloud_ps
        Number of parameter servers kept warm in the cloud, which has no limit of slots.
    device
        Where agents compute: ``cpu``, ``cuda``, or ``auto``: on GPUs where a server has some.
    say
        Called with a description of what is being started, whenever that changes.

    Attributes
    ----------
    maker
        Runs the jobs' own code for the controller, on the controller's node.
    acts
        True: the engine reports facts. A run without an engine is only rebuilt from its journal.
    emulates
        True if rounds are stretched to their announced time, so that servers on one machine have the scenario's speeds.
    """

    acts = True

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        checkpoints: str,
        address: str | None = None,
        *,
        cloud_ps: int = 1,
        device: str = "cpu",
        say: Callable[[str], None] = _unheard,
    ) -> None:
        self.say = say
        self.gpus = Gpus(device, cluster, embedded=address is None)
        self.cluster, self.folder, self.url = cluster, folder, checkpoints
        self.nodes: dict[str, Any] = {}
        self.local: Any = None
        self.cloud_ps, self.emulates = cloud_ps, address is None
        self.agents: dict[int, Any] = {}
        self.idle: dict[int, list[Any]] = {}
        self.returned = threading.Condition()
        self.watching: threading.Thread | None = None
        self.tell: Callable[[int, str], None] = _ignored
        self.lost: set[int] = set()
        self.ended = threading.Event()
        try:
            self._start(address)
        except BaseException:  # also on an interrupt: no process of Ray may be left behind
            self.stop()
            raise

    def _start(self, address: str | None) -> None:
        embedded = address is None
        if embedded:
            end_stale(self.folder)
            _exit_on_sigterm()
            on_loopback()  # before Ray is imported: it reads these once
            self.say("starting Ray's head")
            address = self._head()
        else:
            check_answers(str(address))
        ray = _ray()
        # connect while only the head is up, so that this process depends on no other node
        ray.init(address=address, log_to_driver=False, logging_level="error", configure_logging=False)
        self.maker = Calls(self._maker())
        warmed = [self.maker.actor.warm.remote()]  # first: the process that it starts imports PyTorch meanwhile
        if embedded:
            self._embedded()
        up = self._labels()
        missing = [s.id for s in self.cluster.servers if s.id not in up]
        if missing:
            raise SkedgeError(f"the Ray cluster has no node with the label server={missing[0]!r}")
        self.gpus.check_offered(offered(ray.nodes()))
        self.agents = {i: self._agent(i) for i in range(len(self.cluster.servers))}
        self.idle = {i: [self._ps_actor(i) for _ in range(self._ps_slots(i))] for i in self.agents}
        actors = (*self.agents.values(), *(actor for idle in self.idle.values() for actor in idle))
        self._wait_for(warmed + [actor.warm.remote() for actor in actors])
        self.gpus.check_found(ray.get([agent.found.remote() for agent in self.agents.values()]))

    def _wait_for(self, warmed: list[Any]) -> None:
        """Wait until all processes have answered; times out only if none answers for `_START_S`."""
        left, all_of = list(warmed), len(warmed)
        while left:
            self.say(f"starting agents and parameter servers: {all_of - len(left)} of {all_of} are up")
            up, left = _ray().wait(left, num_returns=1, timeout=_START_S)
            if not up:
                raise SkedgeError(
                    f"{len(left)} of {all_of} agents and parameter servers have not started, none within {_START_S:g} s"
                )
            _ray().get(up)

    def _head(self) -> str:
        from ray.cluster_utils import Cluster as Nodes  # noqa: PLC0415 - needed only to start Ray here

        head = {
            "num_cpus": 0,
            "node_ip_address": "127.0.0.1",
            "include_dashboard": False,
            "include_log_monitor": False,
            "no_monitor": True,  # of the autoscaler
            "_system_config": dict(HEALTH),
        }
        self.local = Nodes(initialize_head=True, head_node_args={**head, "object_store_memory": _STORE_BYTES})
        self._note_pids()
        return str(self.local.address)

    def _embedded(self) -> None:
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
        self._note_pids()

    def _add_node(self, server: str) -> None:
        # names of our own, as two nodes that start at the same time would take the same ones
        sockets, mark = self.local.head_node.get_sockets_dir_path(), secrets.token_hex(4)
        try:
            self.nodes[server] = self.local.add_node(
                num_cpus=1,
                num_gpus=int(self.gpus.of(self.cluster.server_ids.index(server))),
                node_ip_address="127.0.0.1",
                object_store_memory=_STORE_BYTES,
                labels={"server": server},
                raylet_socket_name=f"{sockets}/raylet.{mark}",
                plasma_store_socket_name=f"{sockets}/plasma_store.{mark}",
                wait=False,
            )
        except Exception as error:  # Ray raises a bare Exception here
            raise SkedgeError(
                f"Ray could not start a node for server {server!r}: {error}; is this machine busy with other work?"
            ) from error

    def _note_pids(self) -> None:
        aside = self.folder / f".{PIDS}"
        aside.write_text(json.dumps(self._pids()), encoding="utf-8")
        aside.replace(self.folder / PIDS)

    def _pids(self) -> list[int]:
        nodes = self.local.list_all_nodes()
        return [info.process.pid for node in nodes for infos in node.all_processes.values() for info in infos]

    def _on(self, server: int) -> Mapping[str, Any]:
        return {"num_cpus": 0, "label_selector": {"server": self.cluster.server_ids[server]}, "max_restarts": -1}

    def _agent(self, server: int) -> Any:
        name = self.cluster.server_ids[server]
        unlimited = kind_of(self.cluster).ps_slots(self.cluster, server) is None
        lanes = 4 + int(self.cluster.workers[server].sum()) + (_MANY if unlimited else 0)
        on = {**self._on(server), "num_gpus": self.gpus.of(server)}
        make = _ray().remote(Agent).options(**on, max_concurrency=lanes)
        return make.remote(name, str(self.folder / "servers" / name), self.gpus.device, server)

    def _maker(self) -> Any:
        ray = _ray()
        here = ray.get_runtime_context().get_node_id()
        on = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        make = ray.remote(Maker).options(num_cpus=0, max_restarts=-1, max_concurrency=CALLS, scheduling_strategy=on)
        return make.remote()

    def _ps_slots(self, server: int) -> int:
        """Number of PSs kept warm: one per PS slot of a server; one on a server with resources."""
        count = kind_of(self.cluster).ps_slots(self.cluster, server)
        return self.cloud_ps if server == self.cluster.cloud else 1 if count is None else count

    def _ps_actor(self, server: int) -> Any:
        return _ray().remote(PSActor).options(**self._on(server)).remote(self.url)

    def parameter_server(self, server: int) -> Any:
        """A process for a job's parameter server: a warm one of the server's PS slots.

        If the last job of the slot is still saving, this waits for it, as a new process would take longer. Servers with
        resources have no slots: if no process is warm, a new one is started.
        """
        with self.returned:
            if server == self.cluster.cloud or kind_of(self.cluster).ps_slots(self.cluster, server) is not None:
                self.returned.wait_for(lambda: bool(self.idle[server]), timeout=_PATIENCE_S)
            return self.idle[server].pop() if self.idle[server] else self._ps_actor(server)

    def release(self, server: int, actor: Any) -> None:
        """Return the process of a parameter server; it stays warm for the next job."""
        actor.unload.remote()
        with self.returned:
            self.idle[server].append(actor)
            self.returned.notify_all()

    # -- servers that are lost and come back -------------------------------------------------------------------------

    def watch(self, tell: Callable[[int, str], None]) -> None:
        """Report every server that is ``lost`` or ``back``, and the loss of Ray's head (server -1), from a thread.

        A lost server of the embedded cluster is restarted; on other clusters restarting is up to the operator.
        """
        self.tell = tell
        for server in sorted(self.lost):
            tell(server, "lost")
        if self.watching is None:
            self.watching = threading.Thread(target=self._watch, name="watch", daemon=True)
            self.watching.start()

    def _watch(self) -> None:
        asked: dict[int, tuple[float, Any]] = {}
        while not self.ended.wait(_LOOK_S):
            try:
                self._look(asked)
            except Exception:  # any error means that Ray's head does not answer; the run can be resumed from its state
                if not self.ended.is_set():
                    self.tell(-1, "lost")
                return

    def _look(self, asked: dict[int, tuple[float, Any]]) -> None:
        """Check every server once."""
        up = self._labels()
        for number, server in enumerate(self.cluster.servers):
            if number in self.lost:
                if server.id in up and self._answers(number, _ANSWER_S):
                    self.lost.discard(number)
                    self.tell(number, "back")
                elif self._has_ended(server.id):
                    self._restart(server.id)
            elif server.id not in up or self._is_frozen(number, asked):
                self.lost.add(number)
                self.tell(number, "lost")
                self._restart(server.id)

    def _labels(self) -> set[str]:
        """Server labels of the nodes that are alive."""
        return {node["Labels"].get("server") for node in _ray().nodes() if node["Alive"]}

    def _answers(self, server: int, timeout: float) -> bool:
        ray = _ray()
        with suppress(ray.exceptions.RayError):
            ray.get(self.agents[server].pid.remote(), timeout=timeout)
            return True
        return False

    def _is_frozen(self, server: int, asked: dict[int, tuple[float, Any]]) -> bool:
        """Whether an agent has not answered for `_FROZEN_S` although its node is alive; asks it repeatedly."""
        since, question = asked.get(server, (0.0, None))
        if question is None or _ray().wait([question], timeout=0)[0]:
            asked[server] = time.monotonic(), self.agents[server].pid.remote()
            return False
        if time.monotonic() - since < _FROZEN_S:
            return False
        del asked[server]
        return True

    def _has_ended(self, server: str) -> bool:
        """Whether a node of the embedded cluster has lost its raylet; on a busy machine a new one can die."""
        if self.local is None:
            return False
        started = self.nodes[server].all_processes.get("raylet", ())
        return all(info.process.poll() is not None for info in started)

    def _restart(self, server: str) -> None:
        """Restart a node of the embedded cluster; a frozen one is ended first."""
        if self.local is None or self.ended.is_set():
            return
        with suppress(Exception):  # the node may be gone altogether
            self.local.remove_node(self.nodes[server], allow_graceful=False)
        with suppress(Exception):  # if it does not start now, the next check tries again
            self._add_node(server)
            self._note_pids()

    def stop(self) -> None:
        """End every actor, and the embedded cluster."""
        self.ended.set()
        if self.watching is not None:
            self.watching.join(timeout=_START_S)
        ray = _ray()
        ray.shutdown()
        if self.local is not None:
            with suppress(ValueError):  # an interrupt can leave the driver connected to a node
                self.local.shutdown()
            self.local = None
            end_stale(self.folder)
            (self.folder / PIDS).unlink(missing_ok=True)


def _ignored(server: int, what: str) -> None:
    """Ignores reports made before :meth:`Engine.watch`."""


def _ray() -> Any:
    import ray  # noqa: PLC0415 - Ray is an extra

    return ray


def _exit_on_sigterm() -> None:
    """Let SIGTERM unwind the main thread, so that what is started here is ended even before Ray handles signals."""
    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def on_loopback() -> None:
    """Set Ray's environment for one machine: listen on loopback, require a token, one thread for torch."""
    if "ray" in sys.modules and os.environ.get("RAY_AUTH_MODE") != "token":
        raise SkedgeError(
            "Ray was imported before skedge.live configured it: import it after skedge.live has started, or set "
            "RAY_AUTH_MODE=token in the environment"
        )
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # otherwise the driver turns 127.0.0.1 into an outer address
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # failed jobs are reported by skedge
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "5")  # a lost local head does not come back
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    if os.environ["RAY_AUTH_MODE"] == "token" and not os.environ.get("RAY_AUTH_TOKEN"):
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
