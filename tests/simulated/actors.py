"""Virtual actors: a model of Ray, with the names of :mod:`skedge.live.host` by which the live part asks it.

Calls are messages between processes (:mod:`simulated.network`), each executed by a thread of the actor's process. What
Ray promises holds here, and no more:

- calls of one caller to an actor of width 1 start in order, those of several callers in any; wider actors start theirs
  in any order
- a call whose answer is late is executed all the same, and so are calls of a caller that has died meanwhile
- when a process dies, its calls under way fail, and those that have not started fail or run in the next process
- an actor's process is started again with the first arguments; calls meanwhile fail or wait
- a named actor is taken if it is there; one without a name ends with the process that has started it
- arguments and answers are pickled; what is put, and large answers, go with their node, or with the process that has
  asked for them
- a node that is thought dead can live on for a while, beside the next processes of its actors
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType
from typing import Any

from skedge.live.host.actors import ActorOptions, CallError, FailedError, GoneError, LateError, LostError, Node

from .faults import Fault
from .network import Network, Place
from .scheduler import Process, Waiters, World, running_world

HOME = "head"
"""The machine of the controllers, and of actors that belong to no server."""

STORED = 512
"""Largest answer that the caller gets with the reply; larger ones stay on their node (in Ray: 100 KiB) [bytes]."""

RESTART_S = (0.2, 2.0)
"""Time until the process of an actor is started again [s]."""

LOST_S = (0.01, 0.5)
"""Time until callers learn that a process has died [s]."""

LOOK_S = 0.5
"""Interval at which an actor without a node looks for one [s]."""

BACK_S = (0.5, 10.0)
"""Time until the node of a machine whose power was cut is back [s]."""

EVEN = 0.5
"""Probability of what may happen or not."""

RAY_KINDS: Mapping[str, tuple[float, float]] = MappingProxyType({"node": (0.3, 10.0), "ghost": (0.5, 30.0)})
"""Kinds of fault of Ray, each with the range of its seconds: the node of a process's machine ends, with all its actors,
and is back later; it is thought dead although it lives on for a while (at home only the process itself is)."""


@dataclass(eq=False)
class SimulatedNode:
    """The node of a machine.

    Attributes
    ----------
    server
        Its label; empty at home.
    number
        How often it was there before: a node that comes back is another one.
    """

    server: str
    machine: str
    alive: bool = True
    number: int = 0

    def shown(self) -> Node:
        """The node as others see it."""
        labels = {"server": self.server} if self.server else {}
        return Node(f"{self.machine}-{self.number}", labels, self.alive, 0.0)


class Ref:
    """A reference to an answer, or to what was put; it can be sent to other processes."""

    def __init__(self, cluster: SimulatedRay, owner: Process) -> None:
        self.cluster, self.owner, self.number = cluster, owner, next(cluster.numbers)
        self.done = False
        self.waiting: list[Waiters] = []
        self.dependents: list[Callable[[], None]] = []
        self._content = b""
        self._error: bytes | None = None
        self._stored: tuple[SimulatedNode, int] | None = None
        cluster.refs[self.number] = self

    def __reduce__(self) -> tuple[Callable[[int], Ref], tuple[int]]:
        return _ref, (self.number,)

    def __str__(self) -> str:
        return f"#{self.number}"

    def finish(self, content: bytes = b"", error: bytes | None = None, node: SimulatedNode | None = None) -> None:
        """Have an answer: a pickled value, which stays on a `node` if it is large, or a pickled error."""
        if self.done:
            return
        self.done, self._content, self._error = True, content, error
        self._stored = None if node is None else (node, node.number)
        for waiters in self.waiting:
            waiters.wake()
        for sends in self.dependents:
            sends()

    def value(self) -> Any:
        """A copy of the value.

        Raises
        ------
        CallError
            One of the four, if there is none.
        """
        if self._error is not None:
            kind, content = pickle.loads(self._error)  # noqa: S301 - of this program
            raise kind(content)
        if self._stored is not None:
            node, number = self._stored
            asked_by_others = self.cluster.world.running().process is not self.owner
            forgotten = asked_by_others and not self.owner.alive and self.cluster.random.random() < EVEN
            if not node.alive or node.number != number or forgotten:
                raise GoneError(f"ObjectLostError: {self}")
        return pickle.loads(self._content)  # noqa: S301 - of this program


@dataclass(eq=False)
class Request:
    """One call of an actor's method."""

    caller: Process
    method: str
    given: bytes
    refs: tuple[Ref, ...]

    def __str__(self) -> str:
        return f"{self.method} {self.refs[0]} of {self.caller.name}"

    def fail(self, error: CallError) -> None:
        """Have no answer."""
        for ref in self.refs:
            ref.finish(error=_dumped(error))


