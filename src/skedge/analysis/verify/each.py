"""Rule M7 for jobs that are not gangs: each worker begins exactly when its own data are there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.analysis.columns import ROWS, Columns, gang_rows, not_gangs
from skedge.core.model.cluster import Ints
from skedge.core.model.network import upload_delay, upload_delays
from skedge.platform.jit import compiled, inlined

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
    each = not_gangs(c)
    if not len(each):
        return
    for jobs, rows in _batches(c):
        # only the columns that are read: the rows are many, and sorting copies them
        frame = c.gangs.frame.select("job", "start", "compute_from", "end", "workers")[rows]
        frame = _of_jobs(frame.with_columns(server=pl.Series(c.gangs["server"][rows])), each)
        frame = frame.sort("job", "start", "server", "compute_from")
        of_these = _of_jobs(given.filter(pl.col("job").is_between(jobs.start, jobs.stop, closed="left")), each)
        # a fast compiled pass finds who may be wrong; the plain one then says what is
        suspects = np.flatnonzero(_suspects(c, frame, of_these, slack))
        follow_jobs(c, found, _of_jobs(frame, suspects), _of_jobs(of_these, suspects), slack)


def _batches(c: Columns) -> Iterator[tuple[range, Ints]]:
    """The jobs in ranges with about :data:`ROWS` rows of gangs each, and these rows."""
    rows, jobs = gang_rows(c).rows, len(c.scenario.jobs)
    first = np.append(0, np.bincount(c.gangs["job"], minlength=jobs).cumsum())
    cuts = np.unique(first.searchsorted(np.append(np.arange(0, len(rows), ROWS), len(rows))))
    for start, stop in pairwise(cuts.tolist()):
        yield range(start, stop), rows[first[start] : first[stop]]


def follow_jobs(c: Columns, found: Findings, frame: pl.DataFrame, given: pl.DataFrame, slack: int) -> None:
    """Check the jobs of `frame`, their runs by (job, start, server, compute_from); `given` is what they were given."""
    rows = frame.select("job", "start", "server", "compute_from", "end", "workers").rows()
    stock = _Stock(c, given)
    for job, of_job in groupby(rows, itemgetter(0)):
        last = _Last()
        for start, allocation in groupby(of_job, itemgetter(1)):
            _follow(c, found, slack, stock, job, start, list(allocation), last)


def _of_jobs(frame: pl.DataFrame, jobs: Ints) -> pl.DataFrame:
    return frame.filter(pl.col("job").is_in(pl.Series(jobs).cast(frame.schema["job"]).implode()))


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
        text = f"holds {len(begun)} workers on server {server}; data were uploaded for {len(due_from)}"
        found.add("M7", job, start, text)
    for computes, begin in zip(begun, due_from, strict=False):
        due = min(max(begin, start), end)
        if abs(computes - due) > slack:
            text = f"a worker on server {server} computes from {computes} µs; it must from {due} µs"
            found.add("M7", job, start, text)
            return


# -- the same in one compiled pass -----------------------------------------------------------------------------------

_ROOM = 256
"""Groups of workers on a server from which on the compiled pass leaves a job to :func:`follow_jobs`."""


class _Runs(NamedTuple):
    """Runs by (job, start, server, begin): `begin` is when the `n` workers begin computing."""

    job: Ints
    start: Ints
    server: Ints
    begin: Ints
    end: Ints
    n: Ints


class _Given(NamedTuple):
    """Orders that bring data, by job and then in the order given; `first` is the first one of each job.

    `previous` is the last order before it on its server, `link` the last of the links that hold its data (-1: none);
    both are filled in order by order.
    """

    first: Ints
    server: Ints
    time: Ints
    n: Ints
    before: Ints
    ready: Ints
    previous: Ints
    link: Ints


class _Links(NamedTuple):
    """Data on servers as chains: the data of `n` workers, there at `time`, behind those of the link `behind`.

    `total` counts the workers of the whole chain; ``size[0]`` is the number of links.
    """

    n: Ints
    time: Ints
    behind: Ints
    total: Ints
    size: Ints


class _State(NamedTuple):
    """By server: the newest order of the job (-1: none), and its last allocation there.

    `serial` is the number of that allocation, `held` its (workers, time) rows, `groups` of them; ``due[:, :]`` are the
    rows that are expected of the present one, `back` is scratch.
    """

    newest: Ints
    serial: Ints
    held: Ints
    groups: Ints
    due: Ints
    back: Ints


def _suspects(c: Columns, frame: pl.DataFrame, given: pl.DataFrame, slack: int) -> NDArray[np.bool_]:
    """The jobs in which :func:`follow_jobs` finds something, and perhaps others, shape ``(jobs,)``."""
    jobs, servers = len(c.scenario.jobs), len(c.scenario.cluster.servers)
    given = given.sort("job", maintain_order=True).cast({pl.Int32: pl.Int64})
    job, server, time, n, before = (given[name].to_numpy() for name in ("job", "server", "time", "n", "before"))
    first, ready = np.searchsorted(job, np.arange(jobs + 1)), time + upload_delays(c.scenario.delays, job, server)
    none, links = np.full(len(job), -1, np.int64), 2 * len(job) + 1
    orders = _Given(first, server, time, n, before, ready, none, none.copy())
    names = ("job", "start", "server", "compute_from", "end", "workers")
    runs = _Runs(*(frame[name].cast(pl.Int64).to_numpy() for name in names))
    n_of, time_of, behind, total = np.zeros((4, links), np.int64)
    chains = _Links(n_of, time_of, behind, total, np.zeros(1, np.int64))
    state = _State(
        np.full(servers, -1, np.int64),
        np.full(servers, -1, np.int64),
        np.zeros((servers, _ROOM, 2), np.int64),
        np.zeros(servers, np.int64),
        np.zeros((_ROOM, 2), np.int64),
        np.zeros((_ROOM, 2), np.int64),
    )
    wrong = np.zeros(jobs, np.bool_)
    wrong[job[1:][(job[1:] == job[:-1]) & (time[1:] < time[:-1])]] = True
    _follow_all(runs, orders, chains, state, c.scenario.physics.checkpoint_overhead, slack, wrong)
    return wrong


@compiled
def _follow_all(
    runs: _Runs, given: _Given, links: _Links, state: _State, overhead: int, slack: int, wrong: NDArray[np.bool_]
) -> None:
    """Mark as `wrong` the jobs whose workers begin at other times than :func:`_follow` expects, or have no room."""
    row, serial, rows = 0, 0, len(runs.job)
    while row < rows:
        job, opened, last_end = runs.job[row], row, np.int64(-1)
        order, links.size[0] = given.first[job], 0
        while row < rows and runs.job[row] == job:
            start, end, serial = runs.start[row], runs.end[row], serial + 1
            holds = serial - 1 if row > opened and start <= last_end + slack else -2
            restore = overhead if row > opened else 0
            while order < given.first[job + 1] and given.time[order] <= start + slack:
                _bring(given, links, state, order)
                order += 1
            last_end = end
            while row < rows and runs.job[row] == job and runs.start[row] == start:
                first, server, count = row, runs.server[row], 0
                while row < rows and runs.job[row] == job and runs.start[row] == start and runs.server[row] == server:
                    count += runs.n[row]
                    row += 1
                groups = _expected(given, links, state, server, count, holds, start, restore)
                if groups == _ROOM or not _as_expected(runs, state.due, groups, first, row, start, end, slack):
                    wrong[job] = True
                _keep(state, server, groups, serial)
        for i in range(given.first[job], given.first[job + 1]):
            state.newest[given.server[i]] = -1


@inlined
def _bring(given: _Given, links: _Links, state: _State, order: int) -> None:
    """Note the data on a server after an order: those of `before` workers, and of the further ones."""
    server, before = given.server[order], given.before[order]
    last = state.newest[server]
    given.previous[order], state.newest[server] = last, order
    link = given.link[last] if last >= 0 else -1
    while link >= 0 and links.total[link] - links.n[link] >= before:
        link = links.behind[link]
    if link >= 0 and links.total[link] > before:
        kept = before - (links.total[link] - links.n[link])
        link = _chained(links, links.behind[link], kept, links.time[link])
    if given.n[order] > before:
        link = _chained(links, link, given.n[order] - before, given.ready[order])
    given.link[order] = link


@inlined
def _chained(links: _Links, behind: int, n: int, time: int) -> int:
    """A new link behind another (-1: none); returns its number."""
    link = links.size[0]
    links.n[link], links.time[link], links.behind[link] = n, time, behind
    links.total[link] = n + (links.total[behind] if behind >= 0 else 0)
    links.size[0] += 1
    return link


@inlined
def _expected(
    given: _Given, links: _Links, state: _State, server: int, count: int, holds: int, start: int, restore: int
) -> int:
    """Fill ``state.due`` with when `count` workers on a server begin; returns its groups, _ROOM if there is no room.

    `holds`: the number of the allocation that continues.
    """
    order, groups, stay = state.newest[server], 0, 0
    while order >= 0 and given.n[order] != count:
        order = given.previous[order]
    most = min(count, given.before[order]) if order >= 0 else 0
    if state.serial[server] == holds:
        for i in range(state.groups[server]):
            n = min(state.held[server, i, 0], most - stay)
            if n > 0:
                state.due[groups, 0], state.due[groups, 1] = n, state.held[server, i, 1]
                groups, stay = groups + 1, stay + n
    link, joins = given.link[order] if order >= 0 else -1, 0
    while link >= 0 and groups + joins < _ROOM:
        n = min(links.total[link], count) - max(links.total[link] - links.n[link], stay)
        if n > 0:
            state.back[joins, 0], state.back[joins, 1] = n, max(start, links.time[link]) + restore
            joins += 1
        link = links.behind[link]
    for i in range(joins):
        state.due[groups + i, 0], state.due[groups + i, 1] = state.back[joins - 1 - i, 0], state.back[joins - 1 - i, 1]
    return groups + joins


@inlined
def _as_expected(
    runs: _Runs, due: Ints, groups: int, first: int, last: int, start: int, end: int, slack: int
) -> bool:  # fmt: skip
    """Whether the workers of the rows from `first` up to `last` begin when they are due."""
    at, left = -1, 0
    for row in range(first, last):
        rest = runs.n[row]
        while rest > 0:
            while left == 0:
                at += 1
                if at >= groups:
                    return False
                left = due[at, 0]
            if abs(runs.begin[row] - min(max(due[at, 1], start), end)) > slack:
                return False
            n = min(rest, left)
            rest, left = rest - n, left - n
    return True


@inlined
def _keep(state: _State, server: int, groups: int, serial: int) -> None:
    """Note what the job's workers on a server were expected to do."""
    for i in range(groups):
        state.held[server, i, 0], state.held[server, i, 1] = state.due[i, 0], state.due[i, 1]
    state.groups[server], state.serial[server] = groups, serial
