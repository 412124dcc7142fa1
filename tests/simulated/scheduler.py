"""One seeded scheduler with virtual time: threads are greenlets, processes can be killed and frozen.

A thread runs until its next operation of the simulated host (:mod:`simulated.host`): there another thread may run
next, drawn from the seed, and there faults happen. So a run depends on the seed, the faults and the program alone.
Virtual time passes by :data:`TICK_S` at each operation, and to the next timer when no thread can run.
"""

from __future__ import annotations

import heapq
import itertools
import math
import sys
import typing
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, NamedTuple, Self

from greenlet import getcurrent, greenlet

from .faults import Fault
from .history import History

TICK_S = 1e-6
"""Virtual time of an operation, so that a loop that polls reaches its deadline."""

SWITCHING = (0.05, 0.3, 1.0)
"""Probabilities, one drawn per seed, of drawing the next thread at an operation: some bugs need few switches."""

MACHINERY = frozenset({__file__, str(Path(__file__).with_name("host.py")), typing.__file__})
"""Files whose lines are not where an object was made."""


class EndOfRunError(BaseException):
    """Raised by every operation after the end of the run, so that the threads left over unwind without effect."""


class DeadlockError(AssertionError):
    """Threads wait for each other, or nothing can happen any more; the message says who waits for what."""


class Crash(NamedTuple):
    """A thread that ended with an exception."""

    process: str
    thread: str
    error: BaseException


@dataclass(eq=False)
class Machine:
    """A machine: its wall clock, and what happens to it when its power is cut.

    Attributes
    ----------
    name
        For the history.
    jump_s
        What its wall clock is ahead [s].
    on_power_cut
        Called after its processes have been killed.
    """

    name: str
    jump_s: float = 0.0
    on_power_cut: list[Callable[[], None]] = field(default_factory=list)


class Process:
    """A simulated process.

    Attributes
    ----------
    alive, frozen
        Whether it has not ended, and whether its threads are not scheduled; its timers pass meanwhile.
    operations
        Number of operations so far.
    threads
        Those that have not ended, in the order in which they were started.
    on_death
        Called when it ends, by itself or killed.
    extras
        What other modules keep of it.
    """

    def __init__(self, name: str, machine: Machine, clock_s: float, speed: float) -> None:
        self.name, self.machine, self.clock_s, self.speed = name, machine, clock_s, speed
        self.alive, self.frozen, self.lasting, self.operations = True, False, False, 0
        self.threads: list[Task] = []
        self.on_death: list[Callable[[], None]] = []
        self.extras: dict[str, Any] = {}


class Timer:
    """An action at a virtual time; it can be cancelled."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Leave the action out; no effect afterwards."""
        self.action = None


class Task:
    """A simulated thread.

    Attributes
    ----------
    ready, done
        Whether it can run, and whether it has ended.
    waiting, timer
        What it waits for, or None; the timer that ends its wait, None for a wait without limit.
    ended
        The threads that wait for its end.
    """

    def __init__(self, world: World, process: Process, name: str, number: int) -> None:
        self.process, self.name, self.number = process, name, number
        self.daemon = self.ready = self.done = self.late = False
        self.waiting: Waiters | None = None
        self.timer: Timer | None = None
        self.ended = Waiters(world, f"end of {name}", self)
        self.greenlet: Any = None

    def __str__(self) -> str:
        return f"{self.process.name}/{self.name}"


