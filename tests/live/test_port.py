"""The port to actors: what it asks of Ray, and that it raises four errors in place of Ray's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from staged import Staged, failed, stage

from skedge.live import host

Refuse = Callable[[str, Exception], None]
HEAD, NODE = "aa" * 28, "bb" * 28


class Adder:
    """What becomes an actor."""

    def add(self, a: int, b: int = 1) -> int:
        """The sum."""
        return a + b

    def both(self, a: int, b: int) -> tuple[int, int]:
        """Sum and difference."""
        return a + b, a - b


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> Staged:
    """Such an actor."""
    stage(monkeypatch)
    return Staged(Adder())


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Has a function of Ray raise an error."""
    import ray  # not earlier: it reads its settings when it is imported

    def refuse(function: str, error: Exception) -> None:
        def raising(*_: Any, **__: Any) -> None:
            raise error

        monkeypatch.setattr(ray, function, raising)

    return refuse


# -- calls -----------------------------------------------------------------------------------------------------------


def test_a_call_has_one_answer_or_several(staged: Staged) -> None:
    assert host.answer(host.call(staged, "add", 2, b=3)) == 5
    total, difference = host.call(staged, "both", 5, 3, returns=2)
    assert host.answer([total, difference]) == [8, 2]
    assert host.answer(host.call(staged, "add", total, host.put(4))) == 12, "references stand for values"


def test_several_answers_are_a_tuple(staged: Staged) -> None:
    assert isinstance(host.call(staged, "both", 5, 3, returns=2), tuple)


def test_an_answer_that_is_not_there_is_late(staged: Staged) -> None:
    staged.held = []
    ref = host.call(staged, "add", 1)
    assert host.ready([ref], 0) == ([], [ref])
    with pytest.raises(host.LateError):
        host.answer(ref, 0.01)
    staged.held.pop()()
    assert host.ready([ref], None) == ([ref], [])
    assert host.answer(ref, 0.01) == 2


def test_the_error_of_a_method_is_the_cause(staged: Staged) -> None:
    """It is raised by its answer, which is ready."""
    ref = host.call(staged, "add", "one")
    assert host.ready([ref], 0)[0] == [ref]
    with pytest.raises(host.FailedError, match=r"^TypeError: can only concatenate") as found:
        host.answer(ref)
    assert isinstance(found.value.cause, TypeError)


# -- errors ----------------------------------------------------------------------------------------------------------


def errors() -> list[tuple[Exception, type[host.CallError]]]:
    """Errors of Ray, and what they are to callers."""
    from ray import exceptions

    gone, unlike = exceptions.ObjectLostError("00" * 28, None, ""), exceptions.OwnerDiedError("00" * 28, None, "")
    lost = [
        exceptions.ActorDiedError(), exceptions.ActorUnavailableError("restarting", None),
        exceptions.NodeDiedError("the node is dead"), exceptions.ObjectStoreFullError("full"),
        exceptions.OutOfDiskError("full"), exceptions.OutOfMemoryError("killed"), exceptions.WorkerCrashedError(),
        exceptions.LocalRayletDiedError(), exceptions.RaySystemError("system"), exceptions.RpcError("unavailable"),
        failed(exceptions.ActorDiedError()),
    ]  # fmt: skip
    return [
        *[(error, host.LostError) for error in lost],
        *[(error, host.GoneError) for error in (gone, unlike, failed(gone), failed(failed(gone)))],
        (exceptions.GetTimeoutError("late"), host.LateError),
        (failed(OSError("broken")), host.FailedError),
        (failed(failed(OSError("broken"))), host.FailedError),
    ]


@pytest.mark.parametrize("number", range(18))
def test_each_error_of_ray_is_one_of_four(refuse: Refuse, number: int) -> None:
    """Whichever function raises it."""
    error, kind = errors()[number]
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: host.answer("ref"),
        "wait": lambda: host.ready(["ref"], 0),
        "put": lambda: host.put(b"content"),
        "kill": lambda: host.kill("actor"),
        "nodes": host.nodes,
        "get_actor": lambda: host.end_actor("name"),
        "remote": lambda: host.start_actor(Adder, on=host.ActorOptions("s")),
        "init": lambda: host.connect("s:1"),
        "shutdown": host.disconnect,
    }
    for function, ask in calls.items():
        refuse(function, error)
        with pytest.raises(host.CallError) as found:
            ask()
        assert type(found.value) is kind
        assert found.value.__cause__ is error


