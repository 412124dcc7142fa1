"""One seed makes one run; schedules that break a program are found; faults happen where they should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from builders.paths import ROOT

from . import host
from .faults import Fault, draw_faults, shrink, without
from .history import BLOCK
from .programs import everything, in_threads, lock_order, lost_wake_up, race, transcript
from .scheduler import TICK_S, DeadlockError, EndOfRunError, World, running_world

SEEDS = 100
"""Seeds within which each planted bug must be found."""


def run(program: Callable[[], object], seed: int = 0, faults: Sequence[Fault] = ()) -> World:
    """Run a program as a process of its own; errors of its threads are raised."""
    with World(seed, faults) as world:
        world.process("p", program)
        world.run()
        for crash in world.crashes:
            raise crash.error
    return world


def sleep(n: int, seconds: float) -> None:
    for _ in range(n):
        host.sleep(seconds)


# --- one seed, one run


def test_a_seed_makes_the_same_history_in_other_processes() -> None:
    """Also where sets have another order."""
    code = "from simulated.programs import transcript; print(transcript(7))"
    path = os.pathsep.join([str(ROOT / "tests"), *filter(None, sys.path)])
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert texts == {transcript(7) + "\n"}


def test_other_seeds_make_other_histories() -> None:
    assert len({transcript(seed).partition("\n")[0] for seed in range(30)}) == 30


def test_digests_name_the_part_in_which_two_runs_differ() -> None:
    def program(sleeps: int, last_s: float) -> None:
        sleep(sleeps, 1.0)
        host.sleep(last_s)

    first, second = (run(partial(program, 2 * BLOCK + 10, last_s)) for last_s in (1.0, 2.0))
    assert len(first.history.digests) == 2
    assert first.history.digests == second.history.digests
    assert first.history.digest != second.history.digest
    assert run(partial(program, 10, 1.0)).history.digest != run(partial(program, 10, 2.0)).history.digest


def test_the_history_is_read_by_process() -> None:
    with World(1) as world:
        everything(world)
        world.run()
    lines = world.history.text(processes=["receiver"]).splitlines()
    assert all(re.fullmatch(r"\d+\.\d{6} receiver/\S+( \d+)? .+", line) for line in lines)
    assert lines[-3:] == world.history.text(last=3, processes=["receiver"]).splitlines()
    assert lines[-1].endswith("receiver/- ended")
    assert len(world.history.text().splitlines()) == len(world.history) > len(lines)


# --- bugs that need a schedule


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        (lost_wake_up, DeadlockError, r"p/main waits for end of t0\np/t0 waits for condition 1 \(programs.py:\d+\)$"),
        (
            lock_order,
            DeadlockError,
            r"^p/t(\d) waits for lock \d \(programs.py:\d+\), held by p/t(\d)\n"
            r"p/t\2 waits for lock \d \(programs.py:\d+\), held by p/t\1$",
        ),
        (race, AssertionError, r"^total: \[1\]$"),
    ],
)
def test_a_planted_bug_is_found(program: Callable[..., None], error: type[AssertionError], message: str) -> None:
    """Not in each schedule, and in none once it is mended."""
    errors = [caught for seed in range(SEEDS) if (caught := failure(partial(program, correct=False), seed))]
    assert 0 < len(errors) < SEEDS
    assert {type(caught) for caught in errors} == {error}
    assert all(re.search(message, str(caught)) for caught in errors)
    assert [failure(partial(program, correct=True), seed) for seed in range(SEEDS)] == [None] * SEEDS


def failure(program: Callable[[], None], seed: int) -> AssertionError | None:
    try:
        run(program, seed)
    except AssertionError as error:
        return error
    return None


def test_a_lock_of_an_ended_thread_is_a_deadlock() -> None:
    def program() -> None:
        lock = host.Lock()
        in_threads(lock.acquire)
        lock.acquire()

    with pytest.raises(DeadlockError, match=r"^p/main waits for lock 1 \(.*\), held by p/t0, which has ended$"):
        run(program)


def test_a_lock_taken_twice_is_a_deadlock() -> None:
    def program() -> None:
        with host.Condition(), host.Lock() as _, (lock := host.Lock()):
            lock.acquire()

    with pytest.raises(DeadlockError, match=r"^p/main waits for lock 2 \(.*\), held by p/main$"):
        run(program)


def test_a_join_under_a_lock_that_the_thread_wants_is_a_deadlock() -> None:
    """Also while other threads go on for ever."""

    def program() -> None:
        host.Thread(target=partial(sleep, 10**9, 1.0)).start()
        lock = host.Lock()
        with lock:
            in_threads(lock.acquire)

    message = r"p/t0 waits for lock 1 \(.*\), held by p/main"
    with pytest.raises(
        DeadlockError, match=rf"^(p/main waits for end of t0\n{message}|{message}\np/main waits for end of t0)$"
    ):
        run(program)


def test_a_wait_with_a_timeout_is_no_deadlock() -> None:
    def program() -> None:
        lock = host.Lock()
        with lock:
            assert not lock.acquire(timeout=1.0)

    run(program)


# --- processes


def test_a_process_ends_with_its_last_thread_but_daemons() -> None:
    calls: list[str] = []

    def call(seconds: float, name: str) -> None:
        host.sleep(seconds)
        calls.append(name)

    def program() -> None:
        host.Thread(target=partial(call, 2.0, "thread")).start()
        host.Thread(target=partial(call, 3.0, "daemon"), daemon=True).start()

    with World(0) as world:
        process = world.process("p", program)
        process.on_death.append(lambda: calls.append("ended"))
        other = world.process("other", lambda: host.sleep(9.0))
        detached_id = world.process("lasting")
        world.run()
        assert calls == ["thread", "ended"]
        assert [process.alive, other.alive, detached_id.alive] == [False, False, True]


def test_a_crash_of_a_thread_is_recorded_and_the_others_go_on() -> None:
    def program() -> None:
        in_threads(lambda: 1 / 0, lambda: host.sleep(1.0), sys.exit)

    with World(0) as world:
        world.process("p", program)
        world.run()
    assert [(crash.process, crash.thread, type(crash.error)) for crash in world.crashes] == [
        ("p", "t0", ZeroDivisionError)
    ]
    assert world.now > 1.0
    assert "p/t0 crashed: ZeroDivisionError" in world.history.text()


def test_a_slow_process_does_less_in_the_same_time() -> None:
    counts = dict.fromkeys(("fast", "slow"), 0)

    def program(name: str) -> None:
        end = host.monotonic() + 10.0
        while host.monotonic() < end:
            counts[name] += 1

    with World(0) as world:
        for name, speed in (("fast", 100.0), ("slow", 10.0)):
            world.process(name, partial(program, name), speed=speed)
        world.run()
    assert counts["fast"] == pytest.approx(1000, rel=0.1)
    assert counts["slow"] == pytest.approx(100, rel=0.3)


def test_a_run_is_given_up_at_its_limit() -> None:
    with World(0) as world:
        world.process("p", lambda: host.sleep(1e9))
        assert not world.run(limit_s=100.0)
    with World(0) as world:
        world.process("p", lambda: host.sleep(1e9))
        world.at(5.0, lambda: None)
        assert world.run(lambda: world.now >= 5.0)
        assert world.now == 5.0


def test_a_world_stands_alone() -> None:
    with World(0), pytest.raises(RuntimeError, match="another world is being simulated"), World(1):
        pass
    with pytest.raises(RuntimeError, match="no world is being simulated"):
        running_world()
    with World(0), pytest.raises(RuntimeError, match="only a simulated thread can do this"):
        host.sleep(1.0)


# --- faults


def test_a_kill_at_any_operation_leaves_no_finally_with_an_effect() -> None:
    """What happened is what happens without the kill up to there, also after the end of the run."""

    def program(effects: list[str]) -> None:
        lock, items = host.Lock(), host.Queue[int](1)

        def work() -> None:
            try:
                with lock:
                    items.put(1)
                    effects.append("put")
            except BaseException:
                host.sleep(0.0)
                effects.append("except")
                raise
            finally:
                host.sleep(0.0)
                effects.append("finally")

        in_threads(work, items.get)
        effects.append("end")

    def effects_of(seed: int, faults: Sequence[Fault] = ()) -> tuple[list[str], World]:
        effects: list[str] = []
        with World(seed, faults) as world:
            world.process("p", partial(program, effects))
            world.process("other", partial(sleep, 10, 1.0))  # the world goes on after the kill
            world.run()
        assert world.crashes == []
        return effects, world

    for seed in range(5):
        effects, world = effects_of(seed)
        assert effects == ["put", "finally", "end"]
        operations = [step for step in world.history if step.process == "p" and step.thread != "-"]
        lengths = []
        for number in range(1, len(operations) + 1):
            some, killed = effects_of(seed, [Fault("kill", "p", operation=number)])
            if killed.processes[0].operations < number:  # the last lines of the history are ends of threads
                continue
            assert some == effects[: len(some)]
            assert killed.history.text(last=1, processes=["p"]).endswith(" p/- killed")
            assert killed.processes[0].operations == number
            lengths.append(len(some))
        assert lengths == sorted(lengths)
        assert set(lengths) == {0, 1, 2}


def test_every_operation_raises_after_the_end() -> None:
    errors: list[BaseException | None] = []

    def program() -> None:
        operations: list[Callable[[], object]] = [
            (lock := host.Lock()).acquire, lock.release, (rlock := host.RLock()).acquire, rlock.release, lock.locked,
            (condition := host.Condition()).notify, condition.wait, partial(condition.wait_for, lambda: False),
            (event := host.Event()).set, event.is_set, event.clear, event.wait,
            (items := host.Queue[int]()).get, partial(items.put, 1), items.empty, items.full,
            (future := host.Future[int]()).result, future.done, partial(future.set_result, 1),
            partial(host.wait, [future]),
            (thread := host.Thread(target=lock.acquire)).start, thread.is_alive,
            host.monotonic, host.time, partial(host.sleep, 0.0), host.mark, host.get_ident,
            running_world().running, partial(host.strftime, ""),
        ]  # fmt: skip
        try:
            host.sleep(100.0)
        finally:
            for operation in operations:
                try:
                    operation()
                except BaseException as error:
                    errors.append(error)
                else:
                    errors.append(None)
            errors.append(None)

    with World(0, [Fault("kill", "p", time_s=1.0)]) as world:
        world.process("p", program)
        world.run()
        assert errors == []
    assert len(errors) > 25
    assert {type(error) for error in errors[:-1]} == {EndOfRunError}


def test_a_frozen_process_stands_still_while_its_timers_pass() -> None:
    times: list[float] = []

    def program() -> None:
        for _ in range(4):
            host.sleep(1.0)
            times.append(host.monotonic() - 1000.0)

    world = run(program, faults=[fault := Fault("freeze", "p", time_s=1.5, seconds=10.0)])
    events = [step.operation for step in world.history if step.thread == "-"]
    assert events == [f"fault: {fault}", "frozen", "thawed", "ended"]
    assert times == [pytest.approx(moment, abs=20 * TICK_S) for moment in (1.0, 11.5, 12.5, 13.5)]


def test_a_process_frozen_for_ever_is_named() -> None:
    with World(0) as world:
        process = world.process("p", lambda: host.sleep(2.0))
        world.at(1.0, lambda: world.freeze(process))
        with pytest.raises(DeadlockError, match=r"\np/main is frozen$"):
            world.run()


def test_a_fault_near_an_operation_counts_the_operations_that_begin_so_in_all_processes_of_the_name() -> None:
    """Each process has two releases, so the third is the second one's first."""

    def program() -> None:
        for _ in range(2):
            with host.Lock():
                host.sleep(1.0)

    with World(0, [Fault("kill", "p", operation=3, near="release lock")]) as world:
        first = world.process("p", program)
        world.run(lambda: not first.alive)
        second = world.process("p", program)
        world.run(lambda: not second.alive)
        steps = [(step.process, step.operation.split()[0]) for step in world.history]
    assert steps.count(("p", "ended")) == 2, "the first process and its thread"
    assert steps[-3:] == [("p", "release"), ("p", "fault:"), ("p", "killed")]


