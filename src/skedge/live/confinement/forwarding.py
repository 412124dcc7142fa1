"""Connections of a confined job to the addresses that it names and the operator allows.

A job has no network but a loopback device of its own. There a socket listens for each address; what connects to it is
connected to the address by a process in the machine's network, which only passes bytes on.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Address
from typing import NoReturn

from . import kernel

_PIECE = 1 << 16
_CONNECT_S = 30.0
_WAITING = 64
_PORTS = 1 << 16


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of ``HOST:PORT``."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def is_ipv4(host: str) -> bool:
    """Whether a host is named by its IPv4 address."""
    with suppress(ValueError):
        return bool(IPv4Address(host))
    return False


def fault_of(address: str) -> str:
    """What is wrong with an address that a job is to connect to; empty if nothing is."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < _PORTS:
        return "must be HOST:PORT, such as data.example.org:443"
    if ":" in host or "[" in host:
        return "must name a host or an IPv4 address: jobs have no IPv6 addresses but ::1"
    return ""


class AllowedAddresses:
    """The addresses that a job may connect to.

    It is made in the machine's network; :meth:`listen` is called in the job's.

    Attributes
    ----------
    names
        Addresses on the job's loopback device, and the hosts that they stand for.
    """

    def __init__(self, connect: Sequence[str]) -> None:
        self.targets = [host_and_port(address) for address in connect]
        hosts = list(dict.fromkeys(host for host, _ in self.targets))
        self.names = [(host if is_ipv4(host) else f"127.0.1.{n}", host) for n, host in enumerate(hosts, 1)]
        self.control, far_end = socket.socketpair()
        if self.targets and os.fork() == 0:
            _forward(far_end, self.control, self.targets)
        far_end.close()

    def listen(self) -> None:
        """Listen on the job's loopback device for each address."""
        address_of = {host: address for address, host in self.names}
        for number, (address, host) in enumerate(self.names):
            if address == host and not address.startswith("127."):
                kernel.add_loopback_address(address, number)
        for host, port in self.targets:
            with socket.create_server((address_of[host], port), backlog=_WAITING) as listening:
                socket.send_fds(self.control, [b"l"], [listening.fileno()])


def _forward(control: socket.socket, far_end: socket.socket, targets: Sequence[tuple[str, int]]) -> NoReturn:
    """Be the process that forwards: receive a listening socket for each address, and serve them."""
    try:
        far_end.close()
        kernel.end_with_parent(signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        selector = selectors.DefaultSelector()
        for target in targets:
            _, files, *_ = socket.recv_fds(control, 1, 1)
            selector.register(socket.socket(fileno=files[0]), selectors.EVENT_READ, target)
        while True:
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)  # noqa: S101 - those are registered
                (_accept if isinstance(key.data, tuple) else _pass_on)(key.fileobj, key.data, selector)
    finally:
        os._exit(1)


def _accept(listening: socket.socket, target: tuple[str, int], selector: selectors.BaseSelector) -> None:
    inner, _ = listening.accept()
    try:
        outer = socket.create_connection(target, timeout=_CONNECT_S)
    except OSError:  # refused, or no such host: the job sees a connection that ends
        inner.close()
        return
    outer.settimeout(None)
    selector.register(inner, selectors.EVENT_READ, outer)
    selector.register(outer, selectors.EVENT_READ, inner)


def _pass_on(source: socket.socket, target: socket.socket, selector: selectors.BaseSelector) -> None:
    if source.fileno() < 0:  # closed with its other end, which was served just before
        return
    try:
        piece = source.recv(_PIECE)
        target.sendall(piece)
    except OSError:
        piece = b""
    if piece:
        return
    for end in (source, target):
        selector.unregister(end)
        end.close()
