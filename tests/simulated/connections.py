"""Connections between the simulated processes of a job: what :mod:`skedge.live.worker.links` has of real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from skedge.live import host
from skedge.live.worker import agent, ps_actor

from .scheduler import Waiters, World, running_world

if TYPE_CHECKING:
    from .children import SimulatedChild

LOOK_S = 0.5
"""How soon the end of a process is seen at the other end of its connections [s]."""


class SimulatedLink:
    """A connection of a worker's process to that of its parameter server.

    Attributes
    ----------
    orders, contributions
        What was sent and not received, each way; an order is (window, chunk, step, parameters), of which the chunk is
        -1 if the window is over.
    """

    def __init__(self, listener: SimulatedListener, number: int) -> None:
        self.world, self.listener, self.number = running_world(), listener, number
        self.orders, self.contributions = list[tuple[int, int, int, bytes]](), list[bytes]()
        self.worker: SimulatedChild | None = None
        self.closed = False
        self.changed = Waiters(self.world, "a connection")

    def __enter__(self) -> SimulatedLink:
        return self

    def __exit__(self, *_: object) -> None:
        """The process has it now."""

    @property
    def is_up(self) -> bool:
        """Whether both processes live and have not closed it."""
        return not self.closed and self.listener.is_up and self.worker is not None and self.worker.lives

    def close(self) -> None:
        """Close it."""
        self.closed = True
        self.wake()

    def wake(self) -> None:
        """Let both ends look at it."""
        for waiters in (self.changed, self.listener.changed):
            waiters.wake()


class SimulatedListener:
    """Where the process of a parameter server listens."""

    def __init__(self) -> None:
        self.world = running_world()
        self.address, self.socket = host.mark(), self
        self.child: SimulatedChild | None = None
        self.links: dict[int, SimulatedLink] = {}
        self.waiting: dict[int, SimulatedLink] = {}
        self.refused = set[int]()
        self.changed = Waiters(self.world, "connections")
        _listeners(self.world)[self.address] = self

    @property
    def is_up(self) -> bool:
        """Whether its process lives."""
        return self.child is not None and self.child.lives

    def close(self) -> None:
        """Listen no more."""
        _listeners(self.world).pop(self.address, None)

    def connected(self, numbers: set[int]) -> bool:
        """Whether the processes of some connections have them; looks at those that wait, as only this does."""
        for number in [number for number, link in self.waiting.items() if link.worker is not None]:
            link = self.waiting.pop(number)
            if number in self.refused:
                link.close()
            else:
                self.links[number] = link
        return all(number in self.links and self.links[number].worker is not None for number in numbers)

    def wait(self, holds: Callable[[], bool], deadline: float) -> bool:
        """Wait until a condition holds, at most until a time."""
        while not holds():
            left_s = deadline - self.world.now
            if left_s <= 0 or not self.is_up:
                return False
            self.changed.wait(min(left_s, LOOK_S))
        return True

    def drop(self, number: int) -> None:
        """Close a connection, or refuse it when it comes."""
        self.refused.add(number)
        if (link := self.links.pop(number, None)) is not None:
            link.close()


class SimulatedDoor:
    """Where the processes of other machines come to it, in half of the runs with several machines."""

    def __init__(self, address: str) -> None:
        world = running_world()
        if "bridged" not in world.extras:
            world.extras["bridged"] = world.random("doors").random() < 0.5
        self.address = address if world.extras["bridged"] else ""

    def close(self) -> None:
        """Nobody comes any more: nobody listens."""


def _listeners(world: World) -> dict[str, SimulatedListener]:
    listeners: dict[str, SimulatedListener] = world.extras.setdefault("listeners", {})
    return listeners


def _connected(number: int, address: str) -> SimulatedLink:
    world = running_world()
    world.point(f"connect {number}")
    listener = _listeners(world).get(address)
    if listener is None:
        raise ConnectionRefusedError(address)
    link = SimulatedLink(listener, number)
    listener.waiting[number] = link
    return link


def _machine() -> str:
    """All servers are on one machine in half of the runs, and on different ones in the others."""
    world = running_world()
    if "together" not in world.extras:
        world.extras["together"] = world.random("machines").random() < 0.5
    return "" if world.extras["together"] else world.running().process.machine.name


@contextmanager
def simulated_connections() -> Iterator[None]:
    """Have agents and parameter servers connect simulated processes."""
    changes: dict[Any, dict[str, Any]] = {
        agent: {"connection": _connected, "machine": _machine},
        ps_actor: {"Listener": SimulatedListener, "Door": SimulatedDoor, "machine": _machine},
    }
    with mock.patch.multiple(agent, **changes[agent]), mock.patch.multiple(ps_actor, **changes[ps_actor]):
        yield
