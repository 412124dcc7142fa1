"""Placing workers and parameter servers on machines with several resources."""

from __future__ import annotations

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import servers_for
from skedge.core.model.ties import SLACK
from skedge.platform.jit import compiled, inlined


@inlined
def fits(demand: Floats, free: Floats) -> bool:
    """Whether `demand` fits into `free`, both of shape ``(resources,)``, up to the rounding error of the demand."""
    has_room = True
    for r in range(len(free)):
        has_room = has_room and demand[r] <= free[r] + SLACK * demand[r]
    return has_room


@inlined
def next_host(demand: Floats, free: Floats, turn: int) -> int:
    """The first machine from `turn` on, around, that has room for `demand`; -1 if none has."""
    host = -1
    for step in range(len(free)):
        machine = (turn + step) % len(free)
        if host < 0 and fits(demand, free[machine]):
            host = machine
    return host


@inlined
def _add(free: Floats, demand: Floats, sign: float) -> None:
    for r in range(len(free)):
        free[r] += sign * demand[r]


@compiled
def place_worker(
    worker: Floats, ps: Floats, n_ps: int, free: Floats, worker_counts: Ints, ps_counts: Ints, turn: int
) -> tuple[int, bool]:  # fmt: skip
    """Place one more worker of a job, and `n_ps` PSs, round robin; either all of them or none.

    The worker goes to the next machine that has room for it and leaves room for the PSs somewhere, these to the next
    ones after it.

    Parameters
    ----------
    worker, ps
        Demands, shape ``(resources,)``.
    n_ps
        PSs that the worker needs on top of those placed before.
    free
        Free resources, shape ``(machines, resources)``; used up in place.
    worker_counts, ps_counts
        Workers and PSs of the job on each machine, counted up in place, shape ``(machines,)``.
    turn
        The machine whose turn it is.

    Returns
    -------
    The machine whose turn is next, and whether there was room.
    """
    hosts = np.empty(n_ps, np.int64)
    for step in range(len(free)):
        home = (turn + step) % len(free)
        if not fits(worker, free[home]):
            continue
        # taken at once, since the PSs may need room on the same machine
        _add(free[home], worker, -1.0)
        next_turn, n_placed = (home + 1) % len(free), 0
        while n_placed < n_ps:
            host = next_host(ps, free, next_turn)
            if host < 0:
                break
            _add(free[host], ps, -1.0)
            hosts[n_placed], next_turn, n_placed = host, (host + 1) % len(free), n_placed + 1
        if n_placed == n_ps:
            worker_counts[home] += 1
            for n in range(n_ps):
                ps_counts[hosts[n]] += 1
            return next_turn, True
        # not all PSs have room: give everything back, and try the worker on the next machine
        _add(free[home], worker, 1.0)
        for n in range(n_placed):
            _add(free[hosts[n]], ps, 1.0)
    return turn, False


@compiled
def round_robin(worker: Floats, ps: Floats, count: int, ratio: float, free: Floats, turn: int) -> tuple[Ints, int]:
    """Place up to `count` workers and max(1, ceil(count / ratio)) PSs, machine after machine, while there is room.

    Parameters
    ----------
    worker, ps, free, turn
        As in :func:`place_worker`.
    count
        Workers wanted.
    ratio
        gamma, workers per PS.

    Returns
    -------
    Workers and PSs by machine, shape ``(2, machines)``, and the machine whose turn is next.
    """
    counts, n_ps = np.zeros((2, len(free)), np.int64), 0
    for n in range(1, count + 1):
        n_new_ps = servers_for(n, ratio) - n_ps
        turn, has_room = place_worker(worker, ps, n_new_ps, free, counts[0], counts[1], turn)
        if not has_room:
            break
        n_ps += n_new_ps
    return counts, turn
