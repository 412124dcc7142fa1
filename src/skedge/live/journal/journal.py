"""The journal: the inputs and decisions of a live run, each written before it takes effect.

One append-only table in SQLite, or in PostgreSQL by URL, holds both in their order: the world's inputs (the reports of
trainers and uploads, with their times), and every event with the orders that answered it. World, kernel and policy
depend on the inputs alone, so a run is rebuilt by replaying them: when opened for an existing run, the journal first
returns its inputs, and every decision must equal the recorded one. Entries before a snapshot
(:mod:`skedge.live.controller.snapshot`) are skipped; a SQLite journal moves them into its archive (:mod:`.archive`).

Each entry has a checksum that continues that of the entry before (:mod:`.chain`). Whatever is replayed was
checked, all of it before the first is.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import fields, is_dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sql

from skedge.core.errors import InputError, SkedgeError, StateError
from skedge.core.events import Event, Order
from skedge.live import host

from .archive import JournalArchive
from .chain import ASIDE, DECISION, INPUT, MISSING, DamagedError, Entry, checked, start_of
from .database_file import DatabaseFile, LastEntry, last_written
from .tables import ENTRIES, RUNS, connected, hindered, is_damaged, last_of, lock_runs, of_run, oldest_of, shown
from .version import VersionError, check_version, create_tables

JOURNAL = "journal.db"
"""Name of the database's file in a run folder or the folder of a service's state."""

ARCHIVE = ".archive"
"""Suffix of the archive's folder, beside a SQLite journal."""

_AT_ONCE = 500
"""Entries that are deleted in one transaction, during which nothing else can be written."""

MOST = 2**31
"""More entries than a journal has."""

_PAUSE_S = 1.0
"""Pause before a write that failed is repeated [s]."""

_BEGINS = "Resumed"
"""The input with which a controller begins."""

_ANOTHER = "another controller writes this run's journal; this one ends"
"""The error of a controller that has been replaced."""


class NoRunError(InputError):
    """A database has no run to continue; `has_others`: it has other runs."""

    def __init__(self, *, has_others: bool) -> None:
        super().__init__("the journal has no run to continue")
        self.has_others = has_others


class UnreachableError(InputError):
    """A database cannot be reached now."""


class LateEntryError(SkedgeError):
    """An entry of the controller before was committed after this one had read the journal."""


class StoredEntries:
    """The entries of a run, read from its database and its archive."""

    engine: sql.Engine
    run: int
    about: dict[str, Any]
    archive: JournalArchive | None
    _known: dict[int, int]

    def transaction(self) -> AbstractContextManager[sql.Connection]:
        """A transaction on the database, committed at the end of the block; after an error its outcome is not known."""
        return host.transaction(self.engine)

    def entries(self, first: int, end: int) -> list[Entry]:
        """The entries with numbers in [first, end), checked.

        Raises
        ------
        DamagedError
            If one is missing or damaged.
        """
        entries = list(checked(self._stored(first, end), first, self.before(first)))
        if len(entries) < end - first:
            raise DamagedError(first + len(entries), MISSING)
        return entries

    def before(self, first: int) -> int:
        """The checksum that entry `first` continues."""
        if first in self._known or first == 0:
            return self._known.get(first, start_of(self.about))
        for entry in self._stored(first - 1, first):
            return entry.checksum
        raise DamagedError(first - 1, MISSING)

    def _stored(self, first: int, end: int) -> Iterator[Entry]:
        """The entries with numbers in [first, end) as they are stored."""
        # the database first: what a controller moves meanwhile is in the archive before it is deleted
        oldest, rows = self._in_database(first, end)
        begins = end if oldest is None else min(max(oldest, first), end)
        old = () if self.archive is None or begins == first else self.archive.entries(first, begins)
        return chain(old, rows)

    def _in_database(self, first: int, end: int) -> tuple[int | None, list[Entry]]:
        """The number of the oldest entry there, and the entries from it on with numbers in [first, end)."""
        rows, oldest = list[Entry](), first
        try:
            with self.transaction() as connection:
                oldest = connection.execute(oldest_of(self.run)).scalar_one()
                if oldest is None:
                    return None, []
                condition = (ENTRIES.c.number >= max(oldest, first)) & (ENTRIES.c.number < end)
                for row in connection.execute(of_run(self.run, condition)):
                    rows.append(Entry(*row))
        except sql.exc.DBAPIError as error:
            if not is_damaged(error):
                raise
            raise DamagedError(max(oldest, first) + len(rows), f"cannot be read: {error.orig}") from error
        return oldest, rows

    def _rows(self, query: Any) -> list[Entry]:
        """The entries that a query finds.

        Raises
        ------
        DamagedError
            If the database is damaged; it names the first entry that cannot be read.
        """
        try:
            with self.transaction() as connection:
                return [Entry(*row) for row in connection.execute(query)]
        except sql.exc.DBAPIError as error:
            if not is_damaged(error):
                raise
            self._in_database(0, MOST)
            raise DamagedError(0, f"or a later one cannot be read: {error.orig}") from error

    def input_before(self, number: int) -> Entry | None:
        """The last input before entry `number`; None if there is none."""
        condition = (ENTRIES.c.kind == INPUT) & (ENTRIES.c.number < number)
        rows = self._rows(of_run(self.run, condition).order_by(None).order_by(ENTRIES.c.number.desc()).limit(1))
        if rows:
            return rows[0]
        return next((entry for entry in reversed(self.entries(0, number)) if entry.kind == INPUT), None)


