"""Small programs of many threads, some with a planted bug that needs a certain schedule."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from . import host
from .scheduler import World


def in_threads(*targets: Callable[[], object]) -> None:
    """Run targets side by side until all have ended."""
    threads = [host.Thread(target=target, name=f"t{number}") for number, target in enumerate(targets)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def lost_wake_up(*, correct: bool) -> None:
    """A consumer looks for an item before it takes the lock, so that the notification may come in between."""
    condition, items = host.Condition(), list[int]()

    def consume() -> None:
        empty = not items
        with condition:
            if not items if correct else empty:
                condition.wait()

    def produce() -> None:
        with condition:
            items.append(1)
            condition.notify()

    in_threads(consume, produce)


def lock_order(*, correct: bool) -> None:
    """Two threads take two locks in opposite orders, beside a third one whose timer never lets the world rest."""
    first, second, ended = host.Lock(), host.Lock(), host.Event()

    def take(outer: host.Lock, inner: host.Lock) -> None:
        host.sleep(0.01)
        with outer, inner:
            pass

    def poll() -> None:
        while not ended.wait(1.0):
            pass

    poller = host.Thread(target=poll, name="poller", daemon=True)
    poller.start()
    in_threads(partial(take, first, second), partial(take, first, second) if correct else partial(take, second, first))
    ended.set()


def race(*, correct: bool) -> None:
    """Two threads add to a number in two steps, each under the lock; correct: in one."""
    lock, total = host.Lock(), [0]

    def add() -> None:
        with lock:
            before = total[0]
            if correct:
                total[0] = before + 1
        if not correct:
            with lock:
                total[0] = before + 1

    in_threads(add, add)
    assert total == [2], f"total: {total}"


def everything(world: World) -> None:
    """Two processes that use every primitive, and talk through a queue that no real processes could share."""
    messages = host.SimpleQueue[str]()

    def sender() -> None:
        lock, event, condition = host.Lock(), host.Event(), host.Condition()
        words = {"alpha", "beta", "gamma"}  # its order depends on PYTHONHASHSEED

        def work(number: int) -> None:
            for _ in range(20):
                with lock:
                    host.sleep(0.001 * number)
                with condition:
                    condition.notify_all()
            messages.put(f"{number} {host.mark()} {len(words)}")

        def watch() -> None:
            while not event.wait(0.01):
                with condition:
                    condition.wait(0.005)

        watcher = host.Thread(target=watch)
        watcher.start()
        in_threads(*(partial(work, number) for number in range(5)))
        event.set()
        watcher.join()

    def receiver() -> None:
        future = host.Future[str]()
        host.Thread(target=lambda: future.set_result(messages.get())).start()
        host.wait([future], timeout=60.0)
        for _ in range(4):
            messages.get()

    world.process("sender", sender)
    world.process("receiver", receiver, "other machine", speed=1e4)


def transcript(seed: int) -> str:
    """Digests and history of :func:`everything`."""
    with World(seed) as world:
        everything(world)
        world.run()
    assert world.crashes == []
    return "\n".join([world.history.digest, *world.history.digests, world.history.text()])
