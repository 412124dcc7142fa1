"""Where the data of jobs have been brought, for how many of their workers; compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Ints
from skedge.platform.jit import inlined, lean

NONE = -1
"""No block, no server."""


class Stored(NamedTuple):
    """For how many of its workers each job has had data brought where: its entries in blocks of one pool.

    A job that is moved often has data on many servers. Block b has the entries ``b * BLOCK`` and following, which are
    read together; the last ones of a job's newest block may be empty.

    Attributes
    ----------
    first
        Newest block of each job, -1 if it has none.
    server, workers, ready
        Of an entry: where (-1: empty), for how many, and when they are there [µs], if the caller keeps it.
    following
        Of a block: the job's next one, -1 if there is none.
    size
        Number of blocks, shape ``(1,)``.
    """

    first: Ints
    server: Ints
    workers: Ints
    ready: Ints
    following: Ints
    size: Ints


BLOCK = 8
"""Entries of a block."""


def empty_stored() -> Stored:
    """No data anywhere."""
    none = np.zeros(0, np.int64)
    return Stored(none, none, none, none, none, np.zeros(1, np.int64))


def with_space(stored: Stored, jobs: int, more: int) -> Stored:
    """`stored` with room for `jobs` jobs and `more` entries."""
    if jobs > len(stored.first):
        stored = stored._replace(first=np.append(stored.first, np.full(jobs - len(stored.first), NONE)))
    need, blocks = int(stored.size[0]) + more, len(stored.following)
    if need > blocks:
        longer = max(need - blocks, blocks, 64)
        pool = {name: np.append(getattr(stored, name), np.zeros(BLOCK * longer, np.int64)) for name in _OF_ENTRIES}
        stored = stored._replace(following=np.append(stored.following, np.zeros(longer, np.int64)), **pool)
    return stored


_OF_ENTRIES = ("server", "workers", "ready")


@inlined
def entry(stored: Stored, job: int, server: int) -> int:
    """The entry of `job` for `server`; a new one has no workers."""
    at = stored.first[job]
    while at != NONE:
        for i in range(BLOCK * at, BLOCK * (at + 1)):
            if stored.server[i] == server:
                return i
        at = stored.following[at]
    at = stored.first[job]
    if at == NONE or stored.server[BLOCK * (at + 1) - 1] != NONE:
        at = stored.size[0]
        stored.size[0] += 1
        for i in range(BLOCK * at, BLOCK * (at + 1)):
            stored.server[i] = NONE
        stored.following[at], stored.first[job] = stored.first[job], at
    i = BLOCK * at
    while stored.server[i] != NONE:
        i += 1
    stored.server[i], stored.workers[i] = server, 0
    return i


@lean
def store(stored: Stored, job: int, server: int, workers: int) -> None:
    """Note that `server` has the data of at least `workers` workers of `job`."""
    at = entry(stored, job, server)
    stored.workers[at] = max(stored.workers[at], workers)


@lean
def store_all(stored: Stored, job: int, workers: Ints) -> None:
    """:func:`store` for each server of `workers`, by server."""
    for server in range(len(workers)):
        if workers[server] > 0:
            store(stored, job, server, workers[server])


@lean
def lose(stored: Stored, server: int) -> None:
    """The data on `server` are lost."""
    for at in range(BLOCK * stored.size[0]):
        if stored.server[at] == server:
            stored.workers[at] = 0


@inlined
def look_up(stored: Stored, job: int, there: Ints) -> None:
    """Fill `there`: for how many workers of `job` each server has data."""
    for server in range(len(there)):
        there[server] = 0
    at = stored.first[job]
    while at != NONE:
        for i in range(BLOCK * at, BLOCK * (at + 1)):
            if stored.server[i] != NONE:
                there[stored.server[i]] = stored.workers[i]
        at = stored.following[at]
