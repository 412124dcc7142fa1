"""The runs table of a simulation, built as the runs end."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.core.engine.ledger import no_rows
from skedge.core.engine.truth import RUN_CHUNK, RUN_END, RUN_JOB, RUN_LANE, RUN_PREEMPTED, RUN_START
from skedge.core.model.cluster import Bools, Floats, Ints, Placement
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import NEVER
from skedge.core.record.decisions import rows_of_buffer
from skedge.core.record.record import RowSource
from skedge.core.record.schedule import schema, server_column

_LANE_COLUMNS = {
    "job": (RUN_JOB, np.int32), "chunk": (RUN_CHUNK, np.int32), "lane": (RUN_LANE, np.int32),
    "start": (RUN_START, np.int64), "end": (RUN_END, np.int64), "preempted": (RUN_PREEMPTED, np.bool_),
}  # fmt: skip
"""Columns of the runs on lanes that are kept, with their places in :mod:`skedge.core.engine.truth` and types."""


Narrow = NDArray[np.int32]


class RunLog:
    """Runs on lanes, in the cloud and at sites, and those of gangs, if `source` has any; :meth:`table` joins them."""

    def __init__(self, scenario: Scenario, source: RowSource | None = None) -> None:
        self.scenario, self.source = scenario, source
        self.schema = schema(scenario.cluster.server_ids)["runs"]
        self.lane_parts: list[pl.DataFrame] = []
        self.cloud_rows = array("q")
        self.site_rows = array("q")
        self.colocated = np.zeros(len(scenario.jobs), np.int64)
        self.colocated_since = np.zeros(len(scenario.jobs), np.int64)
        """When a job with chunks on the edge was sent wholly to the cloud [µs]; 0 for all other jobs."""
        self.failed = np.zeros(len(scenario.jobs), np.bool_)

    def lane_runs(self, runs: Ints) -> None:
        """Record finished runs on lanes, with columns as in :mod:`skedge.core.engine.truth`, in narrow columns."""
        self.lane_parts.append(_narrow_runs(runs))

    def note_colocated(self, job: int, colocated: int) -> None:
        """Record zeta_j of a dispatched job with chunks in the cloud; 1: it is wholly there."""
        self.colocated[job] = colocated

    def cloud_runs(self, job: int, chunks: Ints, start: int, end: int, colocated: int) -> None:
        """Record chunks that run in the cloud, each on a worker of its own: the lane after the last.

        Parameters
        ----------
        job, chunks
            The job and the numbers of its chunks.
        start, end
            Of each of these runs [µs].
        colocated
            zeta_j: 1 if the job is wholly in the cloud.
        """
        self.note_colocated(job, colocated)
        for chunk in chunks.tolist():
            self.cloud_rows.extend((job, chunk, self.scenario.cluster.lanes, start, end, 0))

    def cut(self, job: int, now: int) -> None:
        """End the runs of a failed job in the cloud, which were recorded when its chunks were sent, at `now` [µs]."""
        self.failed[job] = True
        rows = rows_of_buffer(self.cloud_rows, 6).copy()
        is_own = rows[:, RUN_JOB] == job
        rows[is_own, RUN_END] = np.minimum(rows[is_own, RUN_END], now)
        self.cloud_rows = array("q", rows[~is_own | (rows[:, RUN_START] < now)].tobytes())

    def site_run(
        self, job: int, placement: Placement, start: int, end: int, trained: Mapping[int, int], *, preempted: bool
    ) -> None:  # fmt: skip
        """Record workers that trained whole chunks of `job` at sites; a run of length 0 is not recorded.

        Parameters
        ----------
        job, placement
            The job, and its workers as (site, workers) pairs.
        start, end
            Time for which they were held [µs].
        trained
            Chunks trained in that time, by site.
        preempted
            Whether the job lost the workers before it was complete.
        """
        if end > start:
            for site, n in placement:
                self.site_rows.extend((job, site, n, start, end, trained.get(site, 0), preempted))

    def lengths_on_lanes(self, job: int, chunk: int) -> list[int]:
        """How long each run of a chunk on lanes took [µs], in order."""
        runs = [part.filter(pl.col("job") == job, pl.col("chunk") == chunk) for part in self.lane_parts]
        table = pl.concat(runs).sort("start") if runs else pl.DataFrame({"start": [], "end": []})
        return (table["end"] - table["start"]).to_list()

    @property
    def lane_rows(self) -> int:
        """Number of runs on lanes."""
        return sum(len(part) for part in self.lane_parts)

    def taken_until(self, time: int) -> pl.DataFrame:
        """Take out the runs of chunks that started before `time`, in order as :meth:`table` has them."""
        runs, early = self._chunk_runs(), pl.col("start") < time
        self.cloud_rows, self.lane_parts = array("q"), [runs.filter(early)]
        table = self.table()
        self.lane_parts = [runs.filter(~early)]
        return table

    def table(self) -> pl.DataFrame:
        """All runs, in order of (start, job, chunk, server)."""
        kinds = (
            (self.lane_parts or self.cloud_rows, self._chunk_table), (self._gang_rows, self._gang_table),
            (self.site_rows, self._site_table),
        )  # fmt: skip
        parts = [part for rows, make in kinds if len(rows) and len(part := make())]
        if len(parts) == 1 and not (len(self._gang_rows) or len(self.site_rows)):
            return parts[0]
        full = pl.concat(parts) if parts else pl.DataFrame(schema=self.schema)
        return full.sort("start", "job", "chunk", "server", maintain_order=True)

    @property
    def _gang_rows(self) -> Ints:
        return no_rows().runs if self.source is None else self.source.rows().runs

    def _chunk_runs(self) -> pl.DataFrame:
        """The runs of chunks; those in the cloud are on the lane after the last."""
        return pl.concat([*self.lane_parts, _narrow_runs(rows_of_buffer(self.cloud_rows, 6))], rechunk=True)

    def _chunk_table(self) -> pl.DataFrame:
        """The rows of the runs of chunks, in order of (start, job, chunk)."""
        # in order before the further columns are made: sorting copies
        frame = self._chunk_runs()
        frame = frame[self._order(*(frame[name].to_numpy() for name in ("start", "job", "chunk")))]
        self.lane_parts, self.cloud_rows = [frame], array("q")
        columns_of = {column.name: column.to_numpy() for column in frame}
        job = columns_of["job"]
        # in place: each array has a number for each run
        work = self._total_lane_time(columns_of)
        np.divide(columns_of["end"] - columns_of["start"], work, out=work)
        work *= self.scenario.jobs.minibatches[job]
        # lanes are the cluster's numbers; null marks the cloud, where a chunk has a worker of its own
        server, lane = self._places(columns_of["lane"])
        columns = {
            "job": frame["job"],
            "chunk": frame["chunk"],
            "server": server_column(server, self.scenario.cluster.server_ids),
            "lane": lane,
            "workers": np.ones(len(job), np.int32),
            "start": frame["start"],
            "compute_from": frame["start"],
            "end": frame["end"],
            "work": work,
            "colocated": (self.colocated == 1)[job] & (columns_of["start"] >= self.colocated_since[job]),
            "preempted": frame["preempted"],
        }
        return pl.DataFrame(columns).cast(self.schema)

    def _order(self, start: Ints, job: Narrow, chunk: Narrow) -> Ints:
        """Order by (start, job, chunk)."""
        number, chunks = self._first_chunk[job], int(self._first_chunk[-1])
        number += chunk
        first = int(start.min(initial=NEVER))
        if (int(start.max(initial=0)) - first + 1) * chunks > 2**64:
            return np.lexsort((number, start))
        # by one number, which is sorted faster than two
        key = (start - first).view(np.uint64)
        key *= np.uint64(chunks)
        key += number.view(np.uint64)
        return np.argsort(key, kind="stable")

    def _places(self, lane: Narrow) -> tuple[Narrow, pl.Series]:
        """Server and lane of runs; lanes of chunks in the cloud follow the cluster's lanes."""
        cluster = self.scenario.cluster
        cloud = -1 if cluster.cloud is None else cluster.cloud
        servers = np.append(cluster.lane_server, cloud).astype(np.int32)
        return servers[np.minimum(lane, cluster.lanes)], pl.Series(lane).set(pl.Series(lane >= cluster.lanes), None)

    def _total_lane_time(self, runs: Mapping[str, Any]) -> Floats:
        """Lane time of each run's chunk over all its runs: p plus the overhead of its preemptions."""
        job = runs["job"]
        chunk_time = self.scenario.true_chunk_time[np.arange(len(self.colocated)), self.colocated].astype(np.float64)
        lane_time: Floats = chunk_time[job]
        overhead, moved = self.scenario.physics.checkpoint_overhead, self.colocated_since > 0
        # the usual case: no array of the size of the runs is made
        if overhead == 0 and not moved.any():
            return lane_time
        key = self._first_chunk[job] + runs["chunk"]
        n_preempted = np.bincount(key, weights=runs["preempted"], minlength=int(self._first_chunk[-1]))
        lane_time += overhead * n_preempted[key]
        if moved.any():
            # a chunk whose job became colocated midway has no single p: its time is that of all its runs
            length = np.bincount(key, weights=runs["end"] - runs["start"])
            lane_time = np.where(moved[job] & ~self.failed[job], length[key], lane_time)
            # a failed job's chunks are unfinished, so their runs do not add up to a whole chunk
            trained_apart = moved[job] & self.failed[job] & (runs["start"] < self.colocated_since[job])
            apart_time = self.scenario.true_chunk_time[:, 0].astype(np.float64)[job] + overhead * n_preempted[key]
            lane_time = np.where(trained_apart, apart_time, lane_time)
        return lane_time

    @property
    def _first_chunk(self) -> Ints:
        return np.concatenate([[0], np.cumsum(self.scenario.jobs.chunks)])

    def _gang_table(self) -> pl.DataFrame:
        job, server, n, start, compute_from, end, work_done, workers, colocated, preempted = self._gang_rows.T
        jobs = self.scenario.jobs
        share = work_done / self.scenario.true_work[job, colocated] * n / workers
        work = jobs.chunks[job] * jobs.minibatches[job] * share
        return self._worker_rows(job, server, n, start, compute_from, end, work, colocated == 1, preempted)

    def _site_table(self) -> pl.DataFrame:
        job, site, n, start, end, chunks, preempted = rows_of_buffer(self.site_rows, 7).T
        work = chunks * self.scenario.jobs.minibatches[job]
        return self._worker_rows(job, site, n, start, start, end, work, np.zeros(len(job), bool), preempted)

    def _worker_rows(
        self, job: Ints, server: Ints, n: Ints, start: Ints, compute_from: Ints, end: Ints, work: Floats | Ints,
        colocated: Bools, preempted: Ints,
    ) -> pl.DataFrame:  # fmt: skip
        """Rows of workers that a job held on a server, outside lanes."""
        columns = {
            "job": job,
            "chunk": _nulls(len(job)),
            "server": server_column(server, self.scenario.cluster.server_ids),
            "lane": _nulls(len(job)),
            "workers": n,
            "start": start,
            "compute_from": compute_from,
            "end": end,
            "work": work,
            "colocated": colocated,
            "preempted": preempted == 1,
        }
        return pl.DataFrame(columns).cast(self.schema)


def _narrow_runs(runs: Ints) -> pl.DataFrame:
    return pl.DataFrame({name: runs[:, column].astype(kind) for name, (column, kind) in _LANE_COLUMNS.items()})


def _nulls(rows: int) -> pl.Series:
    return pl.Series([None], dtype=pl.Int32).new_from_index(0, rows)
