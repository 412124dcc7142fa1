"""The head of the service in a simulation: supervisor, controller, standby, and the process that makes snapshots.

The supervisor is the shipped one, and so is what a controller does, from its settings on
(:func:`skedge.live.service.controller_process.control`), but for the server of the API: clients ask the service in
threads of the controller's process. Whoever operates the service starts the supervisor again when it has ended, once no
controller holds the state's lock, and after a power cut when the machine is up again.

Ray is on other machines: it outlives a power cut of the head, but the processes that it has there. What hosts the
embedded cluster is a process without effect.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from unittest import mock

import sqlalchemy as sql

from skedge.core.errors import PolicyError, ScenarioError, SkedgeError, StateError
from skedge.core.model.scenario import Scenario
from skedge.live import durable
from skedge.live import host as seam
from skedge.live.cluster.embedded_state import EmbeddedRay, end_stale
from skedge.live.confinement.confinement import TRUSTED
from skedge.live.controller import snapshot, snapshot_process, state_watch
from skedge.live.controller.address import Address
from skedge.live.controller.limits import Limits
from skedge.live.controller.service import Service
from skedge.live.controller.settings import ADDRESS, STARTING, Settings, save_settings
from skedge.live.journal.journal import JOURNAL
from skedge.live.service import controller_process, supervisor
from skedge.live.service.ray_host import _has_controller

from .actors import HOME
from .databases import SERVER_KINDS, Database, create_engine
from .disks import disk
from .faults import Fault
from .invariants import FILE
from .modules import add_program, forsake, is_forsaken, on_terminate, read_line
from .scheduler import Process, World, running_world

if TYPE_CHECKING:
    from .invariants import Invariants

STATE = Path("/state")
"""Folder of the state on the head's disk."""

ID, STORAGE = "service", "storage"
"""Id of the service, and the machine whose disk has the checkpoints."""

ON_DISK, ON_SERVER = f"sqlite:///{STATE / JOURNAL}", "sqlite://"
"""URLs of the journal: a file in the state folder, and a database with a server, as PostgreSQL is."""

EVERY = (15, 25, 50)
"""Entries of the journal between two snapshots: one is drawn per seed."""

LOOK_S = 0.5
"""How often the supervisor looks at its processes [s]."""

WATCH_S = 10.0
"""How often a controller looks at its state folder [s]."""

QUICK = 5
"""Controllers in a row that end before they answer, by no fault, which is one too often."""

UP_S = (1.0, 8.0)
"""Time until a supervisor is started again [s]."""

KINDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "power": (0.0, 0.0), "full": (0.5, 20.0), "slow": (1.0, 20.0), "broken": (0.1, 3.0),
        "jump": (-86_400.0, 86_400.0), "kill": (0.0, 0.0), "freeze": (0.1, 30.0), **SERVER_KINDS,
    }
)  # fmt: skip
"""Kinds of fault of the head, each with the range of its seconds."""

VICTIMS = ("supervisor", "controller", "standby", "snapshot_process")
"""Processes of the head that are killed and frozen."""

NEAR = ("begin", "committed", "flushed", "replaced", "start", "tell", "read a line", "remove")
"""Beginnings of the operations beside which a fault may change most."""

FAULTS_S, MOST = 40.0, 4
"""Time in which faults by time happen [s], and most faults of the head in a run."""


@dataclass(frozen=True)
class HeadPlan:
    """What a seed draws for the head.

    Attributes
    ----------
    journal
        URL of the journal.
    every
        Entries between two snapshots.
    faults
        Those of the head.
    """

    journal: str
    every: int
    faults: tuple[Fault, ...]


PLAIN = HeadPlan(ON_DISK, EVERY[-1], ())
"""The head of a plan that says nothing about it."""


def head_plan_of(seed: int) -> HeadPlan:
    """The plan of a seed for the head."""
    random = Random(f"{seed} head")  # noqa: S311 - no secret
    url = random.choice((ON_DISK, ON_DISK, ON_SERVER))
    return HeadPlan(url, random.choice(EVERY), tuple(_faults(random, random.randint(0, MOST), url)))


