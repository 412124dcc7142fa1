"""What the live part may rely on of Ray holds on Ray, and on the model of it that simulations run on.

Each contract is a program that returns what has happened. The model must show every outcome that a contract allows, so
that a simulation meets them all, and Ray one of them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from acting import Caller, Grouped, NoteError, Recorder

from simulated import host as virtual
from simulated.actors import HOME, SimulatedRay
from simulated.scheduler import World
from skedge.live import host
from skedge.live.cluster.engine import Engine

SEEDS = 60
"""Schedules on which a contract runs on the model; each outcome must be among them."""

LONG_S = 60.0

OPTIONS = host.ActorOptions


class Rig(Protocol):
    """What a contract needs besides the port.

    Attributes
    ----------
    server, large
        Label of a node, and a size that an object store keeps in place of the caller [bytes].
    started
        The names so far.
    """

    server: str
    large: int
    started: list[str]

    def name(self) -> str:
        """A name that no actor has."""

    def kill(self, actor: Any) -> None:
        """Let the process of an actor die."""

    def freeze(self, actor: Any, seconds: float) -> None:
        """Stop the process of an actor for some time."""

    def lose(self, server: str) -> None:
        """Let a node die; it is back later."""


class OnModel:
    """The model of Ray."""

    server, large = "edge-1", 600

    def __init__(self, world: World, ray: SimulatedRay) -> None:
        self.world, self.ray, self.started = world, ray, list[str]()

    def name(self) -> str:
        self.started.append(f"test/actor-{len(self.started)}")
        return self.started[-1]

    def kill(self, actor: Any) -> None:
        self.world.kill(actor.process)

    def freeze(self, actor: Any, seconds: float) -> None:
        self.world.freeze(actor.process, seconds)

    def lose(self, server: str) -> None:
        node = self.ray.node_of(server)
        self.ray.lose_node(node, 1.0)
        for process in self.ray.processes_on(node):
            self.world.kill(process)


class OnRay:
    """The cluster of the tests."""

    server, large = "edge-1", 200_000

    def __init__(self, engine: Engine) -> None:
        self.engine, self.started = engine, list[str]()

    def name(self) -> str:
        self.started.append(f"test/{os.getpid()}-{time.monotonic_ns()}")
        return self.started[-1]

    def kill(self, actor: Any) -> None:
        os.kill(host.answer(host.call(actor, "pid"), LONG_S), signal.SIGKILL)

    def freeze(self, actor: Any, seconds: float) -> None:
        pid = host.answer(host.call(actor, "pid"), LONG_S)
        os.kill(pid, signal.SIGSTOP)
        thread = host.Thread(target=lambda: (time.sleep(seconds), os.kill(pid, signal.SIGCONT)), daemon=True)
        thread.start()

    def lose(self, server: str) -> None:
        raylet = self.engine.embedded.nodes[server].all_processes["raylet"][0].process.pid
        os.kill(raylet, signal.SIGKILL)


CONTRACTS: list[tuple[Callable[[Rig], Any], set[Any]]] = []


def contract(*allowed: Any) -> Callable[[Callable[[Rig], Any]], Callable[[Rig], Any]]:
    """Mark a program that must have one of these outcomes."""

    def mark(program: Callable[[Rig], Any]) -> Callable[[Rig], Any]:
        CONTRACTS.append((program, set(allowed)))
        return program

    return mark


def got(ref: Any) -> Any:
    return host.answer(ref, LONG_S)


def eventually(ask: Callable[[], Any], until: float = LONG_S) -> Any:
    """The answer to a call that is repeated while its actor is lost."""
    end = host.monotonic() + until
    while True:
        try:
            return got(ask())
        except (host.LostError, host.LateError):
            assert host.monotonic() < end
            host.sleep(0.05)


def recorder(rig: Rig, width: int = 1, server: str = "", first: tuple[int, ...] = ()) -> Any:
    """An actor that is up."""
    actor = host.start_actor(Recorder, list(first), on=OPTIONS(server, rig.name(), width))
    eventually(lambda: host.call(actor, "health"))
    return actor


# --- order


@contract(tuple(range(20)))
def calls_of_one_caller_start_in_order(rig: Rig) -> Any:
    actor = recorder(rig)
    refs = [host.call(actor, "add", number) for number in range(20)]
    host.answer(refs, LONG_S)
    return tuple(got(host.call(actor, "numbers")))


@contract((True, True))
def calls_of_each_of_several_callers_start_in_order(rig: Rig) -> Any:
    actor = recorder(rig)
    callers = [host.start_actor(Caller, on=OPTIONS(name=rig.name())) for _ in range(2)]
    host.answer([host.call(callers[n], "add_all", actor, [n * 100 + k for k in range(10)]) for n in range(2)], LONG_S)
    seen = got(host.call(actor, "numbers"))
    return tuple([x for x in seen if x // 100 == n] == [n * 100 + k for k in range(10)] for n in range(2))


@contract("in order", "not in order")
def calls_to_a_wider_actor_start_in_any_order(rig: Rig) -> Any:
    actor = recorder(rig, width=4)
    host.answer([host.call(actor, "add", number) for number in range(4)], LONG_S)
    seen = got(host.call(actor, "numbers"))
    assert sorted(seen) == list(range(4))
    return "in order" if seen == sorted(seen) else "not in order"


@contract((1, 3))
def no_more_calls_are_executed_at_once_than_the_width(rig: Rig) -> Any:
    actors = {width: recorder(rig, width) for width in (1, 3)}
    for actor in actors.values():
        host.answer([host.call(actor, "add", n, 0.3) for n in range(6)], LONG_S)
    return tuple(got(host.call(actor, "widest")) for actor in actors.values())


@contract("well")
def a_group_of_threads_answers_while_the_others_are_busy(rig: Rig) -> Any:
    groups = {"aside": (1, ("health",))}
    actor = host.start_actor(Grouped, on=OPTIONS("", rig.name(), 1, 0.0, groups))
    eventually(lambda: host.call(actor, "health"))
    busy = host.call(actor, "wait", 8.0)
    found = got(host.call(actor, "health"))
    assert host.ready([busy], 0)[0] == []
    return found


# --- late answers


@contract((7,))
def a_call_whose_answer_is_late_is_executed(rig: Rig) -> Any:
    actor = recorder(rig)
    late = host.call(actor, "add", 7, 4.0)
    with pytest.raises(host.LateError):
        host.answer(late, 0.2)
    return tuple(got(host.call(actor, "numbers")))


@contract((1, 2))
def a_frozen_actor_executes_its_calls_when_it_goes_on(rig: Rig) -> Any:
    actor = recorder(rig)
    rig.freeze(actor, 6.0)
    first = host.call(actor, "add", 1)
    with pytest.raises(host.LateError):
        host.answer(first, 1.0)
    host.call(actor, "add", 2)
    return tuple(got(host.call(actor, "numbers")))


@contract(2)
def the_wait_for_answers_ends_with_the_number_asked_for(rig: Rig) -> Any:
    actor = recorder(rig, width=3)
    refs = [host.call(actor, "add", number, seconds) for number, seconds in enumerate((0.0, 8.0, 0.0))]
    there, others = host.ready(refs, LONG_S, 2)
    assert others == [refs[1]]
    return len(there)


# --- death


@contract("lost")
def a_call_under_way_fails_when_its_process_dies(rig: Rig) -> Any:
    actor = recorder(rig, width=2)
    asked = host.call(actor, "add", 1, 30.0)
    host.ready([asked], 4.0)
    rig.kill(actor)
    with pytest.raises(host.LostError):
        got(asked)
    return "lost"


@contract("lost", "run")
def a_call_that_has_not_started_fails_or_runs_in_the_next_process(rig: Rig) -> Any:
    actor = recorder(rig, width=2)
    for number in range(2):
        host.call(actor, "add", number, 30.0 if number else 6.0)
    waiting = host.call(actor, "add", 2)
    host.ready([waiting], 3.2)
    rig.kill(actor)
    try:
        got(waiting)
    except host.LostError:
        return "lost"
    return "run"


@contract((5,))
def an_actor_begins_again_with_its_first_arguments(rig: Rig) -> Any:
    actor = recorder(rig, first=(5,))
    got(host.call(actor, "add", 6))
    rig.kill(actor)
    return tuple(eventually(lambda: host.call(actor, "numbers")))


@contract((5,))
def an_actor_that_is_killed_through_the_port_begins_again(rig: Rig) -> Any:
    actor = recorder(rig, first=(5,))
    got(host.call(actor, "add", 6))
    host.kill(actor)
    while (seen := eventually(lambda: host.call(actor, "numbers"))) != [5]:
        host.sleep(0.1)
    return tuple(seen)


@contract("lost", "run")
def calls_while_there_is_no_process_fail_or_wait(rig: Rig) -> Any:
    actor = recorder(rig)
    rig.kill(actor)
    try:
        got(host.call(actor, "add", 1))
    except host.LostError:
        return "lost"
    return "run"


@contract(True)
def calls_of_a_caller_that_has_died_are_executed(rig: Rig) -> Any:
    actor = recorder(rig)
    caller = host.start_actor(Caller, on=OPTIONS(name=rig.name()))
    got(host.call(caller, "begin", actor, list(range(20))))
    host.end_actor(rig.started[-1])
    host.sleep(10.0)
    seen = eventually(lambda: host.call(actor, "numbers"))
    return seen == list(range(20))


# --- names


@contract((1, 2))
def a_named_actor_is_taken_if_it_is_there(rig: Rig) -> Any:
    on = OPTIONS(name=rig.name())
    actor = host.start_actor(Recorder, [1], on=on)
    got(host.call(actor, "add", 2))
    assert on.name in host.actor_names()
    return tuple(got(host.call(host.start_actor(Recorder, [7], on=on), "numbers")))


@contract("lost")
def an_actor_that_is_ended_is_not_started_again(rig: Rig) -> Any:
    actor = recorder(rig)
    name = rig.started[-1]
    host.end_actor(name)
    host.end_actor(name)
    while name in host.actor_names():
        host.sleep(0.1)
    host.sleep(5.0)
    with pytest.raises(host.LostError):
        got(host.call(actor, "health"))
    return "lost"


@contract("lost")
def an_actor_without_a_name_ends_with_its_process(rig: Rig) -> Any:
    caller = host.start_actor(Caller, on=OPTIONS(name=rig.name()))
    owned = got(host.call(caller, "own"))
    assert got(host.call(owned, "health")) == "well"
    rig.kill(caller)
    host.sleep(8.0)
    with pytest.raises(host.LostError):
        got(host.call(owned, "health"))
    return "lost"


# --- what is sent


@contract(("facts", 3, 13))
def an_answer_of_several_parts_is_referred_to_by_part(rig: Rig) -> Any:
    actor = recorder(rig)
    facts, content = host.call(actor, "pair", 3, returns=2)
    first, both = host.call(actor, "length", content), host.call(actor, "length", content, host.put(bytes(10)))
    return got(facts), got(first), got(both)


@contract((1,))
def arguments_are_copies(rig: Rig) -> Any:
    actor, numbers = recorder(rig), [1]
    got(host.call(actor, "change", numbers))
    mine = got(host.call(actor, "numbers"))
    mine.append(3)
    assert got(host.call(actor, "numbers")) == []
    return tuple(numbers)


@contract(("failed", "printed"))
def an_error_of_the_method_is_the_cause(rig: Rig) -> Any:
    actor = recorder(rig)
    with pytest.raises(host.FailedError) as failed:
        got(host.call(actor, "fail"))
    assert isinstance(failed.value.cause, NoteError)
    return str(failed.value.cause), failed.value.cause.printed


@contract("failed")
def a_call_with_an_argument_that_failed_fails_as_that(rig: Rig) -> Any:
    actor = recorder(rig)
    with pytest.raises(host.FailedError) as failed:
        got(host.call(actor, "length", host.call(actor, "fail")))
    return str(failed.value.cause)


@contract("gone")
def large_answers_go_with_their_node(rig: Rig) -> Any:
    actor, other = recorder(rig, server=rig.server, first=(5,)), recorder(rig)
    facts, content = host.call(actor, "pair", rig.large, returns=2)
    got(facts)
    rig.lose(rig.server)
    host.sleep(3.0)
    with pytest.raises(host.GoneError):
        got(content)
    with pytest.raises(host.GoneError):
        got(host.call(other, "length", content))
    assert got(facts) == "facts"
    assert eventually(lambda: host.call(actor, "numbers")) == [5]
    return "gone"


@contract(2)
def a_node_that_comes_back_is_another_one(rig: Rig) -> Any:
    def ids() -> set[str]:
        return {node.id for node in host.nodes() if node.alive and node.labels.get("server") == rig.server}

    while not (before := ids()):
        host.sleep(0.2)
    rig.lose(rig.server)
    while not (after := ids()) or after == before:
        host.sleep(0.2)
    return len(before | after)


def on_model(program: Callable[[Rig], Any], seed: int) -> Any:
    outcomes = []
    with host.installed(virtual), World(seed) as world:
        rig = OnModel(world, SimulatedRay(world, ["edge-0", "edge-1", "cloud"]))
        caller = world.process("caller", lambda: outcomes.append(program(rig)), HOME)
        assert world.run(lambda: not caller.alive, 600.0)
        for crash in world.crashes:
            raise crash.error
    return outcomes[0]


@pytest.fixture
def rig(engine: Engine) -> Iterator[OnRay]:
    used = OnRay(engine)
    yield used
    for name in used.started:
        host.end_actor(name)


@pytest.mark.parametrize(("program", "allowed"), [pytest.param(*one, id=one[0].__name__) for one in CONTRACTS])
def test_contract_of_the_model(program: Callable[[Rig], Any], allowed: set[Any]) -> None:
    assert {on_model(program, seed) for seed in range(SEEDS)} == allowed


@pytest.mark.parametrize(("program", "allowed"), [pytest.param(*one, id=one[0].__name__) for one in CONTRACTS])
def test_contract_of_ray(program: Callable[[Rig], Any], allowed: set[Any], rig: OnRay) -> None:
    assert program(rig) in allowed
