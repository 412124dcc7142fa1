"""Where the data of jobs have been brought, for how many of their workers, and when they arrive; compiled."""

from __future__ import annotations

from skedge.core.model.cluster import Ints
from skedge.platform.jit import inlined, lean

from .ledger import BLOCK, EMPTY, Data


@lean
def new_entry(data: Data, job: int, server: int) -> int:
    """A further entry of `job`, for `server`, without workers; the pool has room for a block."""
    block = data.last[job]
    i = BLOCK * (block + 1)
    if block != EMPTY:
        # behind the last entry that is in use, so that entries stay in the order in which data were brought
        while i > BLOCK * block and data.server[i - 1] == EMPTY:
            i -= 1
    if block != EMPTY and i == BLOCK * (block + 1) and data.following[block] != EMPTY:
        # a block of its own that was emptied
        block = data.last[job] = data.following[block]
        i = BLOCK * block
    elif block == EMPTY or i == BLOCK * (block + 1):
        new = data.free[0]
        if new == EMPTY:
            new = data.size[0]
            data.size[0] += 1
        else:
            data.free[0] = data.following[new]
        for k in range(BLOCK * new, BLOCK * (new + 1)):
            data.server[k] = EMPTY
        data.following[new], data.last[job] = EMPTY, new
        if block == EMPTY:
            data.first[job] = new
        else:
            data.following[block] = new
        i = BLOCK * new
    data.server[i], data.workers[i] = server, 0
    return i


@lean
def lose(data: Data, server: int) -> None:
    """The data on `server` are lost."""
    for i in range(BLOCK * data.size[0]):
        if data.server[i] == server:
            data.workers[i] = 0


@inlined
def look_up(data: Data, job: int, counts: Ints) -> None:
    """Fill `counts`: for how many workers of `job` each server has data, or is receiving them."""
    for server in range(len(counts)):
        counts[server] = 0
    block = data.first[job]
    while block != EMPTY:
        for i in range(BLOCK * block, BLOCK * (block + 1)):
            if data.server[i] != EMPTY:
                counts[data.server[i]] += data.workers[i]
        block = data.following[block]


@inlined
def workers_on(data: Data, job: int, server: int) -> int:
    """For how many workers of `job` the server has data, or is receiving them."""
    total, block = 0, data.first[job]
    while block != EMPTY:
        for i in range(BLOCK * block, BLOCK * (block + 1)):
            if data.server[i] == server:
                total += data.workers[i]
        block = data.following[block]
    return total


@inlined
def on_server(data: Data, job: int, server: int, now: int) -> tuple[int, int, int]:
    """The last entry of `job` for `server` (-1: none), how many workers have data there, and when all arrive [µs].

    Parameters
    ----------
    data
        Where data are.
    job, server
        Whose data, and where.
    now
        The present [µs]: data that have arrived are there now.
    """
    last, total, last_arrival, block = EMPTY, 0, now, data.first[job]
    while block != EMPTY:
        for i in range(BLOCK * block, BLOCK * (block + 1)):
            if data.server[i] == server:
                last = i
                if data.workers[i] > 0:
                    total, last_arrival = total + data.workers[i], max(last_arrival, data.ready[i])
        block = data.following[block]
    return last, total, last_arrival


@lean
def keep_only(data: Data, job: int, placement: Ints, together: bool) -> None:
    """Drop the data of `job` but those of the workers of `placement`.

    `together`: of a gang, all data of a server are there when the last ones are; else they are those that came first.

    Parameters
    ----------
    data
        Where data are.
    job
        Whose data.
    placement
        (server, workers) rows.
    together
        True for a gang.
    """
    block = data.first[job]
    while block != EMPTY:
        for i in range(BLOCK * block, BLOCK * (block + 1)):
            w = _row_of(placement, data.server[i])
            if w < 0:
                data.workers[i] = 0
            elif together and _is_last(data, block, i):
                data.workers[i] = placement[w, 1]
            elif together:
                data.workers[i] = 0
            else:
                data.workers[i] = min(data.workers[i], placement[w, 1] - _before(data, job, i))
        block = data.following[block]
    _close_up(data, job)


@lean
def _close_up(data: Data, job: int) -> None:
    """Move the entries of `job` with workers to the front, in their order: a job may be moved without end."""
    block = target = data.first[job]
    k = BLOCK * target
    while block != EMPTY:
        for i in range(BLOCK * block, BLOCK * (block + 1)):
            if data.server[i] == EMPTY or data.workers[i] == 0:
                data.server[i] = EMPTY
                continue
            if k == BLOCK * (target + 1):
                target = data.following[target]
                k = BLOCK * target
            if k != i:
                data.server[k], data.workers[k], data.ready[k] = data.server[i], data.workers[i], data.ready[i]
                data.server[i] = EMPTY
            k += 1
        block = data.following[block]
    data.last[job] = target


@inlined
def _row_of(placement: Ints, server: int) -> int:
    """The row of `placement` with this server; -1 if there is none."""
    row = -1
    for w in range(len(placement)):
        if placement[w, 0] == server:
            row = w
    return row


@lean
def _is_last(data: Data, block: int, entry_number: int) -> bool:
    """Whether this entry, in this block, is the job's last one for its server."""
    last, server = True, data.server[entry_number]
    first = entry_number + 1
    while block != EMPTY:
        for i in range(first, BLOCK * (block + 1)):
            last = last and not (data.server[i] == server and data.workers[i] > 0)
        block = data.following[block]
        first = BLOCK * block
    return last


@lean
def _before(data: Data, job: int, entry_number: int) -> int:
    """For how many workers the job's entries before this one brought data to its server."""
    total, block, server = 0, data.first[job], data.server[entry_number]
    while block != EMPTY:
        for i in range(BLOCK * block, BLOCK * (block + 1)):
            if i == entry_number:
                return total
            if data.server[i] == server:
                total += data.workers[i]
        block = data.following[block]
    return total


def data_of(data: Data, job: int) -> dict[int, int]:
    """For how many workers of `job` each server has data, or is receiving them, in the order of the first uploads."""
    counts, block = dict[int, int](), int(data.first[job])
    while block != EMPTY:
        entries = slice(BLOCK * block, BLOCK * (block + 1))
        for server, n in zip(data.server[entries].tolist(), data.workers[entries].tolist(), strict=True):
            if server != EMPTY and n > 0:
                counts[server] = counts.get(server, 0) + n
        block = int(data.following[block])
    return counts


@lean
def forget(data: Data, job: int) -> None:
    """Drop all data of a job that has left; its blocks are free for others."""
    block = data.first[job]
    if block == EMPTY:
        return
    while data.following[block] != EMPTY:
        block = data.following[block]
    data.following[block], data.free[0] = data.free[0], data.first[job]
    data.first[job] = data.last[job] = EMPTY
