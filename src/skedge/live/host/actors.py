"""The port to actors: all that the live part asks of Ray.

Functions of :mod:`skedge.live.host`, as ``host.call(actor, "load", job)``. Handles of actors and references to answers
are values that only these functions look into.

Each function raises one of four errors in place of Ray's. Ray has some forty, and which of them is raised depends on
the instant at which a process, a node or an object is lost. Callers act on four: the call is repeated
(:class:`LostError`, :class:`LateError`), what it needed is made anew (:class:`GoneError`), or the method that was
called has raised an error (:class:`FailedError`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

NAMES = (
    *("connect", "disconnect", "nodes", "actor_names"),
    *("start_actor", "kill", "end_actor"),
    *("call", "ready", "answer", "put"),
)
"""The functions of the port."""


class CallError(Exception):
    """A call to an actor has no answer."""


class LostError(CallError):
    """The actor's process, its node or the way to it is lost, or there is no room for the call now."""


class LateError(CallError):
    """The answer is late; the call may still be carried out."""


class GoneError(CallError):
    """An object that the call needs or returns is gone."""


class FailedError(CallError):
    """The method that was called has raised an error, the `cause`."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.cause = cause


@dataclass(frozen=True)
class ActorOptions:
    """Where an actor runs, and how.

    Attributes
    ----------
    server
        The label ``server`` of its node. Empty: this process's node. A named actor may then be started again on
        another node if that one is lost, and is on a node without a label if this one has one.
    name
        By which other processes find it; it then outlives this one, and the actor of this name that runs already is
        taken. Empty: it ends with this process.
    width
        Most concurrent calls, those of `groups` apart.
    gpus
        Number of GPUs that it takes.
    groups
        Number of threads and names of methods, by name of the group. These methods run in the threads of their group.
    """

    server: str = ""
    name: str = ""
    width: int = 1
    gpus: float = 0.0
    groups: Mapping[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Node:
    """A node of the cluster.

    Attributes
    ----------
    id
        A node that comes back has a new one.
    labels
        ``server``: name of its server.
    alive
        Whether it is believed to be up.
    gpus
        Number of GPUs that it offers.
    """

    id: str
    labels: Mapping[str, str]
    alive: bool
    gpus: float


# -- the cluster -----------------------------------------------------------------------------------------------------


def connect(address: str | None, namespace: str | None = None) -> None:
    """Connect this process to the cluster at an address.

    Parameters
    ----------
    address
        HOST:PORT of its head, or what else Ray takes; None: that of the environment, or a new one.
    namespace
        In which actors have their names; None: one of this connection alone.

    Raises
    ------
    LostError
        If no cluster answers there.
    """
    of_logs = {"log_to_driver": False, "logging_level": "error", "configure_logging": False}
    try:
        with _translated():
            _ray().init(address=address, namespace=namespace, **of_logs)
    except ConnectionError as error:
        raise LostError(str(error)) from error


def disconnect() -> None:
    """End the connection, if there is one, with the actors that have no name."""
    with _translated():
        _ray().shutdown()


def nodes() -> list[Node]:
    """The nodes of the cluster, with those that were lost.

    Raises
    ------
    LostError
        If the cluster's head does not answer.
    """
    with _translated():
        return [
            Node(node["NodeID"], node["Labels"], node["Alive"], node["Resources"].get("GPU", 0.0))
            for node in _ray().nodes()
        ]


def actor_names() -> list[str]:
    """Names of the actors of the namespace.

    Raises
    ------
    LostError
        If the cluster's head does not answer.
    """
    with _translated():
        return list(_ray().util.list_named_actors())


# -- actors ----------------------------------------------------------------------------------------------------------


def start_actor(kind: type, *args: Any, on: ActorOptions) -> Any:
    """Start an actor, and return its handle before it is up; whenever its process is lost it is started anew.

    Parameters
    ----------
    kind
        Its class.
    args
        What it is made of, each time it is started.
    on
        Where it runs, and how.

    Raises
    ------
    LostError
        If the cluster's head does not answer.
    """
    ray = _ray()
    for group, (_, methods) in on.groups.items():
        for name in methods:
            ray.method(concurrency_group=group)(getattr(kind, name))
    threads = {group: number for group, (number, _) in on.groups.items()}
    options: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": on.width}
    if on.gpus:
        options["num_gpus"] = on.gpus
    if on.name:
        options |= {"name": on.name, "lifetime": "detached", "get_if_exists": True}
    options |= {"label_selector": {"server": on.server}} if on.server else _here(detached=bool(on.name))
    with _translated():
        actor = ray.remote(concurrency_groups=threads)(kind) if threads else ray.remote(kind)
        return actor.options(**options).remote(*args)


def kill(actor: Any) -> None:
    """Kill the process of an actor, which is then started anew.

    Raises
    ------
    LostError
        If the cluster's head does not answer.
    """
    with _translated():
        _ray().kill(actor, no_restart=False)


def end_actor(name: str) -> None:
    """End a named actor for good, if there is one.

    Raises
    ------
    LostError
        If the cluster's head does not answer.
    """
    ray = _ray()
    with _translated(), suppress(ValueError):  # it has ended meanwhile
        ray.kill(ray.get_actor(name))


def _here(*, detached: bool) -> dict[str, Any]:
    """Options of an actor on this node; a detached one may be started again on another if this one is lost.

    On an embedded cluster the detached ones are on Ray's head: a driver may be connected to any node of this machine,
    and those of the servers can be lost.
    """
    ray = _ray()
    own_node, alive = ray.get_runtime_context().get_node_id(), [node for node in nodes() if node.alive]
    of_servers = {node.id for node in alive if "server" in node.labels}
    if detached and own_node in of_servers:
        own_node = next((node.id for node in alive if node.id not in of_servers), own_node)
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(own_node, soft=detached)
    return {"scheduling_strategy": strategy}


# -- calls -----------------------------------------------------------------------------------------------------------


def call(actor: Any, method: str, /, *args: Any, returns: int = 1, **kwargs: Any) -> Any:
    """Call a method of an actor, and return a reference to its answer at once.

    Parameters
    ----------
    actor, method
        The actor's handle, and the name of its method.
    args, kwargs
        The arguments; a reference among `args` stands for what it refers to.
    returns
        Number of values in the answer; if it is not 1, a reference to each is returned, in a tuple.

    Raises
    ------
    CallError
        If the call cannot be made, as there is no room for its arguments.
    """
    with _translated():
        bound = getattr(actor, method)
        if returns == 1:
            return bound.remote(*args, **kwargs)
        return tuple(bound.options(num_returns=returns).remote(*args, **kwargs))


def ready(refs: Sequence[Any], timeout_s: float | None, number: int = 1) -> tuple[list[Any], list[Any]]:
    """Wait for answers; returns references to those that are there, an error among them, and the others.

    Parameters
    ----------
    refs
        References, each once.
    timeout_s
        Longest wait [s]; None: without limit.
    number
        The wait ends with so many answers, and no more are returned.

    Raises
    ------
    LostError
        If this process has lost the cluster.
    """
    with _translated():
        arrived, pending = _ray().wait(list(refs), num_returns=number, timeout=timeout_s)
    return list(arrived), list(pending)


def answer(ref: Any, timeout_s: float | None = None) -> Any:
    """The answer to a call, or those to several.

    Parameters
    ----------
    ref
        A reference, or a list of them.
    timeout_s
        Longest wait [s]; None: without limit.

    Raises
    ------
    CallError
        One of the four, if there is none.
    """
    with _translated():
        return _ray().get(ref, timeout=timeout_s)


def put(value: Any) -> Any:
    """A reference to a value, which is then not sent with each call.

    Raises
    ------
    LostError
        If there is no room for it now.
    """
    with _translated():
        return _ray().put(value)


# -- errors ----------------------------------------------------------------------------------------------------------


def call_error(error: Exception) -> CallError:
    """The error of ours that an error of Ray stands for."""
    exceptions = _ray().exceptions
    if isinstance(error, exceptions.RayTaskError):
        # an argument that could not be had is an error of Ray again
        return call_error(error.cause) if isinstance(error.cause, exceptions.RayError) else FailedError(error.cause)
    if isinstance(error, exceptions.GetTimeoutError):
        return LateError(str(error))
    kind = GoneError if isinstance(error, exceptions.ObjectLostError) else LostError
    message = str(error).partition("\n")[0]  # Ray adds advice and listings of processes
    return kind(f"{type(error).__name__}: {message}")


@contextmanager
def _translated() -> Iterator[None]:
    """Raise errors of ours in place of Ray's."""
    ray = _ray()
    try:
        yield
    except ray.exceptions.RayError as error:
        raise call_error(error) from error


def _ray() -> Any:
    import ray  # noqa: PLC0415 - Ray is an extra

    return ray
