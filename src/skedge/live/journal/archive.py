"""The archive of a journal: entries that a restart no longer needs, as Parquet files beside a SQLite journal.

A service's database would grow with its life. Once a snapshot exists, the entries before it are moved into one file and
deleted from the database. The journal is still whole: a record, or a restart without a snapshot, reads the files first.
A file is on the disk before its entries are deleted; if the controller dies in between, they are in both places, and
the database counts.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from skedge.core.errors import InputError
from skedge.live.durable import make_folder, names_in, read, write_whole

from .chain import DamagedError, Entry

_COLUMNS = {
    "number": pl.Int64,
    "time": pl.Int64,
    "kind": pl.String,
    "content": pl.String,
    "checksum": pl.Int64,
}


class JournalArchive:
    """The archived entries of one run.

    Parameters
    ----------
    folder
        The folder of the files; made when the first is written.
    run
        Number of the run in its database; it is part of the files' names.
    """

    def __init__(self, folder: Path, run: int) -> None:
        self.folder, self.run = folder, run

    def add(self, entries: Sequence[Entry]) -> None:
        """Write entries, in the order of their numbers, as one file; it is on the disk when this returns."""
        make_folder(self.folder, 0o700)
        name = f"{self.run}-{entries[0].number:012}-{entries[-1].number:012}.parquet"
        file = io.BytesIO()
        pl.DataFrame(entries, _COLUMNS, orient="row").write_parquet(file, metadata=_NOTES)
        write_whole(self.folder / name, file.getvalue())

    def files(self) -> list[tuple[int, int, Path]]:
        """(first, last, path) of the files, in order; these are numbers of entries."""
        names = (name for name in names_in(self.folder) if name.startswith(f"{self.run}-"))
        paths = [self.folder / name for name in names if name.endswith(".parquet")]
        numbers = ([int(part) for part in path.stem.split("-")[1:]] for path in paths)
        return [(first, last, path) for (first, last), path in zip(numbers, paths, strict=True)]

    def entries(self, first: int, end: int) -> Iterator[Entry]:
        """The archived entries with numbers in [first, end), in order.

        Raises
        ------
        DamagedError
            If a file is missing or cannot be read.
        """
        following = first
        for begins, ends, path in self.files():
            if begins < end and ends >= following:
                self._check(begins, following)
                yield from _read(path, following, end)
                following = ends + 1
        self._check(end, following)

    def _check(self, begins: int, following: int) -> None:
        if begins > following:
            raise DamagedError(following, f"is missing: the file with it is not in {self.folder}")


def _read(path: Path, first: int, end: int) -> list[Entry]:
    """The entries of a file with numbers in [first, end)."""
    try:
        rows = read_rows(path)
    except InputError as error:
        raise DamagedError(first, f"is damaged: {error}") from error
    # a number that is damaged stays, and is noticed where it is
    within = [row for row in rows if not isinstance(row[0], int) or row[0] >= first]
    return [Entry(*row) for row in within[: end - first]]


def read_rows(path: Path) -> list[tuple[int, int, str, str, int]]:
    """The rows of an archive's file.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    try:
        return pl.read_parquet(io.BytesIO(read(path))).rows()
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException, UnicodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


_NOTES = {
    "number": "number of the entry in the journal",
    "time": "time of the run [µs]",
    "kind": "input: of the world; decision: an event and the orders that answered it",
    "content": "JSON",
    "checksum": "CRC-32 of the entries up to this one",
}
