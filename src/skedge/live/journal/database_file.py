"""The file of a SQLite journal: whether it is still where it was, and which entry was written to it last.

The last entry's number is noted in a small file beside the journal after each commit. It is not flushed, which would
take as long as the commit: after a power cut it may lag, and it is never ahead. A journal that ends before it has lost
entries, as when its write-ahead log is damaged, of which SQLite drops the rest without a word.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from skedge.live.durable import PRIVATE

TIP = ".tip"
"""Suffix of the file with the last entry's number."""


class LastEntry(NamedTuple):
    """The last entry that was written: its run, number and checksum."""

    run: int
    number: int
    checksum: int


class DatabaseFile:
    """Where a SQLite journal lies, which is open.

    Parameters
    ----------
    file
        The database's file.
    """

    def __init__(self, file: Path) -> None:
        self.file, self._identity = file, _identity(file)
        self._handle: int | None = None

    def gone(self) -> str:
        """Why what is written now would be lost: the file was deleted, moved or replaced; empty if it is there."""
        now = _identity(self.file)
        self._identity = self._identity or now  # a disk that failed at the start did not say
        if now is not None and now == self._identity:
            return ""
        return f"{self.file} is gone or was replaced while the service was up"

    def note(self, tip: LastEntry) -> None:
        """Note the entry that was written last."""
        if self._handle is None:
            self._handle = os.open(tip_of(self.file), os.O_WRONLY | os.O_CREAT, PRIVATE)
        line = f"{tip.run:010} {tip.number:020} {tip.checksum:010}"
        with suppress(OSError):  # the journal has the entry; a note that lags only notices less
            os.pwrite(self._handle, f"{line} {zlib.crc32(line.encode()):010}\n".encode(), 0)

    def close(self) -> None:
        """Close the file of the last entry."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def tip_of(file: Path) -> Path:
    """The file that has the last entry of a journal's."""
    return file.with_suffix(TIP)


def last_written(file: Path) -> LastEntry | None:
    """The last entry that was written to a journal; None if that is not known."""
    with suppress(OSError, ValueError):  # a damaged note is none
        line, _, check = tip_of(file).read_text(encoding="ascii").strip().rpartition(" ")
        if zlib.crc32(line.encode()) == int(check):
            return LastEntry(*map(int, line.split()))
    return None


def _identity(file: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = os.stat(file)
        return status.st_dev, status.st_ino
    return None
