"""Assignment of worker numbers: a number for every worker of every run.

The record contains how many workers of a server a gang holds, not which ones. Here they are numbered: edge workers like
the lanes, then as many of the cloud as are needed. A job that continues keeps its workers; additional ones are the free
workers with the lowest numbers.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import groupby
from operator import itemgetter

import numpy as np
import polars as pl

from skedge.core.model.cluster import Cluster
from skedge.core.model.scenario import Scenario

_CLOUD = -1, -1
"""Key of the pool of the cloud's workers."""

_BLOCK = 10_000_000
"""On servers with resources, which have no slots, the numbers of each server start at a multiple of this."""


class _Pool:
    """Workers of one type on one server: the free ones, and those to be freed. The cloud has no limit."""

    def __init__(self, numbers: list[int], first_extra: int | None) -> None:
        self.free, self.next_number = numbers, first_extra
        self.busy: list[tuple[int, int]] = []
        self.workers_until: dict[tuple[int, int], set[int]] = {}

    def keep(self, job: int, count: int, now: int) -> list[int]:
        """Up to `count` workers that `job` held until `now`."""
        # Numbers whose runs have ended by now are free; a heap, so that the lowest is taken first.
        while self.busy and self.busy[0][0] <= now:
            heappush(self.free, heappop(self.busy)[1])
        workers = sorted(self.workers_until.get((job, now), ()))[:count]
        if workers:
            self.workers_until[job, now].difference_update(workers)
            # They are free since `now`: what the job keeps is taken out again.
            self.free = [number for number in self.free if number not in workers]
            heapify(self.free)
        return workers

    def fill(self, workers: list[int], job: int, count: int, end: int) -> None:
        """Extend `workers` to `count` workers with free ones, and hold them until `end`."""
        while len(workers) < count:
            workers.append(self._take_free())
        for number in workers:
            heappush(self.busy, (end, number))
        self.workers_until.setdefault((job, end), set()).update(workers)

    def _take_free(self) -> int:
        if self.free:
            return heappop(self.free)
        assert self.next_number is not None, "a server has the workers that are held (M4)"  # noqa: S101 - checked on reading
        self.next_number += 1
        return self.next_number - 1


def workers_of(scenario: Scenario, runs: pl.DataFrame) -> list[list[int]]:
    """Numbers of the workers of each row of `runs`, in its order.

    A chunk on a lane has that lane's number; edge workers are 0 .. lanes - 1. The record must obey rule M4.
    """
    cluster, kind = scenario.cluster, scenario.jobs.worker_type.tolist()
    out: list[list[int]] = [[] for _ in range(len(runs))]
    pools: dict[tuple[int, int], _Pool] = {}
    # In two passes for each instant: first jobs keep what they held, then others fill up. In one, a job might take a
    # number that another one, later in the table, has just held and keeps.
    for start, rows in groupby(_by_start(runs, cluster), itemgetter(0)):
        starting: list[tuple[_Pool, int, int, int, int]] = []
        for _, row, job, server, lane, count, end in rows:
            if lane is not None:
                out[row] = [lane]
                continue
            key = _CLOUD if server == cluster.cloud else (server, kind[job])
            if key not in pools:
                pools[key] = _Pool(*_numbers(cluster, *key))
            out[row] = pools[key].keep(job, count, start)
            starting.append((pools[key], row, job, count, end))
        for pool, row, job, count, end in starting:
            pool.fill(out[row], job, count, end)
    return out


def _by_start(runs: pl.DataFrame, cluster: Cluster) -> list[tuple[int, ...]]:
    server = runs["server"].cast(pl.Enum(cluster.server_ids)).to_physical().cast(pl.Int64)
    table = runs.select("start", "job", "lane", "workers", "end").with_columns(server=server).with_row_index("row")
    return table.sort("start", "row").select("start", "row", "job", "server", "lane", "workers", "end").rows()


def _numbers(cluster: Cluster, server: int, kind: int) -> tuple[list[int], int | None]:
    if (server, kind) == _CLOUD:
        return [], cluster.lanes
    if kind < 0:  # servers with resources have no types
        return [], (server + 1) * _BLOCK
    lanes = np.flatnonzero((cluster.lane_server == server) & (cluster.lane_type == kind))
    return lanes.tolist(), None
