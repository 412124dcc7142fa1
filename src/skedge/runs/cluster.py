"""Addresses of Ray clusters."""

from __future__ import annotations

import socket

from skedge.core.errors import InputError, SkedgeError

_ANSWER_S = 5.0
"""Time limit for a connection [s]."""


def check_answers(address: str) -> None:
    """Check that something listens at HOST:PORT, as Ray itself tries for minutes; leaves other addresses to Ray.

    Raises
    ------
    InputError
        If the address is empty.
    SkedgeError
        If nothing listens there.
    """
    if not address:
        raise InputError("the address of the Ray cluster is empty; it is HOST:PORT, or auto")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    # `auto`, a path or a name: Ray itself knows what to do with it
    if not host or "/" in host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER_S).close()
    except OSError as error:
        raise SkedgeError(f"no Ray cluster answers at {address}: {error.strerror or error}") from error
