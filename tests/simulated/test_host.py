"""What the virtual host's primitives do is what the standard library's do: each contract runs on both."""

from __future__ import annotations

import itertools
import queue
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from . import host as virtual
from .faults import Fault
from .scheduler import TICK_S, World

SEEDS = 30
"""Schedules on which a contract runs on the virtual host."""

SEAM = "skedge.live.host"
"""Where the live part takes its primitives from; contracts run through it as soon as it is there."""

SHORT_S = 0.01
LONG_S = 60.0

REAL = SimpleNamespace(
    **{name: getattr(threading, name) for name in ("Thread", "Lock", "RLock", "Condition", "Event", "get_ident")},
    **{name: getattr(queue, name) for name in ("SimpleQueue", "Queue", "Empty", "Full")},
    **{name: getattr(time, name) for name in ("monotonic", "perf_counter", "sleep", "time", "strftime")},
    **{name: getattr(futures, name) for name in ("Future", "wait")},
    mark=partial(secrets.token_hex, 8),
)
"""The standard library as a host."""

CONTRACTS: list[Callable[[Any], None]] = []


def contract(program: Callable[[Any], None]) -> Callable[[Any], None]:
    """Mark a program that must run without error on every host."""
    CONTRACTS.append(program)
    return program


def simulate(program: Callable[[], None], seed: int = 0, **settings: Any) -> World:
    """Run a program as the only process of a world; what any of its threads raises is raised."""
    with World(seed, **settings) as world:
        world.process("p", program)
        world.run()
        for crash in world.crashes:
            raise crash.error
    return world


def on_virtual(program: Callable[[Any], None]) -> None:
    for seed in range(SEEDS):
        simulate(partial(program, virtual), seed)


def on_seam(program: Callable[[Any], None]) -> None:
    """As the live part sees the virtual host: installed in the place of the real one."""
    seam = import_module(SEAM)
    for seed in range(SEEDS):
        with seam.installed(virtual):
            simulate(partial(program, seam_and_rlock(seam)), seed)


def seam_and_rlock(seam: Any) -> SimpleNamespace:
    """The seam's names; it has no RLock of its own, as its conditions have one."""
    return SimpleNamespace(RLock=virtual.RLock, **{name: getattr(seam, name) for name in seam.__all__})


HOSTS: dict[str, Callable[[Callable[[Any], None]], None]] = {
    "real": lambda program: program(REAL),
    "virtual": on_virtual,
    **({"seam": on_seam} if find_spec(SEAM) else {}),
}


@contextmanager
def thread(host: Any, target: Callable[[], object]) -> Iterator[Any]:
    """A thread that is joined at the end of the block."""
    started = host.Thread(target=target, daemon=True)
    started.start()
    yield started
    started.join(LONG_S)
    assert not started.is_alive()


