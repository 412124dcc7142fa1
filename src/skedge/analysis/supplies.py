"""The data that a run supplies to servers, from its decisions and outages alone (rules M7 and M16)."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.core.kinds import kind_of
from skedge.core.model import Ints
from skedge.core.schedule import COPIES, SUPPLIES

from .columns import Columns, once


@once
def supplies(c: Columns) -> pl.DataFrame:
    """One row per server of each order that brings data to servers, in the order given.

    Columns: job, server, time, verb, `n` (workers of the order), `before` (workers whose data the server already had)
    and `chunks` (chunks that must be brought). A server has the data of the largest number of workers in any order on
    the job since its last outage or, if the physics is ``last_place``, of those in the job's last order.
    """
    d = c.decisions
    chosen = np.flatnonzero(d.frame["verb"].is_in(SUPPLIES).fill_null(value=False).to_numpy() & (d["server"] >= 0))
    number = _number_in_job(d["job"])
    rows = chosen[np.argsort(d["job"][chosen], kind="stable")]
    job, server, time, n = d["job"][rows], d["server"][rows], d["time"][rows], d["workers"][rows].astype(np.int64)
    verb = d.frame["verb"].to_physical().to_numpy()[rows]
    order = _orders(job, server, time, verb, number[rows])
    outage = _outages_until(c, server, time)
    place = (job * np.int64(len(c.scenario.cluster.servers)) + server) * (outage.max(initial=0) + 1) + outage
    kept = kind_of(c.scenario.cluster).keeps_data(c.scenario.physics)
    before = _before(np.argsort(place, kind="stable"), place, order, n, kept)
    copies = ((d.frame["verb"] == "upload") & (d.frame["reason"] == COPIES)).fill_null(value=False).to_numpy()[rows]
    chunks = _chunks(order, n, before, copies, c.scenario.jobs.chunks[job])
    back = np.argsort(rows)
    table = {"job": job, "server": server, "time": time, "n": n, "before": before, "chunks": chunks}
    return pl.DataFrame({name: column[back] for name, column in table.items()}).with_columns(
        verb=d.frame["verb"].gather(chosen)
    )


def _orders(job: Ints, server: Ints, time: Ints, verb: Ints, number: Ints) -> Ints:
    """The order that each row, by job, belongs to: servers ascend in an order, and nothing comes between."""
    if not len(job):
        return np.zeros(0, np.int64)
    same = (job[1:] == job[:-1]) & (time[1:] == time[:-1]) & (verb[1:] == verb[:-1])
    same &= (number[1:] == number[:-1] + 1) & (server[1:] > server[:-1])
    return np.cumsum(np.concatenate([[True], ~same]))


def _number_in_job(job: Ints) -> Ints:
    """Number of each decision within its job."""
    order = np.argsort(job, kind="stable")
    sorted_job = job[order]
    first = np.searchsorted(sorted_job, sorted_job)
    number = np.empty(len(job), np.int64)
    number[order] = np.arange(len(job)) - first
    return number


def _outages_until(c: Columns, server: Ints, time: Ints) -> Ints:
    """Number of outages of each row's server that have begun by its time."""
    count = np.zeros(len(server), np.int64)
    for out in np.unique(c.outages["server"]):
        here = server == out
        starts = np.sort(c.outages["start"][c.outages["server"] == out])
        count[here] = np.searchsorted(starts, time[here], side="right")
    return count


def _before(rows: Ints, place: Ints, order: Ints, n: Ints, kept: bool) -> Ints:
    """Workers whose data each row's place has before it; `rows` are the rows by place, and then as they are given."""
    before = np.zeros(len(rows), np.int64)
    this, last = rows[1:], rows[:-1]
    again = place[this] == place[last]
    if kept:
        most = pl.DataFrame({"place": place[rows], "n": n[rows]}).select(pl.col("n").cum_max().over("place"))
        before[this] = np.where(again, most["n"].to_numpy()[:-1], 0)
    else:
        before[this] = np.where(again & (order[this] == order[last] + 1), n[last], 0)
    return before


def _chunks(order: Ints, n: Ints, before: Ints, copies: NDArray[np.bool_], chunks: Ints) -> Ints:
    """The chunks that each row must bring: those of workers whose data the server lacks, or copies of all.

    A job's chunks are spread evenly over its workers, in the order of the servers. If a server lacks the data of some
    workers, these are its last ones.
    """
    first = np.searchsorted(order, order)
    last = np.searchsorted(order, order, side="right")
    given = np.concatenate([[0], np.cumsum(n)])
    total, ahead, held = given[last] - given[first], given[:-1] - given[first], np.minimum(n, before)
    spread = chunks * (ahead + n) // total - chunks * (ahead + held) // total
    return np.where(copies, np.where(n > before, chunks, 0), spread)
