"""Ray: a cluster whose nodes are the scenario's servers, and the actors on them.

Servers are found by their ``server`` label, never by node id: a node that comes back has a new id. The actors of a
service outlive its controllers: the next one finds them by their names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skedge.core.errors import SkedgeError
from skedge.core.model.cluster import Cluster
from skedge.core.model.kinds import kind_of
from skedge.live import host
from skedge.live.confinement.confinement import TRUSTED, Confinement
from skedge.live.coordinator.client import CoordinatorEndpoint, LocalCoordinator, RemoteCoordinator
from skedge.live.coordinator.coordinator import CoordinatorActor, TrainingCoordinator
from skedge.live.coordinator.training_actors import ActorNames, PSPlacement, TrainingActors
from skedge.live.worker.agent import GROUPS, Agent
from skedge.live.worker.job_code_runner import CALLS, JobCodeClient, JobCodeRunner
from skedge.live.worker.watchdog import WATCH, WatchdogLimits
from skedge.runs.cluster import check_answers

from .embedded import STORE_BYTES, EmbeddedCluster, unheard
from .embedded_state import end_raylet, found_in
from .gpus import Gpus, offered

_START_S = 120.0
_MANY = 64  # concurrent workers on a server that sets no limit
_THREADS = {"health": 1, "data": 16, "ends": 2}
"""Threads of an agent for what is no mini-batch, by group."""

_COORDINATOR_CALLS = 8
"""Most concurrent calls of the coordinator: a controller's, and those of one that it has replaced."""

_LOOK_S = 0.5
_FROZEN_S = 20.0
_ANSWER_S = 5.0


@dataclass(frozen=True)
class Hosting:
    """How a service uses a Ray cluster.

    Attributes
    ----------
    embedded
        True: the cluster at the address is an embedded one, of another process.
    detached_id
        Id of a service whose actors outlive its controllers. Empty: they end with this process, which hosts the
        trainers.
    watch
        How long jobs' code may take.
    confinement
        What jobs' processes may see and use.
    store_bytes
        Shared memory of each node of an own embedded cluster for the objects of its calls.
    """

    embedded: bool = False
    detached_id: str = ""
    watch: WatchdogLimits = WATCH
    confinement: Confinement = TRUSTED
    store_bytes: int = STORE_BYTES


