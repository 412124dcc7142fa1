"""Placing workers and parameter servers on machines with several resources."""

from __future__ import annotations

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import servers_for
from skedge.core.model.ties import SLACK
from skedge.platform.jit import compiled, inlined


@inlined
def fits(need: Floats, left: Floats) -> bool:
    """Whether one piece of `need` has room in `left`, both of shape ``(resources,)``."""
    room = True
    for r in range(len(left)):
        room = room and need[r] <= left[r] + SLACK * need[r]
    return room


@inlined
def next_with_room(need: Floats, left: Floats, turn: int) -> int:
    """The first machine from `turn` on, around, that has room for one piece; -1 if none has."""
    found = -1
    for step in range(len(left)):
        machine = (turn + step) % len(left)
        if found < 0 and fits(need, left[machine]):
            found = machine
    return found


@inlined
def _add(left: Floats, need: Floats, sign: float) -> None:
    for r in range(len(left)):
        left[r] += sign * need[r]


@compiled
def give(
    worker: Floats, ps: Floats, more: int, left: Floats, workers: Ints, servers: Ints, turn: int
) -> tuple[int, bool]:  # fmt: skip
    """Give a job one more worker, and `more` PSs, round robin; either all of them or none.

    The worker goes to the next machine that has room for it and leaves room for the PSs somewhere, these to the next
    ones after it.

    Parameters
    ----------
    worker, ps
        Demands, shape ``(resources,)``.
    left
        What is left, shape ``(machines, resources)``; used up in place.
    workers, servers
        What the job has on each machine, counted up in place, shape ``(machines,)``.
    turn
        The machine whose turn it is.

    Returns
    -------
    The machine whose turn is next, and whether there was room.
    """
    hosts = np.empty(more, np.int64)
    for step in range(len(left)):
        home = (turn + step) % len(left)
        if not fits(worker, left[home]):
            continue
        # taken at once, since the PSs may need room on the same machine
        _add(left[home], worker, -1.0)
        then, placed = (home + 1) % len(left), 0
        while placed < more:
            host = next_with_room(ps, left, then)
            if host < 0:
                break
            _add(left[host], ps, -1.0)
            hosts[placed], then, placed = host, (host + 1) % len(left), placed + 1
        if placed == more:
            workers[home] += 1
            for n in range(more):
                servers[hosts[n]] += 1
            return then, True
        # not all PSs have room: give everything back, and try the worker on the next machine
        _add(left[home], worker, 1.0)
        for n in range(placed):
            _add(left[hosts[n]], ps, 1.0)
    return turn, False


@compiled
def round_robin(worker: Floats, ps: Floats, count: int, ratio: float, left: Floats, turn: int) -> tuple[Ints, int]:
    """Place up to `count` workers and max(1, ceil(count / ratio)) PSs, machine after machine, while there is room.

    Parameters
    ----------
    worker, ps, left, turn
        As in :func:`give`.

    Returns
    -------
    Workers and PSs by machine, shape ``(2, machines)``, and the machine whose turn is next.
    """
    placed, have = np.zeros((2, len(left)), np.int64), 0
    for n in range(1, count + 1):
        more = servers_for(n, ratio) - have
        turn, given = give(worker, ps, more, left, placed[0], placed[1], turn)
        if not given:
            break
        have += more
    return placed, turn


def pieces(free: Floats, need: Floats) -> Ints:
    """How many pieces of `need`, above 0 for some resource, each machine has room for; shape ``(machines,)``."""
    asked = need > 0
    return np.maximum(np.floor((free[:, asked] / need[asked]).min(axis=1) + SLACK), 0).astype(np.int64)
