"""The journal: the inputs and decisions of a live run, each written before it takes effect.

One append-only table in SQLite, or in PostgreSQL by URL, holds both in their order: the world's inputs (the reports of
trainers and uploads, with their times), and every event with the orders that answered it. World, kernel and policy
depend on the inputs alone, so a run is rebuilt by replaying them: when opened for an existing run, the journal first
returns its inputs, and every decision must equal the recorded one. Entries before a snapshot (:mod:`.snapshot`) are
skipped; a SQLite journal moves them into its archive (:mod:`.journal_archive`).
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sql

from skedge.core.errors import InputError, StateError
from skedge.core.events import Event, Order

from .journal_archive import JournalArchive
from .migrations import VersionError, bring_up_to_date, check_up_to_date

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
    sql.Column("kind", sql.String, nullable=False),
    sql.Column("content", sql.JSON, nullable=False),
)
_INPUT, _DECISION, _ASIDE = "input", "decision", "quarantined"

ARCHIVE = ".archive"
"""Suffix of the archive's folder, beside a SQLite journal."""

_AT_ONCE = 500
"""Entries that are deleted in one transaction, during which nothing else can be written."""

_PAUSE_S = 1.0
"""Pause before a write that failed on a full disk is repeated [s]."""


class SqlJournal:
    """The journal of one run.

    Parameters
    ----------
    url
        SQLAlchemy URL: ``sqlite:///file.db`` or ``postgresql+psycopg://…``.
    about
        What defines the run (scenario, policy, seed, versions), as JSON. None: continue the newest run of the
        database.
    of
        Without `about`: the id in the `about` of the run to continue, if the database has runs of several states.
    reading
        True: nothing is written, as another controller may be writing.

    Attributes
    ----------
    number
        Number of the next entry.
    archive
        Where a SQLite journal moves old entries; None for other databases.
    span
        Entries of the earlier run that are replayed: [first, end). It can be narrowed until the replay begins.
    aside
        Quarantined inputs, which are not replayed.
    blocked
        Why the last entry cannot be written yet (the disk is full); else empty.
    meanwhile
        Called repeatedly while a write is blocked.

    Raises
    ------
    InputError
        If the database cannot be opened, its tables are of a version that cannot be used, or there is no run to
        continue.
    """

    def __init__(
        self, url: str, about: dict[str, Any] | None = None, *, of: str | None = None, reading: bool = False
    ) -> None:
        self.reading = reading
        self.blocked = ""
        self.meanwhile: Callable[[], None] = _pause
        try:
            self.engine = sql.create_engine(url)
            sql.event.listen(self.engine, "connect", _durable)
            with self.engine.begin() as at:
                (check_up_to_date if reading else bring_up_to_date)(at)
            with self.engine.begin() as at:
                self.run, self.about = _new(at, about) if about is not None else _newest(at, of)
                self.number = at.execute(_next(self.run)).scalar_one()
                self.aside = [content for _, _, content in at.execute(_of(self.run, _ENTRIES.c.kind == _ASIDE))]
        except (sql.exc.SQLAlchemyError, VersionError) as error:
            raise InputError(f"journal {_shown(url)}: {str(error).splitlines()[0]}") from error
        self.span = 0, self.number
        file = self.engine.url.database if self.engine.dialect.name == "sqlite" else None
        self.archive = JournalArchive(Path(file).with_suffix(ARCHIVE), self.run) if file else None

    @cached_property
    def inputs(self) -> deque[tuple[int, dict[str, Any]]]:
        """The inputs that are still to be replayed, as (time, content)."""
        return deque((time, content) for _, time, content in self._entries(_INPUT, *self.span))

    @cached_property
    def decided(self) -> deque[dict[str, Any]]:
        """The decisions that a replay has not taken again yet."""
        return deque(content for _, _, content in self._entries(_DECISION, *self.span))

    def _entries(self, kind: str, first: int, end: int) -> list[tuple[int, int, dict[str, Any]]]:
        """(number, time, content) of the entries of a kind with numbers in [first, end)."""
        which = (_ENTRIES.c.kind == kind) & (_ENTRIES.c.number >= first) & (_ENTRIES.c.number < end)
        with self.engine.begin() as at:
            oldest = at.execute(_oldest(self.run)).scalar_one()
            rows = [(number, time, content) for number, time, content in at.execute(_of(self.run, which))]
        # the database first: what a controller moves meanwhile is in the archive before it is deleted
        if self.archive is None or oldest is None or oldest <= first:
            return rows
        old = self.archive.entries(kind, first, min(oldest, end))
        return [(number, time, json.loads(content)) for number, time, _, content in old] + rows

    def shrink(self, end: int) -> None:
        """Move the entries before `end`, of which a snapshot exists, into the archive."""
        own = _ENTRIES.c.run == self.run
        columns = _ENTRIES.c.number, _ENTRIES.c.time, _ENTRIES.c.kind, _ENTRIES.c.content
        with self.engine.begin() as at:
            oldest = at.execute(_oldest(self.run)).scalar_one()
            moved = own & (_ENTRIES.c.number >= oldest) & (_ENTRIES.c.number < end)
            rows = at.execute(sql.select(*columns).where(moved).order_by(_ENTRIES.c.number)).all()
        if self.archive is None or not rows:
            return
        self.archive.add([(number, time, kind, json.dumps(content)) for number, time, kind, content in rows])
        for low in range(oldest, end, _AT_ONCE):
            some = (_ENTRIES.c.number >= low) & (_ENTRIES.c.number < min(low + _AT_ONCE, end))
            with self.engine.begin() as at:
                at.execute(_ENTRIES.delete().where(own & some & (_ENTRIES.c.kind != _ASIDE)))

    def input_before(self, number: int) -> tuple[int, int, dict[str, Any]] | None:
        """The last input before entry `number`, as (number, time, content); None if there is none."""
        which = (_ENTRIES.c.kind == _INPUT) & (_ENTRIES.c.number < number)
        with self.engine.begin() as at:
            row = at.execute(_of(self.run, which).order_by(None).order_by(_ENTRIES.c.number.desc()).limit(1)).first()
        if row is not None:
            return row[0], row[1], row[2]
        old = self._entries(_INPUT, 0, number)
        return old[-1] if old else None

    def _write(self, time: int, kind: str, content: dict[str, Any]) -> None:
        """Write one entry; waits while the disk is full, as nothing may take effect before it is written.

        Raises
        ------
        StateError
            If another controller has written an entry of that number.
        """
        if self.reading:
            return
        row = {"run": self.run, "number": self.number, "time": time, "kind": kind, "content": content}
        while True:
            try:
                with self.engine.begin() as at:
                    at.execute(_ENTRIES.insert(), row)
                break
            except sql.exc.IntegrityError as error:
                raise StateError("another controller writes this run's journal; this one ends") from error
            except sql.exc.OperationalError as error:
                if not _is_full(error):
                    raise
                self.blocked = f"the journal cannot be written: {error.orig}"
                self.meanwhile()
        self.blocked = ""
        self.number += 1

    def take(self, time: int, content: dict[str, Any]) -> None:
        """Write one input of the world; it is on disk when this returns."""
        self._write(time, _INPUT, content)

    def again(self) -> tuple[int, dict[str, Any]] | None:
        """The next input of the earlier run as (time, content); None after the last."""
        return self.inputs.popleft() if self.inputs else None

    def append(self, event: Event, orders: list[Order]) -> None:
        """Write one event and its orders; during a replay, check that they equal the recorded ones instead.

        Raises
        ------
        StateError
            If they differ: another policy, other parameters or another version.
        """
        answers = [{"order": type(order).__name__, **encode(order)} for order in orders]
        content = {"event": encode(event), "orders": answers}
        if not self.decided:
            self._write(event.time, _DECISION, content)
        # a decision that differs would act on a world in which the recorded one was carried out
        elif self.decided.popleft() != content:
            raise StateError(f"replay: the decision at {event.time} µs is not the one in the journal")

    def put_aside(self, job: str) -> None:
        """Quarantine the submission of a job: it is no longer replayed, as if it had never been made.

        This is possible only until a decision about the job was taken, as a replay would then miss it.

        Raises
        ------
        InputError
            If no job of that name was submitted, or a decision about it was taken.
        """
        rows = self._entries(_INPUT, 0, self.number)
        came = [(number, content["job"]["id"]) for number, _, content in rows if content["is"] == "Submitted"]
        names = [name for _, name in came]
        if job not in names:
            raise InputError(f"job {job!r}: was not submitted; there are {', '.join(names[-5:]) or 'none'}")
        place = names.index(job)
        for _, _, content in self._entries(_DECISION, 0, self.number):
            if place in content["event"]["arrived"]:
                raise InputError(f"job {job!r}: has been taken in; `skedge cancel {job}` ends it")
        own = (_ENTRIES.c.run == self.run) & (_ENTRIES.c.number == came[place][0])
        with self.engine.begin() as at:
            at.execute(_ENTRIES.update().where(own).values(kind=_ASIDE))

    def close(self) -> None:
        """Close the connections to the database."""
        self.engine.dispose()


