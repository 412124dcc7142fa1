"""Gangs followed from order to order in one compiled pass, which shows at once that a sound record is sound.

The rules themselves are in :mod:`.orders` and :mod:`.gangs`, which say what is wrong; where this pass finds nothing
unclear they have nothing to find, and are skipped. It is stricter than they are, and times must be exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skedge.analysis.columns import Columns, gang_holdings, gang_intervals, once
from skedge.analysis.supplies import supplies
from skedge.analysis.sweeps import in_groups
from skedge.core.model.cluster import Bools, Ints
from skedge.core.model.network import Delays, upload_delay
from skedge.core.record.schedule import VERBS
from skedge.platform.jit import compiled, inlined

ALLOCATE, SUSPEND = (VERBS.index(verb) for verb in ("allocate", "suspend"))
_OTHERS = ("upload", "assign_ps", "fail")
"""Verbs whose records are left to the rules."""


class Followed(NamedTuple):
    """What is clear of a record: its orders are carried out, and its gangs begin computing when they are due."""

    orders: bool
    begins: bool


class _Orders(NamedTuple):
    """Orders on workers, by job and then as given, one row per server: `rows` from ``first[job]`` on are a job's.

    The other columns are those of the decisions; `before` is of how many workers the server had the data.
    """

    rows: Ints
    first: Ints
    time: Ints
    verb: Ints
    server: NDArray[np.int32]
    n: NDArray[np.int32]
    before: NDArray[np.int32]


class _Held(NamedTuple):
    """Allocations by job and start, the first row of each among `server` and `n`, and when they compute and end."""

    job: Ints
    start: Ints
    compute_from: Ints
    end: Ints
    preempted: Bools
    first: Ints
    server: Ints
    n: Ints


class _Stock(NamedTuple):
    """By server: when the data brought last are there [µs], and whose they are."""

    ready: Ints
    job: Ints


@once
def followed(c: Columns) -> Followed:
    """What is clear of the gangs of a record whose times are exact."""
    d = c.decisions
    if d.has("verb", *_OTHERS).any() or (d["time"][1:] < d["time"][:-1]).any():
        return Followed(orders=False, begins=False)
    on_workers = d.has("verb", "allocate", "allocate_each", "suspend")
    if not (on_workers.any() or len(c.gangs)):
        return Followed(orders=True, begins=True)
    rows, first = in_groups(np.where(on_workers, d["job"], np.int32(-1)), d["time"], len(c.scenario.jobs))
    before = np.zeros(len(d), np.int32)
    before[np.flatnonzero(d.has("verb", "allocate", "allocate_each"))] = supplies(c)["before"].to_numpy()
    orders = _Orders(rows, first, d["time"], d["verb"].astype(np.int64), d["server"], d["workers"], before)
    servers = len(c.scenario.cluster.servers)
    stock = _Stock(np.zeros(servers, np.int64), np.full(servers, -1, np.int64))
    physics = c.scenario.physics
    return Followed(*_follow(orders, _held(c), stock, c.scenario.delays, physics.checkpoint_overhead, c.late))


def _held(c: Columns) -> _Held:
    of, on = gang_intervals(c), gang_holdings(c)
    job, start, compute_from, end = (np.array(of[name], np.int64) for name in ("job", "start", "compute_from", "end"))
    first = np.append(np.flatnonzero(np.diff(on["at"].to_numpy(), prepend=-1)), len(on))
    server, n = (np.array(on[name], np.int64) for name in ("server", "n"))
    return _Held(job, start, compute_from, end, np.array(of["preempted"], np.bool_), first, server, n)


@compiled
def _follow(o: _Orders, held: _Held, stock: _Stock, delays: Delays, overhead: int, late: Ints) -> tuple[bool, bool]:
    """Follow each job from instant to instant; returns at the first order that is unclear."""
    at, in_time = 0, True
    for job in range(len(o.first) - 1):
        i, last, opened, holds, given = o.first[job], o.first[job + 1], at, -1, 0
        while i < last:
            now, cut = o.time[o.rows[i]], holds >= 0 and held.preempted[holds]
            # an allocation that loses its workers ends with the next order on its job
            if cut and held.end[holds] != now:
                return False, False
            i, begin, gangs = _instant(o, stock, delays, job, i, last, cut)
            if begin < 0:
                return False, False
            given, holds, verb = given + gangs, -1, o.verb[o.rows[begin]]
            if verb == SUSPEND:
                continue
            if not _as_ordered(o, held, at, job, now, begin, i):
                return False, False
            if verb == ALLOCATE:
                in_time = in_time and _in_time(held, stock, at, at > opened, given > 1, overhead, late[job])
            holds = at
            at += 1
        if (holds >= 0 and held.preempted[holds]) or (at < len(held.job) and held.job[at] == job):
            return False, False
    return at == len(held.job), in_time


@inlined
def _instant(
    o: _Orders, stock: _Stock, delays: Delays, job: int, i: int, last: int, cut: bool
) -> tuple[int, int, int]:  # fmt: skip
    """Follow the orders on a job at one instant, from row `i` on; `cut`: it loses its workers then.

    Returns
    -------
    The first row behind them, the first row of the last order, and how many allocate a gang. The second is -1 if an
    order is given twice, or suspends a job without workers.
    """
    now, verb, gangs, allocated, begin = o.time[o.rows[i]], -1, 0, False, i
    while i < last and o.time[o.rows[i]] == now:
        before, verb, previous, begin = verb, o.verb[o.rows[i]], begin, i
        i += 1
        # the rows of an order have ascending servers
        while i < last and _continues(o, o.rows[i - 1], o.rows[i]):
            i += 1
        if verb == before and (verb == SUSPEND or _alike(o, previous, begin, i)):
            return i, -1, gangs
        if verb == SUSPEND and not (cut or allocated):
            return i, -1, gangs
        if verb != SUSPEND:
            allocated = True
            gangs += 1 if verb == ALLOCATE else 0
            _bring(o, stock, delays, job, begin, i)
    return i, begin, gangs


@inlined
def _continues(o: _Orders, row: int, then: int) -> bool:
    """Whether row `then`, the job's next one after `row`, belongs to the same order."""
    return o.time[row] == o.time[then] and o.verb[row] == o.verb[then] and o.server[row] < o.server[then]


