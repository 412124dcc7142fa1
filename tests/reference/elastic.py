"""Rule M7 for elastic allocations, worker by worker; :mod:`skedge.analysis.verify.elastic` does it in one sweep."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import polars as pl

from skedge.analysis.columns import Columns
from skedge.analysis.verify.rules import Findings
from skedge.core.model.network import upload_delay

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


def follow_jobs(c: Columns, findings: Findings, frame: pl.DataFrame, data_orders: pl.DataFrame, slack: int) -> None:
    """Check the jobs of `frame`, runs by (job, start, server, compute_from); `data_orders`: data supplied to them."""
    rows = frame.select("job", "start", "server", "compute_from", "end", "workers").rows()
    stock = _Stock(c, data_orders.sort("time", maintain_order=True))  # decisions may be out of order (M2)
    for job, of_job in groupby(rows, itemgetter(0)):
        last = _Last()
        for start, allocation in groupby(of_job, itemgetter(1)):
            _follow(c, findings, slack, stock, job, start, list(allocation), last)


class _Stock:
    """The data supplied to each server for each job, order by order."""

    def __init__(self, c: Columns, data_orders: pl.DataFrame) -> None:
        self.orders: dict[tuple[int, int], list[_Order]] = {}
        for job, server, time, n, before in data_orders.select("job", "server", "time", "n", "before").rows():
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
    findings: Findings,
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
        actual = [(n, begin) for *_, begin, _, n in on_server]
        count = sum(n for n, _ in actual)
        order = stock.at(job, server, start + slack, count)
        stay = part(holds.get(server, []), 0, min(count, order.before))
        join = part(order.parts, sum(n for n, _ in stay), count)
        parts[server] = [*stay, *((n, max(start, arrival) + restore) for n, arrival in join)]
        _compare(findings, slack, job, start, rows[0][4], server, actual, parts[server])
    last.end, last.parts = rows[0][4], parts


def part(parts: _Parts, first: int, last: int) -> _Parts:
    """Workers `first` to `last` - 1 of `parts`."""
    workers = [time for n, time in parts for _ in range(n)][first:last]
    return [(len(list(same)), time) for time, same in groupby(workers)]


def _compare(
    findings: Findings,
    slack: int,
    job: int,
    start: int,
    end: int,
    server: int,
    actual: _Parts,
    expected: _Parts,
) -> None:
    """Compare worker by worker, in the order in which they begin."""
    begins, due_from = ([begin for n, begin in parts for _ in range(n)] for parts in (actual, expected))
    if len(begins) > len(due_from):
        text = f"holds {len(begins)} workers on server {server}; data were uploaded for {len(due_from)}"
        findings.add("M7", job, start, text)
    for computes, begin in zip(begins, due_from, strict=False):
        due = min(max(begin, start), end)
        if abs(computes - due) > slack:
            text = f"a worker on server {server} computes from {computes} µs; it must from {due} µs"
            findings.add("M7", job, start, text)
            return