def _of(run: int, which: Any) -> Any:
    """(number, time, content) of the entries of a run, in order."""
    columns = _ENTRIES.c.number, _ENTRIES.c.time, _ENTRIES.c.content
    return sql.select(*columns).where((_ENTRIES.c.run == run) & which).order_by(_ENTRIES.c.number)


def _oldest(run: int) -> Any:
    """The number of a run's oldest entry in the database; quarantined ones always stay there."""
    own = (_ENTRIES.c.run == run) & (_ENTRIES.c.kind != _ASIDE)
    return sql.select(sql.func.min(_ENTRIES.c.number)).where(own)


def _next(run: int) -> Any:
    """The number of a run's next entry."""
    return sql.select(sql.func.coalesce(sql.func.max(_ENTRIES.c.number) + 1, 0)).where(_ENTRIES.c.run == run)


def _pause() -> None:
    time.sleep(_PAUSE_S)


def _is_full(error: sql.exc.OperationalError) -> bool:
    """Whether a database reports a full disk: SQLite with SQLITE_FULL, PostgreSQL with 53100."""
    code = getattr(error.orig, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_FULL or getattr(error.orig, "sqlstate", None) == "53100"


def encode(item: Any) -> dict[str, Any]:
    """An event, an order or another dataclass as plain JSON types."""
    return {part.name: _plain(getattr(item, part.name)) for part in fields(item)}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return encode(value) if is_dataclass(value) else value


def _new(at: sql.Connection, about: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    made = at.execute(_RUNS.insert().returning(_RUNS.c.id), {"about": about})
    return int(made.scalar_one()), about


def _newest(at: sql.Connection, of: str | None) -> tuple[int, dict[str, Any]]:
    for number, about in at.execute(sql.select(_RUNS.c.id, _RUNS.c.about).order_by(_RUNS.c.id.desc())):
        if of is None or about.get("id") == of:
            return int(number), dict(about)
    raise InputError("the journal has no run to continue")


def _shown(url: str) -> str:
    """A URL without its password."""
    try:
        return sql.make_url(url).render_as_string(hide_password=True)
    except sql.exc.ArgumentError:
        return "URL"


def _durable(connection: Any, record: object) -> None:
    """Use SQLite's write-ahead log, flushed at every commit."""
    del record
    if "sqlite" in type(connection).__module__:
        connection.execute("PRAGMA journal_mode=WAL")
        # a commit is on the disk when it returns: with less, the last inputs could be lost with the power
        connection.execute("PRAGMA synchronous=FULL")
