"""The data that a run supplies to servers, from its decisions and outages alone (rules M7 and M16)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.core.model.cluster import Bools, Ints
from skedge.core.model.kinds import kind_of
from skedge.core.record.schedule import COPIES, SUPPLIES
from skedge.platform.jit import compiled, inlined

from .columns import Columns, once
from .row_groups import Small, in_groups


@once
def supplies(c: Columns) -> pl.DataFrame:
    """One row per server of each order that brings data to servers, in the order given.

    Columns: job, server, time, verb, `n` (workers of the order), `before` (workers whose data the server already had)
    and `chunks` (chunks that must be brought). A server has the data of the largest number of workers in any order on
    the job since its last outage or, if the physics is ``last_place``, of those in the job's last order.
    """
    d, jobs = c.decisions, c.scenario.jobs
    chosen = d.has("verb", *SUPPLIES) & (d["server"] >= 0)
    if not chosen.any():
        return pl.DataFrame(schema={**_COLUMNS, "verb": d.frame.schema["verb"]})
    copies = d.has("verb", "upload")
    if copies.any():
        copies &= (d.frame["reason"] == COPIES).fill_null(value=False).to_numpy()
    rows, first = in_groups(np.where(chosen, d["job"], np.int32(-1)), np.arange(len(d)), len(jobs))
    number = _numbers_within_jobs(d["job"], len(jobs))
    outage = _outages_until(c, d["server"], d["time"])
    decisions = _SupplyOrders(d["server"], d["time"], d["verb"], d["workers"], number, copies, outage)
    keeps_data, servers = kind_of(c.scenario.cluster).keeps_data(c.scenario.physics), len(c.scenario.cluster.servers)
    before, chunks = _follow_orders(decisions, rows, first, jobs.chunks, servers, keeps_data)
    table = {"job": d["job"], "server": d["server"], "time": d["time"]}
    table |= {"n": d["workers"], "before": before, "chunks": chunks}
    indices = np.flatnonzero(chosen)
    return pl.DataFrame({name: column[indices] for name, column in table.items()}).with_columns(
        verb=d.frame["verb"].gather(indices)
    )


_COLUMNS = {
    "job": pl.Int32, "server": pl.Int32, "time": pl.Int64, "n": pl.Int32, "before": pl.Int32, "chunks": pl.Int64
}  # fmt: skip


class _SupplyOrders(NamedTuple):
    """The decisions, by row; `number` is that of a decision within its job, `outage` the last one of its server."""

    server: Small
    time: Ints
    verb: NDArray[Any]
    n: Small
    number: Small
    copies: Bools
    outage: Small


def _numbers_within_jobs(job: Small, jobs: int) -> Small:
    """The number of every row among those of its job."""
    rows, first = in_groups(job, np.arange(len(job)), jobs)
    numbers = np.empty(len(job), np.int32)
    numbers[rows] = np.arange(len(job)) - np.repeat(first[:-1], np.diff(first))
    return numbers


def _outages_until(c: Columns, server: Small, time: Ints) -> Small:
    """Number of outages of each row's server that have begun by its time."""
    count = np.zeros(len(server), np.int32)
    for failing_server in np.unique(c.outages["server"]):
        rows = server == failing_server
        starts = np.sort(c.outages["start"][c.outages["server"] == failing_server])
        # a server has lost what was brought before its last outage
        count[rows] = np.searchsorted(starts, time[rows], side="right")
    return count


@compiled
def _follow_orders(
    decisions: _SupplyOrders, rows: Ints, first: Ints, chunks: Ints, servers: int, keeps_data: bool
) -> tuple[Small, Ints]:
    """Follow each job from order to order: workers whose data each row's server had before, and chunks it must get.

    The rows of an order have ascending servers, and no other decision on the job comes between them.
    """
    before, brought = np.zeros(len(decisions.n), np.int32), np.zeros(len(decisions.n), np.int64)
    last, order = np.full(servers, -1, np.int64), np.zeros(servers, np.int64)
    for job in range(len(first) - 1):
        begin, count = first[job], 0
        while begin < first[job + 1]:
            end = begin + 1
            while end < first[job + 1] and _continues(decisions, rows[end - 1], rows[end]):
                end += 1
            count += 1
            for k in range(begin, end):
                i, server = rows[k], decisions.server[rows[k]]
                previous = last[server]
                if previous >= 0 and decisions.outage[previous] == decisions.outage[i]:
                    # the data of the largest order stay there
                    if keeps_data:
                        before[i] = max(before[previous], decisions.n[previous])
                    # only the data of the order just before stay
                    elif count == order[server] + 1:
                        before[i] = decisions.n[previous]
                last[server], order[server] = i, count
            _spread_chunks(decisions, rows[begin:end], chunks[job], before, brought)
            begin = end
        for k in range(first[job], first[job + 1]):
            last[decisions.server[rows[k]]] = -1
    return before, brought


@inlined
def _continues(decisions: _SupplyOrders, i: int, k: int) -> bool:
    """Whether row `k`, the next one of the job after `i`, belongs to the same order."""
    same = decisions.time[i] == decisions.time[k] and decisions.verb[i] == decisions.verb[k]
    return same and decisions.number[i] + 1 == decisions.number[k] and decisions.server[i] < decisions.server[k]


@inlined
def _spread_chunks(decisions: _SupplyOrders, rows: Ints, chunks: int, before: Small, brought: Ints) -> None:
    """The chunks that each row of an order must bring: those of workers whose data the server lacks, or copies of all.

    A job's chunks are spread evenly over its workers, in the order of the servers. If a server lacks the data of some
    workers, these are its last ones.
    """
    total = spread = 0
    for i in rows:
        total += decisions.n[i]
    for i in rows:
        n, n_held = decisions.n[i], min(decisions.n[i], before[i])
        if decisions.copies[i]:
            brought[i] = chunks if n > before[i] else 0
        else:
            # floors of a running sum add up to the chunks, whatever the shares
            brought[i] = chunks * (spread + n) // total - chunks * (spread + n_held) // total
        spread += n
