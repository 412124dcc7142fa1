"""The processes that train: agents by server, parameter servers, and the job code runner.

They are Ray actors. Those of a service are named and detached: they outlive the controller that has started them, and
the next one finds them by their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from skedge.live import host
from skedge.live.confinement.confinement import TRUSTED, Confinement
from skedge.live.worker.checkpoint import Life
from skedge.live.worker.job_code_runner import JobCodeClient
from skedge.live.worker.ps_actor import GROUPS, PSActor
from skedge.live.worker.watchdog import WATCH, WatchdogLimits

_PATIENCE_S = 2.0
"""How long a job waits for the process of a parameter server that the last job of the slot is still saving [s]."""


_SWEEP_S = 60.0
"""Interval at which processes that serve no job are unloaded again [s]."""


@dataclass(frozen=True)
class ActorNames:
    """Names of actors, by which the next controller finds them; without a prefix they end with this process."""

    prefix: str = ""

    def name(self, *parts: object) -> str:
        """Name of an actor; empty without a prefix."""
        return "/".join(map(str, (self.prefix, *parts))) if self.prefix else ""


@dataclass(frozen=True)
class PSPlacement:
    """Where parameter servers are started.

    Attributes
    ----------
    servers
        Names of the servers.
    warm
        Number of processes kept warm on each server.
    slotted
        Servers whose parameter servers are slots: a job waits for the slot's process.
    url
        URL of the checkpoints.
    watch
        How long jobs' code may take.
    confinement
        That of the jobs' processes.
    folders
        Where the agent of each server keeps chunks; empty: its workers compute on GPUs, so no parameter server there
        trains chunks itself.
    """

    servers: tuple[str, ...]
    warm: tuple[int, ...]
    slotted: frozenset[int]
    url: str
    names: ActorNames = ActorNames()
    watch: WatchdogLimits = WATCH
    confinement: Confinement = TRUSTED
    folders: tuple[str, ...] = ()

    def folder(self, server: int) -> str:
        """That of a server's agent; empty if parameter servers there train no chunks."""
        return self.folders[server] if self.folders else ""

    def start(self, server: int, number: int | None = None) -> Any:
        """The warm process of a server with this number, which is started if there is none.

        Without a number: a further one, which ends with the coordinator, as the next one would not know of it.
        """
        name = self.servers[server]
        own_name = "" if number is None else self.names.name("ps", name, number)
        on = host.ActorOptions(name, own_name, groups=GROUPS)
        confinement = replace(self.confinement, group=name)
        return host.start_actor(PSActor, self.url, self.watch, confinement, self.folder(server), on=on)


@dataclass(frozen=True, eq=False)
class _Unload:
    """A call to unload a parameter server's process, and the reference to its answer."""

    actor: Any
    life: Life
    ref: Any


class TrainingActors:
    """Agents and job_code, and the parameter servers' processes, which are lent to jobs.

    Attributes
    ----------
    agents
        Agents by server.
    job_code
        Runs the jobs' own code for the controller.
    idle
        Parameter servers' processes that serve no job, by server.
    """

    def __init__(self, agents: Mapping[int, Any], job_code: JobCodeClient, placement: PSPlacement) -> None:
        self.agents, self.job_code, self.placement = dict(agents), job_code, placement
        self.returned = host.Condition()
        self.idle = {
            server: [placement.start(server, n) for n in range(warm)] for server, warm in enumerate(placement.warm)
        }
        self._loads = count(1)
        self._unloads, self._swept = list[_Unload](), host.monotonic()

    def trains(self, server: int) -> bool:
        """Whether parameter servers on a server may train the chunks that are there themselves."""
        return bool(self.placement.folder(server))

    def life(self, controllers: int) -> Life:
        """A new life of a job, later than all before it; `controllers`: how many the run had before this one."""
        return Life(controllers, next(self._loads))

    def parameter_server(self, server: int) -> Any:
        """A process for a job's parameter server: a warm one of the server's PS slots.

        If the last job of the slot is still saving, this waits for it, as a new process would take longer. Servers with
        resources have no slots: if no process is warm, a new one is started.
        """
        with self.returned:
            if server in self.placement.slotted:
                self.returned.wait_for(lambda: bool(self.idle[server]), timeout=_PATIENCE_S)
            if self.idle[server]:
                actor = self.idle[server].pop()
                self._unloads = [unload for unload in self._unloads if unload.actor is not actor]
                return actor
            return self.placement.start(server)

    def release(self, server: int, actor: Any, life: Life) -> None:
        """Return the process of a parameter server, loaded in `life`; it stays warm for the next job."""
        self._unload(actor, life)
        with self.returned:
            self.idle[server].append(actor)
            self.returned.notify_all()

    def clear(self, controllers: int) -> None:
        """Release what parameter servers still hold for jobs of a lost coordinator, of an earlier controller."""
        for actor in (actor for idle in self.idle.values() for actor in idle):
            self._unload(actor, Life(controllers))

    def tidy(self, controllers: int) -> None:
        """Unload processes anew that serve no job: an answer was lost, or a coordinator that is gone loaded late."""
        with self.returned:
            if host.monotonic() - self._swept > _SWEEP_S:
                self._swept, life = host.monotonic(), self.life(controllers)
                for actor in (actor for idle in self.idle.values() for actor in idle):
                    self._unload(actor, life)
            unloads = list(self._unloads)
        for unload in unloads:
            if not host.ready([unload.ref], 0)[0]:
                continue
            with self.returned:
                if unload not in self._unloads:  # it serves the next job already
                    continue
                self._unloads.remove(unload)
            try:
                host.answer(unload.ref)
            except host.CallError:
                self._unload(unload.actor, unload.life)

    def _unload(self, actor: Any, life: Life) -> None:
        unload = _Unload(actor, life, host.call(actor, "unload", life))
        with self.returned:
            self._unloads = [*(pending for pending in self._unloads if pending.actor is not actor), unload]