def test_a_freeze_by_operation_is_before_the_operation() -> None:
    def program() -> None:
        host.sleep(0.0)
        with host.Lock():
            pass

    world = run(program, faults=[Fault("freeze", "p", operation=2, seconds=5.0)])
    release = next(step for step in world.history if step.operation.startswith("release"))
    assert release.time_s == pytest.approx(5.0, abs=20 * TICK_S)


def test_a_power_cut_ends_all_processes_of_the_machine_and_no_other() -> None:
    cuts: list[bool] = []
    with World(0, [Fault("power", "a", time_s=1.0)]) as world:
        a, b, c = (world.process(name, lambda: host.sleep(2.0), machine) for name, machine in ("ax", "bx", "cy"))
        world.machine("x").on_power_cut.append(lambda: cuts.append(a.alive or b.alive))
        world.run()
    assert cuts == [False]
    assert [step.process for step in world.history if step.operation == "killed"] == ["a", "b"]
    assert "x/- power cut" in world.history.text()
    assert "c/- ended" in world.history.text()
    assert not c.alive


def test_a_process_can_kill_cut_and_freeze_itself() -> None:
    ends: list[str] = []

    def program(act: Callable[[World], None]) -> None:
        world = running_world()
        act(world)
        ends.append("goes on")

    run(partial(program, lambda world: world.kill(world.running().process)))
    run(partial(program, lambda world: world.cut_power(world.running().process.machine)))
    assert ends == []
    world = run(partial(program, lambda world: world.freeze(world.running().process, 3.0)))
    assert ends == ["goes on"]
    assert world.now == pytest.approx(3.0, abs=20 * TICK_S)


