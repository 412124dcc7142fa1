"""The archive of a journal: entries that a restart no longer needs, as Parquet files beside a SQLite journal.

A service's database would grow with its life. Once a snapshot exists, the entries before it are moved into one file and
deleted from the database. The journal is still whole: a record, or a restart without a snapshot, reads the files first.
A file is complete before its entries are deleted; if the controller dies in between, they are in both places, and the
database counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from skedge.core.errors import InputError

Row = tuple[int, int, str, str]
"""Number, time [µs], kind and content (JSON) of an entry."""

_COLUMNS = {"number": pl.Int64, "time": pl.Int64, "kind": pl.String, "content": pl.String}


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

    def add(self, rows: Sequence[Row]) -> None:
        """Write entries, in the order of their numbers, as one file."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        name = f"{self.run}-{rows[0][0]:012}-{rows[-1][0]:012}.parquet"
        aside = self.folder / f"{name}.partial"
        pl.DataFrame(rows, _COLUMNS, orient="row").write_parquet(aside, metadata=_NOTES)
        aside.replace(self.folder / name)

    def entries(self, kind: str, first: int, end: int) -> list[Row]:
        """The archived entries of a kind with numbers in [first, end).

        Raises
        ------
        InputError
            If a file is missing or cannot be read.
        """
        rows, following = list[Row](), first
        for path in sorted(self.folder.glob(f"{self.run}-*.parquet")):
            begins, ends = (int(part) for part in path.stem.split("-")[1:])
            if begins < end and ends >= following:
                self._check(begins, following)
                rows += self._read(path, kind, following, end)
                following = ends + 1
        self._check(end, following)
        return rows

    def _check(self, begins: int, following: int) -> None:
        if begins > following:
            raise InputError(f"{self.folder}: the file with entry {following} of the journal is missing")

    def _read(self, path: Path, kind: str, first: int, end: int) -> list[Row]:
        try:
            frame = pl.read_parquet(path)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise InputError(f"{path}: this file of the journal cannot be read: {error}") from error
        number = pl.col("number").is_between(first, end, closed="left")
        return frame.filter(number & (pl.col("kind") == kind)).rows()


_NOTES = {
    "number": "number of the entry in the journal",
    "time": "time of the run [µs]",
    "kind": "input: of the world; decision: an event and the orders that answered it",
    "content": "JSON",
}