def _faults(random: Random, n: int, url: str) -> Iterator[Fault]:
    kinds = [kind for kind in KINDS if kind not in SERVER_KINDS or url == ON_SERVER]
    for _ in range(n):
        kind = random.choice(kinds)
        victim = random.choice(VICTIMS) if kind in ("kill", "freeze", "power") else "controller"
        time_s, seconds = random.uniform(0.0, FAULTS_S), random.uniform(*KINDS[kind])
        when, near = random.choice(("time", "near")), random.choice(NEAR)
        number = int(math.exp(random.uniform(0.0, math.log(60))))
        by_time = (time_s, None, seconds) if when == "time" else (None, number, seconds, near)
        yield Fault(kind, victim, *by_time)
        if kind == "sql late":  # its commit is late, and it does not live to see that
            again = (time_s + random.uniform(0.0, 2.0), None) if when == "time" else (None, number, 0.0, "get")
            yield Fault("kill", victim, *again)


class Watched(Service):
    """A service that tells when it is made, and of its events."""

    head: Head

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.engine.acts:
            self.forecaster.start = self.notifier.start = lambda: None  # type: ignore[method-assign]
            self.head.made(self)

    def _note(self, event: Any, orders: list[Any]) -> None:
        super()._note(event, orders)
        if not self.world.inbox.rebuilding and self.engine.acts:
            self.head.invariants.noted(self, event, orders)