def test_there_are_no_more_errors() -> None:
    assert len(errors()) == 18


def test_a_call_that_cannot_be_made_is_lost() -> None:
    from ray.exceptions import ObjectStoreFullError

    def remote(*_: object) -> None:
        raise ObjectStoreFullError("full\nadvice of Ray, in many lines")

    actor = SimpleNamespace(save=SimpleNamespace(remote=remote))
    with pytest.raises(host.LostError, match=r"^ObjectStoreFullError: .*full$"):
        host.call(actor, "save", b"content")


def test_a_mistake_of_the_caller_is_no_error_of_a_call() -> None:
    with pytest.raises(AttributeError):
        host.call(SimpleNamespace(), "save")


def test_a_cluster_that_does_not_answer_is_lost(refuse: Refuse) -> None:
    refuse("init", ConnectionError("Failed to connect to Ray cluster at s:1"))
    with pytest.raises(host.LostError, match=r"^Failed to connect to Ray cluster at s:1$"):
        host.connect("s:1")


def test_an_actor_that_has_ended_meanwhile_is_no_error(refuse: Refuse) -> None:
    refuse("get_actor", ValueError("Failed to look up actor with name 'a'"))
    host.end_actor("a")


# -- where actors run ------------------------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options with which Ray is asked for an actor, on a cluster with a head and the node of a server."""
    import ray

    found: dict[str, Any] = {"here": HEAD}
    head = {"NodeID": HEAD, "Alive": True, "Labels": {}, "Resources": {}}
    server = {"NodeID": NODE, "Alive": True, "Labels": {"server": "s"}, "Resources": {"GPU": 2.0}}

    class Kind:
        def options(self, **options: Any) -> Any:
            found.update(options)
            return SimpleNamespace(remote=lambda *args: found.update(args=args))

    def remote(*kind: type, **options: Any) -> Any:
        found.update(options)
        return Kind() if kind else lambda _: Kind()

    monkeypatch.setattr(ray, "remote", remote)
    monkeypatch.setattr(ray, "nodes", lambda: [head, server])
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: found["here"]))
    return found


def test_an_actor_of_a_server_is_on_the_node_with_its_label(started: dict[str, Any]) -> None:
    groups = {"health": (2, ("add",))}
    host.start_actor(Adder, 1, on=host.ActorOptions("s", width=3, gpus=0.5, groups=groups))
    options = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": 3, "num_gpus": 0.5}
    places = {"label_selector": {"server": "s"}, "concurrency_groups": {"health": 2}}
    assert started == {"here": HEAD, **options, **places, "args": (1,)}
    assert Adder.add.__ray_concurrency_group__ == "health"


def test_a_named_actor_is_taken_if_it_is_there_and_outlives_this_process(started: dict[str, Any]) -> None:
    host.start_actor(Adder, on=host.ActorOptions("s", "n"))
    assert [started[option] for option in ("name", "lifetime", "get_if_exists")] == ["n", "detached", True]
    assert started["max_concurrency"] == 1
    assert "num_gpus" not in started


@pytest.mark.parametrize(
    ("here", "name", "node", "soft"),
    [
        (HEAD, "", HEAD, False),
        (NODE, "", NODE, False),
        (HEAD, "n", HEAD, True),
        (NODE, "n", HEAD, True),
    ],
)
def test_an_actor_of_no_server_is_here_or_if_it_lasts_on_no_servers_node(
    started: dict[str, Any], here: str, name: str, node: str, soft: bool
) -> None:
    started["here"] = here
    host.start_actor(Adder, on=host.ActorOptions(name=name))
    strategy = started["scheduling_strategy"]
    assert (strategy.node_id, strategy.soft) == (node, soft)


def test_nodes_have_labels_and_gpus(started: dict[str, Any]) -> None:
    assert host.nodes() == [host.Node(HEAD, {}, True, 0.0), host.Node(NODE, {"server": "s"}, True, 2.0)]
