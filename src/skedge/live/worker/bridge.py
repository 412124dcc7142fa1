"""Connections of workers to a parameter server on another machine, which trusted code carries at both ends.

A process of a job gets no socket of the network: one that is connected could be connected anew, to anywhere. So it has
one of its own machine, as in :mod:`.links`, and threads of its agent or its parameter server's actor carry the bytes
between that and a connection of their own. That begins with a secret, which only actors of the service know: the
coordinator hears it when the job is loaded, and tells it to the agents of the job's workers.

The bytes are not encrypted, as Ray's own are not by default. Where Ray encrypts them (``RAY_USE_TLS=1``), nothing is
bridged, and rounds between machines go by calls.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import threading
from contextlib import suppress

from .links import connected, shut

_SCHEME = "tcp://"
"""What the address of a door begins with; those of listeners are paths."""

_CONNECT_S = 10.0
"""Longest time in which a connection is made, and in which it shows its secret [s]."""

_AGAIN_S = 0.5
"""Pause after a connection that could not be taken [s]."""

_KNOCKING = 64
"""Most connections that have not shown their secret yet; others wait."""

_PIECE = 1 << 20
"""Most bytes that are carried at a time."""


class Door:
    """Where connections from other machines come to a parameter server that listens on this one.

    Parameters
    ----------
    address
        Where it listens (:class:`.links.Listener`).

    Attributes
    ----------
    address
        Where to connect to, and the secret, for :func:`connection`; empty if nothing is bridged.
    """

    def __init__(self, address: str) -> None:
        self.listener_address, self.address = address, ""
        self.socket: socket.socket | None = None
        self._is_closed = threading.Event()
        if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
            return
        self.secret = secrets.token_hex(16)
        try:
            self.socket = socket.create_server((node_address(), 0), backlog=_KNOCKING)
        except OSError:  # there is no port, or no such address here
            return
        self._knocking = threading.BoundedSemaphore(_KNOCKING)
        ip, port = self.socket.getsockname()[:2]
        self.address = f"{_SCHEME}{ip}:{port}/{self.secret}"
        threading.Thread(target=self._open, args=(self.socket,), name="door", daemon=True).start()

    def close(self) -> None:
        """Let nobody in any more; the connections that there are stay."""
        if self.socket is not None:
            self._is_closed.set()
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)  # which ends the wait for a connection
            self.socket.close()

    def _open(self, listening: socket.socket) -> None:
        while True:
            self._knocking.acquire()
            try:
                link = listening.accept()[0]
            except OSError:
                self._knocking.release()
                if self._is_closed.wait(_AGAIN_S):
                    return
                continue  # there are too many open files, say
            threading.Thread(target=self._let_in, args=(link,), name="bridge", daemon=True).start()

    def _let_in(self, link: socket.socket) -> None:
        inner = socket.socket(socket.AF_UNIX)
        try:
            link.settimeout(_CONNECT_S)
            # at once, as it is sent: who sends it bit by bit does not hold a place for long
            given_secret = link.recv(len(self.secret), socket.MSG_WAITALL)
            is_right = hmac.compare_digest(given_secret, self.secret.encode())
            if is_right:
                inner.settimeout(_CONNECT_S)
                inner.connect(self.listener_address)
                inner.settimeout(None)
        except OSError:
            is_right = False
        finally:
            self._knocking.release()
        if is_right:
            link.settimeout(None)
            carry(link, inner)
        else:
            shut(link)
            inner.close()


def connection(number: int, address: str) -> socket.socket:
    """A connection to the parameter server at an address, here or on another machine; it begins with its number.

    Parameters
    ----------
    number
        Number of the connection.
    address
        That of a :class:`.links.Listener` on this machine, or of a :class:`Door`.

    Raises
    ------
    OSError
        If nobody listens there.
    """
    if not address.startswith(_SCHEME):
        return connected(number, address)
    place, _, secret = address.removeprefix(_SCHEME).partition("/")
    ip, _, port = place.rpartition(":")
    link = socket.create_connection((ip, int(port)), _CONNECT_S)
    bridge_end, job_end = socket.socketpair()
    try:
        link.sendall(secret.encode() + number.to_bytes(8, "little", signed=True))
    except OSError:
        for end in (link, bridge_end, job_end):
            end.close()
        raise
    link.settimeout(None)
    threading.Thread(target=carry, args=(link, bridge_end), name="bridge", daemon=True).start()
    return job_end


def carry(link: socket.socket, inner: socket.socket) -> None:
    """Carry bytes both ways until an end is closed, and close both."""
    for end in (link, inner):
        if end.family != socket.AF_UNIX:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    back = threading.Thread(target=_carry_one_way, args=(inner, link), name="bridge", daemon=True)
    back.start()
    _carry_one_way(link, inner)
    back.join()
    link.close()
    inner.close()


def _carry_one_way(source: socket.socket, target: socket.socket) -> None:
    memory = memoryview(bytearray(_PIECE))
    with suppress(OSError):
        while n_bytes := source.recv_into(memory):
            target.sendall(memory[:n_bytes])
    for link in (source, target):
        with suppress(OSError):
            link.shutdown(socket.SHUT_RDWR)


def node_address() -> str:
    """The address by which other nodes of the Ray cluster reach this one."""
    import ray  # noqa: PLC0415 - this module is imported without the cluster, too

    return str(ray.util.get_node_ip_address())
