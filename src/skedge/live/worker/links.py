"""Connections between the process of a job's parameter server and those of its workers.

Parameters and gradients go through these alone, as bytes of known sizes; calls say only what is to be trained. Trusted
code makes both ends: the process of the parameter server is given a socket that listens (:class:`Listener`), that of a
worker one that is connected to it (:func:`connected`), or to threads that carry what it sends to another machine
(:mod:`.bridge`). A socket of this family cannot be connected anew to another address, so it gives a confined process no
way out.

A connection begins with its number and the digest of the job's code in the worker's process (:class:`ServerLink`). Then
the parameter server sends an order and the parameters, and the worker its contribution, again and again; an order
without parameters says that a window is over.
"""

from __future__ import annotations

import math
import os
import selectors
import socket
import struct
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from skedge.live import host
from skedge.live.secret_files import private_folder

_WAITING = 64
"""Most connections that wait until the process of the parameter server takes them."""

_NUMBER = struct.Struct("<q")
_DIGEST = 64
"""What a connection begins with: its number, and a digest as text, filled with spaces."""

_ORDER = struct.Struct("<qqq")
"""Number of the window, chunk and step; the chunk is -1 if the window is over."""

_CONNECT_S = 10.0
"""Longest time in which a connection is made [s]."""


class Order(NamedTuple):
    """A mini-batch that is to be computed in a window, by the number of the window."""

    window: int
    chunk: int
    step: int


# -- trusted ---------------------------------------------------------------------------------------------------------


def machine() -> str:
    """What tells this machine, and this user's part of it, from others: processes of one can be connected."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    status = private_folder().stat()
    return f"{boot} {status.st_dev} {status.st_ino}"


def key_of(number: int) -> int:
    """What stands for a connection, by its number, where others are chunks."""
    return -1 - number


class Listener:
    """A socket at which the processes of workers are connected to that of their parameter server.

    Attributes
    ----------
    address
        Where it listens; for :func:`connected` on the same machine.
    """

    def __init__(self) -> None:
        self.address = str(private_folder() / f"{host.getpid()}-{host.mark()}.link")
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.address)
        self.socket.listen(_WAITING)

    def close(self) -> None:
        """Listen no more; the connections that there are stay."""
        self.socket.close()
        with suppress(FileNotFoundError):
            os.unlink(self.address)


def connected(number: int, address: str) -> socket.socket:
    """A connection to the parameter server that listens at an address; it begins with its number.

    Raises
    ------
    OSError
        If nobody listens there.
    """
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(_CONNECT_S)
        link.connect(address)
        link.sendall(_NUMBER.pack(number))
        link.settimeout(None)
    except OSError:
        link.close()
        raise
    return link


def received(links: socket.socket) -> socket.socket:
    """The next socket that this process is given.

    Raises
    ------
    EOFError
        If there will be none.
    """
    _, files, *_ = socket.recv_fds(links, 1, 1)
    if not files:
        raise EOFError
    return socket.socket(fileno=files[0])


# -- a worker's process ----------------------------------------------------------------------------------------------


class ServerLink:
    """The connection of a worker's process to its parameter server.

    Parameters
    ----------
    link
        The socket.
    module
        SHA-256 of the job's code here.
    """

    def __init__(self, link: socket.socket, module: str) -> None:
        self.link = link
        with suppress(OSError):  # the other end has gone, which the first order shows
            link.sendall(module.encode().ljust(_DIGEST))

    def order(self, parameters: bytearray | memoryview, waits_s: float, waits: Callable[[], None]) -> Order | None:
        """The next order; None if the connection is closed.

        Parameters
        ----------
        parameters
            Filled with what comes with an order that is no end.
        waits_s
            After this time [s],
        waits
            this is called, once.
        """
        head = bytearray(_ORDER.size)
        try:
            if not _readable(self.link, waits_s):
                waits()
            if not _filled(self.link, head):
                return None
            order = Order(*_ORDER.unpack(head))
            return order if order.chunk < 0 or _filled(self.link, parameters) else None
        except OSError:
            return None

    def send(self, contribution: bytes | bytearray) -> bool:
        """Send a contribution; whether the parameter server is still there."""
        try:
            self.link.sendall(contribution)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close it."""
        shut(self.link)


def shut(link: socket.socket) -> None:
    """Close a connection, also where processes that were forked from this one have it."""
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    link.close()


def _readable(link: socket.socket, wait_s: float | None) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(link, selectors.EVENT_READ)
        return bool(selector.select(wait_s))


def _filled(link: socket.socket, memory: bytearray | memoryview) -> bool:
    """Fill memory with what comes; False if the connection is closed before."""
    rest = memoryview(memory)
    while rest:
        n_bytes = link.recv_into(rest)
        if not n_bytes:
            return False
        rest = rest[n_bytes:]
    return True


