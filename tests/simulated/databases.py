"""Transactions of simulated processes on a real database: SQLite's own, with faults of our making.

A transaction has a switch point before it begins and one after its commit, none within: a killed process leaves no lock
behind. Faults are about transactions that write: for some time no space is left, another process holds the lock, or the
connection is lost at the commit, which then has taken effect or not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import sqlalchemy as sql

from .faults import Fault
from .scheduler import Process, World, running_world

SQL_KINDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"sql full": (0.5, 30.0), "sql busy": (0.1, 20.0), "sql lost": (0.1, 10.0)}
)
"""Kinds of fault of the transactions of a process, each with the range of its seconds."""

BUSY_S = 5.0
"""How long a transaction waits for the lock of another [s]."""

EVEN = 0.5
"""Probability with which a commit has no effect when the connection is lost."""

_UNTIL: WeakKeyDictionary[Process, dict[str, float]] = WeakKeyDictionary()


class DriverError(Exception):
    """An error of a database's driver."""

    def __init__(self, message: str, sqlite_errorcode: int | None = None) -> None:
        super().__init__(message)
        if sqlite_errorcode is None:
            self.sqlstate = "08006"
        else:
            self.sqlite_errorcode = sqlite_errorcode


@contextmanager
def transaction(engine: sql.Engine) -> Iterator[Any]:
    """A transaction on a database, as a block with its connection; it is committed at the end."""
    world = running_world()
    process = world.running().process
    world.point("begin")
    if (busy_s := _left_s(world, process, "sql busy")) > 0:
        world.sleepers.wait(min(busy_s, BUSY_S))
    with engine.begin() as at:
        yield at
        writes = at.connection.driver_connection.in_transaction
        if writes and _left_s(world, process, "sql busy") > 0:
            raise _error("database is locked", sqlite3.SQLITE_BUSY)
        if writes and _left_s(world, process, "sql full") > 0:
            raise _error("database or disk is full", sqlite3.SQLITE_FULL)
        lost = writes and _left_s(world, process, "sql lost") > 0
        if lost and world.marks.random() < EVEN:
            raise _error("the connection is lost")
    world.point("committed")
    if lost:
        raise _error("the connection is lost")


def add_faults(world: World) -> None:
    """Let a world have the faults of :data:`SQL_KINDS`."""

    def strike(fault: Fault) -> None:
        for process in world.victims(fault):
            until = _UNTIL.setdefault(process, {})
            until[fault.kind] = max(until.get(fault.kind, 0.0), world.now + fault.seconds)

    world.kinds.update(dict.fromkeys(SQL_KINDS, strike))


def _left_s(world: World, process: Process, kind: str) -> float:
    """How long a fault lasts [s], to the microsecond: a wait until its end ends it."""
    return round(_UNTIL.get(process, {}).get(kind, 0.0) - world.now, 6)


def _error(message: str, sqlite_errorcode: int | None = None) -> sql.exc.OperationalError:
    return sql.exc.OperationalError("COMMIT", {}, DriverError(message, sqlite_errorcode))
