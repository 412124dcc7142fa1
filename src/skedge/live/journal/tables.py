"""The tables of the journal's database, what is asked of them, and the errors of SQLite and PostgreSQL by meaning."""

from __future__ import annotations

import sqlite3
from typing import Any

import sqlalchemy as sql

from .chain import ASIDE

META = sql.MetaData()
RUNS = sql.Table(
    "runs",
    META,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("about", sql.JSON, nullable=False),
)
ENTRIES = sql.Table(
    "entries",
    META,
    sql.Column("run", sql.ForeignKey("runs.id"), primary_key=True),
    sql.Column("number", sql.Integer, primary_key=True),
    sql.Column("time", sql.BigInteger, nullable=False),
    sql.Column("kind", sql.String, nullable=False),
    sql.Column("content", sql.Text, nullable=False),
    sql.Column("checksum", sql.BigInteger, nullable=False),
)
VERSIONS = sql.Table("schema_version", META, sql.Column("version", sql.Integer, primary_key=True, autoincrement=False))
"""One row: the version of the tables (:mod:`.version`)."""

COLUMNS = ENTRIES.c.number, ENTRIES.c.time, ENTRIES.c.kind, ENTRIES.c.content, ENTRIES.c.checksum
"""The columns of :class:`.chain.Entry`."""

_FULL, _GONE = "53100", ("08", "57P", "53", "25006", "40001", "40P01", "55P03")
"""SQLSTATE of a full disk, and the beginnings of those of a PostgreSQL that cannot be used now."""

_HINDERED = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
}  # fmt: skip
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def of_run(run: int, condition: Any) -> Any:
    """The entries of a run, in order."""
    return sql.select(*COLUMNS).where((ENTRIES.c.run == run) & condition).order_by(ENTRIES.c.number)


def oldest_of(run: int) -> Any:
    """The number of a run's oldest entry in the database; quarantined ones always stay there."""
    own = (ENTRIES.c.run == run) & (ENTRIES.c.kind != ASIDE)
    return sql.select(sql.func.min(ENTRIES.c.number)).where(own)


def last_of(run: int) -> Any:
    """A run's last entry."""
    own = sql.select(*COLUMNS).where(ENTRIES.c.run == run)
    return own.order_by(ENTRIES.c.number.desc()).limit(1)


def lock_runs(connection: sql.Connection) -> None:
    """Let no other transaction add a run until the end of this one, which has not begun to read or write."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    elif connection.dialect.name == "postgresql":
        connection.execute(sql.text(f"LOCK TABLE {RUNS.name} IN SHARE ROW EXCLUSIVE MODE"))


def hindered(error: sql.exc.DBAPIError) -> str:
    """Why a database cannot be used now, though it may be later: full, busy, away; empty if it is another error."""
    code, state = getattr(error.orig, "sqlite_errorcode", None), getattr(error.orig, "sqlstate", None)
    if code is not None:
        return str(error.orig) if code & 0xFF in _HINDERED else ""
    away = isinstance(error, sql.exc.OperationalError) and (state is None or state.startswith(_GONE))
    return str(error.orig).splitlines()[0] if away or error.connection_invalidated else ""


def is_damaged(error: BaseException) -> bool:
    """Whether a database says that its file is damaged."""
    original = getattr(error, "orig", None)
    code, state = getattr(original, "sqlite_errorcode", None), getattr(original, "sqlstate", None)
    return (code is not None and code & 0xFF in _DAMAGED) or state in ("XX001", "XX002")


def shown(url: str) -> str:
    """A URL without its password."""
    try:
        return sql.make_url(url).render_as_string(hide_password=True)
    except sql.exc.ArgumentError:
        return "URL"


def connected(url: str, **options: Any) -> sql.Engine:
    """An engine whose commits are on the disk when they return, and which reads damaged text as it is."""
    engine = sql.create_engine(url, **options)
    sql.event.listen(engine, "connect", _prepare)
    return engine


def _prepare(connection: Any, record: object) -> None:
    """Use SQLite's write-ahead log, flushed at every commit."""
    del record
    if "sqlite" in type(connection).__module__:
        connection.execute("PRAGMA journal_mode=WAL")
        # a commit is on the disk when it returns: with less, the last inputs could be lost with the power
        connection.execute("PRAGMA synchronous=FULL")
        connection.text_factory = _text


def _text(stored: bytes) -> str:
    return stored.decode(errors="surrogateescape")  # of what is damaged the checksum is to be taken, too