class Group:
    """Threads of an actor that execute some of its methods."""

    def __init__(self, width: int) -> None:
        self.width, self.running = width, 0
        self.waiting: deque[Request] = deque()


@dataclass(frozen=True)
class Shape:
    """What an actor is made of: its class and first arguments, its server, and the widths of its groups of threads."""

    kind: type
    given: bytes
    server: str
    width: int
    groups: Mapping[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)


class Actor:
    """An actor; its process is started again whenever it ends.

    Attributes
    ----------
    process, node
        The process that serves calls now, None while there is none; and the node of the last one.
    under_way
        The calls that it executes, or has answered just now.
    """

    def __init__(self, cluster: SimulatedRay, name: str, shape: Shape) -> None:
        self.cluster, self.name, self.shape, self.number = cluster, name, shape, next(cluster.numbers)
        # the prefix of a service's names depends on the source code: a fault is to have the same victim after a change
        self.label = name.split("/", 1)[-1] or f"{shape.kind.__name__}-{self.number}"
        self.process: Process | None = None
        self.node: SimulatedNode | None = None
        self.ended = self.made = False
        self.under_way: dict[Request, bool] = {}
        self._object: Any = None
        self._groups = {group: Group(width) for group, (width, _) in shape.groups.items()} | {"": Group(shape.width)}
        self._group_of = {method: group for group, (_, methods) in shape.groups.items() for method in methods}
        self._places: dict[Process, deque[Place]] = {}
        cluster.actors[self.number] = self
        self.start()

    def __reduce__(self) -> tuple[Callable[[int], Actor], tuple[int]]:
        return _actor, (self.number,)

    def __str__(self) -> str:
        return self.label

    # --- its processes

    def start(self) -> None:
        """Start a process, as soon as there is a node for it."""
        world = self.cluster.world
        if self.ended:
            return
        node = self.cluster.node_of(self.shape.server)
        if node is None:
            world.after(LOOK_S, self.start)
            return
        self.node, self.made = node, False
        process = self.process = world.process(self.label, machine=node.machine)
        self.cluster.of_process[process] = self
        process.on_death.append(lambda: self.lose(process))
        world.spawn(process, lambda: self._make(process), "init", daemon=True)

    def lose(self, process: Process) -> None:
        """Have no process any more, as it has died or is thought dead; the next one is started."""
        if self.process is not process:
            return
        world, random = self.cluster.world, self.cluster.random
        under_way, self.under_way = self.under_way, {}
        for request, answered in under_way.items():
            if not answered or random.random() < EVEN:
                self._fail_later(request)
        for group in self._groups.values():
            group.running = 0
            waiting, group.waiting = group.waiting, deque()
            for request in waiting:
                self._take_meanwhile(request, group)
        self.process, self.made, self._object = None, False, None
        world.after(random.uniform(*RESTART_S), self.start)

    def end(self) -> None:
        """End for good."""
        self.ended = True
        process = self.process
        if process is not None:
            self.cluster.world.kill(process)
        for group in self._groups.values():
            for request in group.waiting:
                self._fail_later(request)
            group.waiting.clear()

    def _make(self, process: Process) -> None:
        try:
            args, kwargs = _resolved(self.shape.given)
            made = self.shape.kind(*args, **kwargs)
        except Exception as error:  # as in Ray: an actor that cannot be made is none
            self.cluster.world.note(self.label, f"cannot be made: {error!r}")
            self.end()
            return
        if self.process is process:
            self._object, self.made = made, True
            for group in self._groups.values():
                self._pump(group)

    # --- its calls

    def submit(self, request: Request, dependencies: Sequence[Ref]) -> None:
        """Send a call once what it depends on is there."""
        in_order = self.shape.width == 1 and not self.shape.groups
        place = Place(self._places.setdefault(request.caller, deque()) if in_order else deque())
        left = [ref for ref in dependencies if not ref.done]

        def send() -> None:
            if any(not ref.done for ref in dependencies):
                return
            if not request.caller.alive:  # what a process has not sent dies with it
                place.fill()
                return
            self._send(request, place)

        for ref in left:
            ref.dependents.append(send)
        if not left:
            self._send(request, place)

    def _send(self, request: Request, place: Place) -> None:
        self.cluster.network.send(
            request.caller.machine.name,
            HOME if self.node is None else self.node.machine,
            lambda: place.fill(lambda: self._arrive(request)),
            lambda: request.fail(LostError("ActorUnavailableError: the connection is broken")),
            place.fill,
        )

    def _arrive(self, request: Request) -> None:
        self.cluster.world.note(self.label, f"gets {request}")
        group = self._groups[self._group_of.get(request.method, "")]
        if self.ended:
            self._fail_later(request)
        elif self.process is None:
            self._take_meanwhile(request, group)
        else:
            group.waiting.append(request)
            self._pump(group)

    def _take_meanwhile(self, request: Request, group: Group) -> None:
        """Fail a call that comes while there is no process, or keep it for the next one."""
        if self.ended or self.cluster.random.random() < EVEN:
            self._fail_later(request)
        else:
            group.waiting.append(request)

    def _pump(self, group: Group) -> None:
        process = self.process
        while process is not None and self.made and group.waiting and group.running < group.width:
            request = group.waiting.popleft()
            group.running += 1
            self.under_way[request] = False
            self._spawn(process, request, group)

    def _spawn(self, process: Process, request: Request, group: Group) -> None:
        served, world = self._object, self.cluster.world
        node = self.node
        assert node is not None

        def serve() -> None:
            contents, error = _executed(served, request)
            world.point(f"answers {request}")
            if self.process is process:
                self.under_way[request] = True
            reply = lambda: self._reply(process, request, contents, error, node)  # noqa: E731
            self.cluster.network.send(
                process.machine.name,
                request.caller.machine.name,
                reply,
                lambda: request.fail(LostError("ActorUnavailableError: the connection is broken")),
            )
            if self.process is process:
                group.running -= 1
                self._pump(group)

        world.spawn(process, serve, request.method, daemon=True)

    def _reply(
        self, process: Process, request: Request, contents: list[bytes], error: bytes | None, node: SimulatedNode
    ) -> None:
        if self.process is process:
            self.under_way.pop(request, None)
        self.cluster.world.note(request.caller.name, f"has the answer {request.refs[0]} of {self.label}")
        for place, ref in enumerate(request.refs):
            content = b"" if error else contents[place]
            ref.finish(content, error, node if len(content) > STORED else None)

    def _fail_later(self, request: Request) -> None:
        error = LostError(f"ActorUnavailableError: {self.label}")
        self.cluster.world.after(self.cluster.random.uniform(*LOST_S), lambda: request.fail(error))


