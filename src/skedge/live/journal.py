"""The journal: every event and the orders that answered it, written before any of them is carried out.

An append-only table in SQLite, or in PostgreSQL by URL. A run is rebuilt by replay: the events are given again to a
fresh kernel with the same policy, which must decide as it did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import sqlalchemy as sql

from skedge.core.errors import InputError, StateError
from skedge.core.events import (
    Allocate,
    AssignPS,
    Dispatch,
    Event,
    LaneFacts,
    Order,
    Reject,
    Reserve,
    Suspend,
    Upload,
    WakeAt,
)
from skedge.core.kernel import Kernel

_ORDERS: dict[str, Any] = {
    kind.__name__: kind for kind in (Dispatch, Allocate, Suspend, AssignPS, Upload, Reserve, Reject, WakeAt)
}
_META = sql.MetaData()
_RUNS = sql.Table(
    "runs",
    _META,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("about", sql.JSON, nullable=False),
)
_ENTRIES = sql.Table(
    "entries",
    _META,
    sql.Column("run", sql.ForeignKey("runs.id"), primary_key=True),
    sql.Column("number", sql.Integer, primary_key=True),
    sql.Column("time", sql.BigInteger, nullable=False),
    sql.Column("event", sql.JSON, nullable=False),
    sql.Column("orders", sql.JSON, nullable=False),
)


class SqlJournal:
    """The journal of one run.

    Parameters
    ----------
    url
        SQLAlchemy URL: ``sqlite:///file.db`` or ``postgresql+psycopg://…``.
    about
        What the run is made of (scenario, policy, seed, versions), JSON. None: go on with the newest run of the
        database.

    Raises
    ------
    InputError
        If the database cannot be opened, or there is no run to go on with.
    """

    def __init__(self, url: str, about: dict[str, Any] | None = None) -> None:
        try:
            self.engine = sql.create_engine(url)
            sql.event.listen(self.engine, "connect", _durable)
            _META.create_all(self.engine)
            with self.engine.begin() as at:
                self.run, self.about = _new(at, about) if about is not None else _newest(at)
                last = sql.select(sql.func.count()).where(_ENTRIES.c.run == self.run)
                self.number = int(at.execute(last).scalar_one())
        except sql.exc.SQLAlchemyError as error:
            raise InputError(f"journal {url}: {str(error).splitlines()[0]}") from error

    def append(self, event: Event, orders: list[Order]) -> None:
        """Write one event and its orders; they are on disk when this returns."""
        entry = {
            "run": self.run,
            "number": self.number,
            "time": event.time,
            "event": encode(event),
            "orders": [{"order": type(order).__name__, **encode(order)} for order in orders],
        }
        with self.engine.begin() as at:
            at.execute(_ENTRIES.insert(), entry)
        self.number += 1

    def entries(self) -> Iterator[tuple[Event, list[Order]]]:
        """All events with their orders, in order."""
        rows = sql.select(_ENTRIES.c.event, _ENTRIES.c.orders).where(_ENTRIES.c.run == self.run)
        with self.engine.connect() as at:
            for event, orders in at.execute(rows.order_by(_ENTRIES.c.number)):
                yield _event(event), [_order(order) for order in orders]

    def close(self) -> None:
        """Let go of the database."""
        self.engine.dispose()


def replay(journal: SqlJournal, kernel: Kernel) -> int:
    """Give a fresh kernel the events of the journal; returns how many there were.

    Raises
    ------
    StateError
        If a decision is not the one that was taken: another policy, other parameters or another version.
    """
    count = 0
    for event, orders in journal.entries():
        again = [encode(order) for order in kernel.handle(event)]
        if again != [encode(order) for order in orders]:
            raise StateError(f"replay: the decision at {event.time} µs (entry {count}) is not the one in the journal")
        count += 1
    return count


def encode(told: Event | Order) -> dict[str, Any]:
    """An event or an order in plain JSON types."""
    return {key: _plain(value) for key, value in asdict(told).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def _event(plain: dict[str, Any]) -> Event:
    chunks = LaneFacts(*(np.array(plain["chunks"][name], np.int64) for name in ("time", "lane", "job")))
    jobs = {name: tuple(plain[name]) for name in ("finished", "broken", "arrived", "started", "paused")}
    failed = tuple((job, reason) for job, reason in plain["failed"])
    return Event(plain["time"], failed=failed, woke=plain["woke"], chunks=chunks, **jobs)


def _order(plain: dict[str, Any]) -> Order:
    kind = _ORDERS[plain["order"]]
    values = {field.name: plain[field.name] for field in fields(kind)}
    for name, dtype in (("lane", np.int64), ("postponed", np.int64), ("alpha", np.float64)):
        if name in values:
            values[name] = np.array(values[name], dtype)
    if "where" in values:
        values["where"] = tuple((server, n) for server, n in values["where"])
    order: Order = kind(**values)
    return order


def _new(at: sql.Connection, about: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    made = at.execute(_RUNS.insert().returning(_RUNS.c.id), {"about": about})
    return int(made.scalar_one()), about


def _newest(at: sql.Connection) -> tuple[int, dict[str, Any]]:
    row = at.execute(sql.select(_RUNS.c.id, _RUNS.c.about).order_by(_RUNS.c.id.desc()).limit(1)).first()
    if row is None:
        raise InputError("the journal has no run to go on with")
    return int(row[0]), dict(row[1])


def _durable(connection: Any, record: object) -> None:
    """SQLite's write-ahead log, flushed at every commit."""
    del record
    if "sqlite" in type(connection).__module__:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
