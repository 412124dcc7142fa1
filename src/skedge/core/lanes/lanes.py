"""Lanes: queues of data chunks on worker slots, and the rule that the highest rank runs first.

One mechanics serves three users: the kernel's *belief* (announced durations, completions only by facts), the simulated
*truth* (:mod:`skedge.sim.lanes`), and *projections* into the future (:mod:`skedge.core.lanes.projection`).

A lane's row is a *group*: the chunks of one job on that lane. They are equal, so they differ in nothing but their
number. Rows of a lane lie worst rank first, so that the one in service is last and progress touches only the last row;
groups still on their way lie in ``transit``, latest arrival first. Rank is a pair (``RANK``, ``SEQ``), smaller first:
for A_online RANK is D p, the inverse of the average processing rate gamma = 1/(D p) of JSAC'22 Sec. IV-C, and SEQ is
the order of dispatch, so equal rates are first in, first out (ERRATA J28). It is frozen at dispatch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skedge.core.jit import compiled, inlined, lean
from skedge.core.model import Ints
from skedge.core.network import Delays, upload_delay
from skedge.core.time import NEVER

JOB, RANK, SEQ, COUNT, EACH, LEFT, CHUNKS, HEAD, ARRIVE = range(9)
"""Columns of a row: job; rank and sequence; chunks; time of a whole chunk and remaining time of the first one [µs];
D_j of the job (its weight is 1/D_j); number of the first chunk; arrival at the server [µs]."""

FIELDS = 9
_FIRST_ROOM = 16


class Lanes(NamedTuple):
    """State of all lanes.

    Attributes
    ----------
    rows, transit
        Groups at the server and on their way, shape ``(lanes, room, FIELDS)``.
    waiting, coming
        Number of valid groups in them, shape ``(lanes,)``.
    clock
        Time up to which each lane is worked out [µs], shape ``(lanes,)``.
    serving
        SEQ of the group that was in service last, -1 for none, shape ``(lanes,)``.
    preemptive
        1: a better group displaces the chunk in service; 0: that chunk is finished first.
    overhead
        Time added to a displaced chunk [µs].
    """

    rows: NDArray[np.int64]
    transit: NDArray[np.int64]
    waiting: Ints
    coming: Ints
    clock: Ints
    serving: Ints
    preemptive: int
    overhead: int


_ARRAYS = ("rows", "transit", "waiting", "coming", "clock", "serving")


def empty_lanes(lanes: int, *, preemptive: bool = True, overhead: int = 0, room: int = _FIRST_ROOM) -> Lanes:
    """`lanes` idle lanes at time 0."""
    return Lanes(
        rows=np.zeros((lanes, room, FIELDS), np.int64),
        transit=np.zeros((lanes, room, FIELDS), np.int64),
        waiting=np.zeros(lanes, np.int64),
        coming=np.zeros(lanes, np.int64),
        clock=np.zeros(lanes, np.int64),
        serving=np.full(lanes, -1, np.int64),
        preemptive=int(preemptive),
        overhead=overhead,
    )


def with_room(lanes: Lanes) -> Lanes:
    """`lanes`, with room for one more group on every lane."""
    need = int((lanes.waiting + lanes.coming).max(initial=0)) + 1
    room = lanes.rows.shape[1]
    if need <= room:
        return lanes
    grown = np.zeros((len(lanes.waiting), 2 * room, FIELDS), np.int64)
    grown[:, :room] = lanes.rows
    coming = np.zeros_like(grown)
    coming[:, :room] = lanes.transit
    return lanes._replace(rows=grown, transit=coming)


@inlined
def _open_row(table: NDArray[np.int64], lane: int, i: int, n: int) -> None:
    """Shift the rows from `i` on of a lane with `n` rows by one."""
    for k in range(n, i, -1):
        for f in range(FIELDS):
            table[lane, k, f] = table[lane, k - 1, f]


@lean
def send(lanes: Lanes, lane: int, group: Ints) -> None:
    """Put `group` on its way to `lane`; groups that arrive together keep their order of dispatch."""
    n = lanes.coming[lane]
    i = n
    while i > 0 and lanes.transit[lane, i - 1, ARRIVE] <= group[ARRIVE]:
        i -= 1
    _open_row(lanes.transit, lane, i, n)
    for f in range(FIELDS):
        lanes.transit[lane, i, f] = group[f]
    lanes.coming[lane] = n + 1


@inlined
def absorb(lanes: Lanes, lane: int, now: int) -> None:
    """Move the groups that have arrived by `now` into the queue, each to its rank."""
    while lanes.coming[lane] > 0 and lanes.transit[lane, lanes.coming[lane] - 1, ARRIVE] <= now:
        lanes.coming[lane] -= 1
        new, n = lanes.coming[lane], lanes.waiting[lane]
        rank, seq = lanes.transit[lane, new, RANK], lanes.transit[lane, new, SEQ]
        i = n
        while i > 0 and (
            lanes.rows[lane, i - 1, RANK] < rank
            or (lanes.rows[lane, i - 1, RANK] == rank and lanes.rows[lane, i - 1, SEQ] < seq)
        ):
            i -= 1
        _open_row(lanes.rows, lane, i, n)
        for f in range(FIELDS):
            lanes.rows[lane, i, f] = lanes.transit[lane, new, f]
        lanes.waiting[lane] = n + 1


@inlined
def next_arrival(lanes: Lanes, lane: int) -> int:
    """When the next group reaches `lane` [µs], NEVER if none is on its way."""
    n = lanes.coming[lane]
    return lanes.transit[lane, n - 1, ARRIVE] if n > 0 else NEVER


@inlined
def pick(lanes: Lanes, lane: int) -> int:
    """Row of the group to serve: the best rank, but a chunk in service first where lanes do not preempt.

    Where the choice displaces a chunk, the checkpoint overhead is added to that chunk.
    """
    n, serving = lanes.waiting[lane], lanes.serving[lane]
    if lanes.preemptive == 0:
        for i in range(n):
            if lanes.rows[lane, i, LEFT] < lanes.rows[lane, i, EACH]:
                return i
    elif lanes.overhead > 0 and serving >= 0 and serving != lanes.rows[lane, n - 1, SEQ]:
        for i in range(n - 1):
            if lanes.rows[lane, i, SEQ] == serving:
                lanes.rows[lane, i, LEFT] += lanes.overhead
        lanes.serving[lane] = -1
    return n - 1


@inlined
def finish_head(lanes: Lanes, lane: int, i: int) -> None:
    """Take the first chunk of row `i` off the queue."""
    lanes.serving[lane] = -1
    lanes.rows[lane, i, COUNT] -= 1
    lanes.rows[lane, i, LEFT] = lanes.rows[lane, i, EACH]
    if lanes.rows[lane, i, COUNT] == 0:
        n = lanes.waiting[lane]
        for k in range(i, n - 1):
            for f in range(FIELDS):
                lanes.rows[lane, k, f] = lanes.rows[lane, k + 1, f]
        lanes.waiting[lane] = n - 1


@inlined
def believe_until(lanes: Lanes, lane: int, now: int) -> None:
    """Work out `lane` up to `now` as announced; a chunk that is overdue keeps 1 µs until a fact says that it ended.

    Groups that arrive exactly at `now` are left on their way, so that a completion at `now` comes first.
    """
    at = lanes.clock[lane]
    while at < now:
        absorb(lanes, lane, at)
        stop = min(now, next_arrival(lanes, lane))
        if lanes.waiting[lane] > 0:
            i = pick(lanes, lane)
            lanes.rows[lane, i, LEFT] = max(1, lanes.rows[lane, i, LEFT] - (stop - at))
            lanes.serving[lane] = lanes.rows[lane, i, SEQ]
        at = stop
    lanes.clock[lane] = now


@lean
def bring_to(lanes: Lanes, which: Ints, now: int) -> None:
    """Work out the lanes `which` up to `now`, arrivals at `now` included."""
    for lane in which:
        believe_until(lanes, lane, now)
        absorb(lanes, lane, now)


def read_only(lanes: Lanes) -> Lanes:
    """`lanes` with arrays that nothing can be written to; a compiled function that writes to them does not compile."""
    shown = lanes._replace(**{name: getattr(lanes, name).view() for name in _ARRAYS})
    for name in _ARRAYS:
        getattr(shown, name).flags.writeable = False
    return shown


@inlined
def _row_of(lanes: Lanes, lane: int, job: int) -> int:
    """Row of the group in service if it is `job`'s, else of the job's group wherever it stands; -1 for none.

    In a live world a better group may be believed to be there a little before it is.
    """
    n = lanes.waiting[lane]
    if n == 0:
        return -1
    i = pick(lanes, lane)
    if lanes.rows[lane, i, JOB] == job:
        return i
    for other in range(n):
        if lanes.rows[lane, other, JOB] == job:
            return other
    return -1


@lean
def believe_finished(lanes: Lanes, times: Ints, where: Ints, jobs: Ints) -> int:
    """Correct the belief by completions (time, lane, job); returns the first that cannot be, or -1."""
    for k in range(len(times)):
        lane = where[k]
        if lanes.clock[lane] > times[k]:
            return k
        believe_until(lanes, lane, times[k])
        i = _row_of(lanes, lane, jobs[k])
        if i < 0:
            return k
        finish_head(lanes, lane, i)
    return -1


@lean
def believe_gone(lanes: Lanes, job: int, now: int) -> None:
    """Take the groups of a job that has failed at `now` off all lanes."""
    for lane in range(len(lanes.waiting)):
        believe_until(lanes, lane, now)
        lanes.waiting[lane] = _without(lanes.rows, lane, lanes.waiting[lane], job)
        lanes.coming[lane] = _without(lanes.transit, lane, lanes.coming[lane], job)
        lanes.serving[lane] = -1


@lean
def believe_lost(lanes: Lanes, lane: int, job: int, now: int) -> bool:
    """Take one chunk of a job off a lane whose server is out of service; whether there was one."""
    believe_until(lanes, lane, now)
    lanes.serving[lane] = -1
    for i in range(lanes.waiting[lane]):
        if lanes.rows[lane, i, JOB] == job:
            finish_head(lanes, lane, i)
            return True
    for i in range(lanes.coming[lane]):
        if lanes.transit[lane, i, JOB] == job:
            lanes.transit[lane, i, COUNT] -= 1
            if lanes.transit[lane, i, COUNT] == 0:
                for k in range(i, lanes.coming[lane] - 1):
                    for f in range(FIELDS):
                        lanes.transit[lane, k, f] = lanes.transit[lane, k + 1, f]
                lanes.coming[lane] -= 1
            return True
    return False


@lean
def believe_slower(lanes: Lanes, job: int, factor: float, now: int) -> None:
    """Believe that the chunks of `job` take `factor` times as long, from `now` on."""
    for lane in range(len(lanes.waiting)):
        believe_until(lanes, lane, now)
        for i in range(lanes.waiting[lane]):
            _stretch(lanes.rows, lane, i, job, factor)
        for i in range(lanes.coming[lane]):
            _stretch(lanes.transit, lane, i, job, factor)


@inlined
def _stretch(table: NDArray[np.int64], lane: int, i: int, job: int, factor: float) -> None:
    if table[lane, i, JOB] == job:
        each, left = int(table[lane, i, EACH] * factor), int(table[lane, i, LEFT] * factor)
        table[lane, i, EACH] = max(1, each)
        table[lane, i, LEFT] = max(1, min(each, left))


@inlined
def _without(table: NDArray[np.int64], lane: int, n: int, job: int) -> int:
    """Take a job's rows out of a lane with `n` rows; returns how many are left."""
    kept = 0
    for i in range(n):
        if table[lane, i, JOB] != job:
            for f in range(FIELDS):
                table[lane, kept, f] = table[lane, i, f]
            kept += 1
    return kept


