"""The record of a run: what ran where and when, as tables.

The meaning of rows and columns is in :mod:`skedge.core.record.record_fields`.

Times are integer microseconds. ``job`` is a row number of the ``jobs`` table, ``server`` the server's name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.core.events import VERBS
from skedge.core.model.cluster import Ints

Columns = pl.Schema
"""Names and types of a table's columns."""

COPIES, SHARES = "copies", "shares"
"""Reasons of an ``upload``: a server receives all chunks, or those of its share of the workers."""

SUPPLIES = ("allocate", "allocate_each", "upload")
"""Decisions that bring data to servers, each for `workers` workers."""


STATES = ("finished", "rejected", "failed", "cancelled")
"""The final states of a job."""


def schema(servers: list[str]) -> dict[str, Columns]:
    """Columns and types of each table, for a cluster with these server names; their meaning: ``docs/run-folder.md``."""
    # an Enum sorts in the order of the cluster, as the numbers of the servers do, and not by name
    server, i64, i32 = pl.Enum(servers), pl.Int64(), pl.Int32()
    text, flag, real = pl.String(), pl.Boolean(), pl.Float64()
    return {
        "runs": pl.Schema({
            "job": i32, "chunk": i32, "server": server, "lane": i32, "workers": i32,
            "start": i64, "compute_from": i64, "end": i64, "work": real, "colocated": flag, "preempted": flag,
        }),
        "ps": pl.Schema({"job": i32, "server": server, "slot": i32, "count": i32, "start": i64, "end": i64}),
        "uploads": pl.Schema({
            "job": i32, "from_site": text, "to_server": server, "chunks": i32, "mb": real, "start": i64, "end": i64,
        }),
        "plans": pl.Schema({
            "job": i32, "server": server, "workers": i32, "ps": i32,
            "from": i64, "to": i64, "made_at": i64, "broken_at": i64,
        }),
        "prices": pl.Schema({
            "made_at": i64, "job": i32, "server": server, "resource": text, "from": i64, "to": i64, "price": real,
        }),
        "decisions": pl.Schema({
            "time": i64, "job": i32, "verb": pl.Enum(list(VERBS)), "chunk": i32, "lane": i32, "server": server,
            "workers": i32, "rank": i64, "postponed": i32, "value": real, "reason": pl.Categorical(),
        }),
        "jobs": pl.Schema({
            "job": i32, "id": text, "arrival": i64, "admitted": i64, "first_start": i64, "completion": i64,
            "jct": i64, "work": real, "value": real, "state": pl.Enum(list(STATES)), "reason": text,
        }),
        "outages": pl.Schema({"server": server, "start": i64, "end": i64, "reason": text}),
    }  # fmt: skip


NUMBER = "number"
"""Column of a table's rows of some jobs: the number of the row among all."""


@dataclass(frozen=True)
class Schedule:
    """The tables of one run (:func:`schema`).

    Those of a large run stay in their files (:meth:`in_files`), and each is read as a whole when it is asked for.
    """

    runs: pl.DataFrame
    ps: pl.DataFrame
    uploads: pl.DataFrame
    plans: pl.DataFrame
    prices: pl.DataFrame
    decisions: pl.DataFrame
    jobs: pl.DataFrame
    outages: pl.DataFrame
    folder: ClassVar[Path | None] = None

    @staticmethod
    def in_files(folder: Path) -> Schedule:
        """The tables in the files ``NAME.parquet`` of `folder`."""
        schedule = object.__new__(Schedule)
        vars(schedule)["folder"] = folder
        return schedule

    if not TYPE_CHECKING:  # a type checker would allow any name

        def __getattr__(self, name: str) -> pl.DataFrame:
            """Read a table that is still in its file."""
            if name not in Schedule.names() or self.folder is None:
                raise AttributeError(name)
            vars(self)[name] = self.scan(name).collect()
            return vars(self)[name]

    @staticmethod
    def names() -> tuple[str, ...]:
        """Names of the tables."""
        return tuple(f.name for f in fields(Schedule))

    def tables(self) -> Mapping[str, pl.DataFrame]:
        """The tables by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def scratch_folder(self) -> Path | None:
        """Folder for large temporary files: that of the tables; None, the system's, if there is none to write to."""
        return self.folder if self.folder is not None and os.access(self.folder, os.W_OK) else None

    def scan(self, name: str, number: str | None = None) -> pl.LazyFrame:
        """A table, to be read lazily; `number`: a column for the numbers of its rows."""
        if self.folder is not None and name not in vars(self):
            # with an index of its own, a file is not read where a filter excludes its rows
            return pl.scan_parquet(self.folder / f"{name}.parquet", glob=False, row_index_name=number)
        table: pl.DataFrame = getattr(self, name)
        return table.lazy() if number is None else table.lazy().with_row_index(number)

    def height(self, name: str) -> int:
        """Number of rows of a table."""
        return int(self.scan(name).select(pl.len()).collect().item())

    def empty(self) -> Schedule:
        """The tables without their rows."""
        return Schedule(**{name: self.scan(name).head(0).collect() for name in Schedule.names()})

    def of_jobs(self, first: int, end: int | None) -> Schedule:
        """The rows of the jobs from `first` to before `end` (None: and of impossible jobs), numbered from 0.

        Those of all jobs are the schedule itself. Else tables without jobs are as they are, and the others have a
        further column :data:`NUMBER`.
        """
        if (first, end) == (0, None):
            return self
        tables = {}
        for name in Schedule.names():
            table, job = self.scan(name), pl.col("job")
            if "job" in table.collect_schema():
                table = self.scan(name, NUMBER)
                if end is not None:
                    table = table.filter(job < end)
                if first > 0:
                    table = table.filter((job >= first) | (job.is_null() & (end is None)))
                    # Int32 as the column is: the tables of parts must have the schema of a whole record
                    table = table.with_columns(job - pl.lit(first, pl.Int32))
            tables[name] = table.collect()
        return Schedule(**tables)

    @cached_property
    def kept(self) -> dict[str, Any]:
        """Values derived from the tables, by name: a cache, not part of the record."""
        return {}

    def __getstate__(self) -> Mapping[str, pl.DataFrame]:
        """Pickle the tables alone."""
        return self.tables()


def server_column(servers: Ints | NDArray[np.int32], ids: list[str]) -> pl.Series:
    """Server numbers as names; -1 becomes null."""
    # a null index gathers a null
    return pl.Series(ids, dtype=pl.Enum(ids)).gather(or_null(servers))


def or_null(numbers: Ints | NDArray[np.int32]) -> pl.Series:
    """Numbers as a column; -1, or whatever is below 0, becomes null."""
    column = pl.Series(numbers, dtype=pl.Int64)
    missing = numbers < 0
    return column.set(pl.Series(missing), None) if missing.any() else column