@inlined
def _alike(o: _Orders, previous: int, begin: int, end: int) -> bool:
    """Whether the order of the rows from `begin` to `end` is that of the rows from `previous` to `begin`."""
    same = end - begin == begin - previous
    for k in range(end - begin):
        row, last = o.rows[begin + k], o.rows[previous + k]
        same = same and o.server[row] == o.server[last] and o.n[row] == o.n[last]
    return same


@inlined
def _bring(o: _Orders, stock: _Stock, delays: Delays, job: int, begin: int, end: int) -> None:
    """Note the data that an order brings."""
    for k in range(begin, end):
        row = o.rows[k]
        if o.n[row] > o.before[row]:
            server = o.server[row]
            stock.job[server], stock.ready[server] = job, o.time[row] + upload_delay(delays, job, server)


@inlined
def _as_ordered(o: _Orders, held: _Held, at: int, job: int, now: int, begin: int, end: int) -> bool:
    """Whether allocation number `at` is the one that the rows from `begin` to `end` order."""
    if at >= len(held.job) or held.job[at] != job or held.start[at] != now:
        return False
    first = held.first[at]
    if held.first[at + 1] - first != end - begin:
        return False
    same = True
    for k in range(end - begin):
        row = o.rows[begin + k]
        same = same and held.server[first + k] == o.server[row] and held.n[first + k] == o.n[row]
    return same


@inlined
def _in_time(held: _Held, stock: _Stock, at: int, ran: bool, again: bool, overhead: int, late: int) -> bool:
    """Whether a gang begins computing when its data are there and, if it `ran` before, its checkpoint is restored.

    `again`: it was allocated before, perhaps in the same instant, so that it may pay for restoring all the same.
    """
    ready = held.start[at]
    for k in range(held.first[at], held.first[at + 1]):
        if stock.job[held.server[k]] == held.job[at]:
            ready = max(ready, stock.ready[held.server[k]])
    least = min(ready + (overhead if ran else 0), held.end[at])
    most = ready + (overhead if ran or again else 0) + late
    return least <= held.compute_from[at] and held.compute_from[at] <= most