class SimulatedRay:
    """Ray in a world: its nodes, actors and objects.

    Parameters
    ----------
    world
        The world; its process names are faults' victims.
    servers
        Labels of its nodes, each on a machine of that name, besides that at home.
    """

    def __init__(self, world: World, servers: Sequence[str]) -> None:
        self.world, self.network, self.random = world, Network(world), world.random("ray")
        self.numbers = count(1)
        self.nodes = [SimulatedNode("", HOME), *(SimulatedNode(server, server) for server in servers)]
        self.actors: dict[int, Actor] = {}
        self.named: dict[str, Actor] = {}
        self.refs: dict[int, Ref] = {}
        self.of_process: dict[Process, Actor] = {}
        for node in self.nodes:
            self._follow(node)
        world.kinds.update({"node": self._strike_node, "ghost": self._strike_ghost})
        world.extras["ray"] = self

    def node_of(self, server: str) -> SimulatedNode | None:
        """The living node with a label; None if there is none."""
        return next((node for node in self.nodes if node.server == server and node.alive), None)

    def node_on(self, machine: str) -> SimulatedNode:
        """The node of a machine."""
        return next((node for node in self.nodes if node.machine == machine), self.nodes[0])

    def lose_node(self, node: SimulatedNode, seconds: float) -> None:
        """Let a node be gone for some time [s]; at home there is always one."""
        if not node.server or not node.alive:
            return
        node.alive = False
        self.world.note(node.machine, "node is gone")

        def back() -> None:
            node.alive, node.number = True, node.number + 1
            self.world.note(node.machine, "node is back")

        self.world.after(seconds, back)

    def processes_on(self, node: SimulatedNode) -> list[Process]:
        """The processes that serve an actor there."""
        actors = (actor for actor in self.actors.values() if actor.node is node)
        return [actor.process for actor in actors if actor.process is not None]

    def forsake(self, process: Process, seconds: float) -> None:
        """Let the process of an actor, or the node of a server, be thought dead; it ends after some time [s]."""
        actor = self.of_process.get(process)
        if actor is None or actor.node is None or actor.process is not process:
            return
        node, ghosts = actor.node, [process]
        if node.server:
            ghosts = self.processes_on(node)
            self.lose_node(node, self.random.uniform(*BACK_S))
        for ghost in ghosts:
            self.world.note(ghost.name, "is thought dead")
            self.of_process[ghost].lose(ghost)
            if self.random.random() < EVEN:
                self.world.freeze(ghost, self.random.uniform(0.0, seconds))
            self.world.after(seconds, lambda ghost=ghost: self.world.kill(ghost))  # type: ignore[misc]

    def _follow(self, node: SimulatedNode) -> None:
        lose = lambda: self.lose_node(node, self.random.uniform(*BACK_S))  # noqa: E731
        self.world.machine(node.machine).on_power_cut.append(lose)

    def _strike_node(self, fault: Fault) -> None:
        for victim in self.world.victims(fault):
            node = self.node_on(victim.machine.name)
            self.lose_node(node, fault.seconds)
            for process in self.processes_on(node) if node.server else [victim]:
                self.world.kill(process)

    def _strike_ghost(self, fault: Fault) -> None:
        for victim in self.world.victims(fault):
            self.forsake(victim, fault.seconds)


