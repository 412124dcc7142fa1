"""The record of a run: the kernel records decisions, PSs and plans; the world's runs are added at the end."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import polars as pl

from skedge.core.engine.shares import copies, rows_of, uploads
from skedge.core.events import CANCELLED, Allocate, Dispatch, Price, Reject, Reserve, Transfer, Upload
from skedge.core.kernel.plans import Plans
from skedge.core.model.cluster import Ints, Placement
from skedge.core.model.network import upload_delays
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import NEVER

from .decisions import Decisions, Dispatches, rows_of_buffer
from .schedule import COPIES, SHARES, Schedule, or_null, schema, server_column

_MOST_PAIRS = 2**22
"""Most pairs of a dispatch and a server that are looked at together."""

_SPARSE = 16
"""From this many such pairs a chunk on, those that occur are found by sorting."""

_ALLOCATE = {True: "allocate", False: "allocate_each"}


class Record:
    """Decisions, PS intervals, gang uploads, plans and prices of one run, collected as they occur."""

    def __init__(self, scenario: Scenario, plans: Plans) -> None:
        self.scenario, self.plans = scenario, plans
        self.schema = schema(scenario.cluster.server_ids)
        self.decisions = Decisions(scenario.cluster, self.schema["decisions"])
        self.ps = array("q")
        self.ps_since: dict[int, int] = {}
        self.gang_uploads, self.transfers = array("q"), array("q")
        self.chunks = array("q", scenario.jobs.chunks.tolist())
        self.prices: list[tuple[Any, ...]] = []
        self.admitted: dict[int, int] = {}
        self.rejected: dict[int, str] = {}
        self.failed: dict[int, str] = {}
        self.outages: list[list[Any]] = []

    def extend(self, scenario: Scenario) -> None:
        """Add the jobs that follow the present ones."""
        self.scenario = scenario
        self.chunks.extend(scenario.jobs.chunks[len(self.chunks) :].tolist())

    def continuation(self, plans: Plans) -> Record:
        """A record without entries that continues this one: it knows since when PSs have served jobs."""
        record = Record(self.scenario, plans)
        record.ps_since = dict(self.ps_since)
        return record

    def server(self, now: int, server: int, reason: str) -> None:
        """Record that a server has left service, or has returned to it if `reason` is empty."""
        if reason:
            self.outages.append([server, now, None, reason])
            return
        for outage in self.outages:
            if outage[0] == server and outage[2] is None:
                outage[2] = now

    def dispatch(self, now: int, order: Dispatch) -> None:
        """Record a dispatch; its rows are made at the end."""
        self.admitted.setdefault(order.job, now)
        self.decisions.orders.append((now, order))

    def allocate(self, now: int, order: Allocate, before: Ints | None, ps: Placement) -> None:
        """Record an allocation and the uploads that it starts: data of workers that a server does not have yet.

        Parameters
        ----------
        now
            Time of the order [µs].
        order
            The allocation.
        before
            Number of workers whose data each server of the order had, shape ``(servers of the order,)``; None: nothing
            is uploaded.
        ps
            The PSs that have a decision of their own: (server, PSs) pairs.
        """
        self.admitted.setdefault(order.job, now)
        if len(order.where) == 1 and not ps and before is not None:
            self._allocate_one(now, order, int(before[0]))
            return
        rows = rows_of(order.where)
        if before is not None:
            rows, before = _by_server(order.where, before)
        elif len(rows) > 1:
            # by server, as where data are uploaded; a single row is in order
            rows = rows[rows[:, 0].argsort()]
        self.decisions.add_rows(now, order.job, _ALLOCATE[order.gang], order.reason, rows, order.value)
        for server, n in sorted(ps):
            self.decisions.add(now, order.job, "assign_ps", order.reason, server, workers=n)
        if before is not None:
            self.gang_uploads.frombytes(uploads(rows, before, self.chunks[order.job], order.job, now).tobytes())

    def _allocate_one(self, now: int, order: Allocate, before: int) -> None:
        """:meth:`allocate` on one server, the usual case of a gang: 1 µs instead of 3, as no arrays are made.

        The chunks are those of :func:`.books.shares.uploads`: of n workers with equal shares, `before` have theirs.
        """
        job, ((server, n),), chunks = order.job, order.where, self.chunks[order.job]
        self.decisions.add(now, job, _ALLOCATE[order.gang], order.reason, server, order.value, n)
        lacking = chunks - chunks * min(n, before) // n
        if lacking:
            self.gang_uploads.extend((job, server, lacking, now))

    def transfer(self, now: int, order: Transfer) -> None:
        """Record chunks that move from one site to another."""
        self.transfers.extend((order.job, order.source, order.target, order.chunks, now))
        self.decisions.add(now, order.job, "transfer", order.reason, order.target, order.value)

    def upload(self, now: int, order: Upload, before: Ints) -> None:
        """Record an upload ahead of an allocation: the order and the chunks that it brings; `before` as above."""
        placement, before = _by_server(order.where, before)
        self.decisions.add_rows(now, order.job, "upload", COPIES if order.copies else SHARES, placement)
        rows = (copies if order.copies else uploads)(placement, before, self.chunks[order.job], order.job, now)
        self.gang_uploads.frombytes(rows.tobytes())

    def take_ps(self, job: int, now: int) -> None:
        """Record that a PS begins to serve `job`."""
        self.ps_since[job] = now

    def release_ps(self, job: int, ps: Placement, now: int) -> None:
        """Record that the PSs no longer serve `job`; an interval of length 0 is not recorded."""
        since = self.ps_since.pop(job)
        if since < now:
            self.ps.extend(part for place, n in ps for part in (job, place, n, since, now))

    def reserve(self, now: int, order: Reserve) -> None:
        """Record the decision on a plan."""
        self.decisions.add(now, order.job, "reserve", order.reason, order.server, order.value)

    def price(self, now: int, order: Price) -> None:
        """Record prices that have changed."""
        ids = self.scenario.cluster.server_ids
        self.prices.extend((now, order.job, ids[server], *rest) for server, *rest in order.pieces)

    def reject(self, now: int, order: Reject) -> None:
        """Record a rejection."""
        self.rejected[order.job] = order.reason
        self.decisions.add(now, order.job, "reject", order.reason, value=order.value)

    def fail(self, now: int, job: int, reason: str) -> None:
        """Record a failure: not a decision, but the reason why none follow."""
        self.failed[job] = reason
        self.decisions.add(now, job, "fail", reason)

    # -- the tables ----------------------------------------------------------------------------------------------

    def schedule(self, runs: pl.DataFrame, dispatches: Dispatches | None = None) -> Schedule:
        """All tables, given the world's runs; `dispatches`: those of a compiled run, which makes no orders."""
        d = Dispatches.from_orders(self.decisions.orders) if dispatches is None else dispatches
        return Schedule(
            runs=runs,
            ps=self.ps_table(),
            uploads=self.uploads_table(d),
            plans=self._plans_table(),
            prices=pl.DataFrame(self.prices, schema=self.schema["prices"], orient="row"),
            decisions=self.decisions.table(d),
            jobs=self.jobs_table(*run_bounds(runs, len(self.scenario.jobs))),
            outages=self._outages_table(),
        )

    def _server_name(self, servers: Ints) -> pl.Series:
        return server_column(servers, self.scenario.cluster.server_ids)

    def ps_table(self) -> pl.DataFrame:
        """The PSs that have served, by start and job."""
        cluster, table = self.scenario.cluster, rows_of_buffer(self.ps, 5)
        job, place, count, start, end = table[_by_time(table[:, 3], table[:, 0], table[:, 1])].T
        columns = {
            "job": job,
            "server": self._server_name(cluster.ps_places[place]),
            "slot": or_null(cluster.ps_numbers[place]),
            "count": count,
            "start": start,
            "end": end,
        }
        return pl.DataFrame(columns).cast(self.schema["ps"])

    def uploads_table(self, d: Dispatches) -> pl.DataFrame:
        """The uploads to gangs so far and those of the dispatches `d`, by start, job and server."""
        job, server, chunks, start = self._dispatch_uploads(d)
        gang = rows_of_buffer(self.gang_uploads, 4)
        job, server = np.concatenate([job, gang[:, 0]]), np.concatenate([server, gang[:, 1]])
        chunks, start = np.concatenate([chunks, gang[:, 2]]), np.concatenate([start, gang[:, 3]])
        columns = {
            "job": job,
            "from_site": pl.Series([None], dtype=pl.String).new_from_index(0, len(job)),
            "to_server": self._server_name(server),
            "chunks": chunks,
            "mb": chunks * self.scenario.jobs.chunk_mb[job],
            "start": start,
            "end": start + upload_delays(self.scenario.delays, job, server),
        }
        table = pl.DataFrame(columns).cast(self.schema["uploads"])
        if self.transfers:
            table = pl.concat([table, self._transfers_table()])
        return table.sort("start", "job", "to_server", maintain_order=True)

    def _transfers_table(self) -> pl.DataFrame:
        job, source, target, chunks, time = rows_of_buffer(self.transfers, 5).T
        columns = {
            "job": job,
            "from_site": self._server_name(source).cast(pl.String),
            "to_server": self._server_name(target),
            "chunks": chunks,
            "mb": chunks * self.scenario.jobs.chunk_mb[job],
            "start": time,
            "end": time,
        }
        return pl.DataFrame(columns).cast(self.schema["uploads"])

    def _dispatch_uploads(self, d: Dispatches) -> tuple[Ints, Ints, Ints, Ints]:
        """(job, server, chunks, start) of the uploads implied by the dispatches: one per dispatch and server."""
        count, server = len(self.scenario.cluster.servers), self.decisions.servers(d)
        step, begin, parts = max(_MOST_PAIRS // count, 1), 0, [np.zeros((2, 0), np.int64)]
        for first in range(0, len(d.sizes), step):
            sizes = d.sizes[first : first + step]
            # dispatch and server as one number: it occurs once for each chunk of the upload
            pair = np.repeat(np.arange(len(sizes)) * count, sizes)
            pair += server[begin : begin + len(pair)]
            begin += len(pair)
            if len(sizes) * count > _SPARSE * len(pair):
                occurring, chunks = np.unique(pair, return_counts=True)
            else:
                of_all = np.bincount(pair)
                occurring = np.flatnonzero(of_all)
                chunks = of_all[occurring]
            parts.append(np.stack([first * count + occurring, chunks]))
        pair, chunks = np.concatenate(parts, axis=1)
        return d.job[pair // count], pair % count, chunks, d.time[pair // count]

    def _plans_table(self) -> pl.DataFrame:
        names = list(self.schema["plans"])
        ids = self.scenario.cluster.server_ids
        rows = [
            (r.job, ids[r.server], r.workers, r.ps, r.start, r.end, r.made_at, r.broken_at) for r in self.plans.rows
        ]
        return pl.DataFrame(rows, schema={n: self.schema["plans"][n] for n in names}, orient="row")

    def _outages_table(self) -> pl.DataFrame:
        ids = self.scenario.cluster.server_ids
        rows = [[ids[server], *rest] for server, *rest in self.outages]
        return pl.DataFrame(rows, schema=self.schema["outages"], orient="row")

    def state(self, job: int) -> str:
        """The final state of `job`: rejected, cancelled, failed or finished."""
        if job in self.rejected:
            return "rejected"
        if job in self.failed:
            return "cancelled" if self.failed[job].startswith(CANCELLED) else "failed"
        return "finished"

    def jobs_table(self, first: Ints, last: Ints) -> pl.DataFrame:
        """The jobs; `first` and `last` are those of :func:`run_bounds`."""
        jobs = self.scenario.jobs
        count = len(jobs)
        index = np.arange(count)
        reasons = {**self.rejected, **self.failed}
        state = ["finished"] * count
        for job in reasons:
            state[job] = self.state(job)
        # a job that failed may have run, and has a last end then, but no completion
        completed = ~pl.Series(np.isin(index, list(self.failed)))
        columns = {
            "job": pl.Series(index, dtype=pl.Int32),
            "id": jobs.ids,
            "arrival": jobs.arrival,
            "admitted": pl.Series([self.admitted.get(job) for job in range(count)], dtype=pl.Int64),
            "work": (jobs.chunks * jobs.minibatches).astype(np.float64),
            "value": pl.Series([None], dtype=pl.Float64).new_from_index(0, count),
            "state": pl.Series(state, dtype=pl.String),
            "reason": pl.Series([reasons.get(job) for job in range(count)], dtype=pl.String),
            "done": completed,
        }
        ran = pl.Series(last >= 0)
        table = pl.DataFrame(columns).with_columns(
            first_start=pl.when(ran).then(pl.Series(first)), completion=pl.when(ran).then(pl.Series(last))
        )
        completion = pl.when("done").then("completion").alias("completion")
        derived = {"completion": completion, "jct": (completion - pl.col("arrival")).alias("jct")}
        kinds = self.schema["jobs"]
        return table.select(derived.get(name, pl.col(name)).cast(kind) for name, kind in kinds.items())


def run_bounds(runs: pl.DataFrame, jobs: int) -> tuple[Ints, Ints]:
    """First start and last end of each job's runs [µs]; NEVER and -1 if it has none."""
    job, first, last = runs["job"].to_numpy(), np.full(jobs, NEVER, np.int64), np.full(jobs, -1, np.int64)
    # not first[job] = ..., which keeps one of the runs of a job, whichever comes last
    np.minimum.at(first, job, runs["start"].to_numpy())
    np.maximum.at(last, job, runs["end"].to_numpy())
    return first, last


def _by_time(time: Ints, job: Ints, place: Ints) -> Ints:
    """The rows by (time, job, place)."""
    jobs = int(job.max(initial=0)) + 1
    # time and job as one number, where it fits into 64 bits: one sort instead of three
    if int(time.max(initial=0)) < 2**62 // jobs:
        key = time * jobs + job
        rows = key.argsort(kind="stable")
        tied = np.diff(key[rows]) == 0
        # a tenth of the time, and enough where the places of a job are in order already
        if not (tied & (np.diff(place[rows]) < 0)).any():
            return rows
    return np.lexsort((place, job, time))


def _by_server(placement: Placement, before: Ints) -> tuple[Ints, Ints]:
    """The rows of a placement, and what was there `before`, in order of server."""
    rows = rows_of(placement)
    if len(rows) < 2 or (rows[1:, 0] > rows[:-1, 0]).all():
        return rows, before
    order = rows[:, 0].argsort()
    return rows[order], before[order]
