"""One seed of the live part: a service, its journal, coordinator, trainers, agents and checkpoints, clients, faults.

All of it is the shipped code but the jobs' processes (:mod:`simulated.children`). The journal is a real database, whose
transactions fail (:mod:`simulated.databases`); chunks and logs are on simulated disks, and checkpoints on one that is
used as an object store. A controller that ends is replaced, as the supervisor does. Clients submit jobs, cancel some,
and cordon servers; faults are drawn from the seed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from skedge.core.errors import InputError, StateError
from skedge.live import host as seam
from skedge.live.cluster.engine import Engine
from skedge.live.controller.limits import Limits
from skedge.live.controller.service import Service
from skedge.live.controller.snapshot import SNAPSHOT
from skedge.live.controller.submissions import BusyError
from skedge.live.journal.journal import SqlJournal
from skedge.live.world.ray_world import NoEngine

from . import host
from .actors import HOME, SimulatedRay
from .children import SimulatedChild, children_of, simulated_children
from .databases import add_faults, close_databases
from .disks import Disk, Folder, disk
from .faults import Fault
from .head import ID, STATE, STORAGE, Head
from .history import History
from .invariants import BrokenError, Invariants, watched
from .misbehaving import reason_of
from .plans import FAULTS_S, KINDS, Plan
from .scheduler import DeadlockError, World

LIMITS = Limits(allow=("m",), free_mb=0.0, stall_s=8.0)
"""A mini-batch that hangs is given up after 24 s, and then after 8 s."""

CLIENTS = "clients"
"""The machine of the clients."""

LIMIT_S = 400.0
"""Time that jobs may take on top of three times their announced time after the last fault [s]."""

ANSWER_S = 60.0
"""Time within which a controller answers once faults have stopped [s]."""

SWEPT_S = 200.0
"""Time within which servers have nothing of jobs any more, once all have left and faults have stopped [s]."""

EMPTY = Folder()
"""The content of a folder that is missing."""

SETTLES = 10
"""Seconds within which the books of the controller are those of the journal, once all jobs have left [s]."""


@dataclass
class Outcome:
    """What has become of a run.

    Attributes
    ----------
    broken
        The invariant that does not hold, and what was found; empty if all hold.
    seconds
        Virtual time [s].
    """

    plan: Plan
    history: History
    broken: str = ""
    what: str = ""
    seconds: float = 0.0
    switches: int = 0
    entries: int = 0
    ended: dict[str, str] = field(default_factory=dict)


class Campaign:
    """One run: the world, the service's controllers, its clients and faults.

    Parameters
    ----------
    world, plan
        The world, and what was drawn.
    children
        All processes of jobs.
    """

    def __init__(self, world: World, plan: Plan, children: list[SimulatedChild]) -> None:
        self.world, self.plan, self.children = world, plan, children
        self.ray = SimulatedRay(world, [server.id for server in plan.setup.servers])
        self.storage: Disk = disk(STORAGE)
        self.invariants = Invariants(world, self.storage, plan.setup)
        self.invariants.bad = {one["name"]: reason for one in plan.jobs if (reason := reason_of(one))}
        self.head = Head(world, plan.head, plan.policy, plan.setup.scenario(), LIMITS, self.invariants)
        self.journals: list[SqlJournal] = []
        self.accepted: dict[int, str] = {}
        self.done = 0
        self.calm_s = 0.0
        self._clients = len(plan.jobs) + plan.cordons
        world.kinds |= {"second": self.head.forsake, "child": self._end_child}
        world.kinds |= {kind: self._strike_storage for kind in KINDS if kind.startswith("storage")}
        add_faults(world)
        for server in plan.setup.servers:
            disk(server.id)
        for kind in list(world.kinds):
            world.kinds[kind] = self._noting(world.kinds[kind])

    # --- the service

    def start(self) -> None:
        """Start the service and the clients."""
        self.head.start()
        for number, spec in enumerate(self.plan.jobs):
            self.world.process(f"client {number}", lambda n=number, s=spec: self._client(n, s), CLIENTS)  # type: ignore[misc]
        if self.plan.cordons:
            self.world.process("operator", self._operator, CLIENTS)

    # --- clients

    def _client(self, number: int, spec: dict[str, Any]) -> None:
        random = self.world.random(f"client {number}")
        host.sleep(random.uniform(0.0, 25.0))
        name: str = self._asked(lambda service: service.submit(spec, f"key {number}"))
        self.invariants.acknowledged(name)
        self.accepted[number] = name
        if random.random() < 0.2:  # the answer was lost, as far as the client knows
            again = self._asked(lambda service: service.submit(spec, f"key {number}"))
            if again != name:
                self.invariants.broken("I1", f"job {name!r} was submitted again with its key, and is {again!r}")
        if number in self.plan.cancelled:
            host.sleep(random.uniform(0.0, 15.0))
            with suppress(InputError):  # it has left already
                self._asked(lambda service: service.cancel(name))
        self.done += 1

    def _operator(self) -> None:
        random = self.world.random("operator")
        host.sleep(random.uniform(0.0, 30.0))
        server = random.choice(self.plan.setup.edge()).id
        number = self.plan.setup.cluster().server_ids.index(server)
        with suppress(InputError):
            if not self._asked(lambda service: service.cordon(server)):  # else it waits for the journal
                self.invariants.changed(number, "cordoned")
        host.sleep(random.uniform(1.0, 20.0))
        with suppress(InputError):
            if not self._asked(lambda service: service.uncordon(server)):
                self.invariants.changed(number, "uncordoned")
        self.done += 1

    def _asked(self, question: Callable[[Service], Any]) -> Any:
        """The answer of a controller, asked again while there is none, as by the API.

        Raises
        ------
        InputError
            If the question is wrong.
        """
        while True:
            service, process, answers = self.head.service, self.head.controller, list[Any]()
            if service is not None and process is not None and process.alive:
                answered = host.Event()

                def ask(
                    service: Service = service, answered: host.Event = answered, answers: list[Any] = answers
                ) -> None:
                    try:
                        answers.append(question(service))
                    except (InputError, StateError) as error:
                        answers.append(error)
                    answered.set()

                self.world.spawn(process, ask, "api", daemon=True)
                while process.alive and not answered.wait(1.0):
                    pass
            if answers and not isinstance(answers[0], Exception):
                return answers[0]
            if answers and not isinstance(answers[0], BusyError | StateError):
                raise answers[0]
            host.sleep(0.5)

    # --- faults

    def _noting(self, strike: Callable[[Fault], None]) -> Callable[[Fault], None]:
        """Note when faults are over."""

        def struck(fault: Fault) -> None:
            self.calm_s = max(self.calm_s, self.world.now + max(fault.seconds, 0.0) * (fault.kind != "jump"))
            self.head.quick = 0
            strike(fault)

        return struck

    def _end_child(self, fault: Fault) -> None:
        for victim in self.world.victims(fault):
            for child in children_of(self.children, victim)[:1]:
                child.kill()

    def _strike_storage(self, fault: Fault) -> None:
        self.storage.suffer(fault.kind.removeprefix("storage "), fault.seconds)

    # --- the end

    def over(self) -> bool:
        """Whether all clients have been answered, all jobs have left, and a controller is up."""
        service, process = self.head.service, self.head.controller
        if service is None or process is None or not process.alive or self.world.now < self.calm_s:
            return False
        is_up = not service.world.inbox.rebuilding and service.kernel.arrived >= len(self.plan.jobs)
        return is_up and self.done == self._clients and not service.kernel.engine.n_in_system

    def close(self) -> None:
        """Close the connections to the journal."""
        self.invariants.close()
        for journal in self.journals:
            journal.engine.dispose()
        close_databases(self.world)

    def limit_s(self) -> float:
        """Time by which all must be over [s]."""
        announced = sum(_announced_s(job) + 9.0 for job in self.plan.jobs)
        return FAULTS_S + 40.0 + 3 * announced + LIMIT_S

    def check_end(self) -> None:
        """I1, I2, I4 and I10: what the journal says, and a replay of it."""
        for name in self.accepted.values():
            self.invariants.acknowledged(name)
        for name, how in sorted(self.invariants.left.items()):
            if how == "finished":
                self.invariants.check_trained(name)
            elif how == "cancelled" and name not in {self.accepted[number] for number in self.plan.cancelled}:
                self.invariants.broken("I9", f"job {name!r} is cancelled, and nobody has asked for that")
        self._check_left()
        for _ in range(SETTLES):  # an input can be in the journal, and not be dealt with yet
            rebuilt, late = self._rebuilt(), self._rebuilt(STATE / SNAPSHOT)
            service = self.head.service
            if service is not None and _books(rebuilt) == _books(late) == _books(service):
                break
            host.sleep(1.0)
        else:
            books = None if service is None else _books(service)
            self.invariants.broken(
                "I4", f"a replay has the books {_books(rebuilt)}, one from the snapshot {_books(late)}, not {books}"
            )
        run = rebuilt.record()
        if self.head.service is not None:  # for how long slots were late is known to controllers alone
            live = self.head.service.world.meta()
            known: dict[str, Any] = {key: live[key] for key in ("slot_overrun_s", "away_s") if key in live}
            run = replace(run, meta={**run.meta, **known})
        for job in run.meta["trained"]:
            # what has left in another way may have trained what was not reported any more (seed 561)
            state = self.invariants.state_of(job) if self.invariants.left.get(job) == "finished" else None
            if state is not None:
                run.meta["trained"][job] = state["progress"]
        violations = [one for one in run.verify() if one.rule not in OF_TIMES]
        if violations:
            self.invariants.broken("I10", "; ".join(map(str, violations)))

    def _check_left(self) -> None:
        """I8: no process and no chunk of a job that has left remains on a server."""
        end_s = max(self.world.now, self.calm_s) + SWEPT_S
        while left := list(self._left()):
            if self.world.now > end_s:
                self.invariants.broken("I8", f"all jobs have left, and there are still {left}")
            host.sleep(1.0)

    def _left(self) -> Iterator[str]:
        """What servers have of jobs."""
        for child in self.children:
            if child.up and child.process.alive and child.process.name.startswith(("agent", "ps")):
                yield f"a process of {child.worker} in {child.process.name}, chunk {child.chunk}"
        for server in self.plan.setup.servers:
            folder: Any = disk(server.id).root
            for name in (*STATE.parts[1:], "servers", server.id):
                folder = folder.entries.get(name, EMPTY)
            yield from (f"data of {job} on {server.id}" for job in folder.entries)

    def _rebuilt(self, snapshot: Path | None = None) -> Service:
        """A replay of the whole journal, or of what follows a snapshot."""
        setup = self.plan.setup
        while True:
            while self.world.now < self.calm_s:  # the disk fails, or is slow
                host.sleep(1.0)
            journal = SqlJournal(self.plan.head.journal, run_id=ID, reading=True)
            self.journals.append(journal)
            engine = NoEngine(len(setup.servers))
            try:
                service = Service(setup.scenario(), self.plan.policy, STATE, engine, journal, LIMITS, snapshot)
                service.run()
            except StateError as error:
                self.invariants.broken("I4", str(error))
            except OSError:
                if self.world.now < self.calm_s:  # it failed meanwhile
                    continue
                raise
            return service


OF_TIMES = frozenset({"M7", "M8", "M11", "M21", "M22"})
"""Rules that do not hold of every live run with faults. M7, M8, M21 and M22 allow for the delays that trainers have
reported; an order can reach them later than that (seed 3), a controller can learn late what has ended while its journal
is blocked (seed 92), and a PS may be on a server that is out (seed 101). M11 does not know two things: the job of the
chunk that was to take a lane may fail before the lane is free (seed 72), and a chunk that leaves its lane wholly
trained is trained again if its last checkpoint could not be written (seed 281)."""


def _announced_s(job: dict[str, Any]) -> float:
    """Time that a job takes on one worker [s]."""
    chunks = job.get("chunks") or sum(job["data"].values())
    return float(chunks * job["epochs"] * job["minibatches"] * job["minibatch_s"])


def _books(service: Service) -> dict[str, Any]:
    """What a replay must have as the service has it."""
    ids, world = service.kernel.scenario.jobs.ids, service.world
    return {
        "states": {ids[job]: service.status.state(job) for job in range(service.kernel.arrived)},
        "out": {server: sorted(why) for server, why in world.out.items() if why},
        "ps": {job: world.ps_site(job) for job in service.kernel.books.with_ps()},
        "trained": {ids[job]: done for job, done in world.facts.trained.items()},
    }


@contextmanager
def _folder() -> Iterator[None]:
    """A new current folder, in memory where there is such a place: its files' names are the same in each run."""
    shared = Path("/dev/shm")  # noqa: S108 - of this process alone
    place = tempfile.mkdtemp(prefix="skedge-simulated-", dir=shared if os.access(shared, os.W_OK) else None)
    try:
        with chdir(place):
            yield
    finally:
        shutil.rmtree(place, ignore_errors=True)