class Waiters:
    """The threads that wait for one thing: a lock, an item, a time.

    Attributes
    ----------
    holder
        The thread that must act before the others can: it holds the lock, or its end is waited for. None: any may.
    """

    def __init__(self, world: World, name: str, holder: Task | None = None) -> None:
        self.world, self.name, self.holder = world, name, holder
        self._tasks: list[Task] = []

    def __len__(self) -> int:
        return len(self._tasks)

    def __str__(self) -> str:
        if self.holder is None or self.holder.ended is self:
            return self.name
        return f"{self.name}, held by {self.holder}{', which has ended' if self.holder.done else ''}"

    def wait(self, timeout: float | None = None) -> bool:
        """Block the running thread until it is woken; False if `timeout` [s] passed before that."""
        world, task = self.world, self.world.running()
        self._tasks.append(task)
        task.waiting, task.late = self, False
        if timeout is not None:
            task.timer = world.after(timeout, lambda: self._late(task))
        elif self.holder is not None:
            self._check(task)
        world.switch()
        if task.timer is not None:
            task.timer.cancel()
        task.waiting = task.timer = None
        if task in self._tasks:
            self._tasks.remove(task)
        return not task.late

    def wait_until(self, holds: Callable[[], bool], timeout: float | None = None) -> bool:
        """Block the running thread until a condition holds whenever it is woken; False if `timeout` [s] passed."""
        end = math.inf if timeout is None else self.world.now + timeout
        while not holds():
            if self.world.now >= end:
                return False
            self.wait(None if timeout is None else end - self.world.now)
        return True

    def wake(self, n: int | None = None) -> None:
        """Let the first `n` threads run, in the order in which they came; None: all.

        As in the standard library, a thread whose time is over counts until it has run: a wake-up can be lost to it.
        """
        woken = self._tasks[:n]
        del self._tasks[:n]
        for task in woken:
            self.world.make_ready(task)

    def _late(self, task: Task) -> None:
        if not task.ready:
            task.late = True
            self.world.make_ready(task)

    def _check(self, task: Task) -> None:
        """Report a circle of threads that wait for each other without limit, or a holder that has ended."""
        circle, waiters = [task], self
        while waiters.holder is not None:
            holder = waiters.holder
            if holder is task or holder.done:
                self.world.fail(DeadlockError("\n".join(f"{member} waits for {member.waiting}" for member in circle)))
            if holder.ready or holder.waiting is None or holder.timer is not None:
                return
            circle.append(holder)
            waiters = holder.waiting


