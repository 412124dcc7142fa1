"""The network between simulated machines: messages arrive late, in another order, after a cut, or not at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType

from .faults import Fault
from .scheduler import Process, World

NEAR_S, FAR_S = 0.0002, 0.002
"""Mean time of a message within a machine, and to another one [s]."""

SLOW, SLOW_S = 0.02, 3.0
"""Share of the messages that are slow, and their longest time [s]."""

BROKEN = 0.5
"""Probability with which the sender of a message that a cut holds up learns that the connection is broken; and with
which that message is then lost."""

BROKEN_S = 5.0
"""Longest time after which it learns that [s]."""

NETWORK_KINDS: Mapping[str, tuple[float, float]] = MappingProxyType({"cut": (0.2, 8.0), "lag": (1.0, 20.0)})
"""Kinds of fault of the network of a process's machine, each with the range of its seconds: it is cut off from all
others, in one direction or both; all its messages are slow."""


def _nothing() -> None:
    """What is done where nothing has to be."""


class Place:
    """The place of a message in a :class:`Queue`: it is taken there once all before it have been."""

    def __init__(self, queue: deque[Place]) -> None:
        self._queue = queue
        self._action: Callable[[], None] | None = None
        queue.append(self)

    def fill(self, action: Callable[[], None] = _nothing) -> None:
        """Note that the message has arrived, and how it is taken; by default that it was lost."""
        self._action = action
        while self._queue and (first := self._queue[0])._action is not None:
            self._queue.popleft()
            first._action()


class Network:
    """The network of a world.

    Attributes
    ----------
    random
        Draws the times and losses of messages.
    """

    def __init__(self, world: World) -> None:
        self.world, self.random = world, world.random("network")
        self._cuts: dict[tuple[str, str], float] = {}
        self._lags: dict[str, float] = {}
        world.kinds.update(dict.fromkeys(NETWORK_KINDS, self._strike))

    def send(
        self,
        source: str,
        target: str,
        arrive: Callable[[], None],
        lose: Callable[[], None] = _nothing,
        drop: Callable[[], None] = _nothing,
    ) -> None:
        """Send a message from a machine to another.

        Parameters
        ----------
        source, target
            Names of the machines.
        arrive
            Called when it arrives.
        lose
            Called if the sender learns that the connection is broken; the message may arrive all the same.
        drop
            Called in place of `arrive` if it does not.
        """
        self.world.after(self._delay(source, target), lambda: self._come(source, target, arrive, lose, drop))

    def cut(self, machine: str, seconds: float) -> None:
        """Cut a machine off from all others, in a direction that is drawn, or in both."""
        until, way = self.world.now + seconds, self.random.choice(("out", "in", "both"))
        for other in self.world.machines:
            for pair, ways in (((machine, other), ("out", "both")), ((other, machine), ("in", "both"))):
                if other != machine and way in ways:
                    self._cuts[pair] = max(self._cuts.get(pair, 0.0), until)
        self.world.note(machine, f"is cut off ({way})")

    def _come(
        self,
        source: str,
        target: str,
        arrive: Callable[[], None],
        lose: Callable[[], None],
        drop: Callable[[], None],
    ) -> None:
        until = self._cuts.get((source, target), 0.0)
        if until <= self.world.now:
            arrive()
            return
        if lose is not _nothing and self.random.random() < BROKEN:
            self.world.after(self.random.uniform(0.0, BROKEN_S), lose)
            lose = _nothing
            if self.random.random() < BROKEN:
                drop()
                return
        again = until + self._delay(source, target)
        self.world.at(again, lambda: self._come(source, target, arrive, lose, drop))

    def _delay(self, source: str, target: str) -> float:
        lags = any(self._lags.get(machine, 0.0) > self.world.now for machine in (source, target))
        if lags or self.random.random() < SLOW:
            return self.random.uniform(0.0, SLOW_S)
        return self.random.expovariate(1 / (NEAR_S if source == target else FAR_S))

    def _strike(self, fault: Fault) -> None:
        for machine in _machines(self.world.victims(fault)):
            if fault.kind == "cut":
                self.cut(machine, fault.seconds)
            else:
                self._lags[machine] = max(self._lags.get(machine, 0.0), self.world.now + fault.seconds)


def _machines(processes: list[Process]) -> list[str]:
    return list(dict.fromkeys(process.machine.name for process in processes))
