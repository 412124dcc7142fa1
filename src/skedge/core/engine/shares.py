"""What servers hold of a job, as tables: its data there, and its workers, which begin when their data arrive; compiled.

A table has rows (server, n, time), those of a server one after the other: the data of n workers, which are there at
`time`, or n workers that begin computing at `time`, those of a server in the order in which they come.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from skedge.core.model.cluster import Bools, Ints, Placement
from skedge.core.model.network import Delays, upload_delay
from skedge.platform.jit import compiled, inlined, lean

NOTHING: Ints = np.empty((0, 3), np.int64)
"""A table without rows."""


@lru_cache(maxsize=1024)
def rows_of(where: Placement) -> Ints:
    """The (server, workers) pairs of a placement as rows, read-only: kernel, record and world ask for the same ones."""
    rows = np.array(where, np.int64).reshape(-1, 2)
    rows.flags.writeable = False
    return rows


@inlined
def _put(table: Ints, row: int, server: int, n: int, time: int) -> None:
    table[row, 0], table[row, 1], table[row, 2] = server, n, time


@compiled
def supply(data: Ints, where: Ints, now: int, delays: Delays, job: int) -> tuple[Ints, Ints, int]:
    """Bring the data of the workers of `where` to its servers; what is not there is uploaded from `now` on.

    Returns
    -------
    The data then, the number of workers whose data each server of `where` had before, and when all on these servers
    have arrived [µs].
    """
    servers = len(delays.cloud)
    needs, had, ready = np.zeros(servers, np.int64), np.zeros(servers, np.int64), now
    for w in range(len(where)):
        needs[where[w, 0]] = where[w, 1]
    out, size = np.empty((len(data) + len(where), 3), np.int64), 0
    for i in range(len(data)):
        server = data[i, 0]
        _put(out, size, server, data[i, 1], data[i, 2])
        size, had[server] = size + 1, had[server] + data[i, 1]
        # rows of a server stand together: only after the last one is it known what it has
        if i + 1 < len(data) and data[i + 1, 0] == server:
            continue
        if needs[server] > had[server]:
            _put(out, size, server, needs[server] - had[server], now + upload_delay(delays, job, server))
            size += 1
        if needs[server] > 0:
            ready = max(ready, out[size - 1, 2])
    before = np.empty(len(where), np.int64)
    for w in range(len(where)):
        before[w] = had[where[w, 0]]
        if before[w] == 0:
            _put(out, size, where[w, 0], where[w, 1], now + upload_delay(delays, job, where[w, 0]))
            ready = max(ready, out[size, 2])
            size += 1
    return out[:size].copy(), before, ready


@compiled
def only_on(data: Ints, where: Ints, together: bool) -> Ints:
    """The data of the workers of `where`, in its order; `together`: all of a server are there when the last one is."""
    out, size = np.empty((len(data) + len(where), 3), np.int64), 0
    for w in range(len(where)):
        left, at = where[w, 1], size
        for i in range(len(data)):
            n = min(left, data[i, 1])
            if data[i, 0] == where[w, 0] and together:
                _put(out, at, where[w, 0], where[w, 1], data[i, 2])
                size = at + 1
            elif data[i, 0] == where[w, 0] and n > 0:
                _put(out, size, where[w, 0], n, data[i, 2])
                left, size = left - n, size + 1
    return out[:size].copy()


@compiled
def begin(data: Ints, where: Ints, before: Ints, held: Ints, now: int, restore: int) -> Ints:
    """Workers of `where` and when they begin computing, if each begins when its own data arrive.

    On each server the workers `held` until now continue; if there are to be fewer, those that begin first. The others
    begin when their data arrive: first the workers whose data the server had or was receiving, in order of arrival,
    then the rest. They are restored first.

    Parameters
    ----------
    data
        Includes those of all workers of `where`.
    before
        Workers of each row of `where` whose data the server had before; if none, none continue there.
    """
    out, size = np.empty((len(data) + len(held), 3), np.int64), 0
    for w in range(len(where)):
        server, left, joined = where[w, 0], where[w, 1], 0
        for i in range(len(held)):
            if held[i, 0] == server and before[w] > 0 and left > 0:
                _put(out, size, server, min(left, held[i, 1]), max(now, held[i, 2]))
                left -= out[size, 1]
                size += 1
        # the workers that continue use the first data: as many are passed over
        skip = where[w, 1] - left
        for i in range(len(data)):
            if data[i, 0] == server and joined < left:
                n = min(data[i, 1] - min(skip, data[i, 1]), left - joined)
                skip -= min(skip, data[i, 1])
                if n > 0:
                    _put(out, size, server, n, max(now, data[i, 2]) + restore)
                    size, joined = size + 1, joined + n
    return out[:size].copy()


@compiled
def summary(workers: Ints) -> tuple[int, int, int, int]:
    """The number of workers, when the first and the last begin computing, and the work not done in between [worker-µs].

    That is what the workers would do more had all begun with the first.
    """
    first, last, missed = workers[0, 2], workers[0, 2], 0
    for i in range(len(workers)):
        first, last = min(first, workers[i, 2]), max(last, workers[i, 2])
    for i in range(len(workers)):
        missed += workers[i, 1] * (workers[i, 2] - first)
    return workers[:, 1].sum(), first, last, missed


@lean
def done(workers: Ints, now: int) -> int:
    """Work done by `now` [worker-µs]."""
    total = 0
    for i in range(len(workers)):
        total += workers[i, 1] * max(now - workers[i, 2], 0)
    return total


@compiled
def end_of(workers: Ints, left: int) -> int:
    """When `workers` have done `left` worker-µs [µs]."""
    # the rate rises whenever a group joins: work off the pieces between two joins
    order = np.argsort(workers[:, 2], kind="mergesort")
    rate, at = 0, workers[order[0], 2]
    for i in order:
        if left <= (workers[i, 2] - at) * rate:
            break
        left -= (workers[i, 2] - at) * rate
        rate, at = rate + workers[i, 1], workers[i, 2]
    # x - (-a // b) is x plus a / b rounded up
    return at - (-left // rate)


@compiled
def joined_at(workers: Ints, end: int) -> Ints:
    """The rows of `workers` with no beginning after `end`; those of a server that begin together are one."""
    out, size = np.empty((len(workers), 3), np.int64), 0
    for i in range(len(workers)):
        begins, k = min(workers[i, 2], end), size - 1
        while k >= 0 and out[k, 0] == workers[i, 0] and out[k, 2] != begins:
            k -= 1
        if k >= 0 and out[k, 0] == workers[i, 0]:
            out[k, 1] += workers[i, 1]
        else:
            _put(out, size, workers[i, 0], workers[i, 1], begins)
            size += 1
    return out[:size].copy()


@lean
def in_order(where: Ints, in_service: Bools) -> bool:
    """Whether the servers of `where` are some, exist, ascend and are in service."""
    fine = len(where) > 0
    for w in range(len(where)):
        server = where[w, 0]
        fine = fine and 0 <= server < len(in_service) and in_service[server]
        fine = fine and (w == 0 or where[w - 1, 0] < server)
    return bool(fine)


@lean
def lacks(free: Ints, where: Ints, kind: int, cloud: int) -> int:
    """Take the workers of `where` from those that are `free` of a type; -1, or a row whose server has too few.

    The cloud, -1 for none, has enough; the edge has nothing of a type below 0.
    """
    for w in range(len(where)):
        if where[w, 0] == cloud:
            continue
        if kind < 0 or free[where[w, 0], kind] < where[w, 1]:
            return w
        free[where[w, 0], kind] -= where[w, 1]
    return -1


@lean
def give_back(free: Ints, where: Ints, kind: int, cloud: int) -> None:
    """Undo :func:`lacks`."""
    for w in range(len(where)):
        if where[w, 0] != cloud:
            free[where[w, 0], kind] += where[w, 1]


@compiled
def copies(where: Ints, before: Ints, chunks: int, job: int, now: int) -> Ints:
    """Upload all chunks of a job to each server that lacks the data of some workers; rows as in :func:`uploads`."""
    out, size = np.empty((len(where), 4), np.int64), 0
    for w in range(len(where)):
        if where[w, 1] > before[w]:
            out[size, 0], out[size, 1], out[size, 2], out[size, 3] = job, where[w, 0], chunks, now
            size += 1
    return out[:size].copy()


@compiled
def uploads(where: Ints, before: Ints, chunks: int, job: int, now: int) -> Ints:
    """Spread a job's chunks evenly over its workers; chunks of workers that are new on a server are uploaded.

    `where` is by server; `before` is of how many workers each has the data. Rows: job, server, chunks, now.
    """
    out, size, given, total = np.empty((len(where), 4), np.int64), 0, 0, where[:, 1].sum()
    for w in range(len(where)):
        n = where[w, 1]
        # shares by cumulated counts, so that they add up to all chunks however they round
        first, last = chunks * (given + min(n, before[w])) // total, chunks * (given + n) // total
        given += n
        if last > first:
            out[size, 0], out[size, 1], out[size, 2], out[size, 3] = job, where[w, 0], last - first, now
            size += 1
    return out[:size].copy()