# -- the process of a parameter server -------------------------------------------------------------------------------


class WorkerLinks:
    """The connections of a parameter server's process to its workers.

    Parameters
    ----------
    listening
        Where workers are connected.
    contribution_bytes
        Size of a contribution.
    check
        Called with the digest of the code in a worker's process; raises an error if it is not that of this one.

    Attributes
    ----------
    links
        By number, those that are ready.
    """

    def __init__(self, listening: socket.socket, contribution_bytes: int, check: Callable[[str], None]) -> None:
        self.listening, self.contribution_bytes, self.check = listening, contribution_bytes, check
        self.links: dict[int, socket.socket] = {}
        self._begun: dict[socket.socket, bytearray] = {}
        self._refused: set[int] = set()

    def keep(self, numbers: Collection[int]) -> None:
        """Close all others."""
        for number in self.links.keys() - numbers:
            self.close(number)

    def close(self, number: int) -> None:
        """Close a connection, or refuse it when it comes."""
        self._refused.add(number)
        if (link := self.links.pop(number, None)) is not None:
            shut(link)

    def has_all(self, numbers: Collection[int], deadline: float) -> bool:
        """Take the connections that come, until all of some numbers are there, or a deadline [s]; whether they are.

        `deadline`: by ``host.monotonic()``; one that has passed: those that have come are looked at.
        """
        while not self.links.keys() >= set(numbers):
            left_s = deadline - host.monotonic()
            with selectors.DefaultSelector() as selector:
                for link in (self.listening, *self._begun):
                    selector.register(link, selectors.EVENT_READ, link)
                events = selector.select(max(left_s, 0.0))
            for key, _ in events:
                if key.data is self.listening:
                    self._begun[self.listening.accept()[0]] = bytearray()
                else:
                    self._begin(key.data)
            if not events and left_s <= 0:
                return False
        return True

    def _begin(self, link: socket.socket) -> None:
        """Read what a connection begins with, as far as it has come."""
        content = self._begun[link]
        try:
            piece = link.recv(_NUMBER.size + _DIGEST - len(content))
        except OSError:
            piece = b""
        content += piece
        if piece and len(content) < _NUMBER.size + _DIGEST:
            return
        del self._begun[link]
        number = _NUMBER.unpack_from(content)[0] if piece else 0
        if not piece or number in self._refused:
            shut(link)
            return
        self.check(content[_NUMBER.size :].decode("ascii", "replace").rstrip())
        self.links[number] = link

    def send(self, number: int, order: Order, parameters: bytes | memoryview, deadline: float) -> bool:
        """Send an order and the parameters; False if that fails, and the connection is then closed.

        Parameters
        ----------
        number
            Number of the connection.
        order, parameters
            What is sent.
        deadline
            By ``host.monotonic()`` [s].
        """
        return self._sent(number, _ORDER.pack(*order), deadline) and self._sent(number, parameters, deadline)

    def end(self, window: int, deadline: float) -> None:
        """Tell all workers that a window is over."""
        for number in list(self.links):
            self._sent(number, _ORDER.pack(window, -1, 0), deadline)

    def _sent(self, number: int, content: bytes | memoryview, deadline: float) -> bool:
        link = self.links.get(number)
        if link is None:  # it has not come in time
            self.close(number)
            return False
        try:
            link.settimeout(max(deadline - host.monotonic(), 0.01))
            link.sendall(content)
            link.settimeout(None)
        except OSError:
            self.close(number)
            return False
        return True

    def contributions(
        self, numbers: Collection[int], deadline: float, waits_s: float, waits: Callable[[], None]
    ) -> Mapping[int, memoryview]:
        """What workers send, by number; those who are late or lost are missing, and their connections are closed.

        Parameters
        ----------
        numbers
            Who has been sent an order.
        deadline
            By ``host.monotonic()`` [s].
        waits_s
            After this time without anything that comes [s],
        waits
            this is called, once.
        """
        memory = {number: np.empty(self.contribution_bytes, np.uint8).data for number in numbers}
        rests = dict(memory)
        with selectors.DefaultSelector() as selector:
            for number in numbers:
                selector.register(self.links[number], selectors.EVENT_READ, number)
            reading = set(numbers)
            while reading and (left_s := deadline - host.monotonic()) > 0:
                events = selector.select(min(left_s, waits_s))
                if not events and waits_s < left_s:
                    waits()
                    waits_s = math.inf
                for key, _ in events:
                    number, link = key.data, self.links[key.data]
                    try:
                        n_bytes = link.recv_into(rests[number])
                    except OSError:
                        n_bytes = 0
                    rests[number] = rests[number][n_bytes:]
                    if not n_bytes or not rests[number]:
                        selector.unregister(link)
                        reading.remove(number)
        for number in [number for number in numbers if rests[number]]:
            self.close(number)
            del memory[number]
        return memory