class Engine:
    """Agents by server and parameter servers by job, on a running Ray cluster.

    Parameters
    ----------
    cluster
        The servers.
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
    hosting
        Of a service: what outlives its controllers, and what its jobs may do.

    Attributes
    ----------
    job_code
        Runs the jobs' own code for the controller, on the controller's node.
    acts
        True: the engine reports facts. A run without an engine is only rebuilt from its journal.
    emulates
        True if rounds are stretched to their announced time, so that servers on one machine have the scenario's speeds.
    lost
        Servers that are lost.
    limits
        How long jobs' code may take.
    connected
        Whether this process is connected to the Ray cluster.
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
        say: Callable[[str], None] = unheard,
        hosting: Hosting = Hosting(),
    ) -> None:
        self.emulates, self.say, self.limits = hosting.embedded or address is None, say, hosting.watch
        detached_id = hosting.detached_id
        self.gpus = Gpus(device, cluster, embedded=self.emulates)
        self.cluster, self.folder, self.url, self.detached_id = cluster, folder, checkpoints, detached_id
        self.cloud_ps, self.confinement = cloud_ps, hosting.confinement
        own = cluster, folder, self.gpus, say, hosting.store_bytes
        self.embedded = None if address is not None else EmbeddedCluster(*own)
        self.agents: dict[int, Any] = {}
        self.watching: host.Thread | None = None
        self.tell: Callable[[int, str], None] = _ignored
        self.lost: set[int] = set()
        self.ended, self.connected = host.Event(), False
        try:
            self._start(address)
        except BaseException:  # also on an interrupt: no process of Ray may be left behind
            (self.leave if self.detached_id else self.stop)()
            raise

    def _start(self, address: str | None) -> None:
        if self.embedded is not None:
            self.embedded.start_head()
            address = self.embedded.address
        elif not self.emulates:
            check_answers(str(address))
        # an own cluster has only its head now, so that this process depends on no other node
        _connect(address, self.detached_id)
        self.connected = True
        prefix, are_running = self._prefix(), False
        if self.detached_id:
            are_running = _end_others(prefix)
        names = ActorNames(prefix)
        self.job_code = JobCodeClient(self._job_code_runner(names), prepare_s=self.limits.prepare_s)
        warmed = [host.call(self.job_code.actor, "warm")]  # first: the process that it starts imports PyTorch meanwhile
        if self.embedded is not None:
            self.embedded.start_servers()
        self._check_nodes(are_running=are_running)
        self.agents = {i: self._agent(i, names) for i in range(len(self.cluster.servers))}
        self.processes = self._processes(names)
        if self.detached_id:
            self.coordinator_actor = self._coordinator(names)
        if are_running:
            return  # all were up before, and Ray restarts what is lost
        actors = (*self.agents.values(), *(actor for idle in self.processes.idle.values() for actor in idle))
        warmed += [
            host.call(actor, "warm") for actor in (*actors, *([self.coordinator_actor] if self.detached_id else ()))
        ]
        self._wait_for(warmed)
        self.gpus.check_found(host.answer([host.call(agent, "found") for agent in self.agents.values()]))

    def _prefix(self) -> str:
        """Prefix of the names of detached actors: those of other code, or with other options, cannot be used."""
        if not self.detached_id:
            return ""
        sources = sorted(Path(__file__).parents[1].rglob("*.py"))
        jobs = self.limits, self.confinement
        options = repr((self.cluster.servers, self.gpus.device, self.url, self.cloud_ps, *jobs)).encode()
        return hashlib.sha256(b"".join(path.read_bytes() for path in sources) + options).hexdigest()[:16]

    def _check_nodes(self, *, are_running: bool) -> None:
        """Check that each server has a node; if the actors `are_running`, one that has none now is lost."""
        self.nodes, self.raylets = self._alive(), self._raylets()
        missing = [i for i, server in enumerate(self.cluster.server_ids) if server not in self.nodes]
        if missing and not are_running:
            name = self.cluster.server_ids[missing[0]]
            raise SkedgeError(f"the Ray cluster has no node with the label server={name!r}")
        self.lost = set(missing)
        if not missing:
            self.gpus.check_offered(offered(host.nodes()))

    def _wait_for(self, warmed: list[Any]) -> None:
        """Wait until all processes have answered; times out only if none answers for `_START_S`."""
        left, all_of = list(warmed), len(warmed)
        while left:
            self.say(f"starting agents and parameter servers: {all_of - len(left)} of {all_of} are up")
            up, left = host.ready(left, _START_S)
            if not up:
                raise SkedgeError(
                    f"{len(left)} of {all_of} agents and parameter servers have not started, none within {_START_S:g} s"
                )
            try:
                host.answer(up)
            except host.FailedError as error:  # such as a server where jobs cannot be confined
                raise SkedgeError(str(error.cause)) from error

    def _agent(self, server: int, names: ActorNames) -> Any:
        name = self.cluster.server_ids[server]
        unlimited = kind_of(self.cluster).ps_slots(self.cluster, server) is None
        lanes = 4 + int(self.cluster.workers[server].sum()) + (_MANY if unlimited else 0)
        groups = {group: (_THREADS[group], methods) for group, methods in GROUPS.items()}
        on = host.ActorOptions(name, names.name("agent", name), lanes, self.gpus.of(server), groups)
        args = name, self._folder(server), self.gpus.device, server, self.confinement
        return host.start_actor(Agent, *args, on=on)

    def _folder(self, server: int) -> str:
        """Where the agent of a server keeps chunks."""
        return str(self.folder / "servers" / self.cluster.server_ids[server])

    def _job_code_runner(self, names: ActorNames) -> Any:
        on = host.ActorOptions(name=names.name("job_code"), width=CALLS)
        return host.start_actor(JobCodeRunner, self.confinement, on=on)

    def _coordinator(self, names: ActorNames) -> Any:
        on = host.ActorOptions(name=names.name("coordinator"), width=_COORDINATOR_CALLS)
        return host.start_actor(CoordinatorActor, self.agents, self.job_code.actor, self.processes.placement, on=on)

    def coordinator(self) -> CoordinatorEndpoint:
        """The coordinator of a run: that of the service, or a new one in this process."""
        if self.detached_id:
            return RemoteCoordinator(self.coordinator_actor)
        return LocalCoordinator(TrainingCoordinator(self.processes, self.cluster.server_ids))

    def _processes(self, names: ActorNames) -> TrainingActors:
        kind, servers = kind_of(self.cluster), range(len(self.cluster.servers))
        slots = [kind.ps_slots(self.cluster, server) for server in servers]
        # one process is warm on a server with resources, which has no slots
        warm = (self.cloud_ps if i == self.cluster.cloud else 1 if (n := slots[i]) is None else n for i in servers)
        slotted = frozenset(i for i in servers if i == self.cluster.cloud or slots[i] is not None)
        names_of = tuple(self.cluster.server_ids)
        folders = tuple("" if self.gpus.of(i) else self._folder(i) for i in servers)
        placement = PSPlacement(names_of, tuple(warm), slotted, self.url, names, self.limits, self.confinement, folders)
        return TrainingActors(self.agents, self.job_code, placement)

    def forget(self, job: str) -> None:
        """Have every agent end the processes of a job that has left, and remove its chunks."""
        for agent in self.agents.values():
            host.call(agent, "forget", job)

    def sweep(self, has_left: Callable[[str], bool]) -> None:
        """Have agents forget jobs that have left: an agent that was away was not told, and a late upload may come."""
        for server in [server for server in self.agents if server not in self.lost]:
            with suppress(host.CallError):  # it is asked again at the next sweep
                jobs: list[str] = host.answer(host.call(self.agents[server], "jobs"), _ANSWER_S)
                for job in filter(has_left, jobs):
                    host.call(self.agents[server], "forget", job)

    def drop(self, server: int, job: str, chunks: tuple[int, ...]) -> None:
        """Have an agent remove chunks that were moved to another server."""
        host.call(self.agents[server], "drop", job, chunks)

    # -- servers that are lost and come back -------------------------------------------------------------------------

    def watch(self, tell: Callable[[int, str], None]) -> None:
        """Report every server that is ``lost`` or ``back``, and the loss of Ray's head (server -1), from a thread.

        A lost server of the embedded cluster is restarted; on other clusters restarting is up to the operator.
        """
        self.tell = tell
        for server in sorted(self.lost):
            tell(server, "lost")
        if self.watching is None:
            self.watching = host.Thread(target=self._watch, name="watch", daemon=True)
            self.watching.start()

    def _watch(self) -> None:
        pending: dict[int, tuple[float, Any]] = {}
        while not self.ended.wait(_LOOK_S):
            try:
                self._look(pending)
            except Exception:  # any error means that Ray's head does not answer; the run can be resumed from its state
                if not self.ended.is_set():
                    self.tell(-1, "lost")
                return

    def _look(self, pending: dict[int, tuple[float, Any]]) -> None:
        """Check every server once."""
        alive = self._alive()
        for number, server in enumerate(self.cluster.server_ids):
            if number in self.lost:
                if server in alive and self._answers(number, _ANSWER_S):
                    self.nodes[server], self.raylets = alive[server], self._raylets()
                    self.lost.discard(number)
                    self.tell(number, "back")
            # another node with its label: the server was restarted before its loss was noticed
            elif self.nodes[server].isdisjoint(alive.get(server, ())) or self._is_frozen(number, pending):
                self.lost.add(number)
                self.tell(number, "lost")
                if server in self.raylets:
                    end_raylet(self.raylets[server])  # it may be frozen; if another one is up already, that stays

    def _raylets(self) -> dict[str, int]:
        """Process of each server's node of the embedded cluster."""
        cluster = found_in(self.folder) if self.emulates else None
        return {} if cluster is None else dict(cluster.raylets)

    def _alive(self) -> dict[str, set[str]]:
        """Ids of the nodes that are alive, by their server's label."""
        node_ids: dict[str, set[str]] = {}
        for node in host.nodes():
            if node.alive and "server" in node.labels:
                node_ids.setdefault(node.labels["server"], set()).add(node.id)
        return node_ids

    def _answers(self, server: int, timeout: float) -> bool:
        with suppress(host.CallError):
            host.answer(host.call(self.agents[server], "pid"), timeout)
            return True
        return False

    def _is_frozen(self, server: int, pending: dict[int, tuple[float, Any]]) -> bool:
        """Whether an agent has not answered for `_FROZEN_S` although its node is alive; asks it repeatedly."""
        since, question = pending.get(server, (0.0, None))
        if question is None or host.ready([question], 0)[0]:
            pending[server] = host.monotonic(), host.call(self.agents[server], "pid")
            return False
        if host.monotonic() - since < _FROZEN_S:
            return False
        del pending[server]
        return True

    def leave(self) -> None:
        """Disconnect; detached actors, and a cluster of another process, go on."""
        self.ended.set()
        if self.watching is not None:
            self.watching.join(timeout=_START_S)
        self.connected = False
        host.disconnect()

    def stop(self) -> None:
        """End every actor, and the embedded cluster."""
        if self.detached_id and self.connected:
            self.ended.set()
            _end_others("")
        self.leave()
        if self.embedded is not None:
            self.embedded.stop()


def end_actors(address: str, detached_id: str) -> None:
    """End all actors of a service on the Ray cluster at an address."""
    check_answers(address)
    _connect(address, detached_id)
    _end_others("")
    host.disconnect()


def _connect(address: str | None, detached_id: str) -> None:
    """Connect to the Ray cluster at an address, where actors have the names of a service, if it has an id."""
    try:
        host.connect(address, f"skedge-{detached_id}" if detached_id else None)
    except host.CallError as error:
        raise ConnectionError(str(error)) from error


def _end_others(prefix: str) -> bool:
    """End this service's actors whose names have another prefix (with none: all); whether any have this one."""
    for name in host.actor_names():
        if not prefix or not name.startswith(prefix):
            host.end_actor(name)
    return bool(prefix) and any(name.startswith(prefix) for name in host.actor_names())


def _ignored(server: int, change: str) -> None:
    """Ignores reports made before :meth:`Engine.watch`."""
