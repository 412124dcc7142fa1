"""Rule M7 for elastic allocations, which are not gangs: each worker begins exactly when its own data arrive."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from skedge.analysis.columns import ROWS, Columns, elastic_jobs, gang_rows
from skedge.analysis.row_groups import in_groups, plain
from skedge.core.model.cluster import Bools, Ints
from skedge.core.model.network import upload_delays
from skedge.platform.jit import compiled, inlined

from .rules import Findings

_ROOM = 256
"""Groups of workers on a server that begin at different times, for which there is room at first."""


def check_begins(c: Columns, findings: Findings, data_orders: pl.DataFrame, slack: int) -> None:
    """Follow each job from allocation to allocation, and check when its workers begin computing.

    Workers that the job held on a server until now continue; if there are to be fewer, those that begin first. The
    others begin when their data are there and, if the job has run before, its checkpoint is restored.

    Parameters
    ----------
    c
        Columns of the record.
    findings
        Receives the violations.
    data_orders
        The data supplied to servers (:func:`~skedge.analysis.supplies.supplies`).
    slack
        Tolerance [µs].
    """
    # a job is elastic in all its allocations, or M24 is violated
    is_elastic = elastic_jobs(c)
    if not is_elastic.any():
        return
    orders = _data_orders(c, data_orders, is_elastic)
    for rows in _batches(c):
        runs = _elastic_runs(c, rows[is_elastic[c.gangs["job"][rows]]])
        for job, start, server, count, n_due, begin, due in _mismatches(c, runs, orders, slack, findings.limit):
            if count > n_due:
                text = f"holds {count} workers on server {server}; data were uploaded for {n_due}"
                findings.add("M7", job, start, text)
            if begin >= 0:
                text = f"a worker on server {server} computes from {begin} µs; it must from {due} µs"
                findings.add("M7", job, start, text)


def _batches(c: Columns) -> Iterator[Ints]:
    """The rows of gangs by (job, start, server), about :data:`ROWS` at a time; those of a job stay together."""
    rows, jobs = gang_rows(c).rows, len(c.scenario.jobs)
    first = np.append(0, np.bincount(c.gangs["job"], minlength=jobs).cumsum())
    cuts = np.unique(first.searchsorted(np.append(np.arange(0, len(rows), ROWS), len(rows))))
    for start, stop in pairwise(first[cuts].tolist()):
        yield rows[start:stop]


class _ElasticRuns(NamedTuple):
    """Runs by (job, start, server, begin): `begin` is when the `n` workers begin computing."""

    job: Ints
    start: Ints
    server: Ints
    begin: Ints
    end: Ints
    n: Ints


def _elastic_runs(c: Columns, rows: Ints) -> _ElasticRuns:
    """These rows of gangs, which are by (job, start, server)."""
    names = ("job", "start", "server", "compute_from", "end", "workers")
    runs = _ElasticRuns(*(plain(c.gangs[name][rows], np.int64) for name in names))
    same_group = [column[1:] == column[:-1] for column in (runs.job, runs.start, runs.server)]
    if (np.logical_and.reduce(same_group) & (runs.begin[1:] < runs.begin[:-1])).any():
        order = np.lexsort((runs.begin, runs.server, runs.start, runs.job))
        runs = _ElasticRuns(*(column[order] for column in runs))
    return runs


class _DataOrders(NamedTuple):
    """Orders that bring data, by job and time, with the first one of each job.

    The server has the data of `before` workers, those of the others of the `n` are there at `ready` [µs]. `previous` is
    the last order before it on its server, `link` the last of the links that hold its data (-1: none); both are filled
    in order by order.
    """

    first: Ints
    server: Ints
    time: Ints
    n: Ints
    before: Ints
    ready: Ints
    previous: Ints
    link: Ints


def _data_orders(c: Columns, data_orders: pl.DataFrame, is_elastic: Bools) -> _DataOrders:
    job, time = data_orders["job"].to_numpy(), data_orders["time"].to_numpy()
    rows, first = in_groups(np.where(is_elastic[job], job, np.int32(-1)), time, len(is_elastic))
    job, time = job[rows], plain(time[rows], np.int64)
    server, n, before = (plain(data_orders[name].to_numpy()[rows], np.int64) for name in ("server", "n", "before"))
    arrival = time + upload_delays(c.scenario.delays, job, server)
    unset = np.full((2, len(rows)), -1, np.int64)
    return _DataOrders(first, server, time, n, before, arrival, unset[0], unset[1])


class _DataLinks(NamedTuple):
    """Data on servers as chains: the data of `n` workers, there at `time`, behind those of the link `behind`.

    `total` counts the workers of the whole chain; ``size[0]`` is the number of links.
    """

    n: Ints
    time: Ints
    behind: Ints
    total: Ints
    size: Ints


class _ServerState(NamedTuple):
    """By server: the newest order of the job (-1: none), and its last allocation there.

    `serial` is the number of that allocation, `held` its (workers, time) rows, `groups` of them; ``due[:, :]`` are the
    rows that are expected of the present one, `scratch` is room for reversing a chain.
    """

    newest: Ints
    serial: Ints
    held: Ints
    groups: Ints
    due: Ints
    scratch: Ints


def _mismatches(c: Columns, runs: _ElasticRuns, orders: _DataOrders, slack: int, limit: int) -> list[list[int]]:
    """At most `limit` (job, start, server, workers, workers due, begin, begin due) rows; begin -1: as it is due."""
    servers, room, n = len(c.scenario.cluster.servers), _ROOM, -1
    chains = np.zeros((4, 2 * len(orders.time) + 1), np.int64)
    links = _DataLinks(chains[0], chains[1], chains[2], chains[3], np.zeros(1, np.int64))
    table = np.empty((limit, 7), np.int64)
    while n < 0:
        unset, held_groups = np.full((2, servers), -1, np.int64), np.zeros((servers, room, 2), np.int64)
        due, scratch = np.zeros((2, room, 2), np.int64)
        state = _ServerState(unset[0], unset[1], held_groups, np.zeros(servers, np.int64), due, scratch)
        n = _follow_workers(runs, orders, links, state, c.scenario.physics.checkpoint_overhead, slack, table)
        room *= 2
    rows: list[list[int]] = table[:n].tolist()
    return rows


@compiled
def _follow_workers(
    runs: _ElasticRuns, orders: _DataOrders, links: _DataLinks, state: _ServerState, overhead: int, slack: int,
    table: Ints,
) -> int:  # fmt: skip
    """Fill `table`, as far as it goes, with the allocations on servers whose workers do not begin as they must.

    Returns the number of its rows, or -1 if there is no room for all groups of workers on a server.
    """
    row, serial, rows, n = 0, 0, len(runs.job), 0
    while row < rows:
        job, opened, last_end = runs.job[row], row, np.int64(-1)
        order, links.size[0] = orders.first[job], 0
        while row < rows and runs.job[row] == job:
            start, end, serial = runs.start[row], runs.end[row], serial + 1
            # workers continue where the allocation follows the last one at once
            continued = serial - 1 if row > opened and start <= last_end + slack else -2
            restore = overhead if row > opened else 0
            while order < orders.first[job + 1] and orders.time[order] <= start + slack:
                _bring(orders, links, state, order)
                order += 1
            # the rows of an allocation end together (M24)
            last_end = end
            while row < rows and runs.job[row] == job and runs.start[row] == start:
                first, server, count = row, runs.server[row], 0
                while row < rows and runs.job[row] == job and runs.start[row] == start and runs.server[row] == server:
                    count += runs.n[row]
                    row += 1
                groups = _expected(orders, links, state, server, count, continued, start, restore)
                if groups == len(state.due):
                    return -1
                n_due = 0
                for i in range(groups):
                    n_due += state.due[i, 0]
                begin, due = _first_mismatch(runs, state.due, groups, first, row, start, end, slack)
                if (count > n_due or begin >= 0) and n < len(table):
                    for i, value in enumerate((job, start, server, count, n_due, begin, due)):
                        table[n, i] = value
                    n += 1
                _keep(state, server, groups, serial)
        for i in range(orders.first[job], orders.first[job + 1]):
            state.newest[orders.server[i]] = -1
    return n


@inlined
def _bring(orders: _DataOrders, links: _DataLinks, state: _ServerState, order: int) -> None:
    """Note the data on a server after an order: those of `before` workers, and of the further ones."""
    server, before = orders.server[order], orders.before[order]
    last = state.newest[server]
    orders.previous[order], state.newest[server] = last, order
    link = orders.link[last] if last >= 0 else -1
    while link >= 0 and links.total[link] - links.n[link] >= before:
        link = links.behind[link]
    if link >= 0 and links.total[link] > before:
        # a chain may be shared with an earlier order, so its last link is not cut but replaced
        left = before - (links.total[link] - links.n[link])
        link = _chained(links, links.behind[link], left, links.time[link])
    if orders.n[order] > before:
        link = _chained(links, link, orders.n[order] - before, orders.ready[order])
    orders.link[order] = link


@inlined
def _chained(links: _DataLinks, behind: int, n: int, time: int) -> int:
    """A new link behind another (-1: none); returns its number."""
    link = links.size[0]
    links.n[link], links.time[link], links.behind[link] = n, time, behind
    links.total[link] = n + (links.total[behind] if behind >= 0 else 0)
    links.size[0] += 1
    return link


@inlined
def _expected(
    orders: _DataOrders,
    links: _DataLinks,
    state: _ServerState,
    server: int,
    count: int,
    continued: int,
    start: int,
    restore: int,
) -> int:
    """Fill ``state.due`` with when `count` workers on a server begin; returns its groups, all its rows if too few.

    `continued`: the number of the allocation whose workers continue.
    """
    order, groups, stay, room = state.newest[server], 0, 0, len(state.due)
    # the last order of as many workers is the one that this allocation carries out
    while order >= 0 and orders.n[order] != count:
        order = orders.previous[order]
    max_stay = min(count, orders.before[order]) if order >= 0 else 0
    if state.serial[server] == continued:
        for i in range(state.groups[server]):
            n = min(state.held[server, i, 0], max_stay - stay)
            if n > 0:
                state.due[groups, 0], state.due[groups, 1] = n, state.held[server, i, 1]
                groups, stay = groups + 1, stay + n
    link, joins = orders.link[order] if order >= 0 else -1, 0
    # the chain has the data brought last first
    while link >= 0 and groups + joins < room:
        n = min(links.total[link], count) - max(links.total[link] - links.n[link], stay)
        if n > 0:
            state.scratch[joins, 0], state.scratch[joins, 1] = n, max(start, links.time[link]) + restore
            joins += 1
        link = links.behind[link]
    for i in range(joins):
        last = joins - 1 - i
        state.due[groups + i, 0], state.due[groups + i, 1] = state.scratch[last, 0], state.scratch[last, 1]
    return groups + joins


@inlined
def _first_mismatch(
    runs: _ElasticRuns, due: Ints, groups: int, first: int, last: int, start: int, end: int, slack: int
) -> tuple[int, int]:  # fmt: skip
    """When the first worker that does not begin as it is due begins, and when it is due; -1 if there is none.

    The workers of the rows from `first` up to `last` are compared with those due, as many as there are of both.
    """
    group, left = -1, 0
    for row in range(first, last):
        rest = runs.n[row]
        while rest > 0:
            while left == 0:
                group += 1
                if group >= groups:
                    return -1, -1
                left = due[group, 0]
            expected = min(max(due[group, 1], start), end)
            if abs(runs.begin[row] - expected) > slack:
                return runs.begin[row], expected
            n = min(rest, left)
            rest, left = rest - n, left - n
    return -1, -1


@inlined
def _keep(state: _ServerState, server: int, groups: int, serial: int) -> None:
    """Note what the job's workers on a server were expected to do."""
    for i in range(groups):
        state.held[server, i, 0], state.held[server, i, 1] = state.due[i, 0], state.due[i, 1]
    state.groups[server], state.serial[server] = groups, serial