class World:
    """A simulated world: the scheduler, its processes and machines, their time, and the history.

    Parameters
    ----------
    seed
        Draws the schedule; all other randomness of the run should come from :meth:`random`.
    faults
        What goes wrong.
    speed
        Operations a virtual second of new processes, on the average; infinite: an operation takes no time but a tick.

    Attributes
    ----------
    now
        Virtual time [s].
    task
        The thread that runs; None between threads and outside of :meth:`run`.
    history
        All operations, and what happened to processes and machines.
    crashes
        Threads that ended with an exception.
    kinds
        What each kind of fault does; callers add their own.
    sleepers, marks
        The threads that sleep, and random numbers for marks.
    extras
        What other modules keep of it.
    """

    current: World | None = None

    def __init__(self, seed: int, faults: Iterable[Fault] = (), speed: float = math.inf) -> None:
        self.seed, self.speed = seed, speed
        self.now, self.switches, self.over = 0.0, 0, False
        self.task: Task | None = None
        self.extras: dict[str, Any] = {}
        self.history = History()
        self.crashes: list[Crash] = []
        self.processes: list[Process] = []
        self.machines: dict[str, Machine] = {}
        self.kinds: dict[str, Callable[[Fault], None]] = {
            "kill": lambda fault: self._each_victim(fault, self.kill),
            "freeze": lambda fault: self._each_victim(fault, lambda process: self.freeze(process, fault.seconds)),
            "power": lambda fault: self._each_victim(fault, lambda process: self.cut_power(process.machine)),
            "jump": self._jump,
        }
        self.sleepers, self.marks = Waiters(self, "the time"), self.random("marks")
        self._schedule = self.random("schedule")
        self._switching = self._schedule.choice(SWITCHING)
        self._hub = getcurrent()
        self._ready: list[Task] = []
        self._tasks: dict[Task, None] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._number, self._order, self._names = itertools.count(1), itertools.count(), Counter[str]()
        self._failure: BaseException | None = None
        self._by_operation: dict[str, dict[int, list[Fault]]] = {}
        self._near: dict[str, dict[Fault, int]] = {}
        for fault in faults:
            if fault.operation is not None and fault.near:
                self._near.setdefault(fault.victim, {})[fault] = fault.operation
            elif fault.operation is not None:
                self._by_operation.setdefault(fault.victim, {}).setdefault(fault.operation, []).append(fault)
            else:
                self.at(fault.time_s or 0.0, partial(self.apply, fault))

    def __enter__(self) -> Self:
        if World.current is not None:
            raise RuntimeError("another world is being simulated")
        World.current = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end()
        finally:
            World.current = None

    # --- processes and threads

    def machine(self, name: str) -> Machine:
        """The machine of a name, made at its first mention."""
        return self.machines.setdefault(name, Machine(name))

    def process(
        self,
        name: str,
        main: Callable[[], object] | None = None,
        machine: str = "machine",
        clock_s: float = 1000.0,
        speed: float | None = None,
    ) -> Process:
        """Start a process.

        Parameters
        ----------
        name
            For faults and the history; the process that replaces a dead one may have the same.
        main
            What its main thread does. It ends when all threads but daemons have ended; without a main thread it stays
            until it is killed.
        machine
            Name of its machine.
        clock_s
            Its monotonic clock when the run starts [s].
        speed
            Operations a virtual second; None: the world's.
        """
        process = Process(name, self.machine(machine), clock_s, self.speed if speed is None else speed)
        process.lasting = main is None
        self.processes.append(process)
        if main is not None:
            self.spawn(process, main, "main")
        return process

    def spawn(self, process: Process, run: Callable[[], object], name: str = "", *, daemon: bool = False) -> Task:
        """Start a thread of a process.

        Parameters
        ----------
        process, run
            The process, and what the thread does.
        name
            For the history; empty: the thread's number.
        daemon
            Whether the process may end before it.
        """
        number = next(self._number)
        task = Task(self, process, name or f"thread {number}", number)
        task.daemon = daemon
        task.greenlet = greenlet(lambda: self._run(task, run), self._hub)
        process.threads.append(task)
        self._tasks[task] = None
        self.make_ready(task)
        return task

    def kill(self, process: Process) -> None:
        """End a process at once: its threads never run again, and their ``finally`` blocks have no effect."""
        self._leave(process, "killed")
        self._stop(process)

    def freeze(self, process: Process, seconds: float = math.inf) -> None:
        """Stop a process for some time, or until it is thawed."""
        process.frozen = True
        self.note(process.name, "frozen")
        if seconds < math.inf:
            self.after(seconds, partial(self.thaw, process))
        self._stop(process)

    def thaw(self, process: Process) -> None:
        """Let a frozen process go on."""
        process.frozen = False
        self.note(process.name, "thawed")

    def cut_power(self, machine: Machine) -> None:
        """End all processes of a machine at once; its disks lose what was not flushed."""
        self.note(machine.name, "power cut")
        for process in self.processes:
            if process.machine is machine:
                self._leave(process, "killed")
        for action in machine.on_power_cut:
            action()
        if self.task is not None:
            self._stop(self.task.process)

    def apply(self, fault: Fault) -> None:
        """Let a fault happen now."""
        self.note(fault.victim, f"fault: {fault}")
        self.kinds[fault.kind](fault)

    def victims(self, fault: Fault) -> list[Process]:
        """The living processes that a fault is about."""
        return [process for process in self.processes if process.name == fault.victim and process.alive]

    # --- what operations are made of

    def point(self, operation: str) -> None:
        """Note an operation of the running thread; another may run before it goes on, and faults happen here."""
        if self.over:
            raise EndOfRunError
        task = self.task
        if task is None:
            return
        process = task.process
        self.now += TICK_S
        process.operations += 1
        self._note(process.name, task.name, operation)
        due = self._due(process, operation)
        if due:
            self.task = None  # faults happen outside of threads, those of its own process too
            for fault in due:
                self.apply(fault)
            self.task = task
            self._stop(process)
        if process.speed < math.inf:
            self.after(self._schedule.expovariate(process.speed), lambda: self.make_ready(task))
            self.switch()
        elif self._schedule.random() < self._switching:
            self.make_ready(task)
            self.switch()

    def running(self) -> Task:
        """The running thread; operations that may block need one."""
        if self.over:
            raise EndOfRunError
        if self.task is None:
            raise RuntimeError("only a simulated thread can do this")
        return self.task

    def switch(self) -> None:
        """Let other threads run until this one has been made ready and is drawn."""
        self._hub.switch()

    def make_ready(self, task: Task) -> None:
        """Let a thread run again."""
        if not task.ready and not task.done and task.process.alive:
            task.ready = True
            self._ready.append(task)

    def fail(self, error: BaseException) -> None:
        """End the run: :meth:`run` raises the error."""
        self._failure = error
        self.switch()

    def at(self, time_s: float, action: Callable[[], None]) -> Timer:
        """Do something at a virtual time [s]."""
        timer = Timer(action)
        heapq.heappush(self._timers, (max(time_s, self.now), next(self._order), timer))
        return timer

    def after(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Do something after some virtual time [s]."""
        return self.at(self.now + seconds, action)

    def name(self, kind: str) -> str:
        """A name for a new object: its kind, its number, and the line that made it."""
        self._names[kind] += 1
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename in MACHINERY:
            frame = frame.f_back
        return f"{kind} {self._names[kind]} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"

    def random(self, purpose: str) -> Random:
        """A stream of random numbers of this seed, independent of the schedule."""
        return Random(f"{self.seed} {purpose}")  # noqa: S311 - no secret

    # --- the run

    def run(self, until: Callable[[], bool] | None = None, limit_s: float = math.inf) -> bool:
        """Run until a condition holds, or every process has ended.

        Parameters
        ----------
        until
            Looked at between threads; None: until all processes but those without a main thread have ended.
        limit_s
            Virtual time at which the run is given up [s].

        Returns
        -------
        False if it was given up.

        Raises
        ------
        DeadlockError
            If locks are waited for in a circle, or nothing can happen any more.
        """
        holds = until or self._all_ended
        while not holds():
            if self.now > limit_s:
                return False
            if self._timers and self._timers[0][0] <= self.now:
                self._fire()
            elif (task := self._drawn()) is not None:
                self.task, self.switches = task, self.switches + 1
                task.greenlet.switch()
                self.task = None
            elif self._timers:
                self._fire()
            else:
                raise DeadlockError("nothing can happen any more:\n" + "\n".join(self.waits()))
            if self._failure is not None:
                raise self._failure
        return True

    def waits(self) -> list[str]:
        """What each thread of a living process waits for."""
        alive = [task for task in self._tasks if task.process.alive]
        return [f"{task} {'is frozen' if task.process.frozen else f'waits for {task.waiting}'}" for task in alive]

    def note(self, subject: str, event: str) -> None:
        """Add an event that is no operation to the history."""
        self._note(subject, "-", event)

    def _note(self, process: str, thread: str, operation: str) -> None:
        self.history.note(self.now, process, thread, operation)

    def _due(self, process: Process, operation: str) -> list[Fault]:
        """The faults that happen before an operation of a process."""
        due, near = (
            self._by_operation.get(process.name, {}).pop(process.operations, []),
            self._near.get(process.name, {}),
        )
        for fault in [fault for fault in near if operation.startswith(fault.near)]:
            near[fault] -= 1
            if near[fault] == 0:
                del near[fault]
                due = [*due, fault]
        return due

    def _drawn(self) -> Task | None:
        tasks = [task for task in self._ready if not task.process.frozen]
        if not tasks:
            return None
        task = tasks[int(self._schedule.random() * len(tasks))]
        self._ready.remove(task)
        task.ready = False
        return task

    def _fire(self) -> None:
        time_s, _, timer = heapq.heappop(self._timers)
        if timer.action is not None:
            self.now = max(self.now, time_s)
            timer.action()

    def _run(self, task: Task, run: Callable[[], object]) -> None:
        try:
            run()
        except SystemExit:  # as in a real thread
            pass
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if self.over:
                return
            self.crashes.append(Crash(task.process.name, task.name, error))
            self._note(task.process.name, task.name, f"crashed: {type(error).__name__}")
        if self.over:
            return
        self._note(task.process.name, task.name, "ended")
        task.done = True
        del self._tasks[task]
        task.process.threads.remove(task)
        task.ended.wake()
        if not task.process.lasting and all(other.daemon for other in task.process.threads):
            self._leave(task.process, "ended")

    def _leave(self, process: Process, how: str) -> None:
        if process.alive:
            process.alive = False
            self.note(process.name, how)
            self._ready = [task for task in self._ready if task.process is not process]
            for action in process.on_death:
                action()

    def _stop(self, process: Process) -> None:
        """Stop the running thread if its process is this one and has just been killed or frozen."""
        if self.task is not None and self.task.process is process and (process.frozen or not process.alive):
            self.make_ready(self.task)
            self.switch()

    def _each_victim(self, fault: Fault, act: Callable[[Process], None]) -> None:
        for process in self.victims(fault):
            act(process)

    def _jump(self, fault: Fault) -> None:
        for process in self.victims(fault):
            process.machine.jump_s += fault.seconds

    def _all_ended(self) -> bool:
        return not any(process.alive and not process.lasting for process in self.processes)

    def _end(self) -> None:
        self.over = True
        for task in self._tasks:
            with suppress(EndOfRunError):  # of threads that have not begun
                task.greenlet.throw(EndOfRunError)
        self._tasks.clear()


def running_world() -> World:
    """The world that is being simulated."""
    if World.current is None:
        raise RuntimeError("no world is being simulated")
    return World.current