def eventually(host: Any, holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = host.monotonic() + LONG_S
    while not holds():
        assert host.monotonic() < end
        host.sleep(SHORT_S)


# --- threads


@contract
def a_thread_runs_its_target_until_it_ends(host: Any) -> None:
    calls: list[object] = []
    runner = host.Thread(target=lambda *args, **more: calls.append((args, more)), name="n", args=(1,), kwargs={"a": 2})
    assert (runner.is_alive(), runner.ident, runner.name, runner.daemon) == (False, None, "n", False)
    runner.start()
    runner.join()
    assert not runner.is_alive()
    assert calls == [((1,), {"a": 2})]


@contract
def a_thread_is_started_once_and_joined_by_another(host: Any) -> None:
    refusals: list[str] = []

    def join_itself() -> None:
        with pytest.raises(RuntimeError, match="cannot join current thread") as refusal:
            runner.join()
        refusals.append(str(refusal.value))

    runner = host.Thread(target=join_itself)
    with pytest.raises(RuntimeError, match="cannot join thread before it is started"):
        runner.join()
    runner.start()
    with pytest.raises(RuntimeError, match="threads can only be started once"):
        runner.start()
    runner.join()
    assert len(refusals) == 1


@contract
def a_join_ends_after_its_timeout(host: Any) -> None:
    over = host.Event()
    with thread(host, over.wait) as runner:
        began = host.monotonic()
        runner.join(SHORT_S)
        assert runner.is_alive()
        assert host.monotonic() - began >= 0.9 * SHORT_S
        over.set()


@contract
def a_thread_can_be_a_subclass_and_has_a_number_of_its_own(host: Any) -> None:
    numbers: list[int] = []

    class Runner(host.Thread):  # type: ignore[misc]
        def run(self) -> None:
            numbers.append(host.get_ident())

    runners = [Runner(), Runner()]
    for runner in runners:
        runner.start()
        runner.join()
    assert numbers == [runner.ident for runner in runners]
    assert 0 not in numbers
    assert host.get_ident() not in numbers


# --- locks


def counted(host: Any, lock: Any) -> None:
    """Threads add to a number in two steps under a lock; none is lost."""
    total = [0]

    def add() -> None:
        for _ in range(3):
            with lock:
                before = total[0]
                host.sleep(0)
                total[0] = before + 1

    threads = [host.Thread(target=add) for _ in range(4)]
    for adder in threads:
        adder.start()
    for adder in threads:
        adder.join()
    assert total == [12]


@contract
def a_lock_excludes(host: Any) -> None:
    counted(host, host.Lock())


@contract
def an_rlock_excludes(host: Any) -> None:
    counted(host, host.RLock())


@contract
def a_condition_excludes(host: Any) -> None:
    counted(host, host.Condition())


@contract
def a_held_lock_is_refused_at_once_or_after_a_timeout(host: Any) -> None:
    lock = host.Lock()
    assert lock.acquire()
    assert lock.locked()
    assert not lock.acquire(blocking=False)
    began = host.monotonic()
    assert not lock.acquire(timeout=SHORT_S)
    assert host.monotonic() - began >= 0.9 * SHORT_S
    lock.release()
    assert not lock.locked()
    assert lock.acquire(blocking=False)


@contract
def a_lock_refuses_wrong_calls(host: Any) -> None:
    lock = host.Lock()
    with pytest.raises(RuntimeError, match="release unlocked lock"):
        lock.release()
    with pytest.raises(ValueError, match="can't specify a timeout for a non-blocking call"):
        lock.acquire(blocking=False, timeout=1)
    with pytest.raises(ValueError, match="timeout value must be"):
        lock.acquire(timeout=-2)


@contract
def a_lock_may_be_released_by_another_thread(host: Any) -> None:
    lock = host.Lock()
    lock.acquire()
    with thread(host, lock.release):
        assert lock.acquire(timeout=LONG_S)


@contract
def an_rlock_is_free_when_it_was_released_as_often_as_taken(host: Any) -> None:
    lock, tries = host.RLock(), []

    def attempt() -> None:
        tries.append(lock.acquire(blocking=False))
        if tries[-1]:
            lock.release()

    for _ in range(3):
        assert lock.acquire()
    for _ in range(3):
        with thread(host, attempt):
            pass
        lock.release()
    with thread(host, attempt):
        pass
    assert tries == [False, False, False, True]


@contract
def an_rlock_is_released_by_its_own_thread_alone(host: Any) -> None:
    lock, refusals = host.RLock(), []

    def release() -> None:
        with pytest.raises(RuntimeError, match="cannot release un-acquired lock") as refusal:
            lock.release()
        refusals.append(refusal)

    with lock, thread(host, release):
        pass
    release()
    assert len(refusals) == 2


# --- conditions


@contract
def a_wait_ends_without_a_notification(host: Any) -> None:
    condition = host.Condition()
    with condition:
        condition.notify()  # is not remembered
        assert not condition.wait(SHORT_S)
        assert not condition.wait_for(lambda: False, SHORT_S)
        assert condition.wait_for(lambda: "value") == "value"


@contract
def a_condition_is_used_under_its_lock(host: Any) -> None:
    for condition in (host.Condition(), host.Condition(host.Lock())):
        with pytest.raises(RuntimeError, match="cannot wait on un-acquired lock"):
            condition.wait(SHORT_S)
        with pytest.raises(RuntimeError, match="cannot notify on un-acquired lock"):
            condition.notify()


def notified(host: Any, notify: Callable[[Any], None]) -> tuple[int, int]:
    """Of three waiting threads, how many end after one call, and how many after a last one to all."""
    condition, waiting, ended = host.Condition(), [0], [0]

    def wait() -> None:
        with condition:
            waiting[0] += 1
            condition.wait()
            ended[0] += 1

    threads = [host.Thread(target=wait) for _ in range(3)]
    for waiter in threads:
        waiter.start()
    eventually(host, lambda: waiting == [3])
    with condition:
        notify(condition)
        assert ended == [0]  # until the lock is released
    host.sleep(SHORT_S)
    eventually(host, lambda: ended[0] > 0)
    host.sleep(SHORT_S)
    with condition:
        first = ended[0]
        condition.notify_all()
    for waiter in threads:
        waiter.join()
    return first, ended[0]


@contract
def a_notification_wakes_one(host: Any) -> None:
    assert notified(host, lambda condition: condition.notify()) == (1, 3)


@contract
def a_notification_of_all_wakes_all(host: Any) -> None:
    first, last = notified(host, lambda condition: condition.notify_all())
    assert 1 <= first <= last == 3


@contract
def a_wait_releases_a_lock_taken_twice_and_takes_it_twice_again(host: Any) -> None:
    condition, values = host.Condition(), []

    def write() -> None:
        with condition:
            values.append("written")
            condition.notify()

    with condition, condition:
        runner = host.Thread(target=write)
        runner.start()
        assert condition.wait_for(lambda: values, LONG_S) == ["written"]
    runner.join()
    with pytest.raises(RuntimeError):
        condition.release()


@contract
def conditions_share_a_lock(host: Any) -> None:
    lock = host.Lock()
    first, second = host.Condition(lock), host.Condition(lock)
    with first:
        assert lock.locked()
        second.notify_all()
        assert not second.wait(SHORT_S)
    assert not lock.locked()


# --- events


@contract
def an_event_stays_set_until_it_is_cleared(host: Any) -> None:
    event = host.Event()
    assert not event.is_set()
    began = host.monotonic()
    assert not event.wait(SHORT_S)
    assert host.monotonic() - began >= 0.9 * SHORT_S
    event.set()
    assert event.is_set()
    assert event.wait()
    assert event.wait(0)
    event.clear()
    assert not event.wait(0)


@contract
def an_event_wakes_all(host: Any) -> None:
    event, results = host.Event(), []
    threads = [host.Thread(target=lambda: results.append(event.wait(LONG_S))) for _ in range(3)]
    for waiter in threads:
        waiter.start()
    event.set()
    for waiter in threads:
        waiter.join()
    assert results == [True, True, True]


@contract
def an_event_wakes_although_it_is_cleared_at_once(host: Any) -> None:
    event = host.Event()
    with thread(host, event.wait) as waiter:
        while waiter.is_alive():
            event.set()
            event.clear()
            host.sleep(0)


# --- queues


@contract
def a_queue_gives_its_items_in_order(host: Any) -> None:
    for items in (host.SimpleQueue(), host.Queue(), host.Queue(3), host.Queue[int](3), host.SimpleQueue[int]()):
        assert items.empty()
        for item in range(3):
            items.put(item)
        assert items.qsize() == 3
        assert [items.get(), items.get(timeout=LONG_S), items.get_nowait()] == [0, 1, 2]
        for get in (items.get_nowait, partial(items.get, block=False), partial(items.get, timeout=SHORT_S)):
            with pytest.raises(host.Empty):
                get()
        with pytest.raises(ValueError, match="'timeout' must be a non-negative number"):
            items.get(timeout=-1)


@contract
def a_full_queue_takes_no_item(host: Any) -> None:
    items = host.Queue(1)
    items.put_nowait("first")
    assert items.full()
    for put in (items.put_nowait, partial(items.put, block=False), partial(items.put, timeout=SHORT_S)):
        with pytest.raises(host.Full):
            put("second")
    with thread(host, partial(items.put, "second")):
        assert items.get() == "first"
        assert items.get(timeout=LONG_S) == "second"
    host.SimpleQueue().put_nowait("there is always space")


@contract
def an_item_goes_to_one_thread(host: Any) -> None:
    for items in (host.SimpleQueue(), host.Queue(2)):
        assert sorted(passed_through(host, items)) == list(range(8))


def passed_through(host: Any, items: Any) -> list[int]:
    """What three threads receive of eight items that two threads put."""
    received: list[int] = []
    consumers = [host.Thread(target=lambda: received.extend(iter(items.get, None))) for _ in range(3)]
    producers = [host.Thread(target=lambda n=n: [*map(items.put, range(n, n + 4))]) for n in (0, 4)]
    for runner in (*consumers, *producers):
        runner.start()
    for runner in producers:
        runner.join()
    for _ in consumers:
        items.put(None)
    for runner in consumers:
        runner.join()
    return received


# --- futures


@contract
def a_future_has_a_result_or_an_error(host: Any) -> None:
    future, failed = host.Future(), host.Future[int]()
    assert not future.done()
    for get in (future.result, future.exception):
        with pytest.raises(TimeoutError):
            get(timeout=SHORT_S)
    calls: list[object] = []
    future.add_done_callback(calls.append)
    with thread(host, partial(future.set_result, 7)):
        assert future.result(LONG_S) == 7
    assert future.done()
    assert future.exception() is None
    assert calls == [future]
    with pytest.raises(futures.InvalidStateError):
        future.set_result(8)
    failed.set_exception(KeyError("k"))
    with pytest.raises(KeyError):
        failed.result()
    assert isinstance(failed.exception(), KeyError)


@contract
def a_future_is_cancelled_before_it_runs(host: Any) -> None:
    future, running = host.Future(), host.Future()
    assert future.cancel()
    assert future.cancelled()
    assert future.done()
    assert not future.set_running_or_notify_cancel()
    with pytest.raises(futures.CancelledError):
        future.result()
    assert running.set_running_or_notify_cancel()
    assert running.running()
    assert not running.cancel()


@contract
def a_wait_for_futures_ends_with_the_last_or_after_its_timeout(host: Any) -> None:
    first, second = host.Future(), host.Future()
    first.set_result(1)
    done, open_ = host.wait([first, second], timeout=SHORT_S)
    assert (done, open_) == ({first}, {second})
    with thread(host, partial(second.set_result, 2)):
        assert host.wait([first, second]).done == {first, second}


# --- time


@contract
def clocks_go_on_and_marks_differ(host: Any) -> None:
    for clock in (host.monotonic, host.perf_counter):
        before = clock()
        host.sleep(SHORT_S)
        assert clock() - before >= 0.9 * SHORT_S
    host.sleep(0)
    with pytest.raises(ValueError, match="sleep length must be non-negative"):
        host.sleep(-1)
    assert host.time() > 1.7e9
    assert int(host.strftime("%Y")) >= 2025
    marks = {host.mark() for _ in range(10)}
    assert len(marks) == 10
    assert {len(mark) for mark in marks} == {16}


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize("program", CONTRACTS, ids=lambda program: program.__name__)
def test_contract(program: Callable[[Any], None], name: str) -> None:
    HOSTS[name](program)


def test_a_wrong_host_breaks_contracts() -> None:
    """A condition whose notifications are remembered, and a lock that does not exclude, are noticed."""

    class Remembering(virtual.Event):
        def notify(self) -> None:
            self.set()

        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    class Open(virtual.Lock):
        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            self._world.point("acquire")
            return True

        def release(self) -> None:
            self._world.point("release")

    def breaks(program: Callable[[Any], None], **replaced: Any) -> bool:
        try:
            for seed in range(SEEDS):
                simulate(partial(program, SimpleNamespace(**{**vars(virtual), **replaced})), seed)
        except AssertionError:
            return True
        return False

    assert breaks(a_wait_ends_without_a_notification, Condition=Remembering)
    assert breaks(a_lock_excludes, Lock=Open)


def test_the_seam_finds_all_its_names() -> None:
    seam = pytest.importorskip(SEAM)
    assert [name for name in seam.NAMES if not hasattr(virtual, name)] == []


# --- the virtual host alone


def test_each_operation_is_a_switch_point() -> None:
    """What wakes others has one before its effect and one after it, the release of a lock only the latter."""
    operations: dict[str, Callable[[], object]] = {}

    def program() -> None:
        lock, condition, event = virtual.Lock(), virtual.Condition(), virtual.Event()
        items, future = virtual.Queue[int](2), virtual.Future[int]()
        thread = virtual.Thread(target=int, name="t")
        operations.update({
            "acquire": lock.acquire, "locked": lock.locked, "release": lock.release,
            "is_set": event.is_set, "set, was set": event.set, "wait": event.wait, "clear": event.clear,
            "put, was put": partial(items.put, 1), "get": items.get, "qsize": items.qsize,
            "acquire, notify, wait, release": partial(under, condition),
            "acquire, release": future.done,
            "acquire, notify, release": partial(future.set_result, 1),
            "start t, started t, join t": partial(start_and_join, thread), "is_alive": thread.is_alive,
            "monotonic": virtual.monotonic, "time": partial(virtual.strftime, ""), "sleep": partial(virtual.sleep, 0),
            "mark": virtual.mark,
        })  # fmt: skip
        for expected, operation in operations.items():
            before = len(world.history)
            operation()
            steps = [step for step in itertools.islice(world.history, before, None) if step.thread == "main"]
            verbs = [re.sub(r" (\w+ )?\d.*$", "", step.operation) for step in steps]
            assert ", ".join(verbs) == expected

    def under(condition: virtual.Condition) -> None:
        with condition:
            condition.notify()
            condition.wait(0)

    def start_and_join(thread: virtual.Thread) -> None:
        thread.start()
        thread.join()

    with World(0) as world:
        process = world.process("p", program)
        world.run()
        for crash in world.crashes:
            raise crash.error
    assert process.operations >= len(operations)


def test_timeouts_are_in_virtual_time() -> None:
    """Days pass in no time, and to the operation: three ticks for the three operations after the first."""
    times: list[float] = []

    def program() -> None:
        event = virtual.Event()
        began = virtual.monotonic()
        virtual.sleep(86_400)
        assert not event.wait(86_400)
        times.append(virtual.monotonic() - began)

    began = time.monotonic()
    simulate(program)
    assert times == [pytest.approx(2 * 86_400 + 3 * TICK_S, abs=TICK_S / 2)]
    assert time.monotonic() - began < LONG_S


def test_a_loop_that_polls_reaches_its_deadline() -> None:
    def program() -> None:
        end = virtual.monotonic() + 50 * TICK_S
        while virtual.monotonic() < end:
            pass

    assert 50 <= simulate(program).now / TICK_S <= 55


def test_a_jump_of_the_wall_clock_leaves_the_other_clocks() -> None:
    readings: list[tuple[float, float, str]] = []

    def program() -> None:
        for _ in range(2):
            readings.append((virtual.monotonic(), virtual.time(), virtual.strftime("%Y-%m-%d %H %z")))
            virtual.sleep(10)

    simulate(program, faults=[Fault("jump", "p", time_s=5.0, seconds=-3600.0)])
    (before, wall_before, text_before), (after, wall_after, text_after) = readings
    assert after - before == pytest.approx(10, abs=0.001)
    assert wall_after - wall_before == pytest.approx(10 - 3600, abs=0.001)
    assert [text_before, text_after] == ["2026-01-01 00 +0000", "2025-12-31 23 +0000"]


def test_each_process_has_a_clock_and_all_of_a_machine_have_a_wall_clock() -> None:
    readings: list[float] = []
    with World(0) as world:
        for name, clock_s in (("a", 5.0), ("b", 70_000.0)):
            world.process(name, lambda: readings.extend((virtual.monotonic(), virtual.time())), clock_s=clock_s)
            world.run()
    assert readings[::2] == [pytest.approx(5, abs=0.001), pytest.approx(70_000, abs=0.001)]
    assert readings[1] == pytest.approx(readings[3], abs=0.001)


def test_names_in_the_history_say_where_an_object_was_made() -> None:
    def program() -> None:
        with virtual.Lock():
            pass
        virtual.Queue[int](3).put(1)
        virtual.Thread(target=print, args=("",), kwargs={"end": ""}).start()

    operations = [step.operation for step in simulate(program).history]
    line = program.__code__.co_firstlineno
    assert f"acquire lock 1 (test_host.py:{line + 1})" in operations
    assert f"put queue 1 (test_host.py:{line + 3})" in operations
    assert "started thread 2" in operations  # not Thread-57, which depends on earlier tests


def test_a_woken_thread_whose_time_is_over_loses_a_notification_as_in_the_standard_library() -> None:
    """Some schedule notifies after the first waiter's timeout and before it has run: the second then waits for ever."""
    outcomes = set()
    for seed in range(200):
        results: list[bool] = []

        def program(results: list[bool] = results) -> None:
            condition = virtual.Condition(virtual.Lock())

            def wait(timeout: float) -> None:
                with condition:
                    results.append(condition.wait(timeout))

            waiters = [virtual.Thread(target=wait, args=(timeout,)) for timeout in (1.0, 100.0)]
            for waiter in waiters:
                waiter.start()
            virtual.sleep(1.0)
            with condition:
                condition.notify()
            for waiter in waiters:
                waiter.join()

        simulate(program, seed)
        outcomes.add(tuple(sorted(results)))
    assert outcomes == {(False, False), (False, True)}


def test_a_wake_up_and_a_timeout_at_once_count_as_one() -> None:
    """Whichever comes first ends the wait, and the other does not end the next one."""
    outcomes = set()
    for seed in range(200):
        results: list[bool] = []

        def program(offset: int = seed % 30 - 15, results: list[bool] = results) -> None:
            event = virtual.Event()

            def wait() -> None:
                results.append(event.wait(1.0))
                began = virtual.monotonic()
                virtual.sleep(5.0)
                results.append(virtual.monotonic() - began >= 5.0)

            waiter = virtual.Thread(target=wait)
            waiter.start()
            virtual.sleep(1.0 + offset * TICK_S)
            event.set()
            for _ in range(20):
                virtual.monotonic()
            waiter.join()

        simulate(program, seed)
        outcomes.add(tuple(results))
    assert outcomes == {(True, True), (False, True)}


def test_what_a_timer_does_is_no_operation() -> None:
    """It wakes threads outside of any."""
    with World(0) as world:
        event = virtual.Event()
        process = world.process("p", event.wait)
        world.at(1.0, event.set)
        world.run()
    assert process.operations == 1
    assert [step.operation.partition(" ")[0] for step in world.history] == ["wait", "ended", "ended"]


def test_all_names_are_there() -> None:
    assert [name for name in virtual.__all__ if not hasattr(virtual, name)] == []
    assert set(itertools.chain(vars(REAL))) - set(virtual.__all__) == set()
    assert import_module("simulated.host") is virtual