def _here() -> SimulatedRay:
    cluster: SimulatedRay = running_world().extras["ray"]
    return cluster


def _ref(number: int) -> Ref:
    return _here().refs[number]


def _actor(number: int) -> Actor:
    return _here().actors[number]


def _resolved(given: bytes) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as a process of an actor gets them: its own copies, with values in the place of references."""
    args, kwargs = pickle.loads(given)  # noqa: S301 - of this program
    return [arg.value() if isinstance(arg, Ref) else arg for arg in args], kwargs


def _executed(served: Any, request: Request) -> tuple[list[bytes], bytes | None]:
    """The pickled answers to a call, or its pickled error."""
    try:
        args, kwargs = _resolved(request.given)
    except CallError as error:
        return [], _dumped(error)
    try:
        answer = getattr(served, request.method)(*args, **kwargs)
        parts = (answer,) if len(request.refs) == 1 else tuple(answer)
        return [pickle.dumps(part, pickle.HIGHEST_PROTOCOL) for part in parts], None
    except Exception as error:
        return [], _dumped(FailedError(error))


def _dumped(error: CallError) -> bytes:
    """An error as another process gets it: its kind and what it is made of."""
    return pickle.dumps((type(error), error.cause if isinstance(error, FailedError) else str(error)))


# --- as the live part asks Ray


def connect(address: str | None, namespace: str | None = None) -> None:
    """Connect the running process; there is one cluster, whatever the address."""
    running_world().point("connect")


def disconnect() -> None:
    """End the connection; actors without a name end with the process here."""
    running_world().point("disconnect")


def nodes() -> list[Node]:
    """The nodes of the cluster; they have no GPUs."""
    running_world().point("nodes")
    return [node.shown() for node in _here().nodes]


def start_actor(kind: type, *args: Any, on: ActorOptions) -> Actor:
    """Start an actor, or take that of the name."""
    world, cluster = running_world(), _here()
    name = on.name
    world.point(f"start actor {name.split('/', 1)[-1] or kind.__name__}")
    if name in cluster.named:
        return cluster.named[name]
    owner = world.running().process
    given = pickle.dumps((args, {}), pickle.HIGHEST_PROTOCOL)
    actor = Actor(cluster, name, Shape(kind, given, on.server, on.width, on.groups))
    if name:
        cluster.named[name] = actor
    else:
        owner.on_death.append(actor.end)
    return actor


def call(actor: Actor, method: str, /, *args: Any, returns: int = 1, **kwargs: Any) -> Any:
    """Call a method of an actor: a reference to its answer, or several to its parts."""
    world, cluster = running_world(), _here()
    world.point(f"call {actor.label} {method}")
    caller = world.running().process
    refs = tuple(Ref(cluster, caller) for _ in range(returns))
    request = Request(caller, method, pickle.dumps((args, kwargs), pickle.HIGHEST_PROTOCOL), refs)
    actor.submit(request, [given for given in args if isinstance(given, Ref)])
    world.point(f"called {actor.label} {request}")
    return refs[0] if returns == 1 else refs


def ready(refs: Sequence[Ref], timeout_s: float | None, number: int = 1) -> tuple[list[Ref], list[Ref]]:
    """The first `number` of the answers that are there within some time [s], and the others."""
    world = running_world()
    world.point(f"ready {', '.join(map(str, refs))}")
    waiters = Waiters(world, "an answer")
    for ref in refs:
        ref.waiting.append(waiters)
    waiters.wait_until(lambda: sum(ref.done for ref in refs) >= number, timeout_s)
    for ref in refs:
        ref.waiting.remove(waiters)
    up = [ref for ref in refs if ref.done][:number]
    return up, [ref for ref in refs if ref not in up]


def answer(refs: Any, timeout_s: float | None = None) -> Any:
    """The answer to a call, or those to several.

    Raises
    ------
    CallError
        One of the four, if there is none.
    """
    asked = list(refs) if isinstance(refs, list | tuple) else [refs]
    if len(ready(asked, timeout_s, len(asked))[0]) < len(asked):
        raise LateError(f"GetTimeoutError: {timeout_s} s")
    values = [ref.value() for ref in asked]
    return values if isinstance(refs, list | tuple) else values[0]


def put(value: Any) -> Ref:
    """A reference to a copy of a value, on the node of this process."""
    world, cluster = running_world(), _here()
    world.point("put")
    process = world.running().process
    ref = Ref(cluster, process)
    ref.finish(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), node=cluster.node_on(process.machine.name))
    return ref


def kill(actor: Actor) -> None:
    """End the process of an actor; another one is started."""
    world, cluster = running_world(), _here()
    world.point(f"kill {actor.label}")

    def strike() -> None:
        if actor.process is not None:
            world.kill(actor.process)

    here = world.running().process.machine.name
    cluster.network.send(here, HOME if actor.node is None else actor.node.machine, strike)


def end_actor(name: str) -> None:
    """End a named actor for good; no effect if there is none."""
    world, cluster = running_world(), _here()
    world.point(f"end actor {name.split('/', 1)[-1]}")
    actor = cluster.named.pop(name, None)
    if actor is not None:
        world.after(cluster.random.uniform(*LOST_S), actor.end)


def actor_names() -> list[str]:
    """Names of the actors that have one."""
    running_world().point("actor names")
    return list(_here().named)
