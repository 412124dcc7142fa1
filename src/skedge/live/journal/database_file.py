"""The file of a SQLite journal: whether it is still where it was, and which entry was written to it last.

The last entry's number is noted in a small file beside the journal after each commit. It is not flushed, which would
take as long as the commit: after a power cut it may lag, and it is never ahead. A journal that ends before it has lost
entries, as when its write-ahead log is damaged, of which SQLite drops the rest without a word.
"""

from __future__ import annotations

import io
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from skedge.live import host
from skedge.live.durable import PRIVATE, read

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

    def gone(self) -> str:
        """Why what is written now would be lost: the file was deleted, moved or replaced; empty if it is there."""
        now = _identity(self.file)
        self._identity = self._identity or now  # a disk that failed at the start did not say
        if now is not None and now == self._identity:
            return ""
        return f"{self.file} is gone or was replaced while the service was up"

    def note(self, tip: LastEntry) -> None:
        """Note the entry that was written last."""
        line = f"{tip.run:010} {tip.number:020} {tip.checksum:010}"
        with suppress(OSError), _opened(tip_of(self.file)) as file:  # a note that lags only notices less
            file.write(f"{line} {zlib.crc32(line.encode()):010}\n".encode())


def tip_of(file: Path) -> Path:
    """The file that has the last entry of a journal's."""
    return file.with_suffix(TIP)


def last_written(file: Path) -> LastEntry | None:
    """The last entry that was written to a journal; None if that is not known."""
    with suppress(OSError, ValueError):  # a damaged note is none
        line, _, check = read(tip_of(file)).decode("ascii").strip().rpartition(" ")
        if zlib.crc32(line.encode()) == int(check):
            return LastEntry(*map(int, line.split()))
    return None


def _identity(file: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        return host.disk.stamp(file)[:2]
    return None


def _opened(file: Path) -> io.RawIOBase:
    """A file that is written in place, made if it is missing."""
    try:
        return host.disk.open(file, "r+")
    except FileNotFoundError:
        return host.disk.open(file, "x", PRIVATE)