def test_faults_are_drawn_from_the_seed_before_the_run() -> None:
    faults = draw_faults(3, ["a", "b"], 200)
    assert faults == draw_faults(3, ["a", "b"], 200) != draw_faults(4, ["a", "b"], 200)
    assert {(fault.kind, fault.victim) for fault in faults} == {
        (kind, victim) for kind in ("kill", "freeze", "power", "jump") for victim in "ab"
    }
    assert all((fault.time_s is None) != (fault.operation is None) for fault in faults)
    assert 70 <= sum(fault.operation is None for fault in faults) <= 130
    assert all(0.1 <= fault.seconds <= 30 for fault in faults if fault.kind == "freeze")


def test_a_fault_that_is_left_out_leaves_the_others_as_they_were() -> None:
    """Faults of a kind that does nothing, so that the schedule is the same: each happens once, with its text."""
    faults = draw_faults(0, ["p"], 20, kinds={"nothing": (0.0, 1.0)}, horizon_s=5.0, operations=10)

    def events(faults: Sequence[Fault]) -> list[tuple[float, str]]:
        with World(0, faults) as world:
            world.kinds["nothing"] = lambda _: None
            world.process("p", partial(sleep, 12, 0.5))
            world.run()
        return [(step.time_s, step.operation) for step in world.history]

    everywhere = events(faults)
    assert sum(event.startswith("fault: nothing p at ") for _, event in everywhere) == 20
    for number, fault in enumerate(faults):
        others = [(time_s, event) for time_s, event in everywhere if event != f"fault: {fault}"]
        assert events(without(faults, {number})) == others


