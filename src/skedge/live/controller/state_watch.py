"""The watch of a state folder: whether what is written there is kept.

Linux lets a process write to files that were deleted, and a service whose state is gone would take jobs that nobody
finds again. So while it is up the folder is looked at: is it the one of the start, can a file be written, and is the
journal's last entry, read anew from the disk, the one that was written? If not, the service takes no jobs and says why.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sql

from skedge.live import host
from skedge.live.durable import PRIVATE, remove
from skedge.live.journal.chain import DamagedError, Entry
from skedge.live.journal.journal import SqlJournal
from skedge.live.journal.tables import ENTRIES, connected, is_damaged, of_run

_LOOK_S = 1.0
"""Pause between two looks [s]."""

_PROBE = ".watch"
"""Name of the file that is written."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


class StateWatch(host.Thread):
    """Looks at the state folder until `ended` is set; what is wrong is in the journal's `unsound` and `damage`."""

    def __init__(self, state: Path, journal: SqlJournal) -> None:
        super().__init__(name="state watch", daemon=True)
        self.state, self.journal, self.ended = state, journal, host.Event()
        self._identity = _identity(state)

    def run(self) -> None:
        """Look now and then."""
        while not self.ended.wait(_LOOK_S):
            self.look()

    def look(self) -> None:
        """Look once."""
        self.journal.unsound = self._wrong()
        if not self.journal.unsound and not self.journal.damage:
            try:
                read_back(self.journal)
            except DamagedError as error:
                self.journal.damage = f"the journal: {error}"

    def _wrong(self) -> str:
        """What is wrong with the folder; empty if nothing is."""
        now = _identity(self.state)
        self._identity = self._identity or now  # a disk that failed at the start did not say
        if now is None or now != self._identity:
            return f"{self.state} is gone or was replaced while the service was up"
        try:
            _write(self.state / _PROBE)
        except OSError as error:
            # a full disk is told by the space that is left, and by the journal once it cannot be written
            return "" if error.errno in _FULL else f"{self.state} cannot be written: {error.strerror}"
        return ""


def read_back(journal: SqlJournal) -> None:
    """Read the last entry that was written anew from the disk.

    Raises
    ------
    DamagedError
        If it is not as it was written.
    """
    written = journal.written
    if written is None:
        return
    engine = connected(journal.url, poolclass=sql.NullPool)  # what a connection has read once it may not read again
    try:
        with host.transaction(engine) as connection:
            row = connection.execute(of_run(journal.run, ENTRIES.c.number == written.number)).first()
    except sql.exc.DBAPIError as error:
        if is_damaged(error):
            raise DamagedError(written.number, f"cannot be read: {error.orig}") from error
        return  # the database is away, which the next write says
    if row is None or Entry(*row) != written:
        raise DamagedError(written.number, "is not as it was written")


def _write(probe: Path) -> None:
    with host.disk.open(probe, "w", PRIVATE) as file:
        try:
            file.write(b"\n")
        finally:
            remove(probe)


def _identity(folder: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        return host.disk.stamp(folder)[:2]
    return None
