"""Simulated processes that run a module, and the supervisor of a service with its processes in a simulation."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from skedge.live import durable
from skedge.live import host as seam
from skedge.live.controller.settings import ADDRESS
from skedge.live.service import keeping, supervisor

from . import host
from .faults import Fault
from .modules import Program, add_program, on_terminate, read_line
from .scheduler import World

SEEDS = 20
STATE = Path("/state")


def simulate(program: Callable[[], object], modules: dict[str, Program], seed: int = 0, *faults: Fault) -> World:
    """Run a program as a process of a world that has programs for some modules."""
    with seam.installed(host), World(seed, faults) as world:
        for module, of in modules.items():
            add_program(world, module, of)
        world.process("main", program)
        world.run()
    return world


def check(program: Callable[[], object], modules: dict[str, Program]) -> None:
    for seed in range(SEEDS):
        for crash in simulate(program, modules, seed).crashes:
            raise crash.error


def stay(*_: str) -> int:
    host.sleep(1e6)
    return 0


def length(*_: str) -> int:
    return len(read_line())


def test_a_status_is_there_when_the_process_has_ended() -> None:
    def program() -> None:
        process = seam.Process("m.length", "argument")
        assert (process.poll(), process.wait(0.1), seam.runs(process.pid)) == (None, None, True)
        process.tell(b"go\n")
        assert (process.wait(60.0), process.poll(), seam.runs(process.pid)) == (3, 3, False)

    check(program, {"m.length": length})


def test_a_terminated_process_ends_or_is_killed() -> None:
    def deaf(*_: str) -> int:
        on_terminate(lambda: None)
        return stay()

    def program() -> None:
        for module, status in (("m.stay", -signal.SIGTERM), ("m.deaf", -signal.SIGKILL)):
            process = seam.Process(module)
            host.sleep(1.0)
            assert (process.end(5.0), process.end(5.0)) == (status, status)

    check(program, {"m.stay": stay, "m.deaf": deaf})


def test_the_input_of_a_process_ends_with_its_parent() -> None:
    lines: list[bytes] = []

    def child(*_: str) -> int:
        assert seam.getppid() != 1
        lines.append(read_line())
        assert seam.getppid() == 1
        return 0

    def parent() -> None:
        seam.Process("m.child")
        host.sleep(1.0)

    check(parent, {"m.child": child})
    assert lines == [b""] * SEEDS


def test_only_the_process_that_is_meant_is_killed() -> None:
    def program() -> None:
        process = seam.Process("m.stay", "argument")
        seam.kill_named(process.pid, b"another")
        assert process.wait(1.0) is None
        seam.kill_named(process.pid, b"m.stay arg")
        assert process.wait(1.0) == -signal.SIGKILL
        seam.kill_named(process.pid, b"m.stay")
        seam.kill_named(seam.getpid(), b"main")
        assert not seam.runs(0)

    check(program, {"m.stay": stay})


# --- the supervisor

HOST, CONTROLLER = "skedge.live.service.ray_host", "skedge.live.service.controller_process"


def serve(state: str) -> int:
    """Stands for a controller that answers when it has been told to take over."""
    if read_line() != supervisor.GO:
        return 0
    address = {"pid": seam.getpid(), "ready": True}
    durable.write_whole(Path(state) / ADDRESS, json.dumps(address))
    return stay()


def supervised(controller: Program, seed: int, *faults: Fault, ends_s: float = 60.0) -> tuple[list[int], World, str]:
    """The status with which a supervisor ends, the world, and the log."""
    status, log = list[int](), io.BytesIO()

    def supervise() -> None:
        durable.make_folder(STATE)
        ended = seam.Event()

        def end() -> None:
            seam.sleep(ends_s)
            ended.set()

        seam.Thread(target=end, daemon=True).start()
        status.append(supervisor.Supervisor(STATE, log, ended, 0, embedded=True).run())

    return status, simulate(supervise, {HOST: stay, CONTROLLER: controller}, seed, *faults), log.getvalue().decode()


@pytest.mark.parametrize("victim", ["controller_process", "ray_host"])
def test_a_process_that_is_killed_is_replaced(victim: str) -> None:
    """Twice, at another time with each seed; a fault that kills the controller kills its standby as well."""
    for seed in range(SEEDS):
        faults = [Fault("kill", victim, time_s=10.0 + seed / 7 + 5 * n) for n in range(2)]
        status, world, log = supervised(serve, seed, *faults)
        assert not world.crashes
        assert status == [-signal.SIGTERM]
        assert not any(process.alive for process in world.processes)
        assert "ended with status -9" in log
        assert sum(process.name == "ray_host" for process in world.processes) == (3 if victim == "ray_host" else 1)


def test_controllers_that_die_before_they_answer_are_given_up() -> None:
    for seed in range(SEEDS):
        status, world, log = supervised(lambda _: 1, seed)
        assert status == [1]
        assert not world.crashes
        assert log.count("the controller, process") == supervisor._TRIES


def test_a_controller_whose_settings_are_wrong_is_not_started_again() -> None:
    status, world, _ = supervised(lambda _: keeping.WRONG, 0)
    assert status == [keeping.WRONG]
    assert sum(process.name == "controller_process" for process in world.processes) == 1