class SqlJournal(StoredEntries):
    """The journal of one run.

    Parameters
    ----------
    url
        SQLAlchemy URL: ``sqlite:///file.db`` or ``postgresql+psycopg://…``.
    about
        What defines the run (scenario, policy, seed, versions), as JSON. None: continue the newest run of the
        database.
    run_id
        Without `about`: the id in the `about` of the run to continue, if the database has runs of several states.
    reading
        True: nothing is written, as another controller may be writing.
    complete
        False: a journal that is damaged at its end is opened, too, to be looked at.

    Attributes
    ----------
    number
        Number of the next entry.
    checksum
        That of the last entry, which the next one continues.
    written
        The last entry; None if there is none.
    archive
        Where a SQLite journal moves old entries; None for other databases.
    place
        The file of a SQLite journal; None for other databases.
    span
        Entries of the earlier run that are replayed: [first, end). It can be narrowed until the replay begins.
    aside
        Quarantined inputs, which are not replayed.
    blocked
        Why the last entry cannot be written yet (the disk is full, the database is away); else empty.
    unsound, damage
        What is wrong now with the folder where the journal is kept, and which entry was found damaged while the service
        is up (:mod:`skedge.live.controller.state_watch`); else empty.
    midway
        True while a decision waits to be written: the books have its orders, and the world has not.
    meanwhile
        Called repeatedly while an input cannot be written; never in the middle of an event.
    unless_over
        Called then instead; raises if the service has to end.

    Raises
    ------
    InputError
        If the database cannot be opened, its tables are of a version that cannot be used, or there is no run to
        continue (:class:`NoRunError`).
    UnreachableError
        If the database cannot be reached now.
    StateError
        If the database is damaged, or lacks entries that were written.
    """

    def __init__(
        self,
        url: str,
        about: dict[str, Any] | None = None,
        *,
        run_id: str | None = None,
        reading: bool = False,
        complete: bool = True,
    ) -> None:
        self.url, self.reading, self._known = url, reading, dict[int, int]()
        self.blocked = self.unsound = self.damage = ""
        self.midway = False
        self.meanwhile: Callable[[], None] = _pause
        self.unless_over: Callable[[], None] = lambda: None
        try:
            self.engine = connected(url)
            file = self.engine.url.database if self.engine.dialect.name == "sqlite" else None
            tip = last_written(Path(file)) if file else None
            with self.transaction() as connection:
                (check_version if reading else create_tables)(connection)
            with self.transaction() as connection:
                self.run, self.about = _new(connection, about) if about is not None else _newest(connection, run_id)
        except (sql.exc.SQLAlchemyError, VersionError, ValueError, TypeError) as error:
            raise _unopened(url, error) from error
        self.archive = JournalArchive(Path(file).with_suffix(ARCHIVE), self.run) if file else None
        self.place = DatabaseFile(Path(file)) if file else None
        self.written = self._last(complete=complete)
        self.number: int = 0 if self.written is None else self.written.number + 1
        self.checksum: int = start_of(self.about) if self.written is None else self.written.checksum
        self.span = 0, self.number
        if complete:
            _check_end(self, tip)

    def _last(self, *, complete: bool) -> Entry | None:
        """The last entry; of a damaged database that is not `complete` one in place of the first that is bad."""
        try:
            rows = self._rows(last_of(self.run))
            self.aside = [entry.value() for entry in self._rows(of_run(self.run, ENTRIES.c.kind == ASIDE))]
        except DamagedError as error:
            if complete:
                raise
            self.aside = []
            return Entry(error.number, 0, "", "")
        return rows[0] if rows else None

    @cached_property
    def inputs(self) -> deque[tuple[int, dict[str, Any]]]:
        """The inputs that are still to be replayed, as (time, content)."""
        return deque((entry.time, entry.value()) for entry in self._replayed if entry.kind == INPUT)

    @cached_property
    def decided(self) -> deque[dict[str, Any]]:
        """The decisions that a replay has not taken again yet."""
        return deque(entry.value() for entry in self._replayed if entry.kind == DECISION)

    @cached_property
    def _replayed(self) -> list[Entry]:
        return self.entries(*self.span)

    def skip(self, first: int, before: int) -> None:
        """Replay from entry `first` on, which continues the checksum `before`: a snapshot has what is earlier."""
        self.span = first, self.span[1]
        self._known[first] = before

    def shrink(self, end: int) -> None:
        """Move the entries before `end`, of which a snapshot exists, into the archive.

        Raises
        ------
        DamagedError
            If one of them is damaged.
        """
        with self.transaction() as connection:
            oldest = connection.execute(oldest_of(self.run)).scalar_one()
        if self.archive is None or oldest is None or oldest >= end:
            return
        self.archive.add(self.entries(oldest, end))
        for low in range(oldest, end, _AT_ONCE):
            batch = (ENTRIES.c.number >= low) & (ENTRIES.c.number < min(low + _AT_ONCE, end))
            with self.transaction() as connection:
                connection.execute(
                    ENTRIES.delete().where((ENTRIES.c.run == self.run) & batch & (ENTRIES.c.kind != ASIDE))
                )

    # -- writing -------------------------------------------------------------------------------------------------

    def _write(self, time: int, kind: str, content: dict[str, Any], pause: Callable[[], None]) -> None:
        """Write one entry; waits while that is not possible, as nothing may take effect before it is written.

        Raises
        ------
        StateError
            If another controller has begun.
        LateEntryError
            If the controller before has written an entry of that number.
        """
        if self.reading:
            return
        entry = Entry(self.number, time, kind, json.dumps(content))
        entry = entry._replace(checksum=entry.after(self.checksum))
        tries = 0
        while not self._committed(entry, is_retry=tries > 0):
            tries += 1
            pause()
        while self._is_gone():  # what was committed to a file that is gone is not kept
            pause()
        self.blocked = ""
        self.number, self.checksum = entry.number + 1, entry.checksum
        self.written = entry
        if self.place is not None:
            self.place.note(LastEntry(self.run, entry.number, entry.checksum))

    def _committed(self, entry: Entry, *, is_retry: bool) -> bool:
        """Commit an entry; False, and why in `blocked`, if that is not possible now.

        Parameters
        ----------
        entry
            What is committed.
        is_retry
            True after a try of which the outcome is not known: it may be in the database already.
        """
        if self._is_gone():
            return False
        try:
            self._insert(entry)
        except sql.exc.IntegrityError as error:
            present = self._present(entry.number)
            if not (is_retry and present[:1] == [entry]):
                raise _overtaken(entry, present) from error
        except sql.exc.DBAPIError as error:
            reason = hindered(error)
            if not reason:
                raise
            self.blocked = f"the journal cannot be written: {reason}"
            return False
        return True

    def _insert(self, entry: Entry) -> None:
        """Insert an entry behind all others.

        Raises
        ------
        StateError
            If another controller has written that number and has archived it since: no key refuses it any more.
        """
        with self.transaction() as connection:
            connection.execute(ENTRIES.insert(), {"run": self.run, **entry._asdict()})
            last = sql.select(sql.func.max(ENTRIES.c.number)).where(ENTRIES.c.run == self.run)
            if connection.execute(last).scalar_one() > entry.number:
                raise StateError(_ANOTHER)

    def _is_gone(self) -> bool:
        """Whether the journal's file is gone; `blocked` then says so."""
        reason = "" if self.place is None else self.place.gone()
        if reason:
            self.blocked = f"the journal cannot be written: {reason}"
        return bool(reason)

    def _present(self, first: int) -> list[Entry]:
        """The entries from number `first` on that are in the database, whoever wrote them."""
        return self._rows(of_run(self.run, ENTRIES.c.number >= first))

    def take(self, time: int, content: dict[str, Any]) -> None:
        """Write one input of the world; it is on disk when this returns."""
        self._write(time, INPUT, content, self.meanwhile)

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
            self._write(event.time, DECISION, content, self._wait_midway)
            self.midway = False
        # a decision that differs would act on a world in which the recorded one was carried out
        elif self.decided.popleft() != content:
            raise StateError(f"replay: the decision at {event.time} µs is not the one in the journal")

    def _wait_midway(self) -> None:
        """Wait without an answer to anybody."""
        self.midway = True
        _pause()
        self.unless_over()

    def wrong(self) -> str:
        """Why what is written now might not be kept; empty if it is."""
        missing = "" if self.place is None else self.place.gone()
        return self.blocked or self.damage or self.unsound or missing

    def close(self) -> None:
        """Close the connections to the database."""
        self.engine.dispose()