def test_faults_are_left_out_until_none_can_go() -> None:
    faults = draw_faults(0, ["a", "b"], 12)
    culprits = {faults[3], faults[8]}
    assert shrink(faults, lambda fewer: culprits <= set(fewer)) == [faults[3], faults[8]]
    assert shrink(faults, lambda _: True) == []


def test_a_fault_by_operation_is_of_all_living_processes_of_the_name() -> None:
    """As are all faults at that operation, although the first ends the process that gets there."""
    faults = [Fault(kind, "p", operation=1) for kind in ("kill", "mark")]
    for seed in range(5):
        with World(seed, faults) as world:
            marks: list[Fault] = []
            world.kinds["mark"] = marks.append
            for _ in range(2):
                world.process("p", partial(sleep, 3, 1.0))
            world.run()
        assert [step.operation for step in world.history if step.thread == "-"].count("killed") == 2
        assert marks == faults[1:]


def test_a_fault_by_operation_happens_once_among_processes_of_a_name() -> None:
    """A process that takes the place of a killed one counts its operations anew and is not killed again."""
    with World(0, [Fault("kill", "p", operation=2), Fault("kill", "absent", time_s=1.0)]) as world:

        def start() -> None:
            process = world.process("p", partial(sleep, 3, 1.0))
            process.on_death.append(lambda: restart() if process.operations < 3 else None)

        def restart() -> None:
            world.after(5.0, start)

        start()
        world.process("other", lambda: host.sleep(20.0))
        world.run()
    assert [step.operation for step in world.history if step.process == "p" and step.thread == "-"] == [
        "fault: kill p at operation 2, 0.000000 s",
        "killed",
        "ended",
    ]


# --- speed


def test_speed_is_printed() -> None:
    """Operations and switches a second of CPU, without other work: ``pytest -s`` prints them."""

    def program() -> None:
        lock = host.Lock()

        def work() -> None:
            for _ in range(1000):
                with lock:
                    pass

        in_threads(*[work] * 10)

    for seed in range(6):
        began = time.process_time()
        world = run(program, seed)
        seconds = time.process_time() - began
        assert len(world.history) > 20_000
        operations, switches = len(world.history) / seconds, world.switches / seconds
        print(f"seed {seed}: {operations:,.0f} operations, {switches:,.0f} switches a second")  # noqa: T201 - as above
