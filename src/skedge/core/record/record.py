"""The record of a run: the kernel records decisions, PSs and plans; the world's runs are added at the end."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Mapping
from typing import Any, Protocol, cast

import numpy as np
import polars as pl

from skedge.core.engine.ledger import RecordRows
from skedge.core.events import CANCELLED, VERBS, Dispatch, Price, Reject, Reserve, Transfer
from skedge.core.model.cluster import Ints
from skedge.core.model.network import upload_delays
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import NEVER

from .decisions import Decisions, Dispatches, rows_of_buffer
from .plans import Plans
from .schedule import Schedule, or_null, schema, server_column

_MOST_PAIRS = 2**22
"""Most pairs of a dispatch and a server that are looked at together."""

_SPARSE = 16
"""From this many such pairs a chunk on, those that occur are found by sorting."""

REASONS_OF_BATCHES = 256
"""The numbers of reasons in a batch of orders are less than this."""

_CODES = {verb: code for code, verb in enumerate(VERBS)}


class RowSource(Protocol):
    """The rows of a record: those that the engine keeps, or those of a compiled run."""

    def rows(self) -> RecordRows:
        """The rows so far."""

    @property
    def admitted(self) -> Ints:
        """First allocation or dispatch of each job [µs], -1 if there was none."""


class RowLog(RowSource, Protocol):
    """Rows to which others are added."""

    @property
    def now(self) -> int:
        """The present [µs]."""

    def admit(self, job: int) -> None:
        """Note the present as the first time that `job` is given something, unless there was an earlier one."""

    def add_decision(self, job: int, verb: int, server: int, workers: int, reason: int, value: float | None) -> None:
        """Add a decision, at the present; -1 for no server and no workers.

        Parameters
        ----------
        job, verb
            The job; index of the verb in VERBS.
        server, workers
            -1 for none.
        reason
            Its number (:meth:`Record.reason`).
        value
            What the policy compared; None if nothing.
        """


class Record:
    """Decisions, PS intervals, gang uploads, plans and prices of one run, collected as they occur.

    Attributes
    ----------
    source
        Who keeps the rows of decisions, PSs, uploads and runs of gangs.
    """

    def __init__(self, scenario: Scenario, plans: Plans, source: RowSource) -> None:
        self.scenario, self.plans, self.source = scenario, plans, source
        self._log = cast("RowLog", source)  # of a run that is over only the tables are made
        self.schema = schema(scenario.cluster.server_ids)
        self.decisions = Decisions(scenario.cluster, self.schema["decisions"])
        self.transfers = array("q")
        self.prices: list[tuple[Any, ...]] = []
        self.rejected: dict[int, str] = {}
        self.failed: dict[int, str] = {}
        self.outages: list[list[Any]] = []
        self._out: dict[int, list[Any]] = {}
        self._numbers: dict[Hashable, Ints] = {}

    def extend(self, scenario: Scenario) -> None:
        """Add the jobs that follow the present ones."""
        self.scenario = scenario

    def continuation(self, plans: Plans) -> Record:
        """A record without entries of its own that continues this one."""
        return Record(self.scenario, plans, self.source)

    def reason(self, text: str) -> int:
        """The number of a reason."""
        # by first use: a compiled run, which numbers its reasons at the end, keeps to the same order
        return self.decisions.reasons.setdefault(text, len(self.decisions.reasons))

    def numbers(self, wording: Hashable) -> Ints:
        """The numbers of the reasons of batches with this wording, -1 where there is none yet."""
        if wording not in self._numbers:
            self._numbers[wording] = np.full(REASONS_OF_BATCHES, -1)
        return self._numbers[wording]

    def decide(
        self, job: int, verb: str, reason: str, server: int | None = None, value: float | None = None
    ) -> None:  # fmt: skip
        """Record a decision without a chunk or workers.

        Parameters
        ----------
        job, verb, reason
            The job, a verb of VERBS, and the policy's words.
        server, value
            The server and the number that the decision concerns; None if none.
        """
        self._log.add_decision(job, _CODES[verb], -1 if server is None else server, -1, self.reason(reason), value)

    def server(self, now: int, server: int, reason: str) -> None:
        """Record that a server has left service, or has returned to it if `reason` is empty."""
        if reason:
            # a server leaves only while it is in service, so at most one of its rows is open
            self._out[server] = [server, now, None, reason]
            self.outages.append(self._out[server])
        elif server in self._out:
            self._out.pop(server)[2] = now

    def suspended(self, reasons: Mapping[int, str], n: int) -> None:
        """Give the last `n` decisions, suspensions with servers, the reasons for which these servers have left."""
        decisions = self.source.rows().decisions
        for row in decisions[len(decisions) - n :]:
            server = int(row[3])
            row[5] = self.reason(reasons[server])

    def dispatch(self, now: int, order: Dispatch) -> None:
        """Record a dispatch; its rows are made at the end."""
        self._log.admit(order.job)
        self.decisions.orders.append((now, order))

    def transfer(self, order: Transfer) -> None:
        """Record chunks that move from one site to another."""
        self.transfers.extend((order.job, order.source, order.target, order.chunks, self._log.now))
        self.decide(order.job, "transfer", order.reason, order.target, order.value)

    def reserve(self, order: Reserve) -> None:
        """Record the decision on a plan."""
        self.decide(order.job, "reserve", order.reason, order.server, order.value)

    def price(self, now: int, order: Price) -> None:
        """Record prices that have changed."""
        ids = self.scenario.cluster.server_ids
        self.prices.extend((now, order.job, ids[server], *rest) for server, *rest in order.pieces)

    def reject(self, order: Reject) -> None:
        """Record a rejection."""
        self.rejected[order.job] = order.reason
        self.decide(order.job, "reject", order.reason, value=order.value)

    def fail(self, job: int, reason: str) -> None:
        """Record a failure: not a decision, but the reason why none follow."""
        self.failed[job] = reason
        self.decide(job, "fail", reason)

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
            decisions=self.decisions.table(self.source.rows(), d),
            jobs=self.jobs_table(*run_bounds(runs, len(self.scenario.jobs))),
            outages=self._outages_table(),
        )

    def decisions_table(self) -> pl.DataFrame:
        """The decisions so far."""
        return self.decisions.table(self.source.rows())

    def _server_name(self, servers: Ints) -> pl.Series:
        return server_column(servers, self.scenario.cluster.server_ids)

    def ps_table(self) -> pl.DataFrame:
        """The PSs that have served, by start and job."""
        cluster, table = self.scenario.cluster, self.source.rows().ps
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
        # those of dispatches are not kept as rows, as they follow from the lanes of the chunks
        job, server, chunks, start = self._dispatch_uploads(d)
        gang = self.source.rows().uploads
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
        # a copy, as Polars shares the memory of a NumPy array: the table would change with the engine's column
        index, admitted = np.arange(count), self.source.admitted[:count].copy()
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
            "admitted": pl.Series(admitted).set(pl.Series(admitted < 0), None),
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