def _overtaken(entry: Entry, present: list[Entry]) -> SkedgeError:
    """The error of a controller that cannot write an entry, as another one has written of that number.

    One that cannot even begin may begin anew: what another has begun with was perhaps committed late, after its death,
    and if that one lives, it ends at its next entry.
    """
    if not _begins(entry) and any(map(_begins, present)):
        return StateError(_ANOTHER)
    number = entry.number
    return LateEntryError(f"entry {number} of the journal was committed late, by the controller before; this one ends")


def _begins(entry: Entry) -> bool:
    """Whether a controller begins with this entry."""
    return entry.kind == INPUT and bool(entry.value()["is"] == _BEGINS)


def _unopened(url: str, error: Exception) -> SkedgeError:
    """The error of a journal that cannot be opened."""
    sentence = f"journal {shown(url)}: {str(error).splitlines()[0]}"
    if is_damaged(error) or not isinstance(error, sql.exc.SQLAlchemyError | InputError):
        return StateError(f"{sentence}: its database is damaged, and its entries cannot be read: restore a backup")
    away = isinstance(error, sql.exc.DBAPIError) and hindered(error)
    kind = UnreachableError if away else type(error) if isinstance(error, VersionError) else InputError
    return kind(sentence)


def _check_end(journal: SqlJournal, tip: LastEntry | None) -> None:
    """Check that the journal has the entry that was written last."""
    if tip is not None and tip.run == journal.run and tip.number >= journal.number:
        raise DamagedError(
            journal.number, f"is missing: the journal ends before it, and entry {tip.number} was written"
        )


