"""The tables of a record in their files, read part by part."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from .model import Ints
from .schedule import Schedule

NUMBER = "number"
"""Column of the decisions of some jobs: the number of the row among all."""


class StoredTables:
    """The Parquet files in the folder ``tables`` of a run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def scan(self, name: str, number: str | None = None) -> pl.LazyFrame:
        """A table, to be read lazily; `number`: a column for the numbers of its rows."""
        return pl.scan_parquet(self.folder / f"{name}.parquet", glob=False, row_index_name=number)

    def height(self, name: str) -> int:
        """Number of rows of a table."""
        return int(self.scan(name).select(pl.len()).collect().item())

    def empty(self) -> Schedule:
        """The tables without their rows."""
        return Schedule(**{name: self.scan(name).head(0).collect() for name in Schedule.names()})

    def of_jobs(self, first: int, end: int | None) -> Schedule:
        """The rows of the jobs from `first` to before `end` (None: and of impossible jobs), numbered from 0.

        Tables without jobs are read as they are. Decisions have a further column :data:`NUMBER`.
        """
        tables = {}
        for name in Schedule.names():
            table, job = self.scan(name, NUMBER if name == "decisions" else None), pl.col("job")
            if "job" in table.collect_schema():
                if end is not None:
                    table = table.filter(job < end)
                if first > 0:
                    table = table.filter((job >= first) | (job.is_null() & (end is None)))
                    table = table.with_columns(job - pl.lit(first, pl.Int32))
            tables[name] = table.collect()
        return Schedule(**tables)

    def slices(self, name: str, columns: list[str], rows: int) -> Iterator[tuple[int, pl.DataFrame]]:
        """Some columns of a table, `rows` rows at a time, each time with the number of the first of them."""
        for first in range(0, self.height(name), rows):
            yield first, self.scan(name).select(columns).slice(first, rows).collect()


def job_ranges(chunks: Ints, most: int) -> list[tuple[int, int | None]]:
    """Ranges of jobs with about `most` chunks each; the last one has no end."""
    until = np.cumsum(chunks)
    edges = np.searchsorted(until, np.arange(most, int(chunks.sum()), most))
    inner = np.unique(edges[(edges > 0) & (edges < len(chunks))]).tolist()
    return list(pairwise([0, *inner, None]))