def run_plan(plan: Plan, prepare: Sequence[Callable[[], Any]] = ()) -> Outcome:
    """Run a plan.

    Parameters
    ----------
    plan
        What was drawn.
    prepare
        Contexts in which it runs, such as patches of the live part.
    """
    with ExitStack() as stack:
        stack.enter_context(_folder())
        children = stack.enter_context(simulated_children())
        stack.enter_context(seam.installed(host))
        # else it is made of the source code, which would be read for each controller
        stack.enter_context(mock.patch.object(Engine, "_prefix", return_value="simulated"))
        for context in prepare:
            stack.enter_context(context())
        world = World(plan.seed, plan.faults)
        outcome = Outcome(plan, world.history)
        campaign: Campaign | None = None
        try:
            with world:
                campaign = Campaign(world, plan, children)
                stack.enter_context(watched(campaign.invariants))
                stack.enter_context(campaign.head.installed())
                _run(world, campaign)
        except BrokenError as error:
            outcome.broken, outcome.what = error.number, str(error)
        except DeadlockError as error:
            outcome.broken, outcome.what = "I8", f"deadlock: {error}"
        finally:
            if campaign is not None:
                campaign.close()
        assert campaign is not None
        outcome.seconds, outcome.switches, outcome.entries = world.now, world.switches, campaign.invariants.entries
        outcome.ended = campaign.invariants.left
    return outcome


def _run(world: World, campaign: Campaign) -> None:
    """Run a campaign to its end; it ends with what is found after it in a process of its own."""
    campaign.start()
    crashes = 0

    def over() -> bool:
        nonlocal crashes
        if len(world.crashes) > crashes:
            crash = world.crashes[crashes]
            crashes = len(world.crashes)
            raise BrokenError("I8", f"{crash.process}/{crash.thread} has ended: {crash.error!r}") from crash.error
        return campaign.over()

    if not world.run(over, campaign.limit_s()):
        waits = [line for line in world.waits() if not line.startswith("client")]
        raise BrokenError("I8", f"jobs have not left after {world.now:.0f} s: {waits}")
    end = world.process("the end", campaign.check_end, HOME)
    world.run(lambda: not end.alive)
    over()
