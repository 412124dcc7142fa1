"""The jobs of a scenario in a Parquet file, cut into parts that are small enough to be handled at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from skedge.core.errors import ScenarioError

from .cluster import Ints
from .time import LONGEST_S, ticks, whole_slots

PART_CHUNKS = 2**20
"""Chunks of a part, about."""

_ROWS = 2**18
"""Jobs that are looked at together."""

_ID = pl.col("id").cast(pl.String)

_IDS = 2**22
"""Ids that are compared at a time."""

FixedDelays = Mapping[str, Mapping[str, float]]
"""Upload delays fixed in advance [s], by job id and server id."""


class JobsFile:
    """A jobs table in a Parquet file, in the order of :func:`~skedge.core.model.job_checks.sorted_jobs`.

    Parameters
    ----------
    path
        The file.
    fixed_delays
        Upload delays fixed in advance.
    step
        The jobs that arrive in one step of this length [µs] are in one part.

    Attributes
    ----------
    count, chunks
        Numbers of jobs, and of chunks of all of them.
    ranges
        The parts: first job, and the one after the last.
    ids
        Names of the jobs, each read when it is asked for.

    Raises
    ------
    ScenarioError
        If the file is no table of jobs, or they are not in order.
    """

    def __init__(self, path: Path, fixed_delays: FixedDelays | None, step: int) -> None:
        self.path, self.fixed_delays = path, dict(fixed_delays or {})
        with self.named_in_errors():
            self._measure(step)
        self.ids = FileIds(self.scan())

    def scan(self) -> pl.LazyFrame:
        """The table, to be read lazily."""
        return pl.scan_parquet(self.path, glob=False)

    def _measure(self, step: int) -> None:
        """Count jobs and chunks, and find the parts; the file is read twice."""
        edges, last = _PartBoundaries(PART_CHUNKS), pl.DataFrame()
        self.count = self.chunks = 0
        not_numbers = (
            self.scan().select(_ID.cast(pl.Int64, strict=False).null_count()).collect(engine="streaming").item()
        )
        # ids that are all whole numbers are ordered as numbers
        kinds = {"arrival_s": pl.Float64, "chunks": pl.Int64, "id": pl.String if not_numbers else pl.Int64}
        columns = (pl.col(name).cast(kind) for name, kind in kinds.items())
        # three columns of a slice at a time: the file may be larger than memory
        for _, rows in slices(self.scan().select(columns), _ROWS):
            complete = rows.null_count().sum_horizontal().item() == 0
            if not (complete and rows["arrival_s"].is_between(0, LONGEST_S).all()):
                raise ScenarioError("a job has no id or chunks, or an impossible arrival")
            # with the last row so far, so that the seam is checked too
            if not _is_in_order(pl.concat([last, rows], how="diagonal")):
                raise ScenarioError("the jobs are not in order of arrival and id")
            last = rows.tail(1)
            arrival, chunks = ticks(rows["arrival_s"].to_numpy()), rows["chunks"].to_numpy()
            # in slotted time the jobs of a slot arrive together, and no part may begin between them
            edges.add(whole_slots(arrival, step), chunks)
            self.count, self.chunks = self.count + len(rows), self.chunks + int(chunks.sum())
        self.ranges = list(pairwise([*edges.starts, self.count]))

    def rows(self, first: int, end: int) -> tuple[pl.DataFrame, FixedDelays]:
        """The rows of the jobs from `first` to before `end`, and their fixed delays."""
        rows = self.scan().slice(first, end - first).collect()
        ids = rows["id"].cast(pl.String) if self.fixed_delays else ()
        return rows, {name: self.fixed_delays[name] for name in ids if name in self.fixed_delays}

    @contextmanager
    def named_in_errors(self, first: int = 0) -> Iterator[None]:
        """Name the file in errors about the jobs from `first` on.

        Raises
        ------
        ScenarioError
            As the block does; also if it cannot read the file.
        """
        try:
            yield
        except (OSError, pl.exceptions.PolarsError) as error:
            raise ScenarioError(f"{self.path}: cannot be read: {str(error).splitlines()[0]}") from error
        except ScenarioError as error:
            # the error counts rows within the part
            text = re.sub(r"^jobs\[(\d+)\]", lambda row: f"jobs[{int(row[1]) + first}]", str(error))
            raise ScenarioError(f"{self.path}: {text}") from error

    def check_ids(self) -> None:
        """Check that no id is used twice.

        Raises
        ------
        ScenarioError
            Names one that is.
        """
        table, buckets = self.scan().select(_ID), -(-self.count // _IDS)
        for bucket in range(buckets):
            # equal ids have equal hashes, so it is enough to compare within a bucket, which fits into memory
            ids = table.filter(pl.col("id").hash() % buckets == bucket).collect(engine="streaming")["id"]
            if ids.n_unique() < len(ids):
                name = ids.filter(ids.is_duplicated())[0]
                raise ScenarioError(f"{self.path}: job {name!r}: id = {name!r}; it must be unique; it is used twice")


class FileIds:
    """The ids of the jobs in a table, each read when it is asked for."""

    def __init__(self, table: pl.LazyFrame) -> None:
        self._table = table.select(_ID)

    def __len__(self) -> int:
        return int(self._table.select(pl.len()).collect().item())

    def __getitem__(self, job: int) -> str:
        return str(self._table.slice(int(job), 1).collect().item())


def slices(table: pl.LazyFrame, rows: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """A table, `rows` rows at a time, each time with the number of the first of them."""
    for first in range(0, int(table.select(pl.len()).collect().item()), rows):
        yield first, table.slice(first, rows).collect()


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
            before -= before[may[0]]
        self._since = int(before[-1] + chunks[-1])
        self._jobs, self._last = self._jobs + len(chunks), int(arrival[-1])


def _is_in_order(rows: pl.DataFrame) -> bool:
    """Whether rows are in order of (arrival, id)."""
    before, after = rows[:-1], rows[1:]
    same_time = before["arrival_s"] == after["arrival_s"]
    return bool(((before["arrival_s"] < after["arrival_s"]) | (same_time & (before["id"] <= after["id"]))).all())
