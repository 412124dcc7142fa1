"""Tables of a record that are written while the run goes on, so that they need not be held in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Full, Queue
from threading import Thread

import polars as pl
from polars.io.plugins import register_io_source

from skedge.core.record.record_fields import labels
from skedge.core.record.schedule import Columns

ROWS = 2**19
"""Rows of a row group."""

Tables = Mapping[str, pl.DataFrame]


def write_table(folder: Path, name: str, table: pl.DataFrame) -> None:
    """Write a whole table of the record into `folder`."""
    file = folder / f"{name}.parquet"
    # readers take whole tables, so statistics of row groups would be for nothing; they are a seventh of the time
    table.write_parquet(file, compression="zstd", compression_level=1, statistics=False, metadata=labels(name))


class GrowingTable:
    """A Parquet file of the record to which rows are added; a thread of its own writes them, one frame behind."""

    def __init__(self, folder: Path, name: str, columns: Columns) -> None:
        # one frame is written while the next is made; more would only take memory
        self._frames: Queue[pl.DataFrame | None] = Queue(1)
        self._failure: Exception | None = None
        self._source = register_io_source(self._frame_source, schema=columns, validate_schema=True)
        self._thread = Thread(target=self._write, args=(folder / f"{name}.parquet", labels(name)), daemon=True)
        self._thread.start()

    def add(self, rows: pl.DataFrame) -> None:
        """Add rows at the end.

        Raises
        ------
        OSError, polars.exceptions.PolarsError
            If the file cannot be written.
        """
        if len(rows):
            self._put(rows)

    def close(self) -> None:
        """Wait until all rows are written; raises as :meth:`add` does."""
        self._put(None)
        self._thread.join()
        self._raise()

    def _put(self, rows: pl.DataFrame | None) -> None:
        while True:
            self._raise()
            try:
                return self._frames.put(rows, timeout=0.2)
            except Full:
                continue

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _frame_source(
        self, columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _batch: int | None
    ) -> Iterator[pl.DataFrame]:
        """The frames as they are added; the whole table is written, so nothing is left out."""
        assert columns is None and predicate is None and n_rows is None  # noqa: S101, PT018 - nothing selects
        while (rows := self._frames.get()) is not None:
            yield rows

    def _write(self, file: Path, metadata: dict[str, str]) -> None:
        try:
            self._source.sink_parquet(
                file, compression="zstd", compression_level=1, row_group_size=ROWS, metadata=metadata
            )
        except Exception as error:  # it is raised where rows are added
            self._failure = error


@contextmanager
def growing(folder: Path, schemas: Mapping[str, Columns]) -> Iterator[dict[str, GrowingTable]]:
    """Tables that grow inside the block, by name; they are complete after it."""
    with ExitStack() as stack:
        tables = {name: GrowingTable(folder, name, columns) for name, columns in schemas.items()}
        for table in tables.values():
            stack.callback(table.close)  # each is closed even if another one fails
        yield tables
