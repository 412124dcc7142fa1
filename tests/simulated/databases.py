"""Transactions of simulated processes on a real database: SQLite's own, with faults of our making.

A transaction has a switch point before it begins and one after its commit, none within: a killed process leaves no lock
behind, and a transaction has happened or not. Faults are about transactions that write: for some time no space is left,
another process holds the lock, or the connection is lost at the commit, which then has taken effect or not, or takes
effect later, as one that is on its way to a server does (``sql late``).

A :class:`Database` lies on the disk of a simulated machine, as SQLite's file does, or on a server of its own, as
PostgreSQL's. On a disk it is slow, full or broken with it, and suffers its power cuts. SQLite promises that what a
transaction has written is there as a whole or not at all, and, if its log is flushed at each commit (``PRAGMA
synchronous=FULL``), that it is on the disk when the commit returns. So a power cut costs nothing of what was flushed;
of commits by connections that flush less, the last ones are lost, and how many is drawn.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from types import MappingProxyType
from typing import Any

import sqlalchemy as sql

from .disks import Disk, File, Folder
from .faults import Fault
from .scheduler import Process, World, running_world

SQL_KINDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"sql full": (0.5, 30.0), "sql busy": (0.1, 20.0), "sql lost": (0.1, 10.0)}
)
"""Kinds of fault of the transactions of a process, each with the range of its seconds."""

SERVER_KINDS: Mapping[str, tuple[float, float]] = MappingProxyType({"sql late": (0.1, 10.0)})
"""Further kinds, of a database that has a server."""

BUSY_S = 5.0
"""How long a transaction waits for the lock of another [s]."""

LATE_S = 10.0
"""Longest time until a commit that is on its way takes effect [s]."""

EVEN = 0.5
"""Probability with which a commit has no effect when the connection is lost."""

FULL = 2
"""What ``PRAGMA synchronous`` says of a connection that flushes the log at each commit."""

_create_engine = sql.create_engine


class DriverError(Exception):
    """An error of a database's driver."""

    def __init__(self, message: str, sqlite_errorcode: int | None = None) -> None:
        super().__init__(message)
        if sqlite_errorcode is None:
            self.sqlstate = "08006"
        else:
            self.sqlite_errorcode = sqlite_errorcode


class Database:
    """A database of the running world, which is opened by its URL.

    Parameters
    ----------
    world, url
        The world, and the URL.
    file
        The real file that has its content.
    disk, path
        The disk that it lies on, and the name of its file there; None: it has a server.
    """

    def __init__(self, world: World, url: str, file: str, disk: Disk | None = None, path: str = "") -> None:
        self.world, self.file, self.disk, self.path = world, file, disk, path
        self._unflushed: list[sqlite3.Connection] = []
        self._random = world.random(f"database {url}")
        world.extras.setdefault("databases", {})[url] = self
        if disk is not None:
            world.machine(disk.name).on_power_cut.append(self.cut_power)

    def connect(self) -> sqlite3.Connection:
        """A connection; the file is there from the first one on, as SQLite flushes its folder."""
        if self.disk is not None:
            folder: File | Folder = self.disk.root
            *folders, name = filter(None, self.path.split("/"))
            for part in folders:
                assert isinstance(folder, Folder)
                folder = folder.entries[part]
            assert isinstance(folder, Folder)
            if name not in folder.entries:
                folder.entries[name] = folder.durable[name] = File()
        return sqlite3.connect(self.file, check_same_thread=False)

    def begin(self, connection: sqlite3.Connection) -> None:
        """Note what a power cut leaves, if the transaction that begins is not flushed at its commit."""
        if self.disk is not None and not self._unflushed and not _flushes(connection):
            self._unflushed.append(self._copied())

    def committed(self, connection: sqlite3.Connection) -> None:
        """Note what a power cut leaves after a commit."""
        if self.disk is not None and _flushes(connection):
            self._forget()
        elif self.disk is not None:
            self._unflushed.append(self._copied())

    def wait(self) -> None:
        """Have a transaction that begins suffer what its disk does."""
        if self.disk is not None:
            self.disk.dawdle()
            if self.disk.is_broken():
                raise _error("disk I/O error", sqlite3.SQLITE_IOERR)

    def check(self) -> None:
        """Have a commit suffer what its disk does."""
        if self.disk is not None and self.disk.is_broken():
            raise _error("disk I/O error", sqlite3.SQLITE_IOERR)
        if self.disk is not None and not self.disk.space():
            raise _error("database or disk is full", sqlite3.SQLITE_FULL)

    def cut_power(self) -> None:
        """Leave what a power cut leaves."""
        if self._unflushed:
            left = self._unflushed[self._random.randrange(len(self._unflushed))]
            with closing(sqlite3.connect(self.file)) as at:
                left.backup(at)
            self._forget()

    def close(self) -> None:
        """Forget what a power cut would leave."""
        self._forget()

    def send(self, statements: list[str]) -> None:
        """Have a commit take effect after a while, whatever becomes of its process."""
        sent = [statement for statement in statements if statement.startswith(("INSERT", "DELETE", "UPDATE"))]
        # who adds a run locks the table: all others wait until it is there
        locks = any(statement.startswith("INSERT INTO runs") for statement in sent)
        self.world.after(0.0 if locks else self._random.uniform(0.0, LATE_S), lambda: self._land(sent))

    def _land(self, statements: list[str]) -> None:
        """Execute the statements of a commit that was on its way, unless they cannot be any more."""
        with closing(sqlite3.connect(self.file)) as at:
            try:
                for statement in statements:
                    at.execute(statement)
                at.commit()
            except (sqlite3.IntegrityError, sqlite3.OperationalError):  # such as a table that was never made
                at.rollback()
                self.world.note("database", "a late commit is refused")
            else:
                self.world.note("database", "a late commit takes effect")

    def _copied(self) -> sqlite3.Connection:
        copied = sqlite3.connect(":memory:")
        with closing(sqlite3.connect(self.file)) as at:
            at.backup(copied)
        return copied

    def _forget(self) -> None:
        for copied in self._unflushed:
            copied.close()
        self._unflushed.clear()


