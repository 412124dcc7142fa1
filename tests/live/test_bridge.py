"""Connections between machines, carried by trusted code: who is let in, and what is carried."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from skedge.live.worker import bridge
from skedge.live.worker.bridge import Door, connection
from skedge.live.worker.links import Listener

MANY = 3_000_000
"""Bytes: more than one piece."""


@pytest.fixture
def listener() -> Iterator[Listener]:
    one = Listener()
    one.socket.settimeout(10.0)
    yield one
    one.close()


@pytest.fixture
def door(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setattr(bridge, "node_address", lambda: "127.0.0.1")
    one = Door(listener.address)
    assert one.address.startswith("tcp://127.0.0.1:")
    yield one
    one.close()


def of(door: Door) -> tuple[str, int]:
    """Where a door is."""
    assert door.socket is not None
    return door.socket.getsockname()


def whole(link: socket.socket, n_bytes: int) -> bytes:
    """So many bytes of a connection, or what comes before it is closed."""
    link.settimeout(10.0)
    content = b""
    while len(content) < n_bytes and (piece := link.recv(1 << 20)):
        content += piece
    return content


def test_what_is_sent_at_one_end_comes_at_the_other_after_the_number(listener: Listener, door: Door) -> None:
    with connection(-7, door.address) as worker, listener.socket.accept()[0] as server:
        assert worker.family == server.family == socket.AF_UNIX, "a process gets no socket of the network"
        assert whole(server, 8) == (-7).to_bytes(8, "little", signed=True)
        for sends, receives in ((worker, server), (server, worker)):
            thread = threading.Thread(target=sends.sendall, args=(bytes(MANY),))
            thread.start()
            assert len(whole(receives, MANY)) == MANY
            thread.join()


@pytest.mark.parametrize("ends", [0, 1], ids=["worker", "parameter server"])
def test_the_end_of_one_is_seen_by_the_other(listener: Listener, door: Door, ends: int) -> None:
    pair = connection(1, door.address), listener.socket.accept()[0]
    whole(pair[1], 8)
    pair[ends].shutdown(socket.SHUT_RDWR)
    pair[ends].close()
    assert whole(pair[1 - ends], 1) == b""
    pair[1 - ends].close()
    deadline = time.monotonic() + 10.0
    while any(thread.name == "bridge" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "no thread is left"
        time.sleep(0.01)


@pytest.mark.parametrize("shows", [b"", b"f" * 32, b"\xff" * 32], ids=["nothing", "another secret", "no text"])
def test_who_does_not_know_the_secret_is_not_let_in(listener: Listener, door: Door, shows: bytes) -> None:
    with socket.create_connection(of(door)) as stranger:
        stranger.sendall(shows)
        stranger.shutdown(socket.SHUT_WR)
        assert whole(stranger, 1) == b""
    listener.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        listener.socket.accept()


def test_who_shows_nothing_holds_up_nobody(listener: Listener, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = [socket.create_connection(of(door)) for _ in range(5)]
    with connection(1, door.address), listener.socket.accept()[0] as server:
        assert len(whole(server, 8)) == 8
    for one in silent:
        one.close()


def test_a_door_that_is_closed_lets_nobody_in(door: Door) -> None:
    door.close()
    with pytest.raises(OSError, match="refused"):
        connection(1, door.address)


@pytest.mark.parametrize("why", ["encrypted", "no address"])
def test_nothing_is_bridged_where_that_cannot_be(why: str, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Ray encrypts what it sends, or the node's address is none of this machine."""
    monkeypatch.setattr(bridge, "node_address", lambda: "127.0.0.1" if why == "encrypted" else "192.0.2.1")
    if why == "encrypted":
        monkeypatch.setenv("RAY_USE_TLS", "1")
    closed = Door(listener.address)
    assert closed.address == ""
    closed.close()
