"""A scenario's jobs and the tables of a record in their files, read part by part."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from skedge.core.errors import ScenarioError
from skedge.core.model.cluster import Ints
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import LONGEST_S, ticks, whole_slots

from .schedule import Schedule

NUMBER = "number"
"""Column of a table's rows of some jobs: the number of the row among all."""

CHUNKS = 2**20
"""Chunks of a part of the jobs."""

_ROWS = 2**18
"""Jobs that are looked at together."""

_IN_ORDER = {"id": pl.String, "arrival_s": pl.Float64, "chunks": pl.Int64}
"""The columns that are looked at to find the parts."""

_ID = pl.col("id").cast(pl.String)

_IDS = 2**22
"""Ids that are compared at a time."""


Steps = Callable[[str, int, int], None]
"""Called with what is done part by part, with the number of parts done so far, and of all."""


class StoredScenario:
    """A scenario whose jobs are in a Parquet file, in the order of :func:`~skedge.core.model.job_checks.sorted_jobs`.

    Parameters
    ----------
    base
        The scenario without jobs.
    file
        The jobs table.
    fixed_delays
        Upload delays fixed in advance [s], by job id and server id.
    part_chunks
        Chunks of a part, about; :data:`CHUNKS` by default.

    Attributes
    ----------
    name, seed, source
        Those of `base`.
    count, chunks
        Numbers of jobs, and of chunks of all of them.
    edges
        First job of each part, and the number of jobs. Jobs that arrive in one slot are in one part.
    ids
        Names of the jobs, each read when it is asked for.

    Raises
    ------
    ScenarioError
        If the file is no table of jobs, or they are not in order.
    """

    def __init__(
        self,
        base: Scenario,
        file: Path,
        fixed_delays: Mapping[str, Mapping[str, float]] | None = None,
        *,
        part_chunks: int | None = None,
    ) -> None:
        self.base, self.file, self.fixed_delays, self.part_chunks = (
            base,
            file,
            dict(fixed_delays or {}),
            part_chunks or CHUNKS,
        )
        self.name, self.seed, self.source, self.ids = base.name, base.seed, base.source, StoredIds(file)
        try:
            self._measure()
        except (OSError, pl.exceptions.PolarsError) as error:
            raise ScenarioError(f"{file}: cannot be read: {str(error).splitlines()[0]}") from error

    def _measure(self) -> None:
        """Count jobs and chunks, and find the parts; the file is read once."""
        edges, order = _PartBoundaries(self.part_chunks), _OrderCheck()
        self.count = self.chunks = 0
        # here and below without globbing: a path with brackets is no pattern
        table = pl.scan_parquet(self.file, glob=False)
        columns = (pl.col(name).cast(kind) for name, kind in _IN_ORDER.items())
        # three columns of a slice at a time: the file may be larger than memory
        for _, rows in _slices(table.select(columns), _ROWS):
            complete = rows.null_count().sum_horizontal().item() == 0
            if not (complete and rows["arrival_s"].is_between(0, LONGEST_S).all()):
                raise ScenarioError(f"{self.file}: a job has no id or chunks, or an impossible arrival")
            order.add(rows)
            arrival, chunks = ticks(rows["arrival_s"].to_numpy()), rows["chunks"].to_numpy()
            # in slotted time the jobs of a slot arrive together, and no part may begin between them
            edges.add(whole_slots(arrival, self.base.physics.step), chunks)
            self.count, self.chunks = self.count + len(rows), self.chunks + int(chunks.sum())
        if not order.holds:
            raise ScenarioError(f"{self.file}: the jobs are not in order of arrival and id")
        self.edges = [*edges.starts, self.count]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The parts: first job, and the one after the last."""
        return list(pairwise(self.edges))

    def any(self, name: str) -> bool:
        """Whether some job has a value other than 0 in a column of numbers; the column may be missing."""
        table = pl.scan_parquet(self.file, glob=False)
        if name not in table.collect_schema():
            return False
        return bool(table.select((pl.col(name).cast(pl.Float64) != 0).any()).collect(engine="streaming").item())

    def parts(self) -> Iterator[tuple[int, Scenario]]:
        """The scenario with the jobs of each part alone, and the number of the first of them."""
        for first, end in self.ranges:
            yield first, self.part(first, end)

    def part(self, first: int, end: int) -> Scenario:
        """The scenario with its jobs from `first` to before `end` alone.

        Raises
        ------
        ScenarioError
            If one of them is wrong.
        """
        table = pl.scan_parquet(self.file, glob=False).slice(first, end - first)
        try:
            rows = table.collect()
            ids = rows["id"].cast(pl.String) if self.fixed_delays else ()
            fixed = {name: self.fixed_delays[name] for name in ids if name in self.fixed_delays}
            return replace(self.base, jobs=Jobs(rows, self.base.cluster, fixed, ordered=True))
        except pl.exceptions.PolarsError as error:
            raise ScenarioError(f"{self.file}: cannot be read: {str(error).splitlines()[0]}") from error
        except ScenarioError as error:
            # the error counts rows within the part
            text = re.sub(r"^jobs\[(\d+)\]", lambda row: f"jobs[{int(row[1]) + first}]", str(error))
            raise ScenarioError(f"{self.file}: {text}") from error

    def check_ids(self) -> None:
        """Check that no id is used twice.

        Raises
        ------
        ScenarioError
            Names one that is.
        """
        table, buckets = pl.scan_parquet(self.file, glob=False).select(_ID), -(-self.count // _IDS)
        for bucket in range(buckets):
            # equal ids have equal hashes, so it is enough to compare within a bucket, which fits into memory
            ids = table.filter(pl.col("id").hash() % buckets == bucket).collect(engine="streaming")["id"]
            if ids.n_unique() < len(ids):
                name = ids.filter(ids.is_duplicated())[0]
                raise ScenarioError(f"{self.file}: job {name!r}: id = {name!r}; it must be unique; it is used twice")


class StoredIds:
    """The ids of the jobs in a file, each read when it is asked for."""

    def __init__(self, file: Path) -> None:
        self._table = pl.scan_parquet(file, glob=False).select(_ID)

    def __len__(self) -> int:
        return int(self._table.select(pl.len()).collect().item())

    def __getitem__(self, job: int) -> str:
        return str(self._table.slice(int(job), 1).collect().item())


class _PartBoundaries:
    """Boundaries of parts of about `part_chunks` chunks, between jobs that arrive at different times."""

    def __init__(self, part_chunks: int) -> None:
        self.part_chunks, self.starts = part_chunks, [0]
        self._jobs = self._since = 0
        self._last = -1

    def add(self, arrival: Ints, chunks: Ints) -> None:
        """The next jobs: arrivals [µs] in whole slots, and numbers of chunks."""
        # chunks between the last boundary and each of these jobs
        before = np.cumsum(chunks) - chunks + self._since
        # jobs that arrive after the one before them: a part can begin there
        may = np.flatnonzero(arrival != np.append(self._last, arrival[:-1]))
        while len(may := may[before[may] >= self.part_chunks]):
            self.starts.append(self._jobs + int(may[0]))
            # the next part begins with this job, so its chunks are counted from here
            before -= before[may[0]]
        self._since = int(before[-1] + chunks[-1])
        self._jobs, self._last = self._jobs + len(chunks), int(arrival[-1])


class _OrderCheck:
    """Whether the rows so far are in order of (arrival, id); ids that are all whole numbers are ordered as numbers."""

    def __init__(self) -> None:
        self._last = pl.DataFrame(schema=_IN_ORDER)
        self._as_text = True
        self._as_numbers: bool | None = True  # None: some id is no number

    @property
    def holds(self) -> bool:
        """Whether they are."""
        return self._as_text if self._as_numbers is None else self._as_numbers

    def add(self, rows: pl.DataFrame) -> None:
        """The next rows."""
        # with the last row so far, so that the seam is checked too
        joined = pl.concat([self._last, rows])
        number = joined["id"].cast(pl.Int64, strict=False)
        self._as_text &= _in_order(joined["arrival_s"], joined["id"])
        if number.null_count():
            self._as_numbers = None
        elif self._as_numbers:
            self._as_numbers = _in_order(joined["arrival_s"], number)
        self._last = joined.tail(1)


def _in_order(arrival: pl.Series, key: pl.Series) -> bool:
    before, after = arrival[:-1], arrival[1:]
    return bool(((before < after) | ((before == after) & (key[:-1] <= key[1:]))).all())


class StoredTables:
    """The Parquet files in the folder ``tables`` of a run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def scratch_folder(self) -> Path | None:
        """Folder for large temporary files: that of the tables; None, the system's, if it is read-only."""
        return self.folder if os.access(self.folder, os.W_OK) else None

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

        Tables without jobs are read as they are. The others have a further column :data:`NUMBER`.
        """
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

    def by_job(self, scenario: StoredScenario) -> Iterator[Schedule]:
        """The rows of each part of the jobs; the last ones also have those of impossible jobs."""
        for first, end in scenario.ranges:
            yield self.of_jobs(first, None if end == scenario.count else end)

    def slices(self, name: str, columns: list[str], rows: int) -> Iterator[tuple[int, pl.DataFrame]]:
        """Some columns of a table, `rows` rows at a time, each time with the number of the first of them."""
        yield from _slices(self.scan(name).select(columns), rows)


def _slices(table: pl.LazyFrame, rows: int) -> Iterator[tuple[int, pl.DataFrame]]:
    for first in range(0, int(table.select(pl.len()).collect().item()), rows):
        yield first, table.slice(first, rows).collect()
