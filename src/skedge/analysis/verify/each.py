"""Rule M7 for jobs that are not gangs: each worker begins exactly when its own data are there."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import polars as pl

from skedge.analysis.columns import Columns, not_gangs
from skedge.core.network import upload_delay

from .rules import Findings

_Parts = list[tuple[int, int]]
"""(workers, time [µs]) pairs, in order of time."""


class _Order(NamedTuple):
    """An order on a server: its time [µs], its workers, and the data that the server had before and has after it."""

    time: int
    n: int
    before: int
    parts: _Parts


@dataclass
class _Last:
    """A job's last allocation: its end [µs], and by server its workers and when they began computing."""

    end: int | None = None
    parts: dict[int, _Parts] = field(default_factory=dict)


def check_begins(c: Columns, found: Findings, given: pl.DataFrame, slack: int) -> None:
    """Follow each job from allocation to allocation, and check when its workers begin computing.

    Workers that the job held on a server until now continue; if there are to be fewer, those that begin first. The
    others begin when their data are there and, if the job has run before, its checkpoint is restored. `given`: the data
    supplied to servers.
    """
    each = pl.Series(not_gangs(c), dtype=pl.Int32).implode()
    frame = c.gangs.frame.with_columns(pl.Series("server", c.gangs["server"], dtype=pl.Int32))
    frame = frame.filter(pl.col("job").is_in(each)).sort("job", "start", "server", "compute_from")
    rows = frame.select("job", "start", "server", "compute_from", "end", "workers").rows()
    stock = _Stock(c, given.filter(pl.col("job").is_in(each)))
    for job, of_job in groupby(rows, itemgetter(0)):
        last = _Last()
        for start, allocation in groupby(of_job, itemgetter(1)):
            _follow(c, found, slack, stock, job, start, list(allocation), last)


class _Stock:
    """The data supplied to each server for each job, order by order."""

    def __init__(self, c: Columns, given: pl.DataFrame) -> None:
        self.orders: dict[tuple[int, int], list[_Order]] = {}
        for job, server, time, n, before in given.select("job", "server", "time", "n", "before").rows():
            orders = self.orders.setdefault((job, server), [])
            parts = part(orders[-1].parts, 0, before) if orders else []
            if n > before:
                parts = [*parts, (n - before, time + int(upload_delay(c.scenario.delays, job, server)))]
            orders.append(_Order(time, n, before, parts))

    def at(self, job: int, server: int, time: int, n: int) -> _Order:
        """The last order of `n` workers on the server up to a time [µs]."""
        orders = self.orders.get((job, server), [])
        until = orders[: bisect_right(orders, time, key=lambda order: order.time)]
        return next((order for order in reversed(until) if order.n == n), _Order(time, n, 0, []))


def _follow(
    c: Columns,
    found: Findings,
    slack: int,
    stock: _Stock,
    job: int,
    start: int,
    rows: list[tuple[int, ...]],
    last: _Last,
) -> None:
    """Check one allocation against the previous one, which it replaces."""
    holds = last.parts if last.end is not None and start <= last.end + slack else {}
    restore = 0 if last.end is None else c.scenario.physics.checkpoint_overhead
    parts: dict[int, _Parts] = {}
    for server, on_server in groupby(rows, itemgetter(2)):
        got = [(n, begin) for *_, begin, _, n in on_server]
        count = sum(n for n, _ in got)
        order = stock.at(job, server, start + slack, count)
        stay = part(holds.get(server, []), 0, min(count, order.before))
        join = part(order.parts, sum(n for n, _ in stay), count)
        parts[server] = [*stay, *((n, max(start, ready) + restore) for n, ready in join)]
        _compare(found, slack, job, start, rows[0][4], server, got, parts[server])
    last.end, last.parts = rows[0][4], parts


def part(parts: _Parts, first: int, last: int) -> _Parts:
    """Workers `first` to `last` - 1 of `parts`."""
    workers = [time for n, time in parts for _ in range(n)][first:last]
    return [(len(list(same)), time) for time, same in groupby(workers)]


def _compare(
    found: Findings,
    slack: int,
    job: int,
    start: int,
    end: int,
    server: int,
    got: _Parts,
    expected: _Parts,
) -> None:
    """Compare worker by worker, in the order in which they begin."""
    begun, due_from = ([begin for n, begin in parts for _ in range(n)] for parts in (got, expected))
    if len(begun) > len(due_from):
        text = f"holds {len(begun)} workers on server {server}; their data were brought for {len(due_from)}"
        found.add("M7", job, start, text)
    for computes, begin in zip(begun, due_from, strict=False):
        due = min(max(begin, start), end)
        if abs(computes - due) > slack:
            only = " only" if computes > due else ""
            text = f"a worker on server {server} computes from {computes} µs{only}; it can, and should, from {due} µs"
            found.add("M7", job, start, text)
            return