def _pause() -> None:
    host.sleep(_PAUSE_S)


def journal_url(folder: Path, url: str | None) -> str:
    """URL of the journal of a run or a service: `url`, or without one that of the file in its folder."""
    return url or f"sqlite:///{folder / JOURNAL}"


def encode(item: Any) -> dict[str, Any]:
    """An event, an order or another object of named fields as plain JSON types."""
    names = [part.name for part in fields(item)] if is_dataclass(item) else item._fields
    return {name: _plain(getattr(item, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return encode(value) if is_dataclass(value) else value


def _new(connection: sql.Connection, about: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """A new run; if another controller has begun that of the same state meanwhile, this one."""
    if "id" in about:
        lock_runs(connection)
        with suppress(NoRunError):
            return _newest(connection, about["id"])
    row = connection.execute(RUNS.insert().returning(RUNS.c.id), {"about": about})
    return int(row.scalar_one()), about


def _newest(connection: sql.Connection, run_id: str | None) -> tuple[int, dict[str, Any]]:
    runs = [(int(run), dict(about)) for run, about in connection.execute(sql.select(RUNS).order_by(RUNS.c.id.desc()))]
    for number, about in runs:
        if run_id is None or about.get("id") == run_id:
            return number, about
    raise NoRunError(has_others=bool(runs))