class Head:
    """The head of one run.

    Parameters
    ----------
    world, plan, policy
        The world, and what was drawn.
    scenario, limits
        Cluster and limits of the service.
    invariants
        Those of the run.

    Attributes
    ----------
    controller, service
        The process that was told last to be the controller, and its service; None while there is none.
    several
        Whether two controllers have lived at the same time.
    """

    def __init__(
        self, world: World, plan: HeadPlan, policy: str, scenario: Scenario, limits: Limits, invariants: Invariants
    ) -> None:
        self.world, self.plan, self.policy = world, plan, policy
        self.scenario, self.limits, self.invariants = scenario, limits, invariants
        self.controller: Process | None = None
        self.service: Watched | None = None
        self.several, self.quick = False, 0
        self._random = world.random("head")
        self._began = False
        on_disk = plan.journal == ON_DISK
        self.database = Database(world, plan.journal, FILE, disk(HOME) if on_disk else None, str(STATE / JOURNAL))
        for module, program in (
            ("service.controller_process", self._controller),
            ("service.ray_host", self._host),
            ("controller.snapshot_process", self._snapshot),
        ):
            add_program(world, f"skedge.live.{module}", program)

    # --- the supervisor, and whoever starts it

    def start(self) -> None:
        """Start the supervisor, as ``skedge up`` does."""
        process = self.world.process("supervisor", self._supervise, HOME)
        process.on_death.append(self._restart_later)

    def _restart_later(self) -> None:
        self.world.after(self._random.uniform(*UP_S), self._restart)

    def _restart(self) -> None:
        """Start the supervisor anew, once no controller holds the lock of the state."""
        of_the_head = [one for one in self.world.processes if one.name in ("controller", "standby") and one.alive]
        if any(not is_forsaken(one) for one in of_the_head):
            self.world.after(1.0, self._restart)
        else:
            self.start()

    def _supervise(self) -> None:
        try:
            if not self._began:
                durable.make_folder(STATE)
                url = self.plan.journal
                settings = Settings(
                    self.policy, journal=None if url == ON_DISK else url, checkpoints=f"disk://{STORAGE}", id=ID,
                    limits=self.limits, jobs=TRUSTED,
                )  # fmt: skip
                save_settings(STATE, settings)
                self._began = True
            status = supervisor.Supervisor(STATE, io.BytesIO(), seam.Event(), 0, embedded=True).run()
            self.world.note("supervisor", f"gives up: status {status}")
            end_stale(STATE)
            for name in (ADDRESS, STARTING):
                durable.remove(STATE / name)
        except OSError as error:  # a disk that is full or broken; it is started again
            self.world.note("supervisor", f"ends: {error}")

    # --- its processes

    def _host(self, state: str) -> int:
        """Stands for the process that hosts Ray; see :mod:`skedge.live.service.ray_host`."""
        while True:
            with suppress(OSError):
                EmbeddedRay("simulated", seam.getpid()).write(Path(state))
                break
            seam.sleep(1.0)
        parent = seam.getppid()
        while True:
            seam.sleep(5.0)
            if seam.getppid() != parent and not _has_controller(Path(state)):
                return 1

    def _controller(self, state: str) -> int:
        """See :func:`skedge.live.service.controller_process.main`."""
        process = running_world().running().process
        process.name = "standby"
        if read_line() != supervisor.GO:
            return 0
        process.name = "controller"
        self.controller, self.service = process, None
        try:
            return controller_process.controlled(Path(state))
        except Exception as error:  # the supervisor starts another one
            self._ended(process, error)
            return 1

    def _control(self, shipped: Callable[[Path], int], state: Path) -> int:
        try:
            return shipped(state)
        except (StateError, PolicyError, ScenarioError) as error:
            if self.controller is running_world().running().process and not self.several:
                self.invariants.broken("I8", f"the service ends: {error}")
            self._ended(running_world().running().process, error)
            raise
        except SkedgeError as error:
            self._ended(running_world().running().process, error)
            raise

    def made(self, service: Watched) -> None:
        """Note the service of a controller."""
        if running_world().running().process is self.controller:
            self.service = service

    def _serve(
        self, service: Watched, settings: Settings, state: Path, listening: None, say: Callable[[str], None]
    ) -> None:
        """As a controller serves, without a server of the API."""
        process = running_world().running().process
        on_terminate(service.world.inbox.end)

        address = Address(state, {"pid": seam.getpid()})

        def begin() -> None:
            self.quick = 0
            address.tell(is_ready=True)

        address.tell(is_ready=False)
        service.world.inbox.waiting.put(begin)
        try:
            service.run()
        finally:
            if not is_forsaken(process):
                address.remove()

    def _snapshot(self, state: str) -> int:
        """See :mod:`skedge.live.controller.snapshot_process`."""
        try:
            return snapshot_process.main(Path(state))
        except (OSError, sql.exc.SQLAlchemyError) as error:
            self.world.note("snapshot_process", f"ends: {error}")
            return 1

    def _ended(self, process: Process, error: Exception) -> None:
        """Note a controller that ends; that may not happen again and again before one answers, without a fault."""
        self.world.note("controller", f"ends: {type(error).__name__}: {error}")
        if self.controller is not process:
            return
        self.quick += 1
        if self.quick >= QUICK:
            self.invariants.broken("I8", f"{QUICK} controllers in a row have ended: {error!r}")

    # --- faults

    def forsake(self, fault: Fault) -> None:
        """Let the controller be frozen and thought dead: another one takes over, and both live afterwards."""
        process = self.controller
        if process is not None and process.alive and not is_forsaken(process):
            self.several = True
            self.world.freeze(process, fault.seconds)
            forsake(process)

    # --- around the run

    @contextmanager
    def installed(self) -> Iterator[None]:
        """What the shipped head uses of this one."""
        Watched.head = self

        def make_engine(url: str, **options: Any) -> Any:
            return create_engine(url, **options)

        def load(_: Path) -> Scenario:
            return self.scenario

        log = _Log(self.world)
        with ExitStack() as stack:
            for of, name, replacement in (
                (sql, "create_engine", make_engine),
                (supervisor, "_LOOK_S", LOOK_S),
                (state_watch, "_LOOK_S", WATCH_S),
                (snapshot, "_EVERY", self.plan.every),
                (snapshot, "_source", lambda _: "simulated"),  # else all files are read for each snapshot
                (os, "nice", lambda _: 0),
                (snapshot_process, "load_cluster_file", load),
                (controller_process, "load_cluster_file", load),
                (controller_process, "_listen", lambda *_: None),
                (controller_process, "_serve", self._serve),
                (controller_process, "Service", Watched),
                (controller_process, "control", partial(self._control, controller_process.control)),
            ):
                stack.enter_context(mock.patch.object(of, name, replacement))
            stack.enter_context(redirect_stderr(log))
            yield


class _Log(io.TextIOBase):
    """What processes write to their standard error, in the history of a world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def write(self, text: str, /) -> int:
        """Note a text."""
        task = self._world.task
        for line in text.splitlines():
            if line.strip():
                self._world.note("log" if task is None else task.process.name, line.strip())
        return len(text)
