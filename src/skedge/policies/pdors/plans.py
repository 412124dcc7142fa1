"""Plans of PD-ORS and OASiS as orders: what a job holds in a slot, runs of equal slots, prices that changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from skedge.core.events import Piece
from skedge.core.model import Cluster, Floats, Ints, Placement
from skedge.core.speed import servers_for

from .admission import SlotPlan

_FITS = 1e-9


class Held(NamedTuple):
    """Workers and PSs of a job: (server, count) pairs, by server."""

    workers: Placement
    ps: Placement

    def by_server(self) -> dict[int, tuple[int, int]]:
        """(workers, PSs) on every server that has some, by server."""
        workers, ps = dict(self.workers), dict(self.ps)
        return {server: (workers.get(server, 0), ps.get(server, 0)) for server in sorted({*workers, *ps})}


def held_of(part: SlotPlan) -> Held:
    """What a plan says of a slot."""
    both = (
        tuple((h, n) for h, n in zip(part.machines, counts, strict=True) if n) for counts in (part.workers, part.ps)
    )
    return Held(*both)


def reservations(plan: Mapping[int, Held]) -> list[tuple[int, int, int, int, int]]:
    """(server, workers, PSs, first slot, end): a row for each run of slots in which a server holds as many."""
    rows, open_ = [], dict[int, tuple[int, int, int, int]]()
    for slot in sorted(plan):
        here = plan[slot].by_server()
        for server in list(open_):
            workers, ps, _, end = open_[server]
            if end < slot or here.get(server) != (workers, ps):
                rows.append((server, *open_.pop(server)))
        for server, counts in here.items():
            open_[server] = (*counts, open_[server][2] if server in open_ else slot, slot + 1)
    rows += [(server, *row) for server, row in open_.items()]
    return sorted(rows, key=lambda row: (row[3], row[0]))


def pieces(cluster: Cluster, slot: int, slot_us: int, rows: Ints, before: Floats, now: Floats) -> Iterator[Piece]:
    """The prices of a slot that are not what they were, by server and resource; both of shape ``(rows, resources)``."""
    for i, r in zip(*np.nonzero(now != before), strict=True):
        yield Piece(int(rows[i]), cluster.resources[r], slot * slot_us, (slot + 1) * slot_us, float(now[i, r]))


def fits(free: Floats, needs: tuple[Floats, Floats], held: Held) -> bool:
    """Whether so much is free, shape ``(servers, resources)``."""
    for server, counts in held.by_server().items():
        load = counts[0] * needs[0] + counts[1] * needs[1]
        if (load > free[server] * (1 + _FITS) + _FITS * _FITS).any():
            return False
    return True


def anywhere(free: Floats, needs: tuple[Floats, Floats], last: Held, ratio: float) -> Held | None:
    """As many workers as `last` has, or fewer, with their PSs on the first servers with room; None: not even one."""
    for workers in range(sum(n for _, n in last.workers), 0, -1):
        left, placed = free.copy(), list[Placement]()
        for need, count in zip(needs, (workers, servers_for(workers, ratio)), strict=True):
            placed.append(_first_fit(left, need, count))
        if all(placed):
            return Held(*placed)
    return None


def _first_fit(left: Floats, need: Floats, count: int) -> Placement:
    """Places for `count` pieces, taken from `left`; none if there is no room for all."""
    asked = need > 0
    room = np.floor((left[:, asked] / need[asked]).min(axis=1) + _FITS).astype(np.int64)
    taken = np.minimum(room, np.maximum(count - (np.cumsum(room) - room), 0))
    if taken.sum() < count:
        return ()
    left -= np.outer(taken, need)
    return tuple((int(server), int(taken[server])) for server in np.flatnonzero(taken))