def create_engine(url: str, **options: Any) -> sql.Engine:
    """SQLAlchemy's engine of a database of the running world; in place of the function of that name."""
    database = _of(url)
    if database is None:
        return _create_engine(url, **options)
    options.setdefault("poolclass", sql.QueuePool)
    return _create_engine(url, creator=database.connect, **options)


def close_databases(world: World) -> None:
    """Forget what is kept of a world's databases."""
    for database in world.extras.pop("databases", {}).values():
        database.close()


@contextmanager
def transaction(engine: sql.Engine) -> Iterator[Any]:
    """A transaction on a database, as a block with its connection; it is committed at the end."""
    world = running_world()
    process, database = world.running().process, _of(str(engine.url))
    world.point("begin")
    if database is not None:
        database.wait()
    if (busy_s := _left_s(world, process, "sql busy")) > 0:
        world.sleepers.wait(min(busy_s, BUSY_S))
    with engine.connect() as at, at.begin() as begun:
        connection = at.connection.driver_connection
        if database is not None:
            database.begin(connection)
        statements = _traced(connection) if _left_s(world, process, "sql late") > 0 else None
        try:
            yield at
        finally:
            connection.set_trace_callback(None)
        writes = connection.in_transaction
        lost = writes and _left_s(world, process, "sql lost") > 0
        if writes:
            _hinder(world, process)
            if statements is not None and database is not None:
                begun.rollback()
                database.send(statements)
            if database is not None:
                database.check()
            if (lost and world.marks.random() < EVEN) or statements is not None:
                raise _error("the connection is lost")
            begun.commit()
            if database is not None:
                database.committed(connection)
    world.point("committed")
    if lost:
        raise _error("the connection is lost")


def _traced(connection: sqlite3.Connection) -> list[str]:
    """The statements that a connection executes from now on, and their values."""
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    return statements


def _hinder(world: World, process: Process) -> None:
    """Have a transaction that writes suffer the faults of its process before its commit."""
    if _left_s(world, process, "sql busy") > 0:
        raise _error("database is locked", sqlite3.SQLITE_BUSY)
    if _left_s(world, process, "sql full") > 0:
        raise _error("database or disk is full", sqlite3.SQLITE_FULL)


def add_faults(world: World) -> None:
    """Let a world have the faults of :data:`SQL_KINDS` and :data:`SERVER_KINDS`."""

    def strike(fault: Fault) -> None:
        for process in world.victims(fault):
            until = process.extras.setdefault("sql", {})
            until[fault.kind] = max(until.get(fault.kind, 0.0), world.now + fault.seconds)

    world.kinds.update(dict.fromkeys((*SQL_KINDS, *SERVER_KINDS), strike))


def _of(url: str) -> Database | None:
    """The database of the running world that has this URL; None if it has none."""
    world = World.current
    return None if world is None else world.extras.get("databases", {}).get(str(url))


def _flushes(connection: sqlite3.Connection) -> bool:
    """Whether what a connection commits is on the disk when the commit returns."""
    return int(connection.execute("PRAGMA synchronous").fetchone()[0]) >= FULL


def _left_s(world: World, process: Process, kind: str) -> float:
    """How long a fault lasts [s], to the microsecond: a wait until its end ends it."""
    return round(float(process.extras.get("sql", {}).get(kind, 0.0)) - world.now, 6)


def _error(message: str, sqlite_errorcode: int | None = None) -> sql.exc.OperationalError:
    return sql.exc.OperationalError("COMMIT", {}, DriverError(message, sqlite_errorcode))