NO_LINKS = np.empty(0, np.int64)
"""For :func:`dispatch_groups` where chunks need not be told apart."""


@compiled
def dispatch_groups(
    lanes: Lanes,
    job: int,
    seq: int,
    rank: int,
    each: int,
    total: int,
    lane: Ints,
    lane_server: Ints,
    delays: Delays,
    now: int,
    links: Ints,
) -> int:
    """Send chunks of `job`, which has `total`, to their lanes, one group per lane; returns the number of lanes.

    ``lane[d]`` is -1 for the cloud. `links`, where given, has room for D numbers: ``links[d]`` becomes the next chunk
    of d's group, and HEAD of a group its first chunk.
    """
    order = np.argsort(lane, kind="mergesort")
    group = np.zeros(FIELDS, np.int64)
    sent, i, chunks = 0, 0, len(lane)
    while i < chunks:
        where, first = lane[order[i]], i
        while i < chunks and lane[order[i]] == where:
            if len(links) > 0:
                links[order[i]] = order[i + 1] if i + 1 < chunks else -1
            i += 1
        if where < 0:
            continue
        arrive = now + upload_delay(delays, job, lane_server[where])
        group[:] = (job, rank, seq, i - first, each, each, total, order[first], arrive)
        send(lanes, where, group)
        sent += 1
    return sent
